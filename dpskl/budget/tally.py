"""What the entries of a ledger add up to, and whether one more fits under the ceiling."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import NamedTuple

from dpskl.accounting.conversion import gaussian_epsilon
from dpskl.accounting.costs import Cost, compose
from dpskl.budget.filters import BasicFilter, Filter, GDPFilter, RDPFilter

__all__ = ["COMPOSITIONS", "Spent", "Tally"]

COMPOSITIONS: dict[str, type[Filter]] = {"rdp": RDPFilter, "basic": BasicFilter, "gdp": GDPFilter}

Cell = tuple[str, str]
_MOST_GROUPS = 10_000


class Spent(NamedTuple):
    """An (epsilon, delta) pair."""

    epsilon: float
    delta: float


@dataclass
class _Group:
    """Records that lie in the same cell of every partition: what was spent on them."""

    rule: Filter
    costs: list[Cost] = field(default_factory=list)

    def admits(self, cost: Cost, epsilon: float, delta: float) -> bool:
        # The first cost on a record was chosen before anything was learnt about it, so its own exact curve may
        # decide; the rule goes on counting it in its own measure.
        if self.costs:
            return self.rule.can_spend(cost)
        # delta = 0 asks for a pure guarantee: a delta that is too small for a float is not one
        own = cost.pure_epsilon <= epsilon if delta == 0 else cost.delta(epsilon) <= delta * (1 + 1e-9)
        return own or self.rule.can_spend(cost)


class Tally:
    """The spends of a ledger, for each group of records that can have been touched by different ones.

    Without partitions there is one group. A partition divides the records into disjoint cells; a spend on a cell
    costs the records of that cell only, so the total is that of the worst group (parallel composition, which is a
    filter for each record).

    Parameters
    ----------
    composition : {"rdp", "basic", "gdp"}
    epsilon, delta : float
        The ceiling.
    """

    def __init__(self, composition: str, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = epsilon, delta
        self._groups: dict[frozenset[Cell], _Group] = {frozenset(): _Group(COMPOSITIONS[composition](epsilon, delta))}

    def _touched(self, cell: Cell | None) -> list[_Group]:
        if cell is None:
            return list(self._groups.values())
        if not any(cell in key for key in self._groups):
            label = cell[0]
            outside = [key for key in self._groups if label not in {other for other, _ in key}]
            if len(self._groups) + len(outside) > _MOST_GROUPS:
                raise ValueError(f"partition {label!r} makes over {_MOST_GROUPS} groups of records; use fewer cells")
            for key in outside:
                self._groups[key | {cell}] = copy.deepcopy(self._groups[key])
        return [group for key, group in self._groups.items() if cell in key]

    def check(self, cost: Cost, cell: Cell | None = None) -> None:
        """Raise FilterRefusal if the ceiling does not admit the cost; nothing is recorded."""
        for group in self._touched(cell):
            if not group.admits(cost, self.epsilon, self.delta):
                group.rule.spend(cost)  # refuses, says why, and records nothing

    def record(self, cost: Cost, cell: Cell | None = None) -> None:
        """Add a cost that was granted."""
        for group in self._touched(cell):
            group.rule.record(cost)
            group.costs.append(cost)

    def spent(self, delta: float) -> Spent:
        """Return the composition of the costs on the worst group, as tight as the costs allow."""
        totals = {compose(group.costs) for group in self._groups.values()}
        return Spent(max(total.epsilon(delta) for total in totals), delta)

    def remaining(self) -> Spent:
        """Return what the worst group can still spend."""
        groups = [group for group in self._groups.values() if group.costs]
        if not groups:
            return Spent(self.epsilon, self.delta)
        return min(_remaining(group.rule) for group in groups)


def _remaining(rule: Filter) -> Spent:
    """Return what a rule still admits; for the Gaussian ones as the epsilon of one Gaussian release."""
    if isinstance(rule, BasicFilter):
        return Spent(rule.remaining, rule.delta_remaining)
    if rule.remaining == inf:
        return Spent(inf, rule.delta)
    square = 2 * rule.remaining / rule.order.alpha if isinstance(rule, RDPFilter) else rule.remaining
    return Spent(gaussian_epsilon(sqrt(square), rule.delta), rule.delta)
