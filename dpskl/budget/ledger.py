"""The store behind an accountant: one text file, append-only, safe between threads, processes, crashes and copies.

Every line is a JSON object, so that any tool can read a ledger. The first is the header: the facts that were fixed when
the ledger was made, and how many entries it holds at least. Each other line is an entry with the hash of all before.

A spend is one line behind the others, written under an exclusive lock and on the disk before the data are used; then
the number in the header is raised. This order makes the file safe to copy with any tool at any moment, without a lock:

* a granted spend is in *this* file, as there is no second one beside it (a database keeps a log or a journal there, and
  a copy of the main file alone forgets what is in it);
* whoever reads from the start sees a number of entries that have been granted, then at least these entries. A file that
  holds fewer was cut, or is a copy that missed some, and is refused;
* a line beyond that number which has no end, or is damaged, was being written when the copy was made or when the power
  failed. Nobody was granted it: it is not read, and the next spend writes over it.

A spend is synchronised once, and writes over spaces that were put behind the entries before: where the length of a file
stays, synchronising it does not wait for the journal of the file system. That makes it as fast as the log of a
database; a rollback journal is synchronised three or four times.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

from dpskl.budget import format1
from dpskl.budget.locks import hold, release, sync, sync_folder
from dpskl.exceptions import LedgerFormatError, LedgerNotFoundError

__all__ = ["Ledger", "Line", "OpenLedger"]

FORMAT = 2
_MAGIC = b'{"dpskl ledger":'
_WIDTH = 12  # of a number in the header: it is raised in place
_SIZE = 1024  # of the header, spaces included, so that entries lie at the same place in every copy
_ROOM = 1 << 13  # spaces to be written over, some fifteen entries
_HEAD = _MAGIC + b"%*d" + b',"entries":' + b"%*d"
_COUNT_AT = len(_MAGIC) + _WIDTH + len(b',"entries":')
_ENTRY = '{"hash":"%s","entry":%s}\n'
_HASH_AT, _HASH_END, _TEXT_AT = 9, 73, 83
_SECONDS = 60.0  # to wait for others


class Line(NamedTuple):
    """A line of the file: its number (0 is the header), where it begins and ends, and the hash up to it."""

    number: int
    start: int
    end: int
    digest: str


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def chain(previous: str, text: str) -> str:
    return hashlib.sha256(f"{previous}\n{text}".encode()).hexdigest()


class _Header(NamedTuple):
    facts: dict[str, Any]
    backup_of: str | None
    line: Line
    granted: int  # entries, at least


def _write_header(facts: dict[str, Any], count: int, backup_of: str | None) -> bytes:
    rest = f',"backup_of":{json.dumps(backup_of)},"facts":{canonical(facts)}}}'
    return (_HEAD % (_WIDTH, FORMAT, _WIDTH, count) + rest.encode()).ljust(_SIZE - 1) + b"\n"


@lru_cache(maxsize=64)
def _parse_header(before: bytes, after: bytes) -> tuple[dict[str, Any], str | None, str]:
    """Return what does not change in a header, from its parts before and after the number of entries."""
    record = json.loads(before + b"0" + after)
    version, facts = record["dpskl ledger"], record["facts"]
    if version > FORMAT:
        raise LedgerFormatError(f"format {version}, this dpskl reads up to {FORMAT}: upgrade it")
    facts["id"], facts["composition"], facts["neighbours"], float(facts["epsilon"]), float(facts["delta"])
    return facts, record["backup_of"], chain("", canonical(facts))


# Files that this process has open: a fork must not keep them.
_OPEN: set[IO[bytes]] = set()


class OpenLedger:
    """A ledger while its lock is held: what can be read, and appended if the lock is exclusive."""

    def __init__(self, path: str, file: IO[bytes]) -> None:
        self.path, self._file = path, file
        self.header = self._read_header()
        self._rest = b""  # behind the last entry

    def _read_header(self) -> _Header:
        line = b""
        while block := self._file.read(_SIZE):
            line += block
            if (end := line.find(b"\n")) >= 0 or not line.startswith(_MAGIC):
                break
        else:
            end = -1
        if end < 0 or not line.startswith(_MAGIC):
            raise LedgerFormatError(f"{self.path} is not a ledger of dpskl")
        number = slice(_COUNT_AT, _COUNT_AT + _WIDTH)
        try:
            facts, backup_of, digest = _parse_header(line[: number.start], line[number.stop : end])
            return _Header(facts, backup_of, Line(0, 0, end + 1, digest), int(line[number]))
        except LedgerFormatError as error:
            raise LedgerFormatError(f"{self.path} has {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerFormatError(f"{self.path} is not a ledger of dpskl: its first line is damaged") from error

    def after(self, known: Line) -> list[tuple[Line, dict[str, Any], bool]]:
        """Return the entries after a known line: each with its content and whether its hash is right.

        Raises
        ------
        LedgerFormatError
            If the known line is no longer there, if entries that were granted are missing or damaged.
        """
        start = known.start if known.number else known.end
        self._file.seek(start)
        content = self._file.read()
        if known.number:
            line, content = content[: known.end - start], content[known.end - start :]
            is_there = line[_HASH_AT:_HASH_END] == known.digest.encode() and line[-1:] == b"\n"
        else:
            is_there = known == self.header.line
        if not is_there:
            raise LedgerFormatError(
                f"{self.path} no longer holds entries that this process has read; was it replaced by an older copy? "
                "Nothing is spent on it from here"
            )
        last, found = known, list[tuple[Line, dict[str, Any], bool]]()
        for piece in content.split(b"\n")[:-1]:
            number = last.number + 1
            try:
                text, digest = piece[_TEXT_AT:-1].decode(), piece[_HASH_AT:_HASH_END].decode()
                if piece.decode() + "\n" != _ENTRY % (digest, text):
                    raise ValueError("it is no entry")
                body = json.loads(text)
                is_right = chain(last.digest, text) == digest
                if not is_right and number > self.header.granted:
                    raise ValueError("its hash is wrong")
            except ValueError as error:
                if number > self.header.granted:
                    break  # being written when a copy was made, or the power failed
                raise LedgerFormatError(f"entry {number} of {self.path} is damaged: {error}") from error
            last = Line(number, last.end, last.end + len(piece) + 1, digest)
            found.append((last, body, is_right))
        if last.number < self.header.granted:
            raise LedgerFormatError(
                f"{self.path} holds {last.number} of the {self.header.granted} entries that were granted: it was cut, "
                "or is a copy that missed some. Use the original or a copy that is whole"
            )
        self._rest = content[last.end - known.end :]
        return found

    def append(self, last: Line, body: dict[str, Any]) -> Line:
        """Write an entry behind the last line, up to which all was read; it is on the disk when this returns.

        Raises
        ------
        PermissionError
            If this is a backup that does not stand in the place of the original.
        OSError
            If it cannot be written. Nothing is granted then.
        """
        if self.header.backup_of not in (None, self.path):
            raise PermissionError(
                f"nothing can be spent on {self.path}, a backup of {self.header.backup_of}: two ledgers that go on "
                "from one another forget each other's spends. Should the original be lost, move the backup there"
            )
        text = canonical(body)
        new = Line(last.number + 1, last.end, 0, chain(last.digest, text))
        line = (_ENTRY % (new.digest, text)).encode()
        new = new._replace(end=new.start + len(line))
        try:
            if self._rest != len(self._rest) * b" ":
                self._file.truncate(new.start)  # of a line that nobody was granted
                self._rest = b""
            self._write(new.start, line if len(line) < len(self._rest) else line + _ROOM * b" ")
            sync(self._file)
        except BaseException:
            with contextlib.suppress(OSError):
                self._file.truncate(new.start)
            raise
        if self.header.backup_of is not None:  # it has become the original
            head = _write_header(self.header.facts, last.number, None).rstrip()
            self._write(0, head.ljust(self.header.line.end - 1))
        # After the entry, never before: a number that is ahead of the entries would refuse a sound ledger.
        self._write(_COUNT_AT, b"%*d" % (_WIDTH, new.number))
        return new

    def _write(self, place: int, content: bytes) -> None:
        self._file.seek(place)
        if self._file.write(content) != len(content):
            raise OSError("the disk is full")

    def content(self, end: int) -> bytes:
        """Return the entries up to a place, as they are in the file."""
        self._file.seek(self.header.line.end)
        return self._file.read(end - self.header.line.end)


class Ledger:
    """Facts that never change and a chain of entries, in one file; see the module for how they are kept.

    Each entry carries the hash of the one before, so that a changed or removed entry is noticed (not that of who
    rewrites the rest of the chain too). The file is opened for each use and never kept open: it may be moved, and links
    to it are the same ledger.

    Parameters
    ----------
    path : path-like
        Where the file is; see :meth:`create` and :meth:`open`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = str(Path(path).resolve())

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        facts: dict[str, Any],
        bodies: Iterable[dict[str, Any]] = (),
    ) -> Ledger:
        """Make a new file; never overwrite one.

        Raises
        ------
        FileExistsError
            If there is something at ``path``.
        FileNotFoundError
            If its folder does not exist.
        """
        ledger = cls(path)
        _make(ledger.path, _content(facts, bodies), replace=False)
        return ledger

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """Open an existing file; never make one. A ledger of format 1 is brought to this format.

        Raises
        ------
        LedgerNotFoundError
            If there is none.
        LedgerFormatError
            If it is not a ledger, one of a newer version, or one that lacks entries.
        """
        ledger = cls(path)
        format1.convert(ledger.path, lambda facts, bodies: _make(ledger.path, _content(facts, bodies), replace=True))
        with ledger.reading() as file:
            file.after(file.header.line)
        return ledger

    @contextlib.contextmanager
    def reading(self) -> Iterator[OpenLedger]:
        """Hold off writers."""
        with self._opened("rb", exclusive=False) as file:
            yield OpenLedger(self.path, file)

    @contextlib.contextmanager
    def writing(self) -> Iterator[OpenLedger]:
        """Hold the only right to write."""
        try:
            with self._opened("rb+", exclusive=True) as file:
                yield OpenLedger(self.path, file)
        except PermissionError as error:
            if error.errno is None:  # said in words already
                raise
            raise self._unwritable(error) from error
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> OSError:
        return OSError(f"nothing can be spent, since {self.path} cannot be written: {error}")

    @contextlib.contextmanager
    def _opened(self, mode: str, *, exclusive: bool) -> Iterator[IO[bytes]]:
        while True:
            try:
                file = open(self.path, mode, buffering=0)  # noqa: SIM115, closed below
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                message = f"there is no ledger at {self.path}; nothing can be spent without it"
                raise LedgerNotFoundError(message) from None
            _OPEN.add(file)
            try:
                hold(file, exclusive=exclusive, seconds=_SECONDS)
                try:
                    if not self._is_at_path(file):
                        continue  # another was put in its place while we waited, and nobody would find what we write
                    yield file
                    return
                finally:
                    release(file)
            finally:
                _OPEN.discard(file)
                file.close()

    def _is_at_path(self, file: IO[bytes]) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(file.fileno()), os.stat(self.path))
        return False

    def facts(self) -> dict[str, Any]:
        """Return what was fixed when the ledger was made."""
        with self.reading() as file:
            return file.header.facts

    def verify(self) -> bool:
        """Return whether every entry still has the hash that was chained to it, and none is missing."""
        with self.reading() as file:
            try:
                return all(is_right for _, _, is_right in file.after(file.header.line))
            except LedgerFormatError:
                return False

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Write a whole copy that is for reading as long as it does not stand in the place of this file.

        Raises
        ------
        FileExistsError
            If there is something at ``path``; it is left alone.
        LedgerFormatError
            If this ledger does not verify; nothing is written.
        """
        target = str(Path(path).resolve())
        with self.reading() as file:
            found = file.after(file.header.line)
            if not all(is_right for _, _, is_right in found):
                raise LedgerFormatError(f"{self.path} does not verify: an entry was changed. No backup was made")
            last = found[-1][0] if found else file.header.line
            head = _write_header(file.header.facts, last.number, file.header.backup_of or self.path)
            _make(target, head + file.content(last.end), replace=False)


def _content(facts: dict[str, Any], bodies: Iterable[dict[str, Any]]) -> bytes:
    digest, lines = chain("", canonical(facts)), []
    for body in bodies:
        text = canonical(body)
        digest = chain(digest, text)
        lines.append(_ENTRY % (digest, text))
    return _write_header(facts, len(lines), None) + "".join(lines).encode()


def _make(path: str, content: bytes, *, replace: bool) -> None:
    """Put a whole file at a path: complete under another name first, so that only one maker wins.

    ``replace`` puts it in the place of a file there, with the permissions of that one.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {target.parent} does not exist; make it before the ledger")
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with open(draft, "xb") as file:
            file.write(content)
            file.flush()
            sync(file)
        if replace:
            shutil.copymode(target, draft)
            os.replace(draft, target)
        else:
            os.link(draft, target)
    except FileExistsError:
        raise FileExistsError(f"{target} exists; open it with PrivacyAccountant.open, or choose another path") from None
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(target.parent)


def _after_fork_in_child() -> None:
    for file in list(_OPEN):
        file.close()  # the parent keeps its lock
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
