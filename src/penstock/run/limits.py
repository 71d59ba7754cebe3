"""What a command may take of the machine if its commands file says nothing.

The limits stop what is plainly wrong (a fork bomb, an endless file) and leave ordinary programs alone. Memory is not among
them: a limit of the address space breaks programs that reserve much and use little, as the JVM, Go and CUDA do.
"""

from __future__ import annotations

import resource
import threading
import time

from penstock.run.tree import Process, snapshot

MB = 1024 * 1024
PROCESSES = 256
"""Processes of one run at a time."""

TASKS = 4096
"""Processes and threads of one run, where a control group can count them. This one is the kernel's to hold."""

OPEN_FILES = 4096
FILE_MB = 64 * 1024
LOOK_SECONDS = 0.25
"""How often the processes of a run are counted."""


def default_limits(command: bool = True) -> dict[int, tuple[int, int]]:
    """Return the soft and hard limits of a child, never more than our own, and only those that differ from ours."""
    wanted = {resource.RLIMIT_CORE: 0}
    if command:
        wanted |= {resource.RLIMIT_NOFILE: OPEN_FILES, resource.RLIMIT_FSIZE: FILE_MB * MB}
    found = {}
    for which, most in wanted.items():
        soft, hard = resource.getrlimit(which)
        least = _least(most, soft)
        # A program that needs more descriptors may raise its soft limit up to the hard one, as servers do.
        found[which] = (least, hard if which == resource.RLIMIT_NOFILE else _least(most, hard))
    return {which: pair for which, pair in found.items() if pair != resource.getrlimit(which)}


def _least(one: int, other: int) -> int:
    return one if other == resource.RLIM_INFINITY else min(one, other)


class _Table:
    """The process table, read at most four times a second however many runs ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read_at = 0.0
        self._processes: dict[int, Process] = {}

    def count(self, session: int) -> int:
        with self._lock:
            if time.monotonic() - self._read_at >= LOOK_SECONDS:
                self._processes = snapshot()
                self._read_at = time.monotonic()
            return sum(each.session == session and not each.zombie for each in self._processes.values())


_table = _Table()


def processes_in_session(session: int) -> int:
    """Count the processes of a session, for machines without control groups."""
    return _table.count(session)
