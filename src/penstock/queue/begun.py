"""Which runs a worker's process had begun when it died, told by a file in memory that outlives the process.

A worker claims short jobs ahead, so most of what it holds at a time has not begun. To say so in the database would be a write for
each job; to say so in a mapped file costs less than a microsecond. The kernel keeps such a file whatever becomes of the process.
Whoever recovers on the same machine, since the same boot, reads it; for anybody else the marks in the database must do.
"""

from __future__ import annotations

import mmap
import os
import re
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from pathlib import Path
from uuid import UUID

from penstock.queue.identity import is_dead, is_of_this_boot

ID_BYTES = 16
PLACES = 4096
"""How many runs of one process can be under way at once."""
ENDED = 16384
"""How many of the runs that ended last are remembered: more than can wait to be reported."""
KEPT_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Begun:
    """What the file of a process says."""

    under_way: frozenset[bytes]
    ended: frozenset[bytes]

    def has_begun(self, run_id: UUID) -> bool:
        return run_id.bytes in self.under_way or run_id.bytes in self.ended

    def has_ended(self, run_id: UUID) -> bool:
        return run_id.bytes in self.ended


class BegunFile:
    """The file of this process. Each executor has a place in it for the run that it is in."""

    def __init__(self, worker_id: str) -> None:
        self._path = _path_of(worker_id)
        self._map: mmap.mmap | None = None
        self._free = list(range(0, PLACES * ID_BYTES, ID_BYTES))
        self._used = 0
        self._lock = threading.Lock()
        self._next = count()

    def place(self) -> int | None:
        """A place for an executor; None if this process cannot keep a file, or no longer can keep a whole one."""
        with self._lock:
            if self._map is None and not self._used:
                self._map = _create(self._path)
            self._used += 1
            if self._map is not None and self._free:
                return self._free.pop()
            self._forget()
            return None

    def leave(self, place: int | None) -> None:
        """The executor is gone. With the last one the file goes."""
        with self._lock:
            self._used -= 1
            if place is not None:
                self._free.append(place)
            if not self._used:
                self._forget()

    def began(self, place: int | None, run_id: UUID) -> None:
        mapped = self._map
        if place is not None and mapped is not None:
            mapped[place : place + ID_BYTES] = run_id.bytes

    def ended(self, place: int | None, run_id: UUID) -> None:
        mapped = self._map
        if place is not None and mapped is not None:
            at = (PLACES + next(self._next) % ENDED) * ID_BYTES
            mapped[at : at + ID_BYTES] = run_id.bytes

    def _forget(self) -> None:
        """A file that does not tell all tells nothing: who finds none looks into the database."""
        self._map = None
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


@lru_cache(maxsize=4)
def begun_file(worker_id: str) -> BegunFile:
    """The file of this process, which its workers share."""
    return BegunFile(worker_id)


def begun_by(worker_id: str) -> Begun | None:
    """What the worker's process had begun; None if that cannot be told here."""
    if not is_of_this_boot(worker_id):
        return None  # after a power cut the file may be there without what was written to it
    try:
        told = _path_of(worker_id).read_bytes()
    except OSError:
        return None
    if len(told) != (PLACES + ENDED) * ID_BYTES:
        return None
    ids = [told[at : at + ID_BYTES] for at in range(0, len(told), ID_BYTES)]
    nobody = {bytes(ID_BYTES)}
    return Begun(frozenset(ids[:PLACES]) - nobody, frozenset(ids[PLACES:]) - nobody)


def sweep() -> None:
    """Remove the files of processes that died long ago."""
    with suppress(OSError):
        for path in _directory().iterdir():
            with suppress(OSError):
                if time.time() - path.stat().st_ctime > KEPT_SECONDS and is_dead(path.name):
                    path.unlink()


def _directory() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "")
    return Path(tempfile.gettempdir()) / f"penstock-{user}"


def _path_of(worker_id: str) -> Path:
    return _directory() / re.sub(r"[^\w.:-]", "_", worker_id)[:200]


def _create(path: Path) -> mmap.mmap | None:
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        found = path.parent.lstat()
        if path.parent.is_symlink() or (hasattr(os, "getuid") and found.st_uid != os.getuid()) or found.st_mode & 0o022:
            return None  # somebody else's, who could write to it
        with path.open("w+b") as file:
            size = (PLACES + ENDED) * ID_BYTES
            file.truncate(size)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)  # where there is no room, writing to the map would kill us
            return mmap.mmap(file.fileno(), 0)
    except (OSError, ValueError):
        return None
