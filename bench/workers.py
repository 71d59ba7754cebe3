"""Worker processes of a peer, and what they say on the board."""

from __future__ import annotations

import mmap
import os
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from bench.environment import ROOT, Missing, count_remaining, interpreter, peer_environment
from bench.peers import Peer
from bench.peers.kit import SLOT_BYTES, SLOTS


class Workers:
    """`with Workers(peer, url, processes=2) as workers: …` starts them, and ends them afterwards."""

    def __init__(self, peer: Peer, url: str, processes: int = 1) -> None:
        self.peer = peer
        self.url = url
        shared = Path("/dev/shm")
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=shared if shared.is_dir() else None))
        board, self._latencies = self._directory / "board", self._directory / "latencies"
        board.write_bytes(bytes(SLOTS * SLOT_BYTES))
        self._latencies.touch()
        self._board = board.open("r+b")
        self._memory = memoryview(mmap.mmap(self._board.fileno(), SLOTS * SLOT_BYTES)).cast("q")
        self._output = (self._directory / "output").open("w+b")
        env = peer_environment(BENCH_BOARD=str(board), BENCH_LATENCIES=str(self._latencies))
        command = [interpreter(peer), "-m", "bench.peers.kit", peer.name, "work", url]
        self.processes = [
            subprocess.Popen(
                command, cwd=ROOT, env=env, stdout=self._output, stderr=self._output, start_new_session=True
            )
            for _ in range(processes)
        ]

    @property
    def ran(self) -> int:
        return sum(self._memory[0::2])

    @property
    def first_ran_at(self) -> float:
        return min(moment for moment in self._memory[1::2] if moment) / 1e9

    def wait_for(self, jobs: int, timeout: float = 300) -> float:
        """Seconds from the start of the first job until the last one is durably finished."""
        self._until(lambda: self.ran >= jobs, timeout, f"ran {{ran}} of {jobs} jobs")
        if self.peer.remaining is not None:
            left = lambda: count_remaining(self.peer, self.url) == 0  # noqa: E731
            self._until(left, timeout, "left jobs unfinished", pause=0.005)
        return time.monotonic() - self.first_ran_at

    def wait_until_ran(self, jobs: int, timeout: float = 300) -> float:
        """Seconds in which so many ran, where more wait behind them."""
        self._until(lambda: self.ran >= jobs, timeout, f"ran {{ran}} of {jobs} jobs")
        return time.monotonic() - self.first_ran_at

    def wait_for_latencies(self, count: int, timeout: float = 120) -> list[float]:
        """Milliseconds from enqueue to start."""
        self._until(lambda: len(self._told()) >= count, timeout, "answered {answered} probes", pause=0.02)
        return [int(line) / 1e6 for line in self._told()]

    def _told(self) -> list[bytes]:
        return self._latencies.read_bytes().split()

    def _until(self, reached, timeout: float, complaint: str, pause: float = 0.005) -> None:  # type: ignore[no-untyped-def]
        until = time.monotonic() + timeout
        while not reached():
            if any(process.poll() is not None for process in self.processes):
                raise Missing(f"its worker ended: {self._last_words()}")
            if time.monotonic() > until:
                said = complaint.format(ran=self.ran, answered=len(self._told()))
                raise Missing(f"in {timeout:g} s it {said}")
            time.sleep(pause)

    def _last_words(self) -> str:
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                pass
            try:
                os.killpg(process.pid, 9)  # what it started, it may have left
            except ProcessLookupError:
                pass
            process.wait()
        self._memory.release()
        self._board.close()
        self._output.close()
        for path in self._directory.iterdir():
            path.unlink()
        self._directory.rmdir()
