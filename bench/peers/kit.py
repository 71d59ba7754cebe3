"""What every peer's file needs, in the standard library alone: it runs in the peer's own virtual environment.

A peer's file has five functions: `setup(url)`, `enqueue(url, n)`, `enqueue_many(url, n)`, `work(url)` and
`probe(url, count, gap)`. Its job does one thing, `ran(sent)`. The bench starts the file as a process for each of them.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SLOTS = 64
SLOT_BYTES = 16
"""How many jobs a process ran, and when it began with the first."""


class Board:
    """Where workers count the jobs they ran: memory shared with the bench, so that counting costs next to nothing and
    never releases the interpreter's lock."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDWR)
        self._memory = memoryview(mmap.mmap(self._file, SLOTS * SLOT_BYTES)).cast("q")
        self._lock = threading.Lock()
        self._slot = -1
        self._count = 0
        self._late: int | None = None
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock, self._slot, self._count = threading.Lock(), -1, 0

    def count(self) -> None:
        with self._lock:
            if self._slot < 0:
                self._slot = self._free_slot()
            self._count += 1
            self._memory[self._slot] = self._count

    def _free_slot(self) -> int:
        os.lockf(self._file, os.F_LOCK, 0)
        try:
            slot = next(slot for slot in range(0, SLOTS * 2, 2) if self._memory[slot + 1] == 0)
            self._memory[slot + 1] = time.monotonic_ns()
            return slot
        finally:
            os.lockf(self._file, os.F_ULOCK, 0)

    def late(self, sent: int) -> None:
        nanoseconds = time.monotonic_ns() - sent
        if self._late is None:
            self._late = os.open(os.environ["BENCH_LATENCIES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(self._late, f"{nanoseconds}\n".encode())


_board: Board | None = None


def ran(sent: int) -> None:
    """The job of every system here. `sent` is when it was asked for, by the machine's monotonic clock; 0 only counts."""
    global _board
    if _board is None:
        _board = Board(os.environ["BENCH_BOARD"])
    if sent:
        _board.late(sent)
    else:
        _board.count()


class Timer:
    seconds = 0.0


@contextmanager
def timed() -> Iterator[Timer]:
    """`with timed() as timer: …` and then `timer.seconds`."""
    timer = Timer()
    started = time.perf_counter()
    yield timer
    timer.seconds = time.perf_counter() - started


def probing(count: int, gap: float, send: Callable[[int], Any]) -> None:
    """Send one job at a time, `gap` seconds apart, each saying when it was sent."""
    for _ in range(count):
        send(time.monotonic_ns())
        time.sleep(gap)


def main() -> None:
    """`python -m bench.peers.kit PEER VERB URL [NUMBERS]`: the answer is one line of JSON."""
    name, verb, url, *numbers = sys.argv[1:]
    peer = importlib.import_module(f"bench.peers.{name}")
    arguments = [float(number) if "." in number else int(number) for number in numbers]
    answer = getattr(peer, verb)(url, *arguments)
    print(json.dumps({"answer": answer}), flush=True)


if __name__ == "__main__":
    main()
