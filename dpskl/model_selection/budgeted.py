"""Grid search that asks the ledger for all of its fits before the first one."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import GridSearchCV

from dpskl.exceptions import BudgetExceededError, LedgerNotFoundError
from dpskl.model_selection.plan import PlannedFit, SearchPlan, plan_fits, summarise

__all__ = ["BudgetedSearchCV"]

_LEDGER_ERRORS = (BudgetExceededError, LedgerNotFoundError)


class BudgetedSearchCV(GridSearchCV):
    """Grid search that asks the ledger for all of its fits before the first one.

    The parameters and attributes are those of :class:`sklearn.model_selection.GridSearchCV`, which see; only the
    default of ``error_score`` differs. Every fit is charged to the accountant of the classifier, in the order of the
    grid and then the refit, and ``fit`` raises with nothing spent where they would not all be admitted.

    Parameters
    ----------
    estimator : estimator
    param_grid : dict or list of dict
    scoring, n_jobs, refit, cv, verbose, pre_dispatch, return_train_score
        As in ``GridSearchCV``.
    error_score : "raise" or float, default="raise"
        What a failing fit counts as. A refusal by the ledger always raises, whatever this says.

    Attributes
    ----------
    plan_ : SearchPlan
        What was asked for.

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
        shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
        if len(shape) != 2:
            raise ValueError(
                f"Expected 2D array, got X of shape {shape}: the number of columns that reach the classifier is needed "
                "to plan. Use plan_cost with that number, and then GridSearchCV"
            )
        plan = None
        if min(shape) > 0:  # empty data are refused in scikit-learn's own words
            fits = plan_fits(self, shape[0], shape[1], None if y is None else len(np.unique(np.asarray(y))))
            plan = summarise(fits)
            _ask_ledgers(fits, plan)
        with warnings.catch_warnings():
            for error in _LEDGER_ERRORS:
                warnings.filterwarnings("error", message=f"(?s).*{error.__name__}", category=FitFailedWarning)
            try:
                super().fit(X, y, **params)
            except (FitFailedWarning, ValueError) as failure:
                for error in _LEDGER_ERRORS:
                    if not isinstance(failure, error) and error.__name__ in str(failure):
                        raise error("the ledger refused fits in the middle of the search") from failure
                raise
        self.plan_ = plan
        return self


def _ask_ledgers(fits: Sequence[PlannedFit], plan: SearchPlan) -> None:
    """Raise BudgetExceededError unless every ledger would grant all fits in their order."""
    for ledger in {id(fit.accountant): fit.accountant for fit in fits if fit.accountant is not None}.values():
        costs = [fit.cost for fit in fits if fit.accountant is ledger]
        granted = ledger.would_grant(costs)
        if granted < len(costs):
            left = ledger.remaining()
            raise BudgetExceededError(
                f"the search needs {plan}\nand {ledger!r} has epsilon = {left.epsilon:.6g} at delta = "
                f"{left.delta:g} left, enough for {granted} of these fits. Nothing was charged and no data were "
                "used; ask for a smaller epsilon, fewer candidates or folds, or use PrivateSearchCV"
            )
