"""Empty directories for runs to work in.

Making and removing a directory costs a third of what starting a process does, so one that a run leaves empty serves
the next. Nothing is shared by that: a directory with anything in it is removed with its contents, and no two runs
have the same one at the same time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import threading
import time

SETTLED_SECONDS = 0.1
"""A directory whose last change is so long ago shows every later one by its time: file systems count in steps of a few
milliseconds."""


class Workspace:
    """One directory, for one run at a time."""

    def __init__(self, path: str) -> None:
        os.makedirs(path, 0o700)  # noqa: PTH103 - the base too, should the system have cleaned it away
        self.path = path
        self._known: os.stat_result | None = None
        """How it looked when it was empty, if a change since then would show."""

    def is_empty(self) -> bool:
        """Whether it is as it was made: empty, and for us alone. One system call where its times tell, a listing where not."""
        try:
            found = os.lstat(self.path)
            if self._known is not None and _same(found, self._known):
                return True
            if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o7777 != 0o700 or os.listdir(self.path):  # noqa: PTH208
                return False
        except OSError:
            return False
        self._known = found if time.time() - found.st_ctime > SETTLED_SECONDS else None
        return True

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            os.chmod(self.path, 0o700)  # noqa: PTH101
        shutil.rmtree(self.path, ignore_errors=True)


class Workspaces:
    """The directories of one worker process, all under one of its own that the guardian removes at the end."""

    def __init__(self) -> None:
        self.base = tempfile.mkdtemp(prefix="penstock-")
        self._lock = threading.Lock()
        self._free: list[Workspace] = []
        self._made = 0

    def take(self) -> Workspace:
        """An empty directory that only we may enter."""
        with contextlib.suppress(IndexError):
            while not (free := self._free.pop()).is_empty():
                free.remove()
            return free
        with self._lock:
            self._made += 1
            number = self._made
        return Workspace(f"{self.base}/{number}")

    def give_back(self, workspace: Workspace) -> None:
        """The run has ended: what it left there goes now."""
        if workspace.is_empty():
            self._free.append(workspace)
        else:
            workspace.remove()

    def let_others_pass(self) -> None:
        """Let commands of another user reach the directory that is theirs. They cannot list the others, nor enter them."""
        os.chmod(self.base, 0o711)  # noqa: PTH101

    def close(self) -> None:
        """Remove them all."""
        shutil.rmtree(self.base, ignore_errors=True)


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_mode, one.st_mtime_ns, one.st_ctime_ns) == (
        other.st_ino, other.st_mode, other.st_mtime_ns, other.st_ctime_ns,
    )  # fmt: skip
