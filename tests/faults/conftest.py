from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Config, Penstock
from penstock.core.errors import DatabaseUnavailable
from penstock.core.status import JobStatus
from tests.support.waiting import eventually

REPOSITORY = Path(__file__).parents[2]


class Stage:
    """An app, worker processes that can be hurt, and the ground truth of what they did."""

    module = "tests.faults.jobs"
    lease = 2.0

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self.mark = f"fault-{uuid.uuid4().hex}"
        self.effects = directory / "effects"
        self.clock = directory / "clock"
        self.clock.write_text("0")
        self.app = Penstock(url, config=Config(lease_seconds=self.lease, poll_seconds=0.3, grace_seconds=5.0))
        self.workers: list[subprocess.Popen[bytes]] = []
        self.logs: list[Path] = []
        jobs = importlib.import_module(self.module)
        for function in jobs.app.functions.values():
            self.app.define(function.key, **function.definition)
        jobs.app.close()  # only its definitions are wanted here

    def worker(self, *options: str, prefix: tuple[str, ...] = (), **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker process."""
        command = [sys.executable, "-m", "penstock.cli", "worker", "--app", f"{self.module}:app", "--json-logs"]
        return self._start(*prefix, *command, "--lease", str(self.lease), "--grace", "5", *options, **environment)

    def fleet(self, number: int) -> subprocess.Popen[bytes]:
        """Start many worker processes, and answer the one that watches them."""
        return self._start(sys.executable, "-m", "tests.faults.fleet", str(number), FAULT_CALM="1")

    def _start(self, *command: str, **environment: str) -> subprocess.Popen[bytes]:
        log = self.directory / f"worker-{len(self.workers)}.log"
        with log.open("wb") as output:
            child = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                stdout=output,
                stderr=output,
                env={**os.environ, "PENSTOCK_DATABASE_URL": self.url, "FAULT_EFFECTS": str(self.effects),
                     "FAULT_MARK": self.mark, **environment},
            )  # fmt: skip
        self.workers.append(child)
        self.logs.append(log)
        return child

    def lines(self) -> list[str]:
        return self.effects.read_text().splitlines() if self.effects.exists() else []

    def logged(self, worker: subprocess.Popen[bytes]) -> str:
        return self.logs[self.workers.index(worker)].read_text()

    def drained(self) -> None:
        """Wait until nothing waits or runs."""

        def empty() -> bool:
            try:
                summary = self.app.jobs.summary()
            except DatabaseUnavailable:  # the fault that was made may reach this connection last
                return False
            return summary.queued == summary.running == 0

        eventually(empty, what="the drain")

    def all_well(self, jobs: int) -> None:
        """Every job succeeded, no promise was broken, and no process was left."""
        counts = {status: n for status, n in self.app.jobs.summary().counts.items() if n}
        assert counts == {JobStatus.SUCCEEDED: jobs}
        self.healthy()

    def healthy(self) -> None:
        self.stop_workers()
        eventually(lambda: not self.left_processes(), what="the end of every process")
        health = self.app.doctor()
        assert health.clean, health.violations

    def stop_workers(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.send_signal(signal.SIGTERM)
        for worker in self.workers:
            worker.wait(120)

    def left_processes(self) -> list[int]:
        """Processes, zombies too, that our workers or their commands started."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if self.mark.encode() in told:
                    found.append(int(entry.name))
        return found

    def close(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait()
        for pid in self.left_processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.app.close()


@pytest.fixture
def stage(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", url)
    made = Stage(url, tmp_path)
    yield made
    made.close()
