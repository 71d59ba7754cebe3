"""Run now and reschedule while workers promote and claim: one hand wins, nothing is lost, nothing runs twice."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Failed, IllegalTransition, Penstock
from tests.support.children import race

JOBS = 40
NEVER = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture
def app(url: str) -> Any:
    with Penstock(url) as made:
        made.define("work", max_attempts=2)
        yield made


def run_each_now(url: str, ids: list[str]) -> Counter[str]:
    told: Counter[str] = Counter()
    with Penstock(url) as app:
        for job_id in ids:
            try:
                told[str(app.jobs.run_now(job_id).status)] += 1
            except IllegalTransition as error:
                told[error.status] += 1
    return told


def postpone_each(url: str, ids: list[str]) -> list[str]:
    """Those that were postponed before they were claimed."""
    won = []
    with Penstock(url) as app:
        for job_id in ids:
            try:
                app.jobs.update(job_id, scheduled_for=NEVER)
                won.append(job_id)
            except IllegalTransition as error:
                assert error.status == "running"
    return won


def claim_until(url: str, number: int, wanted: int) -> list[str]:
    """Claim until so many jobs run. A job that somebody changes at this moment is passed by, and is there the next time."""
    claimed: list[str] = []
    with Penstock(url) as app:
        while app.jobs.summary().running < wanted:
            claimed += [str(claim.job_id) for claim in app.queue.claim(f"host:{number}", 3)]
    return claimed


def claim_what_is_left(url: str, number: int) -> list[str]:
    """Claim until everything runs or waits for a time that does not come."""
    claimed: list[str] = []
    with Penstock(url) as app:
        while True:
            claims = app.queue.claim(f"host:{number}", 3)
            claimed += [str(claim.job_id) for claim in claims]
            waiting = app.jobs.list("queued", limit=JOBS)
            if not claims and all(job.scheduled_for == NEVER for job in waiting):
                return claimed


@pytest.mark.parametrize("kind", ["scheduled", "due", "backoff"])
def test_run_now_beside_promotion_and_claims_runs_each_job_once(app: Penstock, url: str, kind: str) -> None:
    ids = [str(i) for i in app.enqueue_many("work", [{}] * JOBS)]
    if kind == "backoff":
        for claim in app.queue.claim("host:0", JOBS):
            app.queue.finish(claim, Failed("no", delay=3600))
    else:
        when = NEVER if kind == "scheduled" else datetime.now(UTC) + timedelta(seconds=0.3)
        for job_id in ids:
            app.jobs.update(job_id, scheduled_for=when)
    answers = race(
        (run_each_now, url, ids),
        (run_each_now, url, ids[::-1]),
        (claim_until, url, 1, JOBS),
        (claim_until, url, 2, JOBS),
    )
    assert Counter(answers[2] + answers[3]) == Counter(ids)
    for told in answers[:2]:
        assert told.total() == JOBS and set(told) <= {"queued", "running"}
    assert app.doctor().violations == ()


def test_of_a_reschedule_and_a_claim_one_wins(app: Penstock, url: str) -> None:
    ids = [str(i) for i in app.enqueue_many("work", [{}] * JOBS)]
    postponed, *claimed = race(
        (postpone_each, url, ids[::-1]), (claim_what_is_left, url, 1), (claim_what_is_left, url, 2)
    )
    assert Counter([*postponed, *claimed[0], *claimed[1]]) == Counter(ids)
    waiting = app.jobs.list("queued", limit=JOBS)
    assert {str(job.id) for job in waiting} == set(postponed)
    assert all(job.scheduled_for == NEVER and job.attempt_no == 0 for job in waiting)
    assert app.doctor().violations == ()
