"""Entries of a ledger, and what a ledger says of itself in text, HTML and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from itertools import groupby
from math import inf
from typing import Any

from dpskl._version import __version__
from dpskl.accounting.costs import Cost, cost_from_dict
from dpskl.accounting.words import at, at_least
from dpskl.budget.tally import Cell, Spent

__all__ = ["Entry", "PrivacyReport"]

_HALF = 0.5  # a delta at which whatever has some noise has an epsilon


def _plain(pair: Spent) -> dict[str, float | str]:
    return {"epsilon": "inf" if pair.epsilon == inf else pair.epsilon, "delta": pair.delta}


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


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
    delta : float or None
        Where a rule of sums charged the cost.
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
    delta: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that ``json.dumps`` takes."""
        return {**vars(self), "cost": self.cost.to_dict()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Entry:
        """Return the entry that ``to_dict`` described."""
        cell = record["partition"]
        return cls(**{**record, "cost": cost_from_dict(record["cost"]), "partition": tuple(cell) if cell else None})

    @property
    def is_void(self) -> bool:
        """Whether it gives no guarantee: the noise came from a seed, or there was none."""
        return self.is_seeded or self.cost.epsilon(_HALF) == inf

    def describe(self, delta: float) -> str:
        """Return the entry in one line, with its epsilon at ``delta``."""
        facts = [self.label, self.estimator, self.solver, f"n={self.n_samples}" if self.n_samples else None]
        facts.append(f"{self.partition[0]}: {self.partition[1]}" if self.partition else None)
        facts.append("seeded" if self.is_seeded else "no guarantee" if self.is_void else None)
        words = ", ".join(fact for fact in facts if fact)
        own = at(self.cost.epsilon(delta), delta)
        return f"{own} by {words}" if words else own


@dataclass(frozen=True)
class PrivacyReport:
    """What a ledger says of itself; ``print`` shows text, a notebook a table.

    Attributes
    ----------
    spent : Spent
        Composition of the entries, as tight as their costs allow, if they were fixed in advance.
    remaining : Spent
    ceiling : Spent
    composition : str
    neighbours : str or None
    entries : tuple of Entry
    path : str
        File of the ledger.
    adaptive : Spent
        What holds whatever decided on the entries and their number: by the ceiling, or without one by
        :meth:`~dpskl.PrivacyAccountant.odometer`.
    is_verified : bool
        Whether no entry was changed or removed.
    id : str
        Of the ledger.
    time : float
        Of the report, in seconds since the epoch.
    """

    spent: Spent
    remaining: Spent
    ceiling: Spent
    composition: str
    neighbours: str | None
    entries: tuple[Entry, ...]
    path: str
    adaptive: Spent
    is_verified: bool
    id: str
    time: float

    @property
    def holds(self) -> bool:
        """Whether the totals are proved: no entry was changed, none is void, and none rests on more than theorems."""
        return self.is_verified and not self._conditional and not any(entry.is_void for entry in self.entries)

    @property
    def _conditional(self) -> list[str]:
        return sorted({entry.solver for entry in self.entries if entry.solver and "conditional" in entry.solver})

    @property
    def conditions(self) -> tuple[str, ...]:
        """What the totals rest on, or why there is no guarantee."""
        found = []
        if not self.is_verified:
            found.append("NO GUARANTEE HOLDS: an entry was changed or removed after it was written")
        if any(entry.is_seeded for entry in self.entries):
            found.append("NO GUARANTEE HOLDS for entries marked 'seeded': their noise can be reproduced")
        if any(entry.is_void and not entry.is_seeded for entry in self.entries):
            found.append("NO GUARANTEE HOLDS for entries marked 'no guarantee': they have no finite epsilon")
        for words in self._conditional:
            found.append(f"NOT PROVED for entries marked {words!r}: they hold under the condition that this names")
        if len(self.entries) > 1:
            found.append(
                f"{at(*self.spent)} holds if number and costs of the spends were fixed before the first result was seen"
            )
        labels = sorted({entry.partition[0] for entry in self.entries if entry.partition})
        if labels:
            names = ", ".join(labels)
            found.append(f"the cells of {names} are disjoint, as declared, and the number of records of each is public")
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary that ``json.dumps`` takes (an infinite epsilon becomes the string ``"inf"``).

        ``holds`` is false if an entry was changed, is void or is not proved; see ``conditions``, which also say what
        the figures presume.
        """
        return {
            **_plain(self.spent),
            "adaptive": _plain(self.adaptive),
            "remaining": _plain(self.remaining),
            "ceiling": _plain(self.ceiling),
            "composition": self.composition,
            "neighbours": self.neighbours,
            "holds": self.holds,
            "conditions": list(self.conditions),
            "path": self.path,
            "id": self.id,
            "version": __version__,
            "time": _utc(self.time),
            "entries": [{**entry.to_dict(), "utc": _utc(entry.time)} for entry in self.entries],
            "lines": [
                {"times": count, "spend": line, "first": first, "last": last}
                for count, line, first, last in self._lines()
            ],
        }

    def _head(self) -> list[str]:
        count = len(self.entries)
        ceiling = "no ceiling"
        if self.ceiling.epsilon < inf:
            ceiling = f"a ceiling of {at(*self.ceiling)} by {self.composition!r} composition"
        lines = [
            f"{count} {'spend' if count == 1 else 'spends'}, together {at(*self.spent)}",
            f"{ceiling}, neighbours {self.neighbours or 'not fixed yet'}",
        ]
        if count > 1:
            source = "no ceiling is needed for it" if self.ceiling.epsilon == inf else "by the ceiling"
            lines.insert(1, f"whatever decided on the spends and their number: {at(*self.adaptive)} ({source})")
        if self.ceiling.epsilon < inf:
            epsilon, delta = at_least(self.remaining.epsilon), at_least(self.remaining.delta)
            lines.append(f"left: epsilon = {epsilon} at delta = {delta}")
        lines += [f"({condition})" if condition[:2] != "NO" else condition for condition in self.conditions]
        return [*lines, f"ledger {self.id}, reported {_utc(self.time)} by dpskl {__version__}"]

    def _lines(self) -> list[tuple[int, str, str, str]]:
        """Return how often a spend came in a row, its words, and when it came first and last."""
        groups = [list(group) for _, group in groupby(self.entries, lambda entry: entry.describe(self.spent.delta))]
        return [
            (len(group), group[0].describe(self.spent.delta), _utc(group[0].time), _utc(group[-1].time))
            for group in groups
        ]

    def _rows(self) -> list[tuple[int, str, str]]:
        return [
            (count, line, first if first == last else f"{first} to {last}")
            for count, line, first, last in self._lines()
        ]

    def __str__(self) -> str:
        return "\n".join(self._head() + [f"  {count} x {line}, {when}" for count, line, when in self._rows()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<div>{escape(line)}</div>" for line in self._head())
        rows = "".join(
            f"<tr><td>{count}</td><td>{escape(line)}</td><td>{when}</td></tr>" for count, line, when in self._rows()
        )
        return f"<div>{head}<table><tr><th>times</th><th>spend</th><th>when</th></tr>{rows}</table></div>"
