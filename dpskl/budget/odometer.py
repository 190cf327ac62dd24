"""What a ledger without a ceiling is worth when fits were chosen, and stopped, by what earlier fits had shown."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf

from dpskl.accounting._numeric import check_range
from dpskl.accounting.costs import Cost
from dpskl.budget.filters import Filter, GDPFilter, RDPFilter

__all__ = ["odometer"]

_SMALLEST, _RATIO, _STEPS = 0.01, 1.1, 97  # budgets from 0.01 to 94


@lru_cache(maxsize=4096)
def _filters(step: int, delta: float) -> tuple[Filter, ...]:
    """Filters of one budget: each may fail with its share of delta."""
    epsilon, share = _SMALLEST * _RATIO**step, delta / (2 * _STEPS)
    return GDPFilter(epsilon, share), RDPFilter(epsilon, share)


def odometer(totals: Sequence[Cost], delta: float) -> float:
    """Epsilon of what was spent, valid whatever decided on the spends and when they ended.

    Parameters
    ----------
    totals : sequence of Cost
        For each group of records, the composition of its costs.
    delta : float
        In [0, 1).

    Returns
    -------
    float
        For every set S of outcomes at which the number returned is at most epsilon, P(S) <= e^epsilon Q(S) + delta;
        ``inf`` where nothing is proved.

    Notes
    -----
    Take budgets epsilon_1 < epsilon_2 < ... and for each of them filters, all fixed in advance with shares of delta
    that add up to delta. Filter j stops a run before its budget is exceeded, and the run so stopped is (epsilon_j,
    delta_j)-private however its steps were chosen. Let A_j be the event that the number returned is epsilon_j: then
    filter j would have granted every spend, and the run is the one that filter j would have let pass. Hence for
    every set S, P(S and A_j) <= e^epsilon_j Q(S and A_j) + delta_j. Summed over j, with epsilon_J the number returned,
    P(S) <= E_Q[e^epsilon_J 1_S] + delta.

    Pure guarantees need no share of delta: the log ratio of the probabilities of a transcript is at most the sum of
    the epsilons that are written in it.

    A composed total is granted by a filter exactly when its parts are granted one after the other: charges are
    not negative and add up (squares of mu, or divergences at the order of the filter).

    Examples
    --------
    >>> from dpskl.accounting import GaussianCost, PureCost
    >>> odometer([PureCost(0.5)], 0.0)
    0.5
    >>> cost = GaussianCost(0.75)
    >>> round(cost.epsilon(1e-6), 2), round(odometer([cost], 1e-6), 2)
    (3.53, 4.46)
    """
    delta = check_range("delta", delta, 0.0, 1.0, open_high=True)
    pure = max(total.pure_epsilon for total in totals)
    if delta == 0.0:
        return pure

    def admits(step: int) -> bool:
        return any(all(rule.can_spend(total) for total in totals) for rule in _filters(step, delta))

    low, high = -1, _STEPS  # any step that admits is valid: the search need not find the first
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if admits(middle) else (middle, high)
    return min(pure, _SMALLEST * _RATIO**high if high < _STEPS else inf)
