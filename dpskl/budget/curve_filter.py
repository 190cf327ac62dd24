"""A Renyi filter at several orders at once, so that a budget spent at run time is a curve and not one number."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpskl.accounting.costs import Cost, RDPCost
from dpskl.budget.filters import FilterRefusal

__all__ = ["CurveFilter"]

# Rounding of the sums of charges.
_SLACK = 1e-12


class CurveFilter:
    """Budgets at Renyi orders that are fixed in advance; a step must fit all of them.

    At each order alone this is the filter of Feldman & Zrnic (2021) and Lecuyer (2021), so the whole run has a
    divergence of at most the budget at *every* order of the table, however its steps were chosen. (To go on while
    *some* order has budget left is not valid.) The run therefore costs the table, a curve that an accountant composes
    with other costs at whatever order suits it. A budget at one order alone would leave no bound at any other.

    Parameters
    ----------
    budget : RDPCost
        Orders and the largest sum of divergences at each. Infinite budgets refuse nothing.

    Examples
    --------
    >>> from dpskl.accounting import GaussianCost
    >>> steps = CurveFilter(RDPCost([2, 8], [0.1, 0.5]))
    >>> steps.take(GaussianCost(0.3))
    >>> round(steps.remaining(2), 3), round(steps.remaining(8), 3)
    (0.01, 0.14)
    >>> steps.can_take(GaussianCost(0.3))
    False
    """

    def __init__(self, budget: RDPCost) -> None:
        self.budget = budget
        self._charges: list[list[float]] = [[] for _ in budget.orders]
        self._known: dict[Cost, Sequence[float]] = {}

    def _divergences(self, cost: Cost) -> Sequence[float]:
        if cost not in self._known:
            self._known[cost] = [cost.rdp(order) for order in self.budget.orders]
        return self._known[cost]

    def remaining(self, order: float) -> float:
        """Return what is left at an order of the table."""
        position = self.budget.orders.index(order)
        return max(0.0, self.budget.values[position] - math.fsum(self._charges[position]))

    def _first_short(self, cost: Cost) -> int | None:
        """Return the position of the first order at which a cost does not fit."""
        budgets = zip(self.budget.values, self._charges, self._divergences(cost), strict=True)
        for position, (budget, charges, charge) in enumerate(budgets):
            if not (math.isinf(budget) or math.fsum([*charges, charge]) <= budget * (1.0 - _SLACK)):
                return position
        return None

    def can_take(self, cost: Cost) -> bool:
        """Whether :meth:`take` would accept a cost; nothing is recorded."""
        return self._first_short(cost) is None

    def take(self, cost: Cost) -> None:
        """Charge a step, before its noise is drawn.

        Parameters
        ----------
        cost : Cost
            Fixed before the noise of the step is drawn.

        Raises
        ------
        FilterRefusal
            If some order has too little left. Nothing changes then.
        """
        short = self._first_short(cost)
        if short is not None:
            order, charge = self.budget.orders[short], self._divergences(cost)[short]
            left = self.remaining(order)
            raise FilterRefusal(
                f"{cost!r} costs {charge:g} at order {order:g}, and {left:g} is left there", charge, left
            )
        for charges, charge in zip(self._charges, self._divergences(cost), strict=True):
            charges.append(charge)
