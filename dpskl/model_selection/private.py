"""Private hyper-parameter search: the best of a random number of trials, at the price of a few."""

from __future__ import annotations

import math
from math import inf
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted, check_X_y, validate_data

from dpskl.accounting import Cost, draw_trials, trial_gamma
from dpskl.base import PrivateLinearClassifier
from dpskl.budget import PrivacyAccountant
from dpskl.exchange import fit_facts
from dpskl.guarantee import READ_CLASSES, FitFacts, PrivacyGuarantee
from dpskl.mechanisms.base import ReleasePart
from dpskl.mechanisms.noise import NoiseSource, make_noise
from dpskl.mechanisms.noisy_count import NoisyHistogram
from dpskl.model_selection.plan import PlannedFit, Size
from dpskl.model_selection.scores import check_scoring, declared_shares, make_scoring
from dpskl.model_selection.trial_budget import SearchBudget
from dpskl.model_selection.trials import (
    Candidate,
    best_trial,
    classifier_of,
    draw_rows,
    list_candidates,
    prepare,
    with_last,
)
from dpskl.progress import CallbackSupportMixin, Progress, with_callbacks
from dpskl.validation import (
    checked_labels,
    declared_classes,
    encode_labels,
    validate_rows,
    validate_training_data,
    warn_of_weak_claims,
)

__all__ = ["PrivateSearchCV"]


def _is_within(value: Any, low: float, high: float) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) <= high


def _has(method):
    def check(self):
        getattr(getattr(self, "best_estimator_", self.estimator), method)
        return True

    return available_if(check)


