"""Who is charged for what: a crash is charged to what had begun, an interruption to nobody, within the limits that are set."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import Canceled, Claim, Config, Failed, InvalidInput, ManualClock, Penstock, Succeeded
from penstock.core.status import JobStatus, RetryMode
from penstock.queue.begun import begun_by, begun_file
from penstock.queue.claim import claim_ready, heartbeat, make_ready
from penstock.queue.identity import process_identity
from tests.conformance.helpers import claim, claim_one, everything, numbered
from tests.support.children import start
from tests.support.states import carried

ELSEWHERE = "elsewhere:1:x"
SHUTDOWN = Canceled("the worker was shut down", by_shutdown=True)


def take(
    app: Penstock, limit: int, starting: int | None, worker: str = ELSEWHERE, *, alone: bool = False
) -> list[Claim]:
    """Claim as a worker's pump does, of which only some begin at once."""
    return claim_ready(app.ground, make_ready(app.ground, worker, limit, starting=starting, alone=alone)).claims()


def blame(app: Penstock) -> dict[int, tuple[int, int, bool, int]]:
    """Attempts, crashes, suspicion and interruptions of each active job by its number."""
    found = carried(app, "attempt_no", "crashes", "suspect", "interruptions")
    return {app.jobs.get(job_id).params["n"]: values for job_id, values in found.items()}


def recover_twice(app: Penstock) -> Any:
    """P11: the second time finds nothing and changes nothing."""
    found = app.recover()
    after = everything(app)
    assert app.recover().total == 0
    assert everything(app) == after
    return found


@pytest.fixture
def strict(url: str, clock: ManualClock) -> Iterator[Penstock]:
    """An app that gives back two attempts of a job, and buries it with the second crash."""
    app = Penstock(url, clock=clock, config=Config(max_interruptions=2, max_crashes=2))
    app.define("work", retry_policy={"base": 10, "factor": 2, "jitter": 0})
    yield app
    assert app.doctor().clean
    app.close()


@pytest.mark.parametrize("mode", list(RetryMode))
@pytest.mark.parametrize("outcome", [SHUTDOWN, Failed("the database was away", blameless=True, delay=0)], ids=repr)
def test_an_interruption_gives_the_attempt_back_within_a_bound(
    strict: Penstock, clock: ManualClock, mode: RetryMode, outcome: Canceled | Failed
) -> None:
    job = strict.enqueue("work", max_attempts=1) if mode is RetryMode.REQUEUE else None
    if job is None:
        strict.define("work", retry_mode=mode, max_attempts=1)
        job = strict.enqueue("work")
    for interruption in (1, 2):
        strict.queue.finish(claim_one(strict), outcome)
        again = strict.jobs.chain(job.id)[-1]
        assert again.status is JobStatus.QUEUED
        assert again.max_attempts - again.attempt_no == 1, "the attempt was not given back"
        assert again.scheduled_for == clock.now(), "it has to wait"
        assert carried(strict, "interruptions")[again.id] == (interruption,)
    strict.queue.finish(claim_one(strict), outcome)
    last = strict.jobs.chain(job.id)[-1]
    assert (last.status, last.attempt_no) == (JobStatus.DEAD_LETTER, 3), "beyond the bound an attempt counts"
    statuses = {run.status for each in strict.jobs.chain(job.id) for run in strict.jobs.runs(each.id)}
    assert statuses == {"canceled" if outcome is SHUTDOWN else "failed"}
    retried = strict.jobs.retry(last.id)
    assert retried.max_attempts == retried.attempt_no + 1
    strict.queue.finish(claim_one(strict), outcome)
    assert strict.jobs.chain(job.id)[-1].status is JobStatus.QUEUED, "a retry by hand starts the count again"


def test_an_interruption_clears_nobody(app: Penstock, clock: ManualClock) -> None:
    """A suspect that is stopped by a shutdown has proved nothing."""
    numbered(app, [1])
    claim_one(app)
    clock.advance(31)
    app.recover()
    clock.advance(1)
    app.queue.finish(claim_one(app), SHUTDOWN)
    assert blame(app) == {1: (2, 1, True, 1)}
    app.queue.finish(claim_one(app), Failed("by itself", delay=0))
    assert blame(app) == {1: (3, 0, False, 1)}, "it ended by itself, so it does not kill"


