"""Ledgers of format 1, SQLite files with a log beside them: read once, and brought to the present format."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import sqlite3
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpskl.exceptions import LedgerFormatError

__all__ = ["convert", "is_format1"]

_MAGIC = b"SQLite format 3\0"
_APPLICATION_ID = 0x64706C67  # "dplg", in the header of the file
_SECONDS = 20.0  # to wait for others

Maker = Callable[[dict[str, Any], list[dict[str, Any]]], None]


def is_format1(path: str) -> bool:
    """Whether there is an SQLite file at a path."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False


def convert(path: str, make: Maker) -> None:
    """Read an old ledger with its log and have ``make`` put a new one in its place.

    An older dpskl that has the file open either keeps this out, or finds that its table is gone: it cannot spend on a
    file that is no longer at the path. Of two that convert at once the second finds the new file.

    Raises
    ------
    LedgerFormatError
        If the file is something else, or its entries do not verify.
    OSError
        If others use it, or it cannot be written.
    """
    has_log = os.path.exists(f"{path}-wal")
    end = time.monotonic() + _SECONDS
    while is_format1(path):
        try:
            count = _convert(path, make)
        except sqlite3.DatabaseError as error:
            if not is_format1(path):
                return
            if not isinstance(error, sqlite3.OperationalError):
                raise LedgerFormatError(f"{path} is not a ledger of dpskl ({error})") from error
            if time.monotonic() < end and "locked" in str(error):
                time.sleep(random.uniform(0.0, 0.05))  # two that want it for themselves must not meet for ever
                continue
            raise OSError(
                f"{path} is a ledger of format 1, which must be brought to format 2 before it is used, and {error}: "
                "close it in other programs, and open it once where it can be written"
            ) from error
        if count is not None and not has_log:
            warnings.warn(
                f"{path} was brought from format 1 to format 2 with {count} entries. Of format 1 a copy that was made "
                "while the original was in use lacks its last spends: if this is one, use the original",
                stacklevel=4,
            )
        return


def _convert(path: str, make: Maker) -> int | None:
    """Convert and return the number of entries, None if it is no longer the file that was opened."""
    before = os.stat(path)
    uri = f"{Path(path).as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=0.1)) as connection:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION_ID:
            raise LedgerFormatError(f"{path} is not a ledger of dpskl")
        if version > 1:
            raise LedgerFormatError(f"{path} has format {version}, this dpskl reads up to 2: upgrade it")
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = DELETE")  # brings what is in the log into the file
        connection.execute("BEGIN EXCLUSIVE")
        now = os.stat(path)
        if (now.st_dev, now.st_ino) != (before.st_dev, before.st_ino):
            return None
        facts = {name: json.loads(value) for name, value in connection.execute("SELECT name, value FROM facts")}
        rows = connection.execute("SELECT body, hash FROM entries ORDER BY id").fetchall()
        count = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'entries'").fetchone()
        if not _is_whole(rows, count[0] if count else 0):
            raise LedgerFormatError(
                f"the entries of {path}, a ledger of format 1, do not verify: some were changed or removed. It is left "
                "as it is"
            )
        connection.execute("ALTER TABLE entries RENAME TO entries_of_format_1")
        make(facts, [json.loads(body) for body, _ in rows])
        connection.execute("COMMIT")  # on a file that has no name any more
    for name in (f"{path}-wal", f"{path}-shm", f"{path}-journal"):
        Path(name).unlink(missing_ok=True)
    return len(rows)


def _is_whole(rows: list[tuple[str, str]], count: int) -> bool:
    previous = ""
    for body, digest in rows:
        previous = hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()
        if previous != digest:
            return False
    return len(rows) == count
