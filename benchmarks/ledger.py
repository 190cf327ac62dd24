"""One spend on the ledger against one on an SQLite file with a write-ahead log, in turn, in one process, on one disk.

    python benchmarks/ledger.py [--folder FOLDER]

Both are on the disk when they return. The baseline is the store of the first format of the ledger: one connection that
stays open, and what was asked of it, with everything above the store the same. Ledgers are measured when they are young
and when they hold a thousand entries. The exit code is 0 whatever the target says: run on an idle machine, and on the
disk that you mean.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from common import add_common_options, describe_run, write_result
from speed import report
from timing import comparison, interleave

from dpskl.accounting import GaussianCost
from dpskl.budget.book import Book, checked_facts
from dpskl.budget.ledger import Ledger, Line, canonical, chain
from dpskl.budget.report import Entry

NAME = "ledger"
TARGET = 1.0
COST = GaussianCost(1e-3)


class Header(NamedTuple):
    """What a book asks of the first line of a file."""

    facts: dict[str, Any]
    line: Line


class SQLiteLedger:
    """The store of format 1, as a book uses it."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path = str(path)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute(
            "CREATE TABLE entries (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL, hash TEXT NOT NULL)"
        )
        self.header = Header(facts, Line(0, 0, 0, ""))
        self._last = self.header.line

    @contextlib.contextmanager
    def reading(self) -> Iterator[SQLiteLedger]:
        yield self

    @contextlib.contextmanager
    def writing(self) -> Iterator[SQLiteLedger]:
        self._connection.execute("BEGIN IMMEDIATE")
        yield self
        self._connection.execute("COMMIT")
        self.after(self._last)  # the entry was read back from the file

    def after(self, known: Line) -> list[tuple[Line, dict[str, Any], bool]]:
        """Return the entries after a known one, which is read again."""
        query = "SELECT id, hash, body FROM entries WHERE id >= ? ORDER BY id"
        rows = self._connection.execute(query, (known.number,)).fetchall()
        return [
            (Line(number, 0, 0, digest), json.loads(body), True) for number, digest, body in rows if number > known[0]
        ]

    def append(self, last: Line, body: dict[str, Any]) -> Line:
        """Insert an entry."""
        text = canonical(body)
        found = self._connection.execute("SELECT hash FROM entries ORDER BY id DESC LIMIT 1").fetchone()
        new = Line(last.number + 1, 0, 0, chain(found[0] if found else "", text))
        self._last = last
        self._connection.execute("INSERT INTO entries (body, hash) VALUES (?, ?)", (text, new.digest))
        return new


def _entry() -> Entry:
    return Entry(
        COST, "add_remove", "whitened_gd", "DPLogisticRegression", None, None, 1000, False, time.time(), 1, "0"
    )


def spends(folder: Path, repetitions: int, held: int) -> Iterator[dict[str, Any]]:
    """Yield the comparison for a young ledger and for one that holds ``held`` entries."""
    facts = checked_facts(1e6, 1e-6, "gdp", None)
    ours = Book(Ledger.create(folder / "ours", facts))
    baseline = Book(SQLiteLedger(folder / "baseline", facts))  # type: ignore[arg-type]
    tasks = {"ours": lambda: ours.spend(_entry()), "baseline": lambda: baseline.spend(_entry())}
    for what in ("young ledger", f"ledger of {held} entries"):
        seconds = interleave(tasks, repetitions)
        yield comparison(
            f"one spend, {what}", seconds["ours"], seconds["baseline"], "SQLite, WAL, synchronous=FULL", at_most=TARGET
        )
        while len(ours.entries) < held:
            for task in tasks.values():
                task()
    assert len(ours.entries) == len(baseline.entries)
    assert ours.ledger.verify()


def main() -> None:
    """Time, write the result and print its table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=300)
    parser.add_argument("--folder", default=None, help="where the files are made: the disk that is measured")
    add_common_options(parser, NAME)
    options = parser.parse_args()
    repetitions, held = (20, 50) if options.quick else (options.repetitions, 1000)
    run = describe_run()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        comparisons = list(spends(Path(folder), repetitions, held))
    document = {
        "run": run,
        "protocol": {"repetitions": repetitions, "fits": 0, "threads": options.threads},
        "comparisons": comparisons,
    }
    write_result(options.name, options.quick, document)
    print(report(document))


if __name__ == "__main__":
    main()