def test_the_number_of_crashes_is_a_setting(strict: Penstock, clock: ManualClock) -> None:
    job = strict.enqueue("work", max_attempts=9)
    for status in (JobStatus.QUEUED, JobStatus.DEAD_LETTER):
        claim_one(strict)
        clock.advance(31)
        strict.recover()
        clock.advance(1)
        assert strict.jobs.get(job.id).status is status
    assert "poison: its worker died 2 times" in (strict.jobs.get(job.id).last_error or "")
    for wrong in ({"max_crashes": 0}, {"max_interruptions": -1}, {"suspect_seconds": 0}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            Config(**wrong)  # type: ignore[arg-type]


def test_what_waited_in_a_buffer_goes_back_untouched_and_runs_apart(app: Penstock, clock: ManualClock) -> None:
    """Of a worker on another machine, nobody can tell what it had begun beyond what the claim marked."""
    numbered(app, range(6))
    assert [taken.params["n"] for taken in take(app, 5, starting=2)] == [0, 1, 2, 3, 4]
    before = {job.id: job.position for job in app.jobs.list()}
    clock.advance(31)
    found = recover_twice(app)
    assert (found.abandoned, found.given_back) == (2, 3)
    charged, doubtful = (1, 1, True, 0), (0, 0, True, 0)
    assert blame(app) == {0: charged, 1: charged, 2: doubtful, 3: doubtful, 4: doubtful, 5: (0, 0, False, 0)}
    for job in app.jobs.list():
        runs = app.jobs.runs(job.id)
        assert [run.status for run in runs] == (["failed"] if job.params["n"] < 2 else [])
        if job.params["n"] >= 2:
            assert (job.position, job.started_at, job.last_error) == (before[job.id], None, None)
    assert [taken.params["n"] for taken in claim(app, 9)] == [2, 3, 4, 5], "the order is kept"


@pytest.mark.parametrize("given", [{"retry_mode": "chain"}, {"max_attempts": 1}], ids=str)
def test_what_must_not_run_twice_counts_as_begun_if_nobody_can_tell(
    app: Penstock, clock: ManualClock, given: dict[str, Any]
) -> None:
    app.define("work", **given)
    (job,) = numbered(app, [1])
    take(app, 1, starting=0)
    clock.advance(31)
    assert recover_twice(app).abandoned == 1
    assert [run.status for run in app.jobs.runs(job.id)] == ["failed"]
    assert app.jobs.get(job.id).status is (JobStatus.FAILED if "retry_mode" in given else JobStatus.DEAD_LETTER)


def test_a_heartbeat_says_what_has_begun(app: Penstock, clock: ManualClock) -> None:
    numbered(app, range(3))
    taken = take(app, 3, starting=0)
    assert heartbeat(app.ground, taken, 30, [False, True, False]).renewed == {claim.run_id for claim in taken}
    clock.advance(31)
    assert (recover_twice(app).abandoned, blame(app)[1]) == (1, (1, 1, True, 0))
    assert [blame(app)[n] for n in (0, 2)] == [(0, 0, True, 0)] * 2


def test_a_canceled_claim_that_never_began_is_canceled(app: Penstock, clock: ManualClock) -> None:
    (job,) = numbered(app, [1])
    take(app, 1, starting=0)
    app.jobs.cancel(job.id)
    clock.advance(31)
    assert (recover_twice(app).abandoned, app.jobs.get(job.id).status) == (1, JobStatus.CANCELED)


def test_a_batch_ends_with_the_first_suspect(app: Penstock, clock: ManualClock) -> None:
    numbered(app, range(3))
    take(app, 1, starting=0)
    take(app, 2, starting=0)
    clock.advance(31)
    app.recover()
    first = claim(app, 1)[0]
    app.queue.finish(first, Succeeded())
    numbered(app, [3, 4])
    for _ in (1, 2):
        (suspect,) = take(app, 4, starting=4)
        assert suspect.suspicion == 1
        app.queue.finish(suspect, Succeeded())
    assert [(each.params["n"], each.suspicion) for each in take(app, 4, starting=4)] == [(3, 0), (4, 0)]
    assert {each[2] for each in blame(app).values()} == {False}, "who ends well is no suspect"


@pytest.mark.parametrize(("alone", "expected"), [(True, 1), (False, 0)])
def test_a_suspect_has_begun_when_it_is_claimed_alone(
    app: Penstock, clock: ManualClock, alone: bool, expected: int
) -> None:
    numbered(app, [1])
    take(app, 1, starting=0)
    clock.advance(31)
    app.recover()
    assert len(take(app, 8, starting=8, alone=alone)) == 1
    clock.advance(31)
    found = recover_twice(app)
    assert (found.abandoned, found.given_back) == (expected, 1 - expected)
    assert blame(app)[1] == (expected, expected, True, 0)


def a_worker_that_dies(url: str) -> None:
    """It has claimed five: one began and ended, two are under way, two wait."""
    app = Penstock(url)
    worker = process_identity()
    taken = take(app, 5, starting=0, worker=worker)
    file = begun_file(worker)
    first, second = file.place(), file.place()
    file.began(first, taken[0].run_id)
    file.ended(first, taken[0].run_id)
    file.began(first, taken[1].run_id)
    file.began(second, taken[2].run_id)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_on_the_same_machine_all_is_known(url: str, max_attempts: int) -> None:
    app = Penstock(url)
    app.define("work", max_attempts=max_attempts)
    numbered(app, range(5))
    assert start(a_worker_that_dies, url).killed()
    found = recover_twice(app)
    assert (found.abandoned, found.given_back) == (3, 2)
    facts = blame(app)
    if max_attempts > 1:
        assert facts[0] == (1, 0, True, 0), "what had ended did not kill the worker"
        assert facts[1] == facts[2] == (1, 1, True, 0)
    assert facts[3] == facts[4] == (0, 0, False, 0), "what had not begun is no suspect"
    statuses = {job.params["n"]: job.status for job in app.jobs.list()}
    assert [statuses[n] for n in range(3)] == ["dead_letter" if max_attempts == 1 else "queued"] * 3
    assert [statuses[n] for n in (3, 4)] == ["queued"] * 2
    errors = {job.params["n"]: job.last_error or "" for job in app.jobs.list()}
    assert "before it had reported the end of this run" in errors[0]
    for job in app.jobs.list(status="dead_letter"):
        app.jobs.retry(job.id)
        assert blame(app)[job.params["n"]] == (1, 0, True, 0), "by hand: its crash is forgiven, but it runs apart"
    assert app.doctor().clean
    app.close()


def test_the_file_of_a_process_goes_with_its_last_executor() -> None:
    host, _, boot = process_identity().split(":")
    worker = f"{host}:999999:{boot}"  # our own is in the hands of whatever workers this process has
    file = begun_file(worker)
    places = [file.place() for _ in range(3)]
    assert len(set(places)) == 3
    assert begun_by(worker) is not None
    for place in places:
        file.leave(place)
    assert begun_by(worker) is None
