"""Private hyper-parameter search: the best of a random number of trials, at the price of a few."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpskl.accounting import Cost, GaussianCost, SelectionCost, draw_trials, trial_gamma, worst_cost
from dpskl.accounting._numeric import smallest_true
from dpskl.base import PrivateLinearClassifier
from dpskl.budget import PrivacyAccountant
from dpskl.guarantee import PrivacyGuarantee
from dpskl.mechanisms.base import ReleasePart
from dpskl.mechanisms.noise import NoiseSource, make_noise
from dpskl.mechanisms.noisy_count import NoisyCount
from dpskl.model_selection.plan import PlannedFit, Size
from dpskl.validation import encode_labels, validate_rows, validate_training_data, warn_of_weak_claims

__all__ = ["PrivateSearchCV"]

_SET_BY_THE_SEARCH = ("epsilon", "delta", "accountant", "classes", "neighbours", "random_state")


@dataclass(frozen=True)
class _SearchPlan:
    """A search that has been costed and not yet run: the privacy of a trial and of the whole."""

    trial_epsilon: float
    score: NoisyCount
    cost: Cost


def _is_within(value: Any, low: float, high: float) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and low <= float(value) <= high


def _has(method):
    def check(self):
        getattr(getattr(self, "best_estimator_", self.estimator), method)
        return True

    return available_if(check)


class PrivateSearchCV(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Search over hyper-parameters whose whole result costs little more than one fit.

    The number of trials K is random. Each trial draws a candidate at random, fits it to the training part of the
    data and counts, with noise, the correct predictions on the validation part. Only the best trial is released: its
    parameters, its model and its noisy score.

    Parameters
    ----------
    estimator : classifier of this package
        Its epsilon, delta, accountant and random_state are set by the search.
    param_grid : dict or list of dict
        Candidates as in ``GridSearchCV``. They cannot vary what the search sets, nor ``classes`` and ``neighbours``.
    epsilon : float, default=1.0
        Privacy budget of the whole search, at least 1e-6 for each trial. ``float("inf")`` adds no noise and claims
        nothing.
    delta : float, default=1e-6
        In [0, 1). 0 asks for pure differential privacy: then every candidate needs a solver that has it.
    eta : {0, 1}, default=0
        Law of K: logarithmic (cheaper) or geometric (more trials in the usual draw).
    mean_trials : float, default=10
        Mean of K, at least 1. K is often far smaller: the logarithmic law with mean 10 makes one trial in about a
        quarter of the searches.
    validation_share : float, default=0.2
        Share of the rows, in (0, 1), that serve as validation part, at even distances in the order of the rows. Which
        these are is public.
    accountant : PrivacyAccountant or None, default=None
        Ledger that is charged once, before the first trial. ``None`` takes that of ``estimator``.
    random_state : None, int, RandomState or Generator, default=None
        ``None`` draws everything from the operating system. Anything else is for tests and protects nobody.

    Attributes
    ----------
    best_estimator_ : estimator
        The model of the best trial, fitted to the training part and to nothing else. Its ``epsilon`` is that of a
        trial; its ``privacy_guarantee_`` is that of the search.
    best_params_ : dict
    best_score_ : float
        Noisy accuracy on the validation part: too high on average, as the largest of several, and not always in
        [0, 1].
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Where ``X`` has column names.
    privacy_guarantee_ : PrivacyGuarantee or None

    Notes
    -----
    :class:`~dpskl.accounting.SelectionCost` (Papernot & Steinke 2022, theorem 2) gives the cost. Model and score of a
    trial come from disjoint parts of the rows, so that a trial costs the larger of both, and the largest over the
    candidates: draws do not depend on the data. A record adds 0 or 1 to the count, under both neighbour relations.
    The epsilon of a trial is the largest for which the whole stays within the budget. The theorem needs a Renyi
    curve, which objective perturbation does not have with ``neighbours="replace_one"``.

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

    def _check_parameters(self) -> list[dict[str, Any]]:
        """Return the candidates, once all that can be wrong without data is found not to be."""
        if not isinstance(self.estimator, PrivateLinearClassifier):
            raise TypeError(
                f"estimator={type(self.estimator).__name__} is not a classifier of this package; transformers that "
                "need no data go before the search, in a Pipeline that ends with it"
            )
        for name, rule, holds in (
            ("eta", "0 (logarithmic) or 1 (geometric)", self.eta in (0, 1) and not isinstance(self.eta, bool)),
            ("mean_trials", "a finite number of at least 1", _is_within(self.mean_trials, 1, math.nextafter(inf, 0))),
            ("validation_share", "strictly between 0 and 1", _is_within(self.validation_share, 1e-12, 1 - 1e-12)),
        ):
            if not holds:
                raise ValueError(f"{name}={getattr(self, name)!r} must be {rule}")
        candidates = list(ParameterGrid(self.param_grid))
        if not candidates:
            raise ValueError(f"param_grid={self.param_grid!r} holds no candidate")
        for name in _SET_BY_THE_SEARCH:
            if any(name in candidate for candidate in candidates):
                raise ValueError(f"param_grid varies {name!r}, which must be one for the whole search; set it outside")
        own, inner = self.accountant, self.estimator.accountant
        if own is not None and inner is not None and own is not inner:
            raise ValueError("accountant= of the search and of its estimator differ; set the one of the search only")
        for candidate in candidates:
            # the whole budget and the accountant stand in for what is set later: this finds bad values
            trial = self._trial(candidate, self.epsilon, accountant=own or inner)
            trial._check_parameters()
            if trial.data_norm is None:
                raise ValueError("data_norm=None is read from the data, which no search can pay for; declare a bound")
        return candidates

    def _trial(self, candidate: dict[str, Any], epsilon: float, **changes: Any) -> Any:
        settings = {"epsilon": epsilon, "delta": self.delta, "accountant": None, "verbose": 0, **changes}
        return clone(self.estimator).set_params(**clone(candidate, safe=False), **settings)

    def _plan(self, candidates: list[dict[str, Any]], size: Size) -> _SearchPlan:
        n_validation = _validation_rows(size.n_samples, self.validation_share).sum()
        n_training = size.n_samples - int(n_validation)
        if n_training < 2:
            raise ValueError(
                f"n_samples={size.n_samples} at validation_share={self.validation_share!r} leaves {n_training} samples "
                "for training, and 2 are needed"
            )
        training = size._replace(n_samples=n_training)
        if self.epsilon == inf:
            for candidate in candidates:
                self._trial(candidate, inf).plan(*training)
            return _SearchPlan(inf, NoisyCount(inf, self.delta), GaussianCost(inf))

        def cost(epsilon: float) -> SelectionCost:
            models = [self._trial(candidate, epsilon).plan(*training).cost for candidate in candidates]
            for model, candidate in zip(models, candidates, strict=True):
                if model.rdp(1.5) == inf:
                    raise ValueError(
                        f"the candidate {candidate!r} has no Renyi curve, which the cost of a selection needs, "
                        f"under neighbours={self.estimator.neighbours!r}; choose solver='gd' or 'add_remove'"
                    )
            base = worst_cost([*models, NoisyCount(epsilon, self.delta).cost])
            return SelectionCost(base, int(self.eta), float(self.mean_trials))

        def fits(divisor: float) -> bool:
            return cost(self.epsilon / divisor).epsilon(self.delta) <= self.epsilon

        high = 2.0 + self.eta
        while not fits(high):
            high *= 2.0
            if high > 1e9:
                raise ValueError(f"epsilon={self.epsilon!r} at delta={self.delta!r} is too small for any trial")
        trial_epsilon = self.epsilon / smallest_true(fits, 0.5, high, rtol=1e-4)
        return _SearchPlan(trial_epsilon, NoisyCount(trial_epsilon, self.delta), cost(trial_epsilon))

    def _plan_fits(self, size: Size) -> list[PlannedFit]:
        candidates = self._check_parameters()
        if size.n_classes is None and self.estimator.classes is not None:
            size = size._replace(n_classes=len(np.unique(np.asarray(self.estimator.classes))))
        cost = self._plan(candidates, size).cost
        name, delta, neighbours = type(self).__name__, float(self.delta), self.estimator.neighbours
        return [PlannedFit(name, size.n_samples, cost, delta, neighbours, self._ledger())]

    def _ledger(self) -> PrivacyAccountant | None:
        accountant: PrivacyAccountant | None = self.accountant
        return self.estimator.accountant if accountant is None else accountant

    # -- the search -----------------------------------------------------------------------------------------

    def fit(self, X, y):
        """Charge the whole search, then make the trials and keep the best.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

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
        candidates = self._check_parameters()
        X, y = validate_training_data(self, X, y)
        classes, _ = encode_labels(y, self.estimator.classes)
        n_samples = X.shape[0]
        plan = self._plan(candidates, Size(n_samples, X.shape[1], len(classes)))
        noise = make_noise(self.random_state)
        warn_of_weak_claims(self._trial(candidates[0], self.epsilon), n_samples)
        conditions = self._conditions(candidates)
        ledger = self._ledger()
        if ledger is not None:
            ledger.spend(
                plan.cost,
                neighbours=self.estimator.neighbours,
                solver=", ".join(conditions) or None,
                estimator=type(self).__name__,
                n_samples=n_samples,
                is_seeded=not noise.is_secure,
            )
        held_out = _validation_rows(n_samples, self.validation_share)
        parts = (X[~held_out], y[~held_out], X[held_out], y[held_out])
        best, score, params = self._best_trial(candidates, plan, parts, classes, noise)
        if best is None:
            raise RuntimeError(
                "the best trial is one whose fit failed, and the search has been charged all the same; fit each "
                "candidate to data that may be looked at to find out why"
            )
        guarantee = self._guarantee(plan, noise.is_secure, conditions) if self.epsilon < inf else None
        best.set_params(random_state=self.estimator.random_state)
        best.privacy_guarantee_ = guarantee
        self.best_estimator_ = best
        self.best_params_ = params
        self.best_score_ = score / int(held_out.sum())
        self.classes_ = classes
        self.privacy_guarantee_ = guarantee
        return self

    def _best_trial(
        self,
        candidates: list[dict[str, Any]],
        plan: _SearchPlan,
        parts: tuple[Any, ...],
        classes: Any,
        noise: NoiseSource,
    ) -> tuple[Any, float, dict[str, Any]]:
        X, y, X_held_out, y_held_out = parts
        best, best_score, best_params = None, -inf, candidates[0]
        for _ in range(draw_trials(int(self.eta), trial_gamma(int(self.eta), float(self.mean_trials)), noise)):
            params = candidates[_draw_below(len(candidates), noise)]
            seed = None if noise.is_secure else _draw_below(2**31, noise)
            with warnings.catch_warnings():
                # said once by the search; how often would tell the number of trials
                warnings.simplefilter("ignore")
                try:
                    trial = self._trial(params, plan.trial_epsilon, classes=classes, random_state=seed).fit(X, y)
                    correct = int((trial.predict(X_held_out) == y_held_out).sum())
                except Exception:  # whatever it is, it must not show more than a lost trial does
                    continue
            score = plan.score.release(correct, noise)
            if score > best_score:
                best, best_score, best_params = trial, score, params
        return best, best_score, dict(best_params)

    def _conditions(self, candidates: list[dict[str, Any]]) -> tuple[str, ...]:
        """Return what the guarantees of the candidates rest on besides theorems."""
        found = {self._trial(candidate, self.epsilon)._condition() for candidate in candidates}
        return tuple(sorted(found - {None}))

    def _guarantee(self, plan: _SearchPlan, is_secure: bool, conditions: tuple[str, ...]) -> PrivacyGuarantee:
        law = f"eta = {self.eta}, mean {self.mean_trials:g}"
        part = ReleasePart(
            f"best of a random number of trials ({law}), each a model and a noisy count of its correct predictions",
            1,
            plan.score.sensitivity,
            plan.score.noise_scale,
            plan.cost,
            "selection from a truncated negative binomial number of trials (Papernot & Steinke 2022, theorem 2); "
            "sensitivity and noise are those of the count",
        )
        return PrivacyGuarantee(
            epsilon=float(self.epsilon),
            delta=float(self.delta),
            neighbours=self.estimator.neighbours,
            parts=(part,),
            public=(
                "n (number of records)",
                "which rows are the validation part",
                "number and names of features",
                "classes" if self.estimator.classes is not None else "classes (read from y)",
                "candidates and all parameters",
            ),
            cost=plan.cost,
            is_seeded=not is_secure,
            caveats=(*conditions, *PrivacyGuarantee.caveats, "the running time, which tells the number of trials"),
        )

    # -- prediction -----------------------------------------------------------------------------------------

    def _delegate(self, method: str, X: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.best_estimator_, method)(validate_rows(self, X))

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


def _validation_rows(n_samples: int, share: float) -> np.ndarray[Any, Any]:
    """Mark at least one row, and ``share`` of them at even distances: a function of public numbers."""
    steps = np.floor((np.arange(n_samples + 1)) * share + 0.5)
    chosen = np.diff(steps) > 0
    chosen[-1] |= not chosen.any()
    return chosen


def _draw_below(count: int, noise: NoiseSource) -> int:
    """Draw a whole number from 0 to ``count - 1``."""
    return min(int(count * math.exp(-float(noise.standard_exponential(1)[0]))), count - 1)
