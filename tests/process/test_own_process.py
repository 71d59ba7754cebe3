"""What Penstock sets in a process that it started for itself, and how each of it is turned off."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from penstock.server.transport import BACKLOG, OTHER_FILES
from tests.support.waiting import eventually

JOBS = "tests.process.jobs:app"
YOUNG, TURN, FILES = gc.get_threshold()[0], sys.getswitchinterval(), 700


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


def with_few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@contextmanager
def running(url: str, *arguments: str, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    environment = {**kept, "PENSTOCK_DATABASE_URL": url, **settings}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *arguments], env=environment, preexec_fn=with_few_files
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def looked(url: str, *arguments: str, **settings: str) -> dict[str, Any]:
    with Penstock(url) as app, running(url, *arguments, **settings):
        job = app.enqueue("look", adhoc=True)
        found: dict[str, Any] = eventually(lambda: app.jobs.get(job.id).result)
    return found


def test_a_worker_of_the_command_line_tunes_its_own_process(url: str) -> None:
    found = looked(url, "worker", "--app", JOBS)
    assert (found["ours"], found["young"], found["frozen"], found["turn"]) == (True, 20_000, True, 0.001)


def test_each_of_it_can_be_turned_off(url: str) -> None:
    off = {
        "PENSTOCK_GC_YOUNG_OBJECTS": "0", "PENSTOCK_GC_FREEZE": "off", "PENSTOCK_WORKER_SWITCH_INTERVAL": "0",
        "PENSTOCK_API_SWITCH_INTERVAL": "0", "PENSTOCK_RAISE_OPEN_FILES": "off",
    }  # fmt: skip
    found = looked(url, "worker", "--app", JOBS, **off)
    assert (found["young"], found["frozen"], found["turn"]) == (YOUNG, False, TURN)
    found = looked(url, "up", "--app", JOBS, "--port", "0", **off)
    assert (found["turn"], found["files"]) == (TURN, FILES)


def test_the_service_raises_its_limit_of_open_files_and_takes_short_turns(url: str) -> None:
    found = looked(url, "up", "--app", JOBS, "--port", "0", PENSTOCK_MAX_CONNECTIONS="1000")
    assert (found["turn"], found["files"]) == (0.0005, 1000 + BACKLOG + OTHER_FILES)


@pytest.mark.parametrize("setting", ["PENSTOCK_LEASE_SECONDS", "PENSTOCK_GC_YOUNG_OBJECTS", "PENSTOCK_THREADS"])
def test_a_value_that_cannot_be_is_told_at_the_start(setting: str, url: str) -> None:
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": url, setting: "-1"}
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "up", "--port", "0"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert f"{setting} is -1" in done.stderr and "must be" in done.stderr
