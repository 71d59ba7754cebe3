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


class Workspaces:
    """The directories of one worker process, all under one of its own that the guardian removes at the end."""

    def __init__(self) -> None:
        self.base = tempfile.mkdtemp(prefix="penstock-")
        self._lock = threading.Lock()
        self._free: list[str] = []
        self._made = 0

    def take(self) -> str:
        """An empty directory that only we may enter."""
        with self._lock:
            while self._free:
                path = self._free.pop()
                if _is_pristine(path):
                    return path
            self._made += 1
            path = f"{self.base}/{self._made}"
        os.makedirs(path, 0o700)  # noqa: PTH103 - the base too, should the system have cleaned it away
        return path

    def give_back(self, path: str) -> None:
        """The run has ended: what it left there goes now."""
        if _is_pristine(path):
            with self._lock:
                self._free.append(path)
        else:
            with contextlib.suppress(OSError):
                os.chmod(path, 0o700)  # noqa: PTH101
            shutil.rmtree(path, ignore_errors=True)

    def close(self) -> None:
        """Remove them all."""
        shutil.rmtree(self.base, ignore_errors=True)


def _is_pristine(path: str) -> bool:
    try:
        found = os.lstat(path)
        return stat.S_ISDIR(found.st_mode) and found.st_mode & 0o7777 == 0o700 and not os.listdir(path)  # noqa: PTH208
    except OSError:
        return False
