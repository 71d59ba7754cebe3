"""SIGKILL between any two statements: after `recover()` the database is clean and every acknowledged job is there."""

from __future__ import annotations

import os
import random
import time
from typing import Any
from uuid import UUID

from sqlalchemy import text

from penstock import Penstock, Succeeded
from penstock.store import failpoints
from tests.kills.work import live, prepare
from tests.support.children import Child, start

ELSEWHERE = ("worker.", "tick.", "erase.", "rotate.")
SEAMS = [name for name in failpoints.NAMES if not name.startswith(ELSEWHERE)]
"""The store's and the queue's. The worker's, the scheduler's and those of a deletion and of a rotation are killed by their own tests."""

SQLITE_ONLY = {"claim.after_running", "claim.after_ready", "finish.after_running", "finish.after_runs"}
"""On PostgreSQL these are inside one statement: there is nothing between them to be killed at."""

ROUNDS = int(os.environ.get("PENSTOCK_CHAOS_ROUNDS", "1"))


def acknowledged(victim: Child[Any]) -> tuple[set[UUID], set[str]]:
    """Listen until the victim is dead; answers the jobs and the finished runs it was told of."""
    jobs: set[UUID] = set()
    runs: set[str] = set()
    while True:
        try:
            kind, value = victim.said()
        except EOFError:
            return jobs, runs
        assert kind in ("job", "done", "lost"), value
        if kind == "job":
            jobs.add(UUID(value))
        elif kind == "done":
            runs.add(value)


def assert_sound(url: str, jobs: set[UUID], runs: set[str], after: str = "") -> None:
    """Recovered, nothing is broken and nothing that was acknowledged is missing."""
    with Penstock(url) as app:
        app.recover()
        assert app.doctor().violations == (), after
        with app.db.read() as tx:
            there = {str(row[0]) for row in tx.rows(text("SELECT id FROM penstock_jobs"))}
            ended = {str(row[0]) for row in tx.rows(text("SELECT id FROM penstock_runs WHERE id IS NOT NULL"))}
        assert {str(job) for job in jobs} <= there, after
        assert runs <= ended, after


def assert_comes_to_rest(url: str) -> None:
    """What is left can be run to its end, and the end is clean."""
    with Penstock(url) as app:
        drain(app)
        assert app.doctor().violations == ()
        with app.db.read() as tx:
            assert tx.scalar(text("SELECT count(*) FROM penstock_job_view WHERE finished_at IS NULL")) == 0


def drain(app: Penstock, patience: float = 30.0) -> None:
    """Run everything that is left to its end; retries after a crash come with up to a second of jitter."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        claims = app.queue.claim("drain", 50)
        if claims:
            app.queue.finish_many([(claim, Succeeded()) for claim in claims])
            continue
        if not app.jobs.list(status=["queued", "running"], limit=1):
            return
        time.sleep(0.05)
    left = app.jobs.list(status=["queued", "running"], limit=3)
    raise AssertionError(f"the queue does not come to rest: {[str(app.jobs.why(job.id)) for job in left]}")


def test_killed_at_each_seam(url: str, backend: str) -> None:
    prepare(url)
    chance = random.Random(2)
    jobs: set[UUID] = set()
    runs: set[str] = set()
    for seam in [seam for seam in SEAMS if backend == "sqlite" or seam not in SQLITE_ONLY] * ROUNDS:
        skip = chance.randrange(4)
        victim = start(live, url, chance.randrange(10**6), failpoints=f"{seam}=exit:0:{skip}")
        told_jobs, told_runs = acknowledged(victim)
        assert victim.killed(), f"{seam} was never reached"
        jobs |= told_jobs
        runs |= told_runs
        assert_sound(url, jobs, runs, seam)
    assert_comes_to_rest(url)


def test_killed_at_random_moments_while_others_go_on(url: str) -> None:
    prepare(url)
    chance = random.Random(7)
    jobs: set[UUID] = set()
    runs: set[str] = set()
    for turn in range(2 * ROUNDS):
        victims = [start(live, url, 100 * turn + n) for n in range(3)]
        for victim in victims:
            time.sleep(0.3 + chance.random() * 0.3)
            victim.kill()
        for victim in victims:
            told_jobs, told_runs = acknowledged(victim)
            jobs |= told_jobs
            runs |= told_runs
    assert jobs, "the victims died before they did anything"
    assert_sound(url, jobs, runs)
    assert_comes_to_rest(url)


def test_the_seams_are_all_reached_or_said_to_be_elsewhere() -> None:
    assert {name.partition(".")[0] + "." for name in set(failpoints.NAMES) - set(SEAMS)} == set(ELSEWHERE)
    assert set(SEAMS) >= SQLITE_ONLY
