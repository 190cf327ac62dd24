"""Costs of a choice: of the best of a random number of trials, and of whichever of several releases comes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from scipy.optimize import minimize_scalar

from dpskl.accounting._numeric import check_range
from dpskl.accounting.conversion import rdp_delta, rdp_epsilon
from dpskl.accounting.costs.base import Cost, cost_from_dict, set_fields
from dpskl.accounting.costs.composed import ComposedCost
from dpskl.accounting.costs.gaussian import GaussianCost, ReplaceOneObjectiveCost
from dpskl.accounting.costs.pure import PureCost
from dpskl.accounting.costs.renyi import RDPCost
from dpskl.accounting.selection import check_eta, log_inverse_gamma, trial_gamma

__all__ = ["SelectionCost", "WorstCost", "worst_cost"]


@dataclass(frozen=True, repr=False)
class WorstCost(Cost):
    """One release out of several, no matter which: the largest of their costs; usually made by :func:`worst_cost`.

    Parameters
    ----------
    parts : tuple of Cost
        At least one.

    Notes
    -----
    It covers a release that was chosen from the parts without the data, the choice being released too, and the
    parallel composition of releases on disjoint parts of the records, of which a record is in one.

    Examples
    --------
    >>> WorstCost((PureCost(0.5), GaussianCost(0.1))).rdp(2.0) == PureCost(0.5).rdp(2.0)
    True
    """

    kind: ClassVar[str] = "worst"
    parts: tuple[Cost, ...]

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        if not parts or not all(isinstance(part, Cost) for part in parts):
            raise ValueError(f"parts must hold at least one cost and nothing else, got {self.parts!r}.")
        set_fields(self, parts=parts)

    def delta(self, epsilon: float) -> float:
        return max(part.delta(epsilon) for part in self.parts)

    def rdp(self, alpha: float) -> float:
        return max(part.rdp(alpha) for part in self.parts)

    @property
    def pure_epsilon(self) -> float:
        """Largest of the pure guarantees."""
        return max(part.pure_epsilon for part in self.parts)

    def _profile(self, epsilon: float) -> float:
        return self.delta(epsilon)

    def _smallest_epsilon(self, delta: float) -> float:
        return max(part.epsilon(delta) for part in self.parts)

    def to_dict(self) -> dict[str, Any]:
        """JSON form, see :meth:`Cost.to_dict`."""
        return {"kind": self.kind, "parts": [part.to_dict() for part in self.parts]}

    @classmethod
    def _from_values(cls, values: Mapping[str, Any]) -> WorstCost:
        return cls(tuple(cost_from_dict(record) for record in values["parts"]))


def worst_cost(costs: Iterable[Cost]) -> Cost:
    """Return the cost of one release out of several: a single cost where one is visibly the largest.

    Parameters
    ----------
    costs : iterable of Cost
        At least one.

    Returns
    -------
    Cost
        One of the arguments if it exceeds all others, else a :class:`WorstCost` of those that none exceeds. Costs of
        replace-one objective perturbation, which have no Renyi curve, are bounded by one with the largest of every
        field, so that they still compose.

    Raises
    ------
    ValueError
        If there is no cost.

    Examples
    --------
    >>> worst_cost([PureCost(0.5), PureCost(1.0), GaussianCost(0.0)])
    PureCost(epsilon=1.0)
    """
    kept: list[Cost] = []
    for cost in costs:
        if not any(_exceeds(other, cost) for other in kept):
            kept = [*(other for other in kept if not _exceeds(cost, other)), cost]
    if len(kept) > 1 and all(isinstance(cost, ReplaceOneObjectiveCost) for cost in kept):
        return ReplaceOneObjectiveCost(*(max(values) for values in zip(*map(_fields, kept), strict=True)))
    return kept[0] if len(kept) == 1 else WorstCost(tuple(kept))


def _fields(cost: Cost) -> tuple[float, ...]:
    """Fields of a cost whose profile and curve grow with each of them."""
    if isinstance(cost, GaussianCost):
        return cost.mu, cost.shift
    return (cost.mu, cost.shift, cost.output_mu) if isinstance(cost, ReplaceOneObjectiveCost) else ()


def _exceeds(one: Cost, other: Cost) -> bool:
    if type(one) is type(other) and _fields(one):
        return all(a >= b for a, b in zip(_fields(one), _fields(other), strict=True))
    # randomised response dominates whatever has its pure guarantee
    is_response = isinstance(one, PureCost) and one.pure_epsilon >= other.pure_epsilon
    return is_response or one == other or other.pure_epsilon == 0.0


@dataclass(frozen=True, repr=False)
class SelectionCost(Cost):
    """Releasing only the best of K independent trials, K random: private hyper-parameter search.

    Parameters
    ----------
    base : Cost
        Cost of one trial, with its score: everything that decides which trial is the best is part of it.
    eta : {0, 1}
        Law of K: 0 for the logarithmic, 1 for the geometric one.
    mean : float
        Mean of K, in [1, inf).

    Notes
    -----
    Theorem 2 of Papernot & Steinke (2022), for K truncated negative binomial with parameters eta and gamma
    (:func:`trial_gamma`) and a trial with Renyi curve R: at every order a > 1

        R'(a) = R(a) + (1 + eta) [(1 - 1/b) R(b) + log(1/gamma) / b] + log(mean) / (a - 1),

    b >= 1 being free; the smallest value is taken. A pure trial gives (2 + eta) times its epsilon. The base enters by
    its Renyi curve alone, so one without a curve gives no guarantee. K, the list of trials and their times must not
    be released; ties are broken by a rule that does not look at the data; a trial that fails is a trial.

    Examples
    --------
    >>> base = GaussianCost(0.236704381)  # epsilon = 1 at delta = 1e-6
    >>> [round(SelectionCost(base, eta, 10.0).epsilon(1e-6), 4) for eta in (0, 1)]
    [1.7982, 2.1496]
    >>> SelectionCost(PureCost(0.5), 1, 10.0).epsilon(0.0)
    1.5
    """

    kind: ClassVar[str] = "selection"
    base: Cost
    eta: int
    mean: float

    def __post_init__(self) -> None:
        if not isinstance(self.base, Cost):
            raise ValueError(f"base must be a Cost, got {self.base!r}.")
        mean = check_range("mean", self.mean, 1.0, open_high=True)
        set_fields(self, eta=check_eta(self.eta), mean=mean)

    @property
    def gamma(self) -> float:
        """Second parameter of the law of the number of trials."""
        return trial_gamma(self.eta, self.mean)

    def rdp(self, alpha: float) -> float:
        alpha = check_range("alpha", alpha, 1.0, open_low=True)
        if alpha == math.inf:
            return self.pure_epsilon
        excess = (1 + self.eta) * _smallest_excess(self.base, log_inverse_gamma(self.eta, self.mean))
        return min(self.base.rdp(alpha) + excess + math.log(self.mean) / (alpha - 1.0), self.pure_epsilon)

    @property
    def pure_epsilon(self) -> float:
        """(2 + eta) times the pure guarantee of a trial; that of the trial itself where there is only one."""
        return self.base.pure_epsilon * (1 if self.mean == 1.0 else 2 + self.eta)

    def _profile(self, epsilon: float) -> float:
        if self.mean == 1.0:
            return self.base.delta(epsilon)
        return rdp_delta(self.rdp, epsilon, _tabulated_orders(self.base))

    def _smallest_epsilon(self, delta: float) -> float:
        if self.mean == 1.0:
            return self.base.epsilon(delta)
        return rdp_epsilon(self.rdp, delta, _tabulated_orders(self.base))

    def to_dict(self) -> dict[str, Any]:
        """JSON form, see :meth:`Cost.to_dict`."""
        return {"kind": self.kind, "base": self.base.to_dict(), "eta": self.eta, "mean": self.mean}

    @classmethod
    def _from_values(cls, values: Mapping[str, Any]) -> SelectionCost:
        return cls(**{**values, "base": cost_from_dict(values["base"])})


# Logarithms of b - 1: every b gives a valid bound, so that the search may be rough.
_STEPS = [step / 4.0 for step in range(-40, 81)]


@lru_cache(maxsize=1024)
def _smallest_excess(base: Cost, log_inverse_gamma: float) -> float:
    """Smallest (1 - 1/b) R(b) + log(1/gamma) / b over b >= 1; b = 1 and b = inf are its limits."""

    def excess(order: float) -> float:
        # the parabolic steps of the search take no infinities
        return min(1e100, (order - 1.0) / order * base.rdp(order) + log_inverse_gamma / order)

    def at_step(step: float) -> float:
        return excess(1.0 + math.exp(step))

    # sampled and tabulated curves jump between whole or listed orders
    orders = [*map(float, range(2, 65)), *_tabulated_orders(base)]
    start = min(_STEPS, key=at_step)
    found = minimize_scalar(at_step, bounds=(start - 0.25, start + 0.25), method="bounded")
    best = min(at_step(start), float(found.fun), *map(excess, orders))
    return min(log_inverse_gamma, base.pure_epsilon, best)


def _tabulated_orders(cost: Cost) -> tuple[float, ...]:
    """Orders at which a tabulated curve is exact."""
    if isinstance(cost, RDPCost):
        return tuple(order for order in cost.orders if order < math.inf)
    if isinstance(cost, ComposedCost):
        return tuple(order for part, _ in cost.parts for order in _tabulated_orders(part))
    if isinstance(cost, WorstCost):
        return tuple(order for part in cost.parts for order in _tabulated_orders(part))
    return ()