class PrivateSearchCV(CallbackSupportMixin, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Search over hyper-parameters whose whole result costs little more than one fit.

    The number of trials K is random. Each trial draws a candidate at random, fits it to the training part of the
    data and adds up, with noise, scores of the validation part. Only the best trial is released: its parameters, its
    model and its noisy score.

    Parameters
    ----------
    estimator : classifier of this package, or Pipeline that ends with one
        The other steps of a pipeline must read nothing of the records: declared bounds and categories, no means. The
        classifier's epsilon, delta, accountant and random_state are set by the search.
    param_grid : dict or list of dict
        Candidates as in ``GridSearchCV``, such as ``{"scaler__high": [10, 20], "clf__C": [0.1, 1]}`` for a pipeline.
        They cannot vary what the search sets, nor ``classes`` and ``neighbours``.
    epsilon : float, default=1.0
        Privacy budget of the whole search, of which a trial must get at least 1e-6. ``float("inf")`` adds no noise and
        claims nothing.
    delta : float, default=1e-6
        In [0, 1). 0 asks for pure differential privacy: then every candidate needs a solver that has it.
    scoring : {"accuracy", "balanced_accuracy", "neg_log_loss"}, default="accuracy"
        What makes a trial the best: a mean over the validation records of one bounded score each. Where a class is
        rare, a model that never predicts it has nearly the best accuracy. ``"balanced_accuracy"`` gives all classes
        the same weight, and its noise grows as 1 over the smallest share. ``"neg_log_loss"``, the mean logarithm of
        the probability of the true label, has little noise and may still choose a model that never predicts a rare
        class.
    score_clip : float or None, default=None
        Largest loss of a record that ``"neg_log_loss"`` counts; a lower one has less noise. ``None`` is three times the
        loss of a guess, ``3 log(n_classes)``: probabilities below ``n_classes**-3`` count as that.
    class_shares : dict of label to float, or None, default=None
        Shares of the classes for ``"balanced_accuracy"``, known without the data. A correct prediction weighs 1 over
        its class's share. ``None`` releases noisy counts of all records, for a tenth of epsilon.
    eta : {0, 1}, default=0
        Law of K: logarithmic (cheaper) or geometric (more trials in the usual draw).
    mean_trials : float, default=10
        Mean of K, at least 1. K is often far smaller: the logarithmic law with mean 10 makes one trial in about a
        quarter of the searches.
    validation_share : float, default=0.2
        Share of the rows, in (0, 1), that serve as validation part. Their number is public, the rows are drawn at
        random.
    accountant : PrivacyAccountant or None, default=None
        Ledger that is charged once, before the first trial. ``None`` takes that of the classifier.
    random_state : None, int, RandomState or Generator, default=None
        ``None`` draws everything from the operating system. Anything else is for tests and protects nobody.

    Attributes
    ----------
    best_estimator_ : estimator
        The model of the best trial, fitted to the training part and to nothing else. The ``epsilon`` of its
        classifier is that of a trial; the ``privacy_guarantee_`` of its classifier is that of the search.
    best_params_ : dict
    best_score_ : float
        Noisy mean score of the validation part: too high on average, as the largest of several, and not always within
        the range of the score.
    class_shares_ : ndarray of shape (n_classes,) or None
        For ``scoring="balanced_accuracy"``: what was declared, or released as noisy counts.
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Where ``X`` has column names.
    privacy_guarantee_ : PrivacyGuarantee or None

    Notes
    -----
    *The cost.* :class:`~dpskl.accounting.SelectionCost` (Papernot & Steinke 2022, theorem 2) gives it. Model and score
    of a trial come from disjoint parts of the rows, so that a trial costs the larger of both, and the largest over
    the candidates: draws do not depend on the data. The epsilon of a trial is the largest for which the whole stays
    within the budget. The theorem needs a Renyi curve, which objective perturbation does not have with
    ``neighbours="replace_one"``. Noisy counts of the classes are one release before the trials, whose weights are then
    public: the costs compose.

    *The split.* Neighbouring data sets have the same rows under both relations: the place of a record that is absent
    stays empty, and n is public. A set of rows of fixed size is drawn uniformly, once, without the data. For each such
    set the bounds above hold, and it has the same chance for both data sets; so they hold for the search together with
    the set, and for the search alone: with D the Renyi divergence of order a, ``exp((a - 1) D)`` is jointly convex, so
    that D of two mixtures with the same weights is at most the largest. Whether the rows stay secret does not matter.

    *The score.* See :class:`~dpskl.mechanisms.noisy_score.NoisyScore`. A record scores within a range of length B, so
    that the sum, with the centre taken off each score, moves by B / 2 or, for ``"replace_one"``, by B. B is 1, the
    largest weight or ``score_clip``.

    *What is public.* Besides what the guarantee lists: that the steps before the classifier take these rows and how
    many columns they make, which is the same for all data of this shape since they read nothing. They are fitted before
    anything is charged, once for each of their settings, and their output is kept meanwhile; a ``ColumnTransformer``
    gives dense rows, since otherwise the number of entries that it stores for all records would choose the format.

    K, the other trials and their scores are neither stored nor printed, and nobody may measure how long the
    search takes: the running time tells K. Among equal scores the earliest trial wins. A trial that fails has the
    lowest score. There is no refit, which would cost another release.

    References
    ----------
    Papernot & Steinke (2022), ICLR. Liu & Talwar (2019), STOC.

    Examples
    --------
    >>> import numpy as np
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.model_selection import PrivateSearchCV
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(size=(2000, 2)) + 2 * y[:, None]
    >>> model = DPLogisticRegression(classes=[0, 1])
    >>> search = PrivateSearchCV(model, {"data_norm": [2.0, 4.0, 8.0]}, epsilon=2.0).fit(X, y)
    >>> search.privacy_guarantee_.epsilon, bool(search.score(X, y) > 0.8)
    (2.0, True)
    """

    def __init__(
        self,
        estimator,
        param_grid,
        *,
        epsilon=1.0,
        delta=1e-6,
        scoring="accuracy",
        score_clip=None,
        class_shares=None,
        eta=0,
        mean_trials=10,
        validation_share=0.2,
        accountant=None,
        random_state=None,
    ):
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.scoring = scoring
        self.score_clip = score_clip
        self.class_shares = class_shares
        self.eta = eta
        self.mean_trials = mean_trials
        self.validation_share = validation_share
        self.accountant = accountant
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # the few hundred rows of the checks do not carry a search
        tags.classifier_tags.poor_score = True
        return tags

    # -- planning -------------------------------------------------------------------------------------------

    def _check_parameters(self) -> list[Candidate]:
        """Return the candidates, once all that can be wrong without data is found not to be."""
        for name, rule, holds in (
            ("eta", "0 (logarithmic) or 1 (geometric)", self.eta in (0, 1) and not isinstance(self.eta, bool)),
            ("mean_trials", "a finite number of at least 1", _is_within(self.mean_trials, 1, math.nextafter(inf, 0))),
            ("validation_share", "strictly between 0 and 1", _is_within(self.validation_share, 1e-12, 1 - 1e-12)),
        ):
            if not holds:
                raise ValueError(f"{name}={getattr(self, name)!r} must be {rule}")
        check_scoring(self.scoring, self.score_clip, self.class_shares)
        candidates = list_candidates(self.estimator, self.param_grid)
        own, inner = self.accountant, self._classifier.accountant
        if own is not None and inner is not None and own is not inner:
            raise ValueError("accountant= of the search and of its estimator differ; set the one of the search only")
        for candidate in candidates:
            # the whole budget and the accountant stand in for what is set later: this finds bad values
            trial = candidate.trial(self.epsilon, self.delta, accountant=own or inner)
            trial._check_parameters()
            if trial.data_norm is None:
                raise ValueError("data_norm=None is read from the data, which no search can pay for; declare a bound")
            if self.scoring == "neg_log_loss" and not hasattr(trial, "predict_log_proba"):
                raise ValueError(
                    f"scoring='neg_log_loss' needs probabilities, which {type(trial).__name__} does not have; take "
                    "DPLogisticRegression or another scoring"
                )
        return candidates

    @property
    def _classifier(self) -> PrivateLinearClassifier:
        return classifier_of(self.estimator)

    def _budget(self, n_samples: int) -> SearchBudget:
        return SearchBudget(
            float(self.epsilon),
            float(self.delta),
            self._classifier.neighbours,
            int(self.eta),
            float(self.mean_trials),
            n_samples,
            self.validation_share,
            with_counts=self.scoring == "balanced_accuracy" and self.class_shares is None,
        )

    def _plan_fits(self, size: Size) -> list[PlannedFit]:
        candidates, n_classes = self._check_parameters(), size.n_classes
        if n_classes is None and self._classifier.classes is not None:
            n_classes = len(declared_classes(self._classifier.classes))
        budget = self._budget(size.n_samples)
        plan = budget.plan(candidates, [size.n_features] * len(candidates), n_classes)
        name, delta, neighbours = type(self).__name__, float(self.delta), self._classifier.neighbours
        # the bound of a score may have to wait for counts that are not released yet; its cost does not depend on it
        parts = budget.describe(plan, budget.score(plan.epsilon, 1.0), f"{self.scoring}, per unit of its bound")
        return [PlannedFit(name, size.n_samples, plan.cost, delta, neighbours, self._ledger(), parts)]

    def _ledger(self) -> PrivacyAccountant | None:
        accountant: PrivacyAccountant | None = self.accountant
        return self._classifier.accountant if accountant is None else accountant

    # -- the search -----------------------------------------------------------------------------------------

    @with_callbacks
    def fit(self, X, y, groups=None):
        """Charge the whole search, then make the trials and keep the best.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            What the classifier takes, or what the first step of the pipeline takes.
        y : array-like of shape (n_samples,)
        groups : None
            Refused. If rows were split by whole groups, the number of rows for training, which every plan takes to be
            public, would depend on the sizes of the groups; and a record that is exchanged for one of another group
            could move to the other part, so that both would have to be paid for. The guarantee is for a record. To
            protect persons, make one row of each before the search.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If a parameter or the data are unusable; nothing is charged then.
        BudgetExceededError
            If the accountant refuses the search.
        RuntimeError
            If the best trial is one that failed. The search has been charged then.
        """
        if groups is not None:
            raise ValueError(
                "groups= is refused: a split by whole groups would let their sizes, which are facts about the data, "
                "decide how many rows there are for training; make one row of each group before the search, and leave "
                "groups=None"
            )
        candidates = self._check_parameters()
        X, y = self._validate(X, y)
        n_samples = len(y)
        classes, codes = encode_labels(y, self._classifier.classes)
        shares = None if self.class_shares is None else declared_shares(self.class_shares, classes)
        budget, noise = self._budget(n_samples), make_noise(self.random_state)
        held_out = draw_rows(n_samples, budget.n_validation, noise)
        parts = prepare(candidates, X, y, held_out)
        plan = budget.plan(candidates, [parts[each.steps_key].n_features for each in candidates], len(classes))
        warn_of_weak_claims(candidates[0].trial(self.epsilon, self.delta), n_samples)
        conditions = tuple(sorted({text for each in candidates if (text := each.classifier._condition())}))
        progress = Progress(self, 1)  # of the whole: nobody may count the trials
        ledger = self._ledger()
        if ledger is not None:
            ledger.spend(
                plan.cost,
                neighbours=self._classifier.neighbours,
                solver=", ".join(conditions) or None,
                estimator=type(self).__name__,
                n_samples=n_samples,
                is_seeded=not noise.is_secure,
                delta=float(self.delta),
            )
        if plan.counts is not None:
            shares = _noisy_shares(plan.counts, codes, len(classes), noise)
        scoring = make_scoring(self.scoring, len(classes), self.score_clip, shares)
        score = budget.score(plan.epsilon, scoring.bound)
        y_training, codes_held_out = y[~held_out], codes[held_out]

        def trial(candidate: Candidate, seed: int | None) -> tuple[Any, Any]:
            rows = parts[candidate.steps_key]
            model = candidate.trial(plan.epsilon, self.delta, classes=classes, random_state=seed)
            model.fit(rows.training, y_training)
            return model, scoring.centred(model, rows.held_out, codes_held_out)

        gamma = trial_gamma(budget.eta, budget.mean_trials)
        chosen, best, total = best_trial(trial, candidates, draw_trials(budget.eta, gamma, noise), score, noise)
        if best is None:
            raise RuntimeError(
                "the best trial is one whose fit failed, and the search has been charged all the same; fit each "
                "candidate to data that may be looked at to find out why"
            )
        guarantee = None
        if self.epsilon < inf:
            releases = budget.describe(plan, score, self.scoring)
            facts = fit_facts(self, best.solver_.name, n_samples, self.n_features_in_, classes, best.data_norm_)
            guarantee = self._guarantee(releases, plan.cost, noise.is_secure, conditions, facts)
        best.set_params(random_state=self._classifier.random_state)
        best.privacy_guarantee_ = guarantee
        self.best_estimator_ = chosen.assemble(parts[chosen.steps_key].steps, best)
        self.best_params_ = chosen.params
        self.best_score_ = (total + scoring.centre * budget.n_validation) / budget.n_validation
        self.class_shares_ = shares
        self.classes_ = classes
        self.privacy_guarantee_ = guarantee
        progress.answered()
        progress.finished()
        return self

    def release(self):
        """Return the model for others: ``best_estimator_`` with a released classifier, see its ``release``.

        Returns
        -------
        estimator
            A classifier, or the pipeline that ends with one, which carries the guarantee of the search.
        """
        check_is_fitted(self)
        return with_last(self.best_estimator_, lambda classifier: classifier.release())

    def _validate(self, X: Any, y: Any) -> tuple[Any, Any]:
        if not isinstance(self.estimator, Pipeline):
            return validate_training_data(self, X, y)
        _, y = check_X_y(np.zeros((_num_samples(X), 1)), y, ensure_min_samples=2, estimator=self)
        return validate_data(self, X, checked_labels(y), skip_check_array=True)

    def _guarantee(
        self,
        parts: tuple[ReleasePart, ...],
        cost: Cost,
        is_secure: bool,
        conditions: tuple[str, ...],
        facts: FitFacts,
    ) -> PrivacyGuarantee:
        return PrivacyGuarantee(
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            neighbours=self._classifier.neighbours,
            parts=parts,
            public=(
                "n (number of records)",
                "how many rows are the validation part",
                "number and names of features",
                "classes" if self._classifier.classes is not None else READ_CLASSES,
                "candidates and all parameters",
            ),
            cost=cost,
            is_seeded=not is_secure,
            caveats=(
                *PrivacyGuarantee.caveats_at(self.delta),
                "the running time, which tells the number of trials",
            ),
            conditions=conditions,
            fit=facts,
        )

    # -- prediction -----------------------------------------------------------------------------------------

    def _delegate(self, method: str, X: Any) -> Any:
        check_is_fitted(self)
        # what X may be is for the first step of a pipeline to say
        is_raw = isinstance(self.best_estimator_, Pipeline)
        return getattr(self.best_estimator_, method)(X if is_raw else validate_rows(self, X))

    def predict(self, X):
        """Return the labels that ``best_estimator_`` predicts, shape (n_samples,)."""
        return self._delegate("predict", X)

    @_has("decision_function")
    def decision_function(self, X):
        """Return the scores of ``best_estimator_``, shape (n_samples,) or (n_samples, n_classes)."""
        return self._delegate("decision_function", X)

    @_has("predict_proba")
    def predict_proba(self, X):
        """Return the class probabilities of ``best_estimator_``, shape (n_samples, n_classes)."""
        return self._delegate("predict_proba", X)

    @_has("predict_log_proba")
    def predict_log_proba(self, X):
        """Return the logarithms of the class probabilities of ``best_estimator_``."""
        return self._delegate("predict_log_proba", X)


def _noisy_shares(mechanism: NoisyHistogram, codes: Any, n_classes: int, noise: NoiseSource) -> Any:
    """Release how large the classes are; one too small to be seen counts as large as the noise."""
    counts = mechanism.release(np.bincount(codes, minlength=n_classes), noise)
    return np.maximum(counts, max(mechanism.noise_scale, 1.0)) / len(codes)
