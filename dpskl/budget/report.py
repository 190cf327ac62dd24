"""Entries of a ledger, and what a ledger says of itself in text, HTML and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from html import escape
from itertools import groupby
from math import inf
from typing import Any

from dpskl.accounting.costs import Cost, cost_from_dict
from dpskl.budget.tally import Cell, Spent

__all__ = ["Entry", "PrivacyReport", "at"]


def at(epsilon: float, delta: float) -> str:
    """Return the words for an (epsilon, delta) pair."""
    return f"epsilon = {epsilon:.6g} at delta = {delta:g}"


def _plain(number: float) -> float | str:
    return "inf" if number == inf else number


@dataclass(frozen=True)
class Entry:
    """One spend, as it was charged. Nothing in it comes from the data.

    Attributes
    ----------
    cost : Cost
    neighbours : str
    solver, estimator, label : str or None
    partition : tuple of (str, str) or None
        Label of a partition of the records and the cell that the spend was on.
    n_samples : int or None
        Public number of records.
    is_seeded : bool
        Whether the noise came from a seed; the guarantee of such an entry is void.
    time : float
        Seconds since the epoch.
    process : int
    version : str
        Of dpskl.
    """

    cost: Cost
    neighbours: str
    solver: str | None
    estimator: str | None
    label: str | None
    partition: Cell | None
    n_samples: int | None
    is_seeded: bool
    time: float
    process: int
    version: str

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that ``json.dumps`` takes."""
        return {**asdict(self), "cost": self.cost.to_dict()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Entry:
        """Return the entry that ``to_dict`` described."""
        cell = record["partition"]
        return cls(**{**record, "cost": cost_from_dict(record["cost"]), "partition": tuple(cell) if cell else None})

    def describe(self, delta: float) -> str:
        """Return the entry in one line, with its epsilon at ``delta``."""
        facts = [self.label, self.estimator, self.solver, f"n={self.n_samples}" if self.n_samples else None]
        facts.append(f"{self.partition[0]}: {self.partition[1]}" if self.partition else None)
        facts.append("seeded" if self.is_seeded else None)
        words = ", ".join(fact for fact in facts if fact)
        own = at(self.cost.epsilon(delta), delta)
        return f"{own} by {words}" if words else own


@dataclass(frozen=True)
class PrivacyReport:
    """What a ledger says of itself; ``print`` shows text, a notebook a table.

    Attributes
    ----------
    spent : Spent
        Composition of the entries, as tight as their costs allow.
    remaining : Spent
    ceiling : Spent
    composition : str
    neighbours : str or None
    entries : tuple of Entry
    path : str
        File of the ledger.
    """

    spent: Spent
    remaining: Spent
    ceiling: Spent
    composition: str
    neighbours: str | None
    entries: tuple[Entry, ...]
    path: str

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that ``json.dumps`` takes (an infinite epsilon becomes the string ``"inf"``)."""
        return {
            "epsilon": _plain(self.spent.epsilon),
            "delta": self.spent.delta,
            "remaining": {"epsilon": _plain(self.remaining.epsilon), "delta": self.remaining.delta},
            "ceiling": {"epsilon": _plain(self.ceiling.epsilon), "delta": self.ceiling.delta},
            "composition": self.composition,
            "neighbours": self.neighbours,
            "holds": not self._is_void,
            "path": self.path,
            "entries": [entry.to_dict() for entry in self.entries],
        }

    @property
    def _is_void(self) -> bool:
        return any(entry.is_seeded for entry in self.entries)

    def _head(self) -> list[str]:
        count = len(self.entries)
        ceiling = "no ceiling"
        if self.ceiling.epsilon < inf:
            ceiling = f"a ceiling of {at(*self.ceiling)} by {self.composition!r} composition"
        lines = [
            f"{count} {'spend' if count == 1 else 'spends'}, together {at(*self.spent)}",
            f"{ceiling}, neighbours {self.neighbours or 'not fixed yet'}",
        ]
        if len({entry.cost for entry in self.entries}) > 1:
            lines.append("(the total holds if every cost was fixed before the first result was seen)")
        if self._is_void:
            lines.append("NO GUARANTEE HOLDS for entries marked 'seeded': their noise can be reproduced")
        return lines

    def _lines(self) -> list[tuple[int, str]]:
        alike = groupby(self.entries, lambda entry: entry.describe(self.spent.delta))
        return [(len(list(group)), line) for line, group in alike]

    def __str__(self) -> str:
        return "\n".join(self._head() + [f"  {count} x {line}" for count, line in self._lines()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<div>{escape(line)}</div>" for line in self._head())
        rows = "".join(f"<tr><td>{count}</td><td>{escape(line)}</td></tr>" for count, line in self._lines())
        return f"<div>{head}<table><tr><th>times</th><th>spend</th></tr>{rows}</table></div>"
