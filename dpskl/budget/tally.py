"""What the entries of a ledger add up to, and whether one more fits under the ceiling."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import NamedTuple

from dpskl.accounting.conversion import gaussian_epsilon
from dpskl.accounting.costs import ApproximateCost, Cost, compose
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

    def counted(self, cost: Cost, at: float | None) -> Cost:
        """Return the cost as the rule is to count it: for sums one point of its curve, if the spend named a delta."""
        if not isinstance(self.rule, BasicFilter) or at is None:
            return cost
        if cost.pure_epsilon < inf or isinstance(cost, ApproximateCost):
            return cost
        return ApproximateCost(cost.epsilon(at), at)  # every cost has (epsilon(d), d), whatever d is

    def admits(self, cost: Cost, at: float | None, epsilon: float, delta: float) -> bool:
        # The first cost on a record was chosen before anything was learnt about it, so its own exact curve may
        # decide; the rule goes on counting it in its own measure.
        counted = self.counted(cost, at)
        if self.costs:
            return self.rule.can_spend(counted)
        # delta = 0 asks for a pure guarantee: a delta that is too small for a float is not one
        own = cost.pure_epsilon <= epsilon if delta == 0 else cost.delta(epsilon) <= delta * (1 + 1e-9)
        return own or self.rule.can_spend(counted)


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

    def check(self, cost: Cost, cell: Cell | None = None, delta: float | None = None) -> None:
        """Raise FilterRefusal if the ceiling does not admit the cost; nothing is recorded.

        ``delta`` is where a rule of sums takes the cost from its curve.
        """
        for group in self._touched(cell):
            if not group.admits(cost, delta, self.epsilon, self.delta):
                group.rule.spend(group.counted(cost, delta))  # refuses, says why, and records nothing

    def record(self, cost: Cost, cell: Cell | None = None, delta: float | None = None) -> None:
        """Add a cost that was granted."""
        for group in self._touched(cell):
            group.rule.record(group.counted(cost, delta))
            group.costs.append(cost)

    def totals(self) -> list[Cost]:
        """Return the composition of the costs on each group of records, each once."""
        return list(dict.fromkeys(compose(group.costs) for group in self._groups.values()))

    def spent(self, delta: float) -> Spent:
        """Return the composition of the costs on the worst group, as tight as the costs allow."""
        return Spent(max(total.epsilon(delta) for total in self.totals()), delta)

    def adaptive(self) -> Spent | None:
        """Return what holds however spends were chosen and ended, by the ceiling; None where there is no ceiling.

        The ceiling is a filter, fixed in advance: whatever it lets pass is (epsilon, delta)-private. Of sums the part
        that was used will do. By induction over the steps, P(S) <= E_Q[e^E 1_S] + delta, with E the sum of the epsilons
        in a transcript, and delta that of the ceiling: the part of a step's law above e^epsilon_1 times the other has
        mass delta_1 at most, and the rest is followed by steps whose deltas sum to at most delta - delta_1. A first
        cost that was granted by its own curve may be counted at more than that delta: then only the ceiling holds.
        """
        if self.epsilon == inf:
            return None
        rules = [group.rule for group in self._groups.values()]
        sums = [rule.spent for rule in rules if isinstance(rule, BasicFilter) and rule.delta_spent <= self.delta]
        spent = max(sums) if len(sums) == len(rules) else inf
        return Spent(min(spent, self.epsilon), self.delta)

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
