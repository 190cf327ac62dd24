"""Why a spend was refused, in words that say what would have been granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from dpskl.accounting.words import at, at_least, at_most
from dpskl.budget.filters import FilterRefusal
from dpskl.budget.report import Entry
from dpskl.budget.tally import COMPOSITIONS, Tally

__all__ = ["explain"]


def explain(entry: Entry, refusal: FilterRefusal, facts: Mapping[str, Any], entries: Sequence[Entry]) -> str:
    """Return the message for a spend that a ledger with these facts and entries has refused."""
    epsilon, delta, composition = float(facts["epsilon"]), facts["delta"], facts["composition"]
    scarce, charged, left = "epsilon", refusal.charged, refusal.remaining
    if refusal.deltas is not None:
        scarce, (charged, left) = "delta", refusal.deltas
    if charged == inf:
        reason = f"{composition!r} composition has no finite measure of it"
    else:
        what = "a delta of " if scarce == "delta" else ""
        reason = f"{composition!r} composition charges {what}{at_most(charged, 4)} of {at_least(left, 4)} left"
    others = [name for name in COMPOSITIONS if name != composition and _admits(name, epsilon, delta, entries, entry)]
    if others:
        reason += f"; {' or '.join(map(repr, others))} composition, chosen from the start, would have admitted it"
    is_pure = entry.cost.pure_epsilon < inf
    remedy = "ask for delta=0" if delta == 0 and not is_pure else f"ask for a smaller {scarce}"
    where = delta if entry.delta is None or composition != "basic" else entry.delta
    return (
        f"{at(entry.cost.epsilon(where), where)} exceeds what is left of the ceiling of {at(epsilon, delta)}: "
        f"{reason}. Nothing was charged and no data were used; {remedy} or raise the ceiling"
    )


def _admits(composition: str, epsilon: float, delta: float, entries: Sequence[Entry], entry: Entry) -> bool:
    if delta == 0:
        return False
    tally = Tally(composition, epsilon, delta)
    try:
        for earlier in entries:
            tally.check(earlier.cost, earlier.partition, earlier.delta)
            tally.record(earlier.cost, earlier.partition, earlier.delta)
        tally.check(entry.cost, entry.partition, entry.delta)
    except FilterRefusal:
        return False
    return True
