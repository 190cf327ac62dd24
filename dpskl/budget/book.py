"""What a process knows of a ledger: the facts that were fixed when it was made, its entries and what they add up to."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import uuid
from math import inf, isnan
from numbers import Real
from pathlib import Path
from typing import Any

from dpskl._version import __version__
from dpskl.budget.ledger import Ledger, Line, OpenLedger
from dpskl.budget.report import Entry
from dpskl.budget.sizes import Sizes
from dpskl.budget.tally import COMPOSITIONS, Tally
from dpskl.exceptions import LedgerFormatError

__all__ = ["NEIGHBOURS", "Book", "checked_facts", "temporary_path"]

NEIGHBOURS = ("add_remove", "replace_one")


class Book:
    """A ledger as this process knows it: its facts, and its entries up to the last that was read."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.lock = threading.RLock()
        self.entries: list[Entry] = []
        self.is_whole = True
        self.sizes = Sizes()
        with ledger.reading() as file:
            self.facts, self._last = file.header.facts, file.header.line
        self.tally = Tally(self.facts["composition"], float(self.facts["epsilon"]), self.facts["delta"])

    @property
    def neighbours(self) -> str | None:
        fixed: str | None = self.facts["neighbours"]
        return fixed or (self.entries[0].neighbours if self.entries else None)

    def catch_up(self) -> None:
        """Read what this and other processes have added."""
        with self.lock, self.ledger.reading() as file:
            self._read(file)

    def _read(self, file: OpenLedger) -> None:
        for line, body, is_right in file.after(self._last):
            self._add(line, Entry.from_dict(body))
            self.is_whole = self.is_whole and is_right

    def _add(self, line: Line, entry: Entry) -> None:
        self.tally.record(entry.cost, entry.partition, entry.delta)
        self.entries.append(entry)
        self._last = line

    def spend(self, entry: Entry) -> None:
        """Check and append under one lock; raises FilterRefusal or ValueError, and then nothing is changed."""
        with self.lock, self.ledger.writing() as file:
            self._read(file)
            if not self.is_whole:
                raise LedgerFormatError(
                    f"{self.ledger.path} does not verify: an entry was changed after it was written, so that what was "
                    "spent is not known. Nothing is spent on it from here"
                )
            if self.neighbours not in (None, entry.neighbours):
                raise ValueError(
                    f"neighbours={entry.neighbours!r}, but this ledger counts for {self.neighbours!r}; "
                    "costs under two relations have no common total, use one accountant for each"
                )
            self.tally.check(entry.cost, entry.partition, entry.delta)
            self._add(file.append(self._last, entry.to_dict()), entry)


def temporary_path() -> Path:
    """Return a path in a private folder that is removed when this process ends (and by no child of it)."""
    folder, process = tempfile.mkdtemp(prefix="dpskl-"), os.getpid()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder) / "ledger"


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
