"""What a process knows of a ledger: the facts that were fixed when it was made, its entries and what they add up to."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import uuid
from math import inf, isnan
from numbers import Real
from pathlib import Path
from typing import Any

from dpskl._version import __version__
from dpskl.budget.ledger import Ledger
from dpskl.budget.report import Entry
from dpskl.budget.tally import COMPOSITIONS, Tally
from dpskl.exceptions import LedgerFormatError

__all__ = ["NEIGHBOURS", "Book", "checked_facts", "temporary_path"]

NEIGHBOURS = ("add_remove", "replace_one")


class Book:
    """A ledger as this process knows it: its facts, and its entries up to the last that was read."""

    def __init__(self, ledger: Ledger, facts: dict[str, Any]) -> None:
        self.ledger, self.facts = ledger, facts
        self.tally = Tally(facts["composition"], float(facts["epsilon"]), facts["delta"])
        self.entries: list[Entry] = []
        self.last, self.digest = 0, ""

    @property
    def neighbours(self) -> str | None:
        fixed: str | None = self.facts["neighbours"]
        return fixed or (self.entries[0].neighbours if self.entries else None)

    def catch_up(self) -> None:
        """Read what this and other processes have added."""
        with self.ledger.lock:
            rows = self.ledger.bodies(after=self.last)  # the last known one first
            if self.last and (not rows or rows[0][:2] != (self.last, self.digest)):
                raise LedgerFormatError(
                    f"{self.ledger.path} no longer holds entries that this process has read; was it replaced by an "
                    "older copy? Nothing is spent on it from here"
                )
            for number, digest, body in rows[bool(self.last) :]:
                entry = Entry.from_dict(body)
                self.tally.record(entry.cost, entry.partition)
                self.entries.append(entry)
                self.last, self.digest = number, digest

    def spend(self, entry: Entry) -> None:
        """Check and insert in one transaction; raises FilterRefusal or ValueError, and then nothing is changed."""
        with self.ledger.transaction() as append:
            self.catch_up()
            if self.neighbours not in (None, entry.neighbours):
                raise ValueError(
                    f"neighbours={entry.neighbours!r}, but this ledger counts for {self.neighbours!r}; "
                    "costs under two relations have no common total, use one accountant for each"
                )
            self.tally.check(entry.cost, entry.partition)
            append(entry.to_dict())
        self.catch_up()


def temporary_path() -> Path:
    """Return a path in a private folder that is removed when this process ends (and by no child of it)."""
    folder, process = tempfile.mkdtemp(prefix="dpskl-"), os.getpid()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder) / "ledger.sqlite"


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and not isnan(value)


def checked_facts(epsilon: float, delta: float, composition: str, neighbours: str | None) -> dict[str, Any]:
    if not _is_number(epsilon) or epsilon <= 0:
        raise ValueError(f"epsilon={epsilon!r} must be a positive number; inf records without a ceiling")
    if not _is_number(delta) or not 0 <= delta < 1:
        raise ValueError(f"delta={delta!r} must lie in [0, 1); 0 admits pure costs only")
    if not isinstance(composition, str) or composition not in COMPOSITIONS:
        raise ValueError(f"composition={composition!r} must be one of {', '.join(map(repr, COMPOSITIONS))}")
    if neighbours not in (None, *NEIGHBOURS):
        raise ValueError(f"neighbours={neighbours!r} must be None or one of {', '.join(map(repr, NEIGHBOURS))}")
    return {
        "id": uuid.uuid4().hex,
        "epsilon": "inf" if epsilon == inf else float(epsilon),
        "delta": delta,
        "composition": "basic" if delta == 0 else composition,
        "neighbours": neighbours,
        "version": __version__,
    }
