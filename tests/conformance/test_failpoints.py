"""Failpoints: every action does what it says; off, they are nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from penstock import Penstock, Succeeded
from penstock.core.status import JobStatus
from penstock.store import failpoints
from penstock.store.failpoints import InjectedError
from tests.conformance.helpers import claim, claim_one, nothing_written, numbered


def test_off_they_are_nothing() -> None:
    assert failpoints.reach is failpoints._reach_off
    with failpoints.armed("claim.before", "error"):
        assert failpoints.reach is failpoints._reach_on
    assert failpoints.reach is failpoints._reach_off
    with pytest.raises(ValueError, match="not a failpoint"):
        failpoints.arm("no.such.point", "exit")


def test_error_rolls_back(app: Penstock) -> None:
    with nothing_written(app), failpoints.armed("enqueue.after", "error"), pytest.raises(InjectedError):
        numbered(app, [1])


def test_skip_lets_pass_first(app: Penstock) -> None:
    with failpoints.armed("enqueue.before", "error", skip=2):
        numbered(app, [1, 2])
        with pytest.raises(InjectedError):
            numbered(app, [3])
    assert len(app.jobs.list()) == 2


def test_pause_waits(app: Penstock) -> None:
    started = time.monotonic()
    with failpoints.armed("enqueue.before", "pause", 0.2):
        numbered(app, [1])
    assert time.monotonic() - started >= 0.2


class TestDoneButReportedAsTimeout:
    """The reply to COMMIT is lost: what was done is found again by its ids, and done once (FAULTS, F06)."""

    def test_enqueue(self, app: Penstock) -> None:
        with failpoints.armed("commit.after", "timeout"), pytest.raises(ConnectionError):
            numbered(app, [1])
        assert len(app.jobs.list()) == 1  # tried ten times, there once

    def test_claim(self, app: Penstock) -> None:
        numbered(app, [1, 2])
        with failpoints.armed("commit.after", "timeout"):
            (taken,) = claim(app, 1)
        assert app.jobs.summary().running == 1
        app.queue.finish(taken, Succeeded())

    def test_finish(self, app: Penstock) -> None:
        numbered(app, [1])
        taken = claim_one(app)
        with failpoints.armed("commit.after", "timeout"):
            app.queue.finish(taken, Succeeded("once"))
        assert app.jobs.get(taken.job_id).result == "once"

    def test_before_the_commit_nothing_was_done(self, app: Penstock) -> None:
        numbered(app, [1])
        with nothing_written(app), failpoints.armed("commit.before", "timeout"), pytest.raises(ConnectionError):
            numbered(app, [2])


def test_exit_is_a_kill(app: Penstock, url: str) -> None:
    numbered(app, [1])
    program = "import sys; from penstock import Penstock; Penstock(sys.argv[1]).enqueue('work', {'n': 2})"
    for point, expected in (("enqueue.after", 1), ("commit.after", 2)):
        died = subprocess.run(
            [sys.executable, "-c", program, url], env={**os.environ, "PENSTOCK_FAILPOINTS": f"{point}=exit"}
        )
        assert died.returncode == -9
        assert app.jobs.summary().counts[JobStatus.QUEUED] == expected
