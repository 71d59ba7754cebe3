"""Everything a run started, and its end. Known by descent, by session, and by the run id in the environment.

A process group alone is not enough: one `setsid` leaves it. A child that also cleans its environment and lets its
parent die first is out of reach without a cgroup; everything else is found here.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
KILL_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the process table; `started` tells a process from a later one with the same number."""

    pid: int
    parent: int
    session: int
    started: int
    zombie: bool


def snapshot() -> dict[int, Process]:
    """The process table; empty where there is no /proc."""
    table = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(PROC):
            if entry.name.isdecimal() and (process := _read(int(entry.name))) is not None:
                table[process.pid] = process
    return table


def _read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - a Path per process is most of the cost
            # The name is in parentheses and may hold anything, parentheses too
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return Process(pid, int(fields[1]), int(fields[3]), int(fields[19]), fields[0] in (b"Z", b"X"))


def environment(pid: int) -> frozenset[bytes]:
    """The variables a process was started with; empty when it is not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            return frozenset(file.read().split(b"\0"))
    except OSError:
        return frozenset()


def marked(table: Iterable[Process], marks: frozenset[bytes]) -> list[Process]:
    """The living processes that carry one of the marks in their environment."""
    mine = os.getpid()
    return [p for p in table if p.pid != mine and not p.zombie and not marks.isdisjoint(environment(p.pid))]


def send(process: Process, number: int) -> None:
    """Signal this very process, never another that took its number meanwhile."""
    if not hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            os.kill(process.pid, number)
        return
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        now = _read(process.pid)
        if now is not None and now.started == process.started:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, number)
    finally:
        os.close(handle)


class Tree:
    """The processes of a run whose main process is, or was, `root`. What was seen once is remembered."""

    def __init__(self, root: int, mark: bytes) -> None:
        self._root = root
        self._marks = frozenset((mark,))
        self._seen: dict[int, Process] = {}

    def members(self) -> list[Process]:
        """Those that live now."""
        table = snapshot()
        found = {pid for pid, was in self._seen.items() if pid in table and table[pid].started == was.started}
        found |= {p.pid for p in table.values() if p.session == self._root or p.pid == self._root}
        found |= {p.pid for p in marked((p for p in table.values() if p.pid not in found), self._marks)}
        more = found
        while more:
            more = {p.pid for p in table.values() if p.parent in found and p.pid not in found}
            found |= more
        found.discard(os.getpid())
        self._seen = {pid: table[pid] for pid in found}
        return [process for process in self._seen.values() if not process.zombie]

    def terminate(self) -> None:
        """Ask all of them to end. The first to go may be the only link to the others, so they are listed before."""
        for process in self.members():
            send(process, signal.SIGTERM)
        if not self._seen:
            _signal_group(self._root, signal.SIGTERM)

    def kill(self) -> bool:
        """End all of them; says whether nothing is left."""
        done = _kill_all(self.members)
        if not self._seen:
            _signal_group(self._root, signal.SIGKILL)
        return done

    def group_lives(self) -> bool:
        """Whether anything is left in the main process's group; one system call."""
        try:
            os.killpg(self._root, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


def kill_marked(marks: frozenset[bytes]) -> bool:
    """End every process that carries one of the marks; says whether nothing is left."""
    return _kill_all(lambda: marked(snapshot().values(), marks))


def _kill_all(find: Callable[[], list[Process]]) -> bool:
    """Again and again, while they still fork."""
    for _ in range(KILL_ROUNDS):
        found = find()
        if not found:
            return True
        for process in found:
            send(process, signal.SIGSTOP)  # what is stopped cannot fork while the rest is being found
        for process in found:
            send(process, signal.SIGKILL)
    return not find()


def _signal_group(root: int, number: int) -> None:
    """Where there is no /proc, the process group is all there is."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(root, number)
