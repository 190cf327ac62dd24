"""A lock on an open file, between threads, processes and forks of one machine; and writing through to the disk."""

from __future__ import annotations

import os
import sys
import time
from typing import IO

__all__ = ["hold", "release", "sync", "sync_folder"]

_SHORTEST, _LONGEST = 2e-4, 2e-2  # seconds between two tries

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 62  # a byte that no file reaches: others may read while it is locked

    def _try(file: IO[bytes], exclusive: bool) -> bool:
        place = file.tell()
        try:
            file.seek(_FAR)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        finally:
            file.seek(place)
        return True

    def release(file: IO[bytes]) -> None:
        """Give the lock back."""
        file.seek(_FAR)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try(file: IO[bytes], exclusive: bool) -> bool:
        # flock belongs to the opened file. (The other kind, lockf, is lost when this process closes any other handle on
        # the same file, such as that of a copy being made.)
        try:
            fcntl.flock(file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(file: IO[bytes]) -> None:
        """Give the lock back, whatever child has inherited the file."""
        fcntl.flock(file, fcntl.LOCK_UN)


def hold(file: IO[bytes], *, exclusive: bool, seconds: float) -> None:
    """Wait for the lock on a file, shared with other readers or for one writer.

    Raises
    ------
    TimeoutError
        If others hold it for longer than ``seconds``.
    OSError
        If the file system has no locks.
    """
    end, pause = time.monotonic() + seconds, _SHORTEST
    while not _try(file, exclusive):
        if time.monotonic() > end:
            raise TimeoutError(f"another process has held the lock on {file.name} for {seconds:g} seconds")
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST)


def sync(file: IO[bytes]) -> None:
    """Return when the content of a file, and its length, are on the disk."""
    if sys.platform == "darwin":
        fcntl.fcntl(file, fcntl.F_FULLFSYNC)  # fsync stops at the cache of the drive there
    elif hasattr(os, "fdatasync"):
        os.fdatasync(file.fileno())
    else:
        os.fsync(file.fileno())


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Return when the names in a folder are on the disk, where a system can be asked for it."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
