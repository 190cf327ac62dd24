"""Grid search that asks the ledger for all of its fits before the first one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import FitFailedWarning
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _num_samples, check_is_fitted

from dpskl.accounting.words import at, at_least
from dpskl.classifier import PrivateClassifier
from dpskl.exceptions import BudgetExceededError, LedgerNotFoundError
from dpskl.guarantee import PrivacyGuarantee
from dpskl.mechanisms.base import ReleasePart
from dpskl.model_selection.plan import SearchPlan, summarise
from dpskl.model_selection.planned import Planned, Size
from dpskl.model_selection.rules import planned_search
from dpskl.model_selection.splits import position_splitter
from dpskl.model_selection.trials import with_last
from dpskl.validation import encode_labels, validate_training_data

__all__ = ["BudgetedSearchCV"]

_LEDGER_ERRORS = (BudgetExceededError, LedgerNotFoundError)


class BudgetedSearchCV(GridSearchCV):
    """Grid search that asks the ledger for all of its fits before the first one.

    The parameters and attributes are those of :class:`sklearn.model_selection.GridSearchCV`, which see; only ``cv``
    and the default of ``error_score`` differ. Every fit is charged to the accountant of the classifier, in the order of
    the grid and then the refit, and ``fit`` raises with nothing spent where they would not all be admitted.

    Parameters
    ----------
    estimator : estimator
    param_grid : dict or list of dict
    scoring, n_jobs, refit, verbose, pre_dispatch, return_train_score
        As in ``GridSearchCV``.
    cv : int, splitter, list of (train, test) or None, default=None
        A number (``None``: 5) stands for that many shuffled folds, whatever the labels. They are drawn anew in each
        ``fit`` and are public; ``KFold(5, shuffle=True, random_state=0)`` is the same in each. Splitters that look
        at labels are refused: one record would move others between the fits, and each fit is charged for one.
    error_score : "raise" or float, default="raise"
        What a failing fit counts as. A refusal by the ledger always raises, whatever this says.

    Attributes
    ----------
    plan_ : SearchPlan
        What was asked for.
    privacy_guarantee_ : PrivacyGuarantee or None
        What all fits together promise, at the epsilon of the plan. That of ``best_estimator_`` is for this model as if
        it were the only one, and says so. ``None`` without a refit, or where no claim can be made.

    Notes
    -----
    The scores in ``cv_results_`` and the choice between the candidates are computed from the held-out rows without
    noise: the ledger covers the fitted models, and not these. :class:`PrivateSearchCV` covers both.

    The number of columns of ``X`` is taken for that which reaches the classifier. A pipeline that changes it makes
    the plan approximate; the ledger stays exact, and may then refuse during the search.

    Examples
    --------
    >>> import numpy as np
    >>> from dpskl import BudgetExceededError, DPLogisticRegression, PrivacyAccountant
    >>> from dpskl.model_selection import BudgetedSearchCV
    >>> accountant = PrivacyAccountant(epsilon=3.0)
    >>> model = DPLogisticRegression(classes=[0, 1], accountant=accountant)
    >>> search = BudgetedSearchCV(model, {"epsilon": [0.5, 1.0, 2.0]}, cv=3)
    >>> try:
    ...     search.fit(np.zeros((90, 2)), np.arange(90) % 2)
    ... except BudgetExceededError:
    ...     print(len(accountant.entries()), "spends")
    0 spends
    """

    cv: Any

    def __init__(
        self,
        estimator,
        param_grid,
        *,
        scoring=None,
        n_jobs=None,
        refit=True,
        cv=None,
        verbose=0,
        pre_dispatch="2*n_jobs",
        error_score="raise",
        return_train_score=False,
    ):
        super().__init__(
            estimator,
            param_grid,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )

    def fit(self, X, y=None, **params):
        """Plan, ask the ledger, and search.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        **params
            As in ``GridSearchCV``.

        Returns
        -------
        self

        Raises
        ------
        BudgetExceededError
            If the ledger would refuse one of the fits; nothing has been spent then. Or, after some fits, if others
            have used up the ledger in the meantime.
        TypeError
            If the fits cannot be counted in advance.
        """
        splitter = position_splitter(self.cv)
        shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
        if len(shape) != 2:
            raise ValueError(
                f"Expected 2D array, got X of shape {shape}: the number of columns that reach the classifier is needed "
                "to plan. Use plan_cost with that number, and then GridSearchCV"
            )
        self._check_data(X, y)
        plan = None
        if min(shape) > 0:  # empty data are refused in scikit-learn's own words
            size = Size(shape[0], shape[1], None if y is None else len(np.unique(np.asarray(y))))
            fits = self._plan_fits(size)
            plan = summarise(fits)
            _ask_ledgers(fits, plan)
        with warnings.catch_warnings():
            for error in _LEDGER_ERRORS:
                warnings.filterwarnings("error", message=f"(?s).*{error.__name__}", category=FitFailedWarning)
            given, self.cv = self.cv, splitter
            try:
                super().fit(X, y, **params)
            except (FitFailedWarning, ValueError) as failure:
                for error in _LEDGER_ERRORS:
                    if not isinstance(failure, error) and error.__name__ in str(failure):
                        raise error("the ledger refused fits in the middle of the search") from failure
                raise
            finally:
                self.cv = given
        self.plan_ = plan
        self.privacy_guarantee_ = None
        if plan is not None and self.refit:
            self._promise(fits, plan)
        return self

    def _check_data(self, X: Any, y: Any) -> None:
        """Raise for data that some fit would refuse, before the first of them is charged."""
        classifier = self.estimator
        while isinstance(classifier, Pipeline):
            classifier = classifier.steps[-1][1]
        if isinstance(classifier, PrivateClassifier) and y is not None:
            alone = clone(classifier)
            # what a pipeline makes of its rows is not known yet
            rows = X if classifier is self.estimator else np.zeros((_num_samples(X), 1))
            _, labels = validate_training_data(alone, rows, y)
            encode_labels(labels, alone.classes)

    def release(self):
        """Return ``best_estimator_`` for others, with a released classifier at its end, see its ``release``.

        Returns
        -------
        estimator
        """
        check_is_fitted(self)
        return with_last(self.best_estimator_, lambda classifier: classifier.release())

    def _plan_fits(self, size: Size) -> Planned:
        position_splitter(self.cv)  # refuses what looks at labels
        plan = planned_search(self, size)
        if plan.moved:
            raise ValueError(f"the budget would not be kept: {plan.moved[0]}")
        return plan

    def _promise(self, fits: Planned, plan: SearchPlan) -> None:
        """Set the guarantee of all fits, and let that of the winner say that it is one of them."""
        winners = {id(fitted): fitted for fitted in _with_guarantees(self.best_estimator_)}.values()
        if not winners:
            return
        own = [winner.privacy_guarantee_ for winner in winners]
        others = (
            f"the other fits on these records: it is for 1 of {plan.n_fits}, which together have "
            f"{at(plan.epsilon, plan.delta)}; and the choice of this one by exact scores"
        )
        for winner in winners:
            guarantee = winner.privacy_guarantee_
            winner.privacy_guarantee_ = replace(guarantee, caveats=(others, *guarantee.caveats))
        if plan.epsilon == inf:
            return
        self.privacy_guarantee_ = PrivacyGuarantee(
            epsilon=plan.epsilon,
            delta=plan.delta,
            neighbours=fits.fits[0].neighbours,
            parts=_merged(fits),
            public=tuple(
                dict.fromkeys(
                    [*(fact for each in own for fact in each.public), f"candidates and folds ({plan.n_fits} fits)"]
                )
            ),
            cost=plan.cost,
            is_seeded=bool(fits.seeded),
            conditions=fits.conditional,
            fit=replace(own[0].fit, estimator=type(self).__name__, solver=None),
            caveats=tuple(dict.fromkeys([*plan.not_covered, *(caveat for each in own for caveat in each.caveats)])),
        )


def _merged(fits: Planned) -> tuple[ReleasePart, ...]:
    """Return the releases of all fits, equal ones together."""
    counts: dict[ReleasePart, int] = {}
    for part in (part for fit in fits.fits for part in fit.parts):
        alone = replace(part, count=1)
        counts[alone] = counts.get(alone, 0) + part.count
    return tuple(replace(part, count=count) for part, count in counts.items())


def _with_guarantees(fitted: Any) -> Iterator[Any]:
    """Yield the fitted estimators within one that have a guarantee, but for those that were frozen before."""
    if isinstance(fitted, FrozenEstimator):
        return
    if isinstance(fitted, dict | list | tuple):
        for part in fitted.values() if isinstance(fitted, dict) else fitted:
            yield from _with_guarantees(part)
    elif isinstance(fitted, BaseEstimator) or type(fitted).__module__.startswith("sklearn."):
        if getattr(fitted, "privacy_guarantee_", None) is not None:
            yield fitted
        yield from _with_guarantees(getattr(fitted, "__dict__", {}))


def _ask_ledgers(fits: Planned, plan: SearchPlan) -> None:
    """Raise BudgetExceededError unless every ledger would grant all fits in their order."""
    for ledger in {id(fit.accountant): fit.accountant for fit in fits.fits if fit.accountant is not None}.values():
        charges = [fit for fit in fits.fits if fit.accountant is ledger]
        granted = ledger.would_grant(charges)
        if granted < len(charges):
            left = ledger.remaining()
            raise BudgetExceededError(
                f"the search needs {plan}\nand {ledger!r} has epsilon = {at_least(left.epsilon)} at delta = "
                f"{at_least(left.delta)} left, enough for {granted} of these fits. Nothing was charged and no data "
                "were used; ask for a smaller epsilon, fewer candidates or folds, or use PrivateSearchCV"
            )
