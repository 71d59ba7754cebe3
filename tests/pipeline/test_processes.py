"""Many processes on one database, some of them killed."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock.pipeline as dj
from tests.support.waiting import eventually

WORKER = Path(__file__).parent / "worker_main.py"
KEYS = 2000


class Crowd:
    """The worker's tables as seen from here, and the processes at work on them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.processes: list[subprocess.Popen[str]] = []
        spec = importlib.util.spec_from_file_location("crowd_tables", WORKER)
        assert spec is not None and spec.loader is not None
        self.tables: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.tables)

    def start(self, verb: str = "squares", seconds: float = 60) -> subprocess.Popen[str]:
        environment = {**os.environ, "PENSTOCK_DATABASE_URL": self.url, "PYTHONPATH": os.pathsep.join(sys.path)}
        process = subprocess.Popen(
            [sys.executable, str(WORKER), verb, str(seconds)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def crowd(home: str) -> Iterator[Crowd]:
    dj.config["jobs.lease_seconds"] = 1.5
    made = Crowd(home)
    yield made
    made.end()


def test_eight_processes_three_killed_every_key_once(crowd: Crowd) -> None:
    Square, Number, Effect = crowd.tables.Square, crowd.tables.Number, crowd.tables.Effect
    Number.insert((n,) for n in range(KEYS))
    Square.jobs.refresh()
    workers = [crowd.start() for _ in range(8)]
    for count, victim in enumerate(workers[:3], start=1):
        eventually(lambda pid=victim.pid: len(Square.jobs.reserved & {"pid": pid}) > 0 or len(Square) > KEYS * 0.9)
        victim.kill()
        crowd.start()
        eventually(lambda count=count: len(Square) > 100 * count)
    for process in crowd.processes:
        out, err = process.communicate(timeout=200)
        assert process.returncode in (0, -signal.SIGKILL), err
        assert "ready" in out or process.returncode == -signal.SIGKILL
    assert sorted(row["n"] for row in Square.fetch("n", as_dict=True)) == list(range(KEYS))
    assert len(Effect) == KEYS
    assert len(Square.Divisor) == sum(1 for n in range(KEYS) for d in (1, 2, 3) if n % d == 0)
    assert Square.jobs.progress()["total"] == 0, Square.jobs.to_dicts()[:3]
    assert Square.jobs.refresh() == {"added": 0, "removed": 0, "orphaned": 0, "re_pended": 0, "reprioritised": 0}


def test_sigterm_gives_the_key_back_at_once(crowd: Crowd) -> None:
    crowd.tables.Number.insert((n,) for n in range(3))
    jobs = crowd.tables.Square.jobs
    worker = crowd.start("sleeper", 600)
    eventually(lambda: len(jobs.reserved))
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=200)
    assert worker.returncode == 128 + signal.SIGTERM
    progress = jobs.progress()
    assert (progress["pending"], progress["reserved"], progress["error"]) == (3, 0, 0)
    assert len(crowd.tables.Square) == 0


def test_a_killed_worker_s_key_returns_while_a_long_one_is_left_alone(crowd: Crowd) -> None:
    crowd.tables.Number.insert((n,) for n in range(2))
    jobs = crowd.tables.Square.jobs
    jobs.refresh()
    victim, survivor = crowd.start("sleeper", 600), crowd.start("sleeper", 600)
    eventually(lambda: len(jobs.reserved) == 2)
    victim.kill()
    eventually(lambda: jobs.refresh()["orphaned"])
    assert jobs.reserved.fetch("pid", as_dict=True) == [{"pid": survivor.pid}]
    assert len(jobs.pending) == 1
    assert survivor.poll() is None
