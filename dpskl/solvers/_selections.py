"""How many private selections a budget is worth: the rules that PrivGene and Frank-Wolfe share."""

from __future__ import annotations

from math import log, sqrt

from dpskl.accounting import rdp_order
from dpskl.mechanisms.sensitivity import contributions
from dpskl.solvers.base import PublicFacts

__all__ = ["capacity_for", "rounds_for", "selection_capacity"]

_ROUNDS = 0.7


def selection_capacity(facts: PublicFacts, epsilon: float, delta: float, n_candidates: int) -> float:
    """Return how many noise levels of one selection with the whole budget, at a clip of 1, the records add up to."""
    spent = epsilon if delta == 0 else sqrt(8 * rdp_order(epsilon, delta).rho)
    return facts.n_samples * spent / (2 * contributions(facts.neighbours) * log(n_candidates))


def rounds_for(capacity: float, delta: float) -> float:
    """Return the number of selections that balances their noise with the distance that is left, for a capacity."""
    return sqrt(capacity) if delta == 0 else _ROUNDS * capacity ** (2 / 3)


def capacity_for(rounds: int, delta: float) -> float:
    """Return the capacity, over the clip, at which the rule asks for so many rounds."""
    return float(rounds**2 if delta == 0 else (rounds / _ROUNDS) ** 1.5)
