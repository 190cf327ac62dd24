"""Privacy filters: budgets that adaptively chosen releases may spend until nothing is left.

A filter is valid because what remains after a step depends on the charges alone, not on what the step
revealed. That holds for sums of squares of Gaussian mu, for Renyi divergences at one order fixed in advance,
and for sums of (epsilon, delta). It does not hold for "some order still has budget", which is not offered.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction

from dpskl.accounting._numeric import check_range
from dpskl.accounting.calibration import gaussian_mu, rdp_order
from dpskl.accounting.costs import ApproximateCost, Cost, GaussianCost
from dpskl.accounting.costs.composed import ComposedCost, exact

__all__ = ["BasicFilter", "Filter", "FilterRefusal", "GDPFilter", "RDPFilter"]

# Covers rounding of sums: the Gaussian budget is 1e-10 below the largest valid one, the Renyi one 1e-11.
_SLACK = 1e-12


class FilterRefusal(ValueError):  # noqa: N818
    """A step costs more than is left; it was not recorded.

    Parameters
    ----------
    message : str
        What was refused.
    charged : float
        What the step costs, in the measure of the filter.
    remaining : float
        What is left, in the same measure.
    deltas : tuple of (float, float), optional
        Where delta was short and not the measure: what the step costs of it, and what is left.
    """

    def __init__(
        self, message: str, charged: float, remaining: float, deltas: tuple[float, float] | None = None
    ) -> None:
        super().__init__(message)
        self.charged = charged
        self.remaining = remaining
        self.deltas = deltas


class Filter(ABC):
    """Budget in one measure of privacy, spent step by step.

    Parameters
    ----------
    epsilon : float
        Total budget, in (0, inf]; ``inf`` refuses nothing and only records.
    delta : float
        Total budget.
    """

    measure: str

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon = check_range("epsilon", epsilon, 0.0, open_low=True)
        self.delta = delta

    @abstractmethod
    def charge(self, cost: Cost) -> float:
        """Return what a cost is charged, in the measure of the filter; ``inf`` if it has no such measure."""

    @property
    @abstractmethod
    def spent(self) -> float:
        """Sum of the charges so far."""

    @property
    @abstractmethod
    def remaining(self) -> float:
        """Budget that is left, at least 0."""

    @abstractmethod
    def _fits(self, cost: Cost) -> bool:
        """Whether a cost fits a finite budget."""

    @abstractmethod
    def record(self, cost: Cost) -> None:
        """Add the charge of a cost that was granted elsewhere, without asking whether it fits."""

    def can_spend(self, cost: Cost) -> bool:
        """Whether :meth:`spend` would accept a cost.

        Parameters
        ----------
        cost : Cost
            Cost of the next step, fixed before its noise is drawn.

        Returns
        -------
        bool
            The answer; nothing is recorded.
        """
        return self.epsilon == math.inf or self._fits(cost)

    def spend(self, cost: Cost) -> None:
        """Charge a step, before it is made.

        Parameters
        ----------
        cost : Cost
            Cost of the step, fixed before its noise is drawn.

        Raises
        ------
        FilterRefusal
            If it costs more than is left. Nothing changes then.
        """
        if not self.can_spend(cost):
            charged, remaining, deltas = self.charge(cost), self.remaining, self._short_deltas(cost)
            measure, cause, left = self.measure, charged, remaining
            if deltas is not None:
                measure, (cause, left) = "delta", deltas
            reason = f"has no finite {measure}" if cause == math.inf else f"costs {cause:g}"
            raise FilterRefusal(
                f"{cost!r} {reason}, and {left:g} of the budget ({measure}; epsilon="
                f"{self.epsilon:g}, delta={self.delta:g}) is left: add noise, make fewer steps, or raise the "
                "budget.",
                charged,
                remaining,
                deltas,
            )
        self.record(cost)

    def _short_deltas(self, cost: Cost) -> tuple[float, float] | None:
        """Where a cost fits in the measure, and a budget of delta beside it is short: its charge, and what is left."""
        return None


class GDPFilter(Filter):
    """Filter for Gaussian releases: the squares of mu add up.

    Parameters
    ----------
    epsilon : float
        Total budget, in (0, inf].
    delta : float
        Total budget, in (0, 1).
    max_shift : float, default=0.0
        Largest sum of the shifts of objective-perturbation releases, in [0, epsilon). The budget for mu is
        what this shift leaves.

    Notes
    -----
    Smith & Thakurta (2022); Koskela, Tobaben & Honkela (2023): adaptively chosen Gaussian releases with
    sum mu_i^2 <= mu^2 are mu-Gaussian private. With shifts both sums must stay inside their budgets.

    Examples
    --------
    >>> steps = GDPFilter(1.0, 1e-6)
    >>> steps.spend(GaussianCost(0.2))
    >>> steps.can_spend(GaussianCost(0.2))
    False
    """

    measure = "squared mu"

    def __init__(self, epsilon: float, delta: float, max_shift: float = 0.0) -> None:
        super().__init__(epsilon, delta)
        self.max_shift = check_range("max_shift", max_shift, 0.0, open_high=True)
        self.mu = gaussian_mu(epsilon, delta, shift=max_shift)
        self._squares: list[float] = []
        self._shifts: list[float] = []

    def charge(self, cost: Cost) -> float:
        """Return the squared mu of a Gaussian cost, ``inf`` for every other cost."""
        total = _gaussian(cost)
        return math.inf if total is None else total.mu**2

    @property
    def spent(self) -> float:
        """Sum of squared mu so far."""
        return math.fsum(self._squares)

    @property
    def remaining(self) -> float:
        """Squared mu that is left."""
        return math.inf if self.mu == math.inf else max(0.0, self.mu**2 - self.spent)

    @property
    def shift_spent(self) -> float:
        """Sum of the shifts so far."""
        return math.fsum(self._shifts)

    def _fits(self, cost: Cost) -> bool:
        total = _gaussian(cost)
        if total is None:
            return False
        square = math.fsum([*self._squares, total.mu**2])
        shift = math.fsum([*self._shifts, total.shift])
        return square <= self.mu**2 * (1.0 + _SLACK) and shift <= self.max_shift

    def record(self, cost: Cost) -> None:
        total = _gaussian(cost)
        self._squares.append(math.inf if total is None else total.mu**2)
        self._shifts.append(math.inf if total is None else total.shift)


def _gaussian(cost: Cost) -> GaussianCost | None:
    """The cost as one Gaussian cost, ``None`` if it is not Gaussian. A free cost is Gaussian with mu 0."""
    parts = cost.parts if isinstance(cost, ComposedCost) else ((cost, 1),)
    squares, shifts = [], []
    for part, count in parts:
        if isinstance(part, GaussianCost):
            squares.append(count * part.mu**2)
            shifts.append(count * part.shift)
        elif part.pure_epsilon > 0.0:
            return None
    return GaussianCost(math.sqrt(math.fsum(squares)), math.fsum(shifts))


class RDPFilter(Filter):
    """Filter at one Renyi order, fixed in advance from the budget.

    Parameters
    ----------
    epsilon : float
        Total budget, in (0, inf].
    delta : float
        Total budget, in (0, 1).

    Notes
    -----
    Feldman & Zrnic (2021); Lecuyer (2021). The order and its budget are those of
    :func:`~dpskl.accounting.rdp_order`. The certified guarantee of a run is the target, whatever was spent.

    Examples
    --------
    >>> steps = RDPFilter(1.0, 1e-6)
    >>> steps.spend(GaussianCost(0.1))
    >>> round(steps.spent, 4), round(steps.remaining, 4)
    (0.1099, 0.4255)
    """

    measure = "Renyi divergence"

    def __init__(self, epsilon: float, delta: float) -> None:
        super().__init__(epsilon, delta)
        self.order = rdp_order(epsilon, delta)
        self._budget = self.order.budget * (1.0 - 10.0 * _SLACK)
        self._charges: list[float] = []

    def charge(self, cost: Cost) -> float:
        """Return the Renyi divergence of a cost at the order of the filter."""
        return cost.rdp(self.order.alpha)

    @property
    def spent(self) -> float:
        """Sum of the divergences so far."""
        return math.fsum(self._charges)

    @property
    def remaining(self) -> float:
        """Divergence that is left."""
        return math.inf if self._budget == math.inf else max(0.0, self._budget - self.spent)

    def _fits(self, cost: Cost) -> bool:
        return math.fsum([*self._charges, self.charge(cost)]) <= self._budget * (1.0 + _SLACK)

    def record(self, cost: Cost) -> None:
        self._charges.append(self.charge(cost))


class BasicFilter(Filter):
    """Filter by basic composition: the epsilons add up, and so do the deltas.

    Parameters
    ----------
    epsilon : float
        Total budget, in (0, inf].
    delta : float
        Total budget, in [0, 1).
    delta_each : float, optional
        Delta at which a cost that is neither pure nor approximate is charged, in (0, delta]. The default is
        the whole delta: one such step and no more.

    Notes
    -----
    A pure cost is charged its pure guarantee and no delta, an approximate one its own (epsilon, delta), any
    other its epsilon at ``delta_each`` together with that delta. The numbers are added as the decimal
    fractions that they are written as, so that ten steps of 0.1 leave exactly 0 of a budget of 1.

    Examples
    --------
    >>> from dpskl.accounting import PureCost
    >>> steps = BasicFilter(1.0, 0.0)
    >>> for _ in range(10):
    ...     steps.spend(PureCost(0.1))
    >>> steps.remaining
    0.0
    """

    measure = "epsilon"

    def __init__(self, epsilon: float, delta: float, delta_each: float | None = None) -> None:
        super().__init__(epsilon, check_range("delta", delta, 0.0, 1.0, open_high=True))
        if delta_each is not None:
            check_range("delta_each", delta_each, 0.0, self.delta, open_low=True)
        self.delta_each = self.delta if delta_each is None else float(delta_each)
        self._epsilon_spent = Fraction(0)
        self._delta_spent = Fraction(0)
        self._infinite = False

    def _charges(self, cost: Cost) -> tuple[float, float]:
        """Epsilon and delta charged."""
        if cost.pure_epsilon < math.inf:
            return cost.pure_epsilon, 0.0
        if isinstance(cost, ApproximateCost):
            return cost.stated_epsilon, cost.stated_delta
        return cost.epsilon(self.delta_each), self.delta_each

    def charge(self, cost: Cost) -> float:
        """Return the epsilon that a cost is charged."""
        return self._charges(cost)[0]

    @property
    def spent(self) -> float:
        """Sum of the epsilons so far."""
        return math.inf if self._infinite else float(self._epsilon_spent)

    @property
    def remaining(self) -> float:
        """Epsilon that is left."""
        if self.epsilon == math.inf:
            return math.inf
        # a first cost may be granted by its own curve and have no measure here, or too much: then nothing is left
        if self._infinite or self._delta_spent > exact(self.delta):
            return 0.0
        return float(max(Fraction(0), exact(self.epsilon) - self._epsilon_spent))

    @property
    def delta_spent(self) -> float:
        """Sum of the deltas so far."""
        return float(self._delta_spent)

    @property
    def delta_remaining(self) -> float:
        """Delta that is left."""
        return float(max(Fraction(0), exact(self.delta) - self._delta_spent))

    def _fits(self, cost: Cost) -> bool:
        epsilon, delta = self._charges(cost)
        if self._infinite or epsilon == math.inf:
            return False
        fits = self._epsilon_spent + exact(epsilon) <= exact(self.epsilon)
        return fits and self._delta_spent + exact(delta) <= exact(self.delta)

    def _short_deltas(self, cost: Cost) -> tuple[float, float] | None:
        epsilon, delta = self._charges(cost)
        return (delta, self.delta_remaining) if epsilon <= self.remaining else None

    def record(self, cost: Cost) -> None:
        epsilon, delta = self._charges(cost)
        if epsilon == math.inf:
            self._infinite = True
        else:
            self._epsilon_spent += exact(epsilon)
        self._delta_spent += exact(delta)
