"""What a fit would spend, counted without data: estimators, pipelines, searches and ensembles."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, zip_longest
from math import inf
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    LeaveOneOut,
    LeavePOut,
    ParameterGrid,
    ParameterSampler,
    PredefinedSplit,
    RandomizedSearchCV,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
    check_cv,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline

from dpskl.accounting import Cost, GaussianCost, compose, worst_cost
from dpskl.base import PrivateLinearClassifier
from dpskl.budget import PrivacyAccountant

__all__ = ["PlannedFit", "SearchPlan", "plan_cost", "plan_fits", "summarise"]


class Size(NamedTuple):
    """Public size of the data of a fit."""

    n_samples: int
    n_features: int
    n_classes: int | None


@dataclass(frozen=True)
class PlannedFit:
    """One charge to come."""

    name: str
    n_samples: int
    cost: Cost
    delta: float
    neighbours: str
    accountant: PrivacyAccountant | None


@dataclass(frozen=True)
class SearchPlan:
    """What fitting an object would spend.

    Attributes
    ----------
    cost : Cost
        Composition of all fits.
    n_fits : int
        How many fits would be charged.
    epsilon, delta : float
        The cost in numbers.
    lines : tuple of str
        The fits in their order, equal ones together.
    """

    cost: Cost
    n_fits: int
    epsilon: float
    delta: float
    lines: tuple[str, ...]

    def __str__(self) -> str:
        fits = "1 fit" if self.n_fits == 1 else f"{self.n_fits} fits"
        head = f"{fits}, together epsilon = {self.epsilon:.6g} at delta = {self.delta:g}"
        tail = "  not covered: scores of held-out rows, calibration and transformers that are fitted to the data"
        return "\n".join([head, *(f"  {line}" for line in self.lines), *([tail] if self.n_fits > 1 else [])])


def plan_cost(
    estimator: Any,
    n_samples: int,
    n_features: int,
    *,
    n_classes: int | None = None,
    delta: float | None = None,
    fits: int = 1,
) -> SearchPlan:
    """Say what fitting an estimator or a search would spend, before it runs and without data.

    Parameters
    ----------
    estimator : estimator
        A classifier of this package, alone or inside ``Pipeline``, ``GridSearchCV``, ``RandomizedSearchCV``,
        ``BaggingClassifier`` (without bootstrap; it seeds the noise of its members, which voids their guarantee),
        ``OneVsRestClassifier``, ``CalibratedClassifierCV`` and the searches of this module, nested at will.
    n_samples : int
        Number of records given to ``estimator.fit``; the sizes of the folds follow from it.
    n_features : int
        Number of columns that reach the classifier, after all transformers.
    n_classes : int or None, default=None
        Number of labels, where the classifier does not declare ``classes``.
    delta : float or None, default=None
        Where to state epsilon: by default that of the accountant, or the largest of the classifiers.
    fits : int, default=1
        How often ``estimator`` is fitted, each time to ``n_samples`` records, as in ``cross_val_score``.

    Returns
    -------
    SearchPlan
        An upper bound: where the data decide what is fitted, such as the candidate that a search refits, the
        costliest possibility is charged.

    Raises
    ------
    TypeError
        If the fits of an object cannot be counted; the message names its type and says what to do.
    ValueError
        If the classifier could not be fitted, or a bootstrap would count records several times.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.model_selection import plan_cost
    >>> model = DPLogisticRegression(delta=0, classes=[0, 1])
    >>> print(plan_cost(GridSearchCV(model, {"epsilon": [0.5, 1.0]}, cv=3), n_samples=1000, n_features=10))
    7 fits, together epsilon = 5.5 at delta = 0
      1 x DPLogisticRegression on 666 rows, epsilon = 0.5
      2 x DPLogisticRegression on 667 rows, epsilon = 0.5
      1 x DPLogisticRegression on 666 rows, epsilon = 1
      2 x DPLogisticRegression on 667 rows, epsilon = 1
      1 x DPLogisticRegression (costliest candidate) on 1000 rows, epsilon = 1
      not covered: scores of held-out rows, calibration and transformers that are fitted to the data
    """
    if not isinstance(fits, Integral) or isinstance(fits, bool) or fits < 1:
        raise ValueError(f"fits={fits!r} must be a whole number of at least 1")
    return summarise(plan_fits(estimator, n_samples, n_features, n_classes) * int(fits), delta)


def plan_fits(estimator: Any, n_samples: int, n_features: int, n_classes: int | None) -> list[PlannedFit]:
    """Return the charges that ``estimator.fit`` would make, in their order; see :func:`plan_cost`."""
    return _fits(estimator, Size(n_samples, n_features, n_classes))


def summarise(fits: Sequence[PlannedFit], delta: float | None = None) -> SearchPlan:
    """Return the composition of planned fits."""
    if len({fit.neighbours for fit in fits}) > 1:
        raise ValueError("the fits count under different neighbours=, and such costs have no common total")
    if delta is None:
        ledgers = [fit.accountant.delta for fit in fits if fit.accountant is not None]
        delta = max(ledgers or [fit.delta for fit in fits], default=0.0)
    lines = []
    for (name, n_samples, cost), group in groupby(fits, lambda fit: (fit.name, fit.n_samples, fit.cost)):
        lines.append(f"{len(list(group))} x {name} on {n_samples} rows, epsilon = {cost.epsilon(delta):.6g}")
    total = compose(fit.cost for fit in fits)
    return SearchPlan(total, len(fits), total.epsilon(delta), delta, tuple(lines))


def _fits(estimator: Any, size: Size) -> list[PlannedFit]:
    for cls, rule in _RULES:
        if isinstance(estimator, cls):
            return rule(estimator, size)
    if hasattr(estimator, "_plan_fits"):
        fits: list[PlannedFit] = estimator._plan_fits(size)
        return fits
    name = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
    remedy = "plan one fit of its classifier by plan_cost(classifier, n_samples, n_features, fits=number_of_fits)"
    if isinstance(estimator, type):
        remedy = f"pass an instance, {name}()"
    elif name.startswith("Halving"):
        remedy = "which candidates it fits again depends on the data; use GridSearchCV or PrivateSearchCV"
    raise TypeError(f"the fits of {name} cannot be counted in advance: {remedy}")


def _one_fit(estimator: PrivateLinearClassifier, size: Size) -> list[PlannedFit]:
    # a norm that is read from the data leaves the fit without a guarantee, whatever the plan
    cost = GaussianCost(inf) if estimator.data_norm is None else estimator._cost(estimator.plan(*size))
    name, delta = type(estimator).__name__, float(estimator.delta)
    return [PlannedFit(name, size.n_samples, cost, delta, estimator.neighbours, estimator.accountant)]


def _pipeline(pipeline: Pipeline, size: Size) -> list[PlannedFit]:
    return _fits(pipeline.steps[-1][1], size)


def _with(estimator: Any, parameters: dict[str, Any]) -> Any:
    return clone(estimator).set_params(**clone(parameters, safe=False))


def _grid_search(search: GridSearchCV, size: Size) -> list[PlannedFit]:
    candidates = [_with(search.estimator, parameters) for parameters in ParameterGrid(search.param_grid)]
    return _search(candidates, search, size)


def _randomized_search(search: RandomizedSearchCV, size: Size) -> list[PlannedFit]:
    given = search.param_distributions
    spaces = [given] if isinstance(given, dict) else list(given)
    open_ended = sorted({name for space in spaces for name, values in space.items() if hasattr(values, "rvs")})
    n_iter, grid = search.n_iter, None if open_ended else ParameterGrid(spaces)
    if grid is not None:
        n_iter = min(n_iter, len(grid))
    if isinstance(search.random_state, Integral):
        drawn: Iterable[Any] = ParameterSampler(copy.deepcopy(given), n_iter, random_state=search.random_state)
    elif grid is None:
        raise TypeError(
            f"{type(search).__name__} draws {', '.join(open_ended)} from a distribution, whose largest cost is not "
            "known; give lists of values, or a whole number as its random_state (which seeds the draws, not the noise)"
        )
    elif n_iter == len(grid):
        drawn = grid
    else:
        costliest = [_with(search.estimator, parameters) for parameters in grid]
        folds = [fit for rows in _training_sizes(search.cv, size.n_samples) for fit in _worst(costliest, size, rows)]
        return folds * n_iter + (_worst(costliest, size, size.n_samples) if search.refit else [])
    return _search([_with(search.estimator, parameters) for parameters in drawn], search, size)


def _search(candidates: list[Any], search: Any, size: Size) -> list[PlannedFit]:
    rows = _training_sizes(search.cv, size.n_samples)
    fits = [fit for candidate in candidates for n in rows for fit in _fits(candidate, size._replace(n_samples=n))]
    return fits + (_worst(candidates, size, size.n_samples) if search.refit else [])


_COSTLIEST = " (costliest candidate)"


def _worst(candidates: list[Any], size: Size, n_samples: int) -> list[PlannedFit]:
    """Charges of one candidate, whichever: the largest in each place, for each ledger."""
    plans = [_fits(candidate, size._replace(n_samples=n_samples)) for candidate in candidates]
    if len(plans) == 1:
        return plans[0]
    worst = []
    ledgers = {id(fit.accountant): fit.accountant for plan in plans for fit in plan}
    for ledger in ledgers.values():
        of_ledger = [[fit for fit in plan if fit.accountant is ledger] for plan in plans]
        for place in zip_longest(*of_ledger):
            fits = [fit for fit in place if fit is not None]
            name = fits[0].name.removesuffix(_COSTLIEST) + _COSTLIEST
            delta = max(fit.delta for fit in fits)
            worst.append(replace(fits[0], name=name, cost=worst_cost(fit.cost for fit in fits), delta=delta))
    return worst


_SIZED = (
    KFold,
    LeaveOneOut,
    LeavePOut,
    PredefinedSplit,
    RepeatedKFold,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
)


def _training_sizes(cv: Any, n_samples: int) -> list[int]:
    """Sizes of the training parts; stratification moves records between folds and leaves their sizes alone."""
    if isinstance(cv, list | tuple):
        rows = np.arange(n_samples)
        return [len(rows[np.asarray(train)]) for train, _ in cv]
    if not (cv is None or isinstance(cv, Integral) or type(cv) in _SIZED):
        raise TypeError(
            f"the sizes of the folds of cv={type(cv).__name__} are not known in advance; give a number of folds, a "
            "list of (train, test) pairs, or a splitter that needs no groups, such as StratifiedKFold"
        )
    splitter = copy.deepcopy(check_cv(cv))  # a splitter with a RandomState would be advanced
    return [len(train) for train, _ in splitter.split(np.zeros((n_samples, 1)), np.zeros(n_samples, dtype=int))]


def _bagging(ensemble: BaggingClassifier, size: Size) -> list[PlannedFit]:
    if ensemble.bootstrap:
        raise ValueError(
            f"{type(ensemble).__name__}(bootstrap=True) draws records with replacement: one record can enter a fit "
            "several times, which the cost of that fit does not cover; set bootstrap=False"
        )

    def part(share: Any, whole: int) -> int:
        return whole if share is None else int(share) if isinstance(share, Integral) else max(int(share * whole), 1)

    n_samples = part(ensemble.max_samples, size.n_samples)
    n_features = part(ensemble.max_features, size.n_features)
    once = _fits(ensemble.estimator, size._replace(n_samples=n_samples, n_features=n_features))
    # the ensemble gives every member a seed, also without a random_state of its own
    return [replace(fit, name=f"{fit.name} (noise seeded by the ensemble)") for fit in once] * ensemble.n_estimators


def _one_vs_rest(ensemble: OneVsRestClassifier, size: Size) -> list[PlannedFit]:
    if size.n_classes is None:
        raise ValueError(f"{type(ensemble).__name__} fits once for each class: pass n_classes")
    once = _fits(ensemble.estimator, size._replace(n_classes=2))
    return once * (1 if size.n_classes == 2 else size.n_classes)


def _calibrated(calibrated: CalibratedClassifierCV, size: Size) -> list[PlannedFit]:
    rows = _training_sizes(calibrated.cv, size.n_samples)
    ensemble = calibrated.ensemble
    if ensemble == "auto":
        ensemble = not isinstance(calibrated.estimator, FrozenEstimator)
    sizes = rows if ensemble else [*rows, size.n_samples]
    return [fit for n in sizes for fit in _fits(calibrated.estimator, size._replace(n_samples=n))]


def _frozen(estimator: FrozenEstimator, size: Size) -> list[PlannedFit]:
    return []


_RULES: tuple[tuple[type, Callable[[Any, Size], list[PlannedFit]]], ...] = (
    (PrivateLinearClassifier, _one_fit),
    (Pipeline, _pipeline),
    (GridSearchCV, _grid_search),
    (RandomizedSearchCV, _randomized_search),
    (BaggingClassifier, _bagging),
    (OneVsRestClassifier, _one_vs_rest),
    (CalibratedClassifierCV, _calibrated),
    (FrozenEstimator, _frozen),
)
