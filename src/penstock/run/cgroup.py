"""A control group per run, where the machine lets us make one: then nothing a run starts can leave it.

A group that is empty again serves the next run, because making and removing one costs half of what a process does.
Where there is no cgroup v2 that we may write, runs go without, and `tree` finds their processes by other means.
"""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from pathlib import Path

from penstock.run.limits import TASKS


class Cell:
    """One control group, for one run at a time."""

    def __init__(self, path: str) -> None:
        os.mkdir(path)  # noqa: PTH102
        self._path = path
        self._members = os.open(f"{path}/cgroup.procs", os.O_RDWR | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # there where the controller is ours to use
            _write(f"{path}/pids.max", str(TASKS))

    def enter(self, pid: int) -> bool:
        """Put a process that has just been started into it, with what it has forked already; what it forks from now on is in it
        too."""
        try:
            os.write(self._members, str(pid).encode())
        except ProcessLookupError:
            return True  # gone already
        except OSError:
            return False
        return all(self.enter(child) for child in _children(pid))

    @property
    def enter_first(self) -> list[str]:
        """Arguments to put before a program's own, so that it starts inside."""
        return ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$@"', f"{self._path}/cgroup.procs"]

    def populated(self) -> bool:
        """Whether anything runs in it."""
        return bool(os.pread(self._members, 16, 0))

    def count(self) -> int:
        """Count the processes in it."""
        found, offset = 0, 0
        while part := os.pread(self._members, 65536, offset):
            found, offset = found + part.count(b"\n"), offset + len(part)
        return found

    def kill(self) -> None:
        """End everything in it at once."""
        with contextlib.suppress(OSError):
            Path(self._path, "cgroup.kill").write_text("1")

    def remove(self) -> None:
        os.close(self._members)
        with contextlib.suppress(OSError):
            os.rmdir(self._path)  # noqa: PTH106


class Cells:
    """The control groups of one worker process, all under one of its own that the guardian removes at the end."""

    def __init__(self) -> None:
        self.base: str | None = _make_base()
        self._made_base = self.base
        self._lock = threading.Lock()
        self._free: list[Cell] = []
        self._doubtful: list[Cell] = []
        self._made = 0

    def take(self) -> Cell | None:
        """An empty group, or None where there are none to be had."""
        with contextlib.suppress(IndexError):
            return self._free.pop()
        with contextlib.suppress(IndexError):
            while (doubtful := self._doubtful.pop()).populated():
                doubtful.kill()
                doubtful.remove()
            return doubtful
        with self._lock:
            if self.base is None:
                return None
            self._made += 1
            try:
                return Cell(f"{self.base}/{self._made}")
            except OSError:
                self.base = None
                return None

    def give_back(self, cell: Cell, clean: bool = True) -> None:
        """`clean` if it was seen empty; what was killed in it may take a moment to go."""
        (self._free if clean else self._doubtful).append(cell)

    def give_up(self) -> None:
        """This machine lets us make groups but not fill them; do not try again."""
        with self._lock:
            self.base = None

    def close(self) -> None:
        for cell in (*self._free, *self._doubtful):
            cell.remove()
        self._free, self._doubtful = [], []
        if self._made_base is not None:
            with contextlib.suppress(OSError):
                os.rmdir(self._made_base)  # noqa: PTH106


def _make_base() -> str | None:
    try:
        mount = _mount_point()
        if mount is None:
            return None
        own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
        base = f"{mount.rstrip('/')}{own.rstrip('/')}/penstock-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        os.mkdir(base)  # noqa: PTH102
    except (OSError, StopIteration):
        return None
    if not os.access(f"{base}/cgroup.kill", os.W_OK):
        with contextlib.suppress(OSError):
            os.rmdir(base)  # noqa: PTH106
        return None
    with contextlib.suppress(OSError):
        _write(f"{base}/cgroup.subtree_control", "+pids")
    return base


def _children(pid: int) -> list[int]:
    """The processes that a process has forked, where the kernel tells."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def _write(path: str, text: str) -> None:
    """Write to a file that is there: unlike `open`, this never creates one."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _mount_point() -> str | None:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            return fields.split()[4]
    return None
