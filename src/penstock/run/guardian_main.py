"""The guardian's own program: waits for its worker to end, then ends what the worker's runs left behind.

Started by `guardian.py` as a bare script without site-packages, so that it costs little memory; hence it finds its
one sibling by path. It reads lines: `+PID` when a run starts, `-PID RUN_ID` when it has ended.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import signal
import sys
import time
from pathlib import Path
from shutil import rmtree
from types import ModuleType

SWEEP_SECONDS = 1.0


def _sibling(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Watch:
    """What the guardian knows of its worker's runs."""

    def __init__(self, tree: ModuleType, workspaces: Path) -> None:
        self._tree = tree
        self._workspaces = workspaces
        self._groups: set[int] = set()
        self._ended: set[str] = set()
        self._ended_before: set[str] = set()
        self._sweep_at: float | None = None

    def hear(self, line: bytes) -> None:
        pid, _, run_id = line[1:].partition(b" ")
        if line[:1] == b"+":
            self._groups.add(int(pid))
        elif line[:1] == b"-":
            self._groups.discard(int(pid))
            self._ended.add(run_id.decode())
            self._sweep_at = self._sweep_at or time.monotonic() + SWEEP_SECONDS

    def sweep_when_due(self) -> None:
        """End what outlived its run. Each run is looked for twice: a fork may be under way at the first look."""
        if self._sweep_at is None or time.monotonic() < self._sweep_at:
            return
        runs = self._ended | self._ended_before
        self._tree.kill_marked(frozenset(f"PENSTOCK_RUN_ID={run_id}".encode() for run_id in runs))
        self._ended_before, self._ended = self._ended, set()
        self._sweep_at = time.monotonic() + SWEEP_SECONDS if self._ended_before else None

    def end_all(self, mark: bytes, cells: str) -> None:
        if cells:
            with contextlib.suppress(OSError):
                Path(cells, "cgroup.kill").write_text("1")
        for group in self._groups:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        self._tree.kill_marked(frozenset((mark,)))
        rmtree(self._workspaces, ignore_errors=True)
        if cells:
            _remove_groups(Path(cells))


def _remove_groups(base: Path) -> None:
    """A group can be removed once its last process has been reaped, which takes a moment."""
    for _ in range(50):
        with contextlib.suppress(OSError):
            for group in base.iterdir():
                if group.is_dir():
                    group.rmdir()
            base.rmdir()
            return
        time.sleep(0.02)


def _hear_all(watch: Watch, rest: bytes) -> bytes:
    with contextlib.suppress(BlockingIOError):
        while data := os.read(0, 65536):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                watch.hear(line)
    return rest


def main(mark: str, worker: int, workspaces: str, cells: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watch = Watch(_sibling("tree"), Path(workspaces))
    hangup = select.poll()
    hangup.register(0, 0)  # not for data: waking us at every start and end of a run would slow the worker down
    os.set_blocking(0, False)
    rest = b""
    # A process forked by the worker may hold the other end of our pipe, hence the second question
    while not hangup.poll(SWEEP_SECONDS * 1000) and os.getppid() == worker:
        rest = _hear_all(watch, rest)
        watch.sweep_when_due()
    _hear_all(watch, rest)
    watch.end_all(mark.encode(), cells)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
