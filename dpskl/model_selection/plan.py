"""What a fit would spend, counted without data: estimators, pipelines, searches and ensembles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from numbers import Integral
from typing import Any

from dpskl.accounting import Cost, compose
from dpskl.accounting.words import at, at_most
from dpskl.model_selection.planned import Planned, PlannedFit, Size
from dpskl.model_selection.rules import planned

__all__ = ["PlannedFit", "SearchPlan", "Size", "plan_cost", "plan_fits", "summarise"]


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
    not_covered : tuple of str
        What reads records, or is computed from them, without being charged: scores, calibration, transformers that
        are fitted to the data.
    voided_by : tuple of str
        Why the cost does not hold: folds that are stratified by the labels, seeded noise, samples that are not proved
        to be exact. Each says what to do.
    """

    cost: Cost
    n_fits: int
    epsilon: float
    delta: float
    lines: tuple[str, ...]
    not_covered: tuple[str, ...] = ()
    voided_by: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the cost bounds what the fits tell about one record; not where nothing is charged and yet read."""
        return not self.voided_by and (self.n_fits > 0 or not self.not_covered)

    def __str__(self) -> str:
        fits = "1 fit" if self.n_fits == 1 else f"{self.n_fits} fits"
        head = f"{fits}, together {at(self.epsilon, self.delta)}"
        if self.n_fits == 0:
            head = "nothing is fitted with noise, and nothing is charged"
        return "\n".join(
            [
                head,
                *(f"  DOES NOT HOLD: {reason}" for reason in self.voided_by),
                *(f"  {line}" for line in self.lines),
                *(f"  not covered: {sentence}" for sentence in self.not_covered),
            ]
        )


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
        ``BaggingClassifier`` (without bootstrap), ``VotingClassifier``, ``StackingClassifier``,
        ``OneVsRestClassifier``, ``OneVsOneClassifier`` (with a declared ``n_samples``), ``CalibratedClassifierCV``,
        ``FixedThresholdClassifier``, ``TunedThresholdClassifierCV`` and the searches of this module, nested at will.
        Subclasses of these, which may fit otherwise, are refused.
    n_samples : int
        Number of records given to ``estimator.fit``; the sizes of the folds follow from it.
    n_features : int
        Number of columns that reach the classifier, after all transformers.
    n_classes : int or None, default=None
        Number of labels, where the classifier does not declare ``classes``.
    delta : float or None, default=None
        Where to state epsilon: by default that of the accountant, or the largest of the classifiers.
    fits : int, default=1
        How often ``estimator`` is fitted, each time to ``n_samples`` records, as in ``cross_val_score`` with
        ``cv=KFold(...)``. Its default splits by the labels, and then this sum does not bound the cost.

    Returns
    -------
    SearchPlan
        An upper bound: where the data decide what is fitted, such as the candidate that a search refits, the
        costliest possibility is charged. It says what reads records without being charged, and whether it holds.

    Raises
    ------
    TypeError
        If the fits of an object cannot be counted; the message names its type and says what to do.
    ValueError
        If the classifier could not be fitted, or if bootstrap or resampling would count records several times.

    Notes
    -----
    The number of records is public, under both neighbour relations: a record that is absent leaves its place empty.
    So a split by position moves no other record, and a split by labels does.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV, KFold
    >>> from dpskl import DPLogisticRegression
    >>> from dpskl.model_selection import plan_cost
    >>> model = DPLogisticRegression(delta=0, classes=[0, 1])
    >>> search = GridSearchCV(model, {"epsilon": [0.5, 1.0]}, cv=KFold(3, shuffle=True))
    >>> print(plan_cost(search, n_samples=1000, n_features=10))
    7 fits, together epsilon = 5.5 at delta = 0
      1 x DPLogisticRegression on 666 rows, epsilon = 0.5
      2 x DPLogisticRegression on 667 rows, epsilon = 0.5
      1 x DPLogisticRegression on 666 rows, epsilon = 1
      2 x DPLogisticRegression on 667 rows, epsilon = 1
      1 x DPLogisticRegression (costliest candidate) on 1000 rows, epsilon = 1
      not covered: the scores of held-out rows, and the choice by them, in GridSearchCV
    """
    if not isinstance(fits, Integral) or isinstance(fits, bool) or fits < 1:
        raise ValueError(f"fits={fits!r} must be a whole number of at least 1")
    plan = plan_fits(estimator, n_samples, n_features, n_classes).times(int(fits))
    return summarise(plan + Planned(not_covered=_SEVERAL if fits > 1 else ()), delta)


_SEVERAL = (
    "scores of held-out rows, and folds by labels, if the fits are those of a cross-validation: it needs "
    "cv=KFold(5, shuffle=True)",
)


def plan_fits(estimator: Any, n_samples: int, n_features: int, n_classes: int | None) -> Planned:
    """Return the charges that ``estimator.fit`` would make, in their order; see :func:`plan_cost`."""
    return planned(estimator, Size(n_samples, n_features, n_classes))


def summarise(plan: Planned, delta: float | None = None) -> SearchPlan:
    """Return the composition of planned fits."""
    fits = plan.fits
    if len({fit.neighbours for fit in fits}) > 1:
        raise ValueError("the fits count under different neighbours=, and such costs have no common total")
    if delta is None:
        ledgers = [fit.accountant.delta for fit in fits if fit.accountant is not None]
        delta = max(ledgers or [fit.delta for fit in fits], default=0.0)
    lines = []
    for (name, n_samples, cost), group in groupby(fits, lambda fit: (fit.name, fit.n_samples, fit.cost)):
        lines.append(f"{len(list(group))} x {name} on {n_samples} rows, epsilon = {at_most(cost.epsilon(delta))}")
    total = compose(fit.cost for fit in fits)
    voided_by = plan.moved + plan.seeded + plan.conditional
    return SearchPlan(total, len(fits), total.epsilon(delta), delta, tuple(lines), plan.not_covered, voided_by)
