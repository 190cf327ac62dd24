"""The store behind an accountant: one SQLite file, append-only, safe between threads, processes and crashes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import stat
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dpskl.exceptions import LedgerFormatError, LedgerNotFoundError

__all__ = ["Ledger"]

_FORMAT = 1
_APPLICATION_ID = 0x64706C67  # "dplg", in the header of the file
_BUSY_MILLISECONDS = 60_000
_MODE = "rw"  # never "rwc": opening makes nothing
_TABLES = """
    CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE entries (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL, hash TEXT NOT NULL);
"""

_OPEN: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _identity(path: str) -> tuple[int, int] | None:
    """Return what tells one file from another at the same path, None where there is no file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def _chain(previous: str, body: str) -> str:
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


class Ledger:
    """Facts that never change and a chain of entries, in one file.

    An entry is checked and inserted in one transaction that is on disk before ``append`` returns. Each carries
    the hash of the one before, so that a changed or removed entry is noticed (not that of who rewrites the rest
    of the chain too). A connection is never used on the other side of a fork.

    Parameters
    ----------
    path : path-like
        Where the file is; see :meth:`create` and :meth:`open`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(Path(path).resolve())
        self._connection: sqlite3.Connection | None = None
        self._inherited: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self.lock = threading.RLock()
        _OPEN.add(self)

    # -- life of a file -----------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: str | os.PathLike[str], facts: dict[str, Any]) -> Ledger:
        """Make a new file; never overwrite one.

        Raises
        ------
        FileExistsError
            If there is something at ``path``.
        FileNotFoundError
            If its folder does not exist.
        """
        ledger = cls(path)
        target = Path(ledger.path)
        if not target.parent.is_dir():
            raise FileNotFoundError(f"the folder {target.parent} does not exist; make it before the ledger")
        # Complete under another name first: whoever sees the path sees a whole ledger, and only one maker wins.
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            with contextlib.closing(sqlite3.connect(draft)) as connection:
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {_FORMAT}")
                connection.execute("PRAGMA journal_mode = WAL")
                connection.executescript(_TABLES)
                rows = [(name, json.dumps(value)) for name, value in facts.items()]
                connection.executemany("INSERT INTO facts VALUES (?, ?)", rows)
                connection.commit()
            os.link(draft, target)
        except FileExistsError:
            raise FileExistsError(
                f"{target} exists; open it with PrivacyAccountant.open, or choose another path"
            ) from None
        finally:
            for name in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm")):
                name.unlink(missing_ok=True)
        return ledger

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """Open an existing file; never make one.

        Raises
        ------
        LedgerNotFoundError
            If there is none.
        LedgerFormatError
            If it is not a ledger, or one of a newer version.
        """
        ledger = cls(path)
        ledger.facts()
        return ledger

    def _connect(self) -> sqlite3.Connection:
        file = _identity(self.path)
        if self._connection is not None and file == self._file:
            return self._connection
        self.close()  # what is at the path now is another file, or none
        if file is None:
            raise LedgerNotFoundError(f"there is no ledger at {self.path}; nothing can be spent without it")
        try:
            connection = sqlite3.connect(
                f"{Path(self.path).as_uri()}?mode={_MODE}", uri=True, isolation_level=None, check_same_thread=False
            )
            connection.execute(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        except sqlite3.DatabaseError as error:
            raise LedgerFormatError(f"{self.path} is not a ledger of dpskl ({error})") from error
        if application != _APPLICATION_ID:
            connection.close()
            raise LedgerFormatError(f"{self.path} is not a ledger of dpskl")
        if version > _FORMAT:
            connection.close()
            raise LedgerFormatError(f"{self.path} has format {version}, this dpskl reads up to {_FORMAT}: upgrade it")
        connection.execute("PRAGMA synchronous = FULL")
        self._connection, self._file = connection, file
        return connection

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        with self.lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()

    def _forget_connection(self) -> None:
        # In a forked child: closing the parent's connection would release its locks.
        self._inherited = self._connection
        self._connection = None
        self.lock = threading.RLock()

    # -- reading ------------------------------------------------------------------------------------------

    def facts(self) -> dict[str, Any]:
        """Return what was fixed when the ledger was made."""
        with self.lock:
            return {name: json.loads(value) for name, value in self._connect().execute("SELECT name, value FROM facts")}

    def bodies(self, after: int = 0) -> list[tuple[int, str, dict[str, Any]]]:
        """Return number, hash and content of the entries from number ``after`` on, in their order."""
        with self.lock:
            query = "SELECT id, hash, body FROM entries WHERE id >= ? ORDER BY id"
            rows = self._connect().execute(query, (after,)).fetchall()
            return [(number, digest, json.loads(body)) for number, digest, body in rows]

    def verify(self) -> bool:
        """Return whether every entry still has the hash that was chained to it."""
        with self.lock:
            previous = ""
            for body, digest in self._connect().execute("SELECT body, hash FROM entries ORDER BY id"):
                previous = _chain(previous, body)
                if previous != digest:
                    return False
            # a number that was given and is missing at the end was removed
            (largest,) = self._connect().execute("SELECT coalesce(max(id), 0) FROM entries").fetchone()
            (counter,) = (
                self._connect()
                .execute("SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'entries'), 0)")
                .fetchone()
            )
            return bool(largest == counter)

    # -- writing ------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[[dict[str, Any]], None]]:
        """Hold the only right to write, and give a function that appends; what raises inside is undone."""
        with self.lock:
            connection = self._connect()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield lambda body: self._append(connection, body)
                connection.execute("COMMIT")
            except BaseException as error:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if isinstance(error, sqlite3.OperationalError):
                    raise OSError(f"nothing can be spent, since {self.path} cannot be written: {error}") from error
                raise

    @staticmethod
    def _append(connection: sqlite3.Connection, body: dict[str, Any]) -> None:
        text = _canonical(body)
        last = connection.execute("SELECT hash FROM entries ORDER BY id DESC LIMIT 1").fetchone()
        row = text, _chain(last[0] if last else "", text)
        connection.execute("INSERT INTO entries (body, hash) VALUES (?, ?)", row)


def _after_fork_in_child() -> None:
    for ledger in list(_OPEN):
        ledger._forget_connection()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
