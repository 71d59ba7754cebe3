"""Two hands on one row at one moment: each race has one of the outcomes that one hand after the other could give."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from penstock import DefinitionArchived, Failed, IllegalTransition, LeaseLost, Penstock, Succeeded
from penstock.core.nouns import Claim
from penstock.core.status import GroupStatus, JobStatus
from tests.support.children import race, together

ROUNDS = 5
RETRY_NOW = {"base": 0, "jitter": 0}


@pytest.fixture
def app(url: str) -> Any:
    with Penstock(url) as made:
        made.define("work", max_attempts=1)
        yield made


def claim_one(app: Penstock, worker: str = "host:1") -> Claim:
    [claim] = app.queue.claim(worker, 1)
    return claim


def status_of(app: Penstock, job_id: UUID) -> str:
    return str(app.jobs.get(job_id).status)


def ask_with_key(url: str, key: str, number: int) -> str:
    with Penstock(url) as app:
        return str(app.enqueue("work", {"n": number}, dedupe_key=key).id)


def test_eight_processes_enqueue_one_dedupe_key_and_all_get_the_same_job(app: Penstock, url: str) -> None:
    for turn in range(3):
        answers = together(8, ask_with_key, url, f"key-{turn}")
        assert len(set(answers)) == 1
    with app.db.read() as tx:
        assert tx.scalar(text("SELECT count(*) FROM penstock_jobs")) == 3


def ask_again_and_again(url: str, key: str, times: int, number: int) -> list[str]:
    """Enqueue under a key while others claim and finish its jobs: the answer is always a job that was active."""
    with Penstock(url) as app:
        seen = []
        for _ in range(times):
            seen.append(str(app.enqueue("work", {"n": number}, dedupe_key=key).id))
            for claim in app.queue.claim(f"host:{number}", 1):
                app.queue.finish(claim, Succeeded())
        return seen


def test_a_dedupe_key_is_free_again_the_moment_its_job_ends(app: Penstock, url: str) -> None:
    answers = together(4, ask_again_and_again, url, "hot", 25)
    with app.db.read() as tx:
        known = {str(row[0]) for row in tx.rows(text("SELECT id FROM penstock_jobs"))}
    assert set().union(*answers) <= known
    assert app.doctor().violations == ()


def try_retry(url: str, job_id: str, number: int = 0) -> str:
    with Penstock(url) as app:
        try:
            return str(app.jobs.retry(job_id).id)
        except IllegalTransition as error:
            return error.status


@pytest.mark.parametrize("mode", ["requeue", "chain"])
def test_of_two_retries_at_once_one_wins(app: Penstock, url: str, mode: str) -> None:
    app.define("work", retry_mode=mode)
    for _ in range(ROUNDS):
        job = app.enqueue("work")
        app.queue.finish(claim_one(app), Failed("no"))
        answers = together(3, try_retry, url, str(job.id))
        refused = [answer for answer in answers if answer in ("queued", "dead_letter", "running")]
        assert len(refused) == 2, answers
        again = claim_one(app)
        app.queue.finish(again, Succeeded())
        assert len(app.jobs.runs(again.job_id)) == (2 if mode == "requeue" else 1)
    assert app.doctor().violations == ()


def test_a_retry_and_an_enqueue_of_one_dedupe_key_leave_one_active_job(app: Penstock, url: str) -> None:
    for turn in range(ROUNDS):
        key = f"key-{turn}"
        job = app.enqueue("work", dedupe_key=key)
        app.queue.finish(claim_one(app), Failed("no"))
        race((try_retry, url, str(job.id)), (ask_with_key, url, key, 1), (ask_with_key, url, key, 2))
        with app.db.read() as tx:
            active = "SELECT count(*) FROM penstock_job_view WHERE dedupe_key = :key AND status = 'queued'"
            assert tx.scalar(text(active), {"key": key}) == 1
        app.queue.finish(claim_one(app), Succeeded())


def try_cancel(url: str, job_id: str) -> str:
    with Penstock(url) as app:
        try:
            return str(app.jobs.cancel(job_id).status)
        except IllegalTransition as error:
            return f"refused: {error.status}"


def try_finish(url: str, claim: Claim, outcome: Any) -> str:
    with Penstock(url) as app:
        try:
            app.queue.finish(claim, outcome)
            return "finished"
        except LeaseLost:
            return "lost"


def test_cancel_and_finish_at_once_agree_on_the_end(app: Penstock, url: str) -> None:
    app.define("work", max_attempts=3)
    for turn in range(ROUNDS):
        job = app.enqueue("work")
        outcome = Succeeded() if turn % 2 else Failed("no", delay=0)
        canceled, finished = race((try_cancel, url, str(job.id)), (try_finish, url, claim_one(app), outcome))
        assert finished == "finished"
        end = app.jobs.get(job.id)
        if turn % 2:  # success wins whether or not it was asked to stop
            assert end.status is JobStatus.SUCCEEDED
            assert canceled in ("running", "refused: succeeded")
        else:  # a canceled job is never tried again
            assert end.status is JobStatus.CANCELED
        assert app.jobs.runs(job.id)[-1].finished_at is not None
    assert app.queue.claim("host:1", 10) == []
    assert app.doctor().violations == ()


def try_claim(url: str, limit: int, number: int = 0) -> list[str]:
    with Penstock(url) as app:
        return [str(claim.job_id) for claim in app.queue.claim(f"host:{number}", limit)]


def test_cancel_and_claim_at_once_never_both_have_it(app: Penstock, url: str) -> None:
    for _ in range(ROUNDS):
        job = app.enqueue("work")
        canceled, claimed = race((try_cancel, url, str(job.id)), (try_claim, url, 1))
        if claimed:
            assert canceled == "running"  # asked to stop
            assert app.jobs.get(job.id).cancel_requested_at is not None or status_of(app, job.id) == "canceled"
        else:
            assert canceled == "canceled"
            assert app.jobs.runs(job.id) == []
    assert app.doctor().violations == ()


def move_about(url: str, ids: list[str], number: int) -> int:
    moved = 0
    with Penstock(url) as app:
        for index, job_id in enumerate(ids):
            try:
                if index % 3 == 0:
                    app.jobs.move(job_id, to="top")
                elif index % 3 == 1:
                    app.jobs.move(job_id, before=ids[0])
                else:
                    app.jobs.move(job_id, after=ids[-1])
                moved += 1
            except IllegalTransition:
                pass  # claimed meanwhile: it has no place any more
    return moved


def test_moves_and_claims_at_once_lose_and_double_nothing(app: Penstock, url: str) -> None:
    ids = [str(i) for i in app.enqueue_many("work", [{}] * 60)]
    answers = race(
        (move_about, url, ids, 0),
        (move_about, url, ids[::-1], 1),
        (claim_all, url, 2),
        (claim_all, url, 3),
    )
    assert Counter(answers[2] + answers[3]) == Counter(ids)
    assert app.doctor().violations == ()


def claim_all(url: str, number: int) -> list[str]:
    claimed: list[str] = []
    with Penstock(url) as app:
        # A job that somebody moves at this moment is passed by, and is there the next time.
        while (claims := app.queue.claim(f"host:{number}", 3)) or app.jobs.list("queued", limit=1):
            claimed += [str(claim.job_id) for claim in claims]
    return claimed


def enqueue_until_archived(url: str, number: int) -> int:
    with Penstock(url) as app:
        made = 0
        try:
            while made < 5_000:
                app.enqueue("work", {"n": made})
                made += 1
        except DefinitionArchived:
            return made
    raise AssertionError("an archived definition took 5,000 jobs")


def archive(url: str) -> None:
    with Penstock(url) as app:
        app.archive("work")


def test_archive_stops_enqueuers_that_remember_the_definition(app: Penstock, url: str) -> None:
    *made, _ = race((enqueue_until_archived, url, 0), (enqueue_until_archived, url, 1), (archive, url))
    with app.db.read() as tx:
        assert tx.scalar(text("SELECT count(*) FROM penstock_jobs")) == sum(made)
    with pytest.raises(DefinitionArchived):
        app.enqueue("work")


@pytest.mark.parametrize("mode", ["parallel", "sequential"])
def test_group_members_finishing_at_once_end_the_group_once(app: Penstock, url: str, mode: str) -> None:
    app.define("work", max_attempts=2, retry_mode="chain", retry_policy=RETRY_NOW)
    group = app.groups.create([("work", {"n": n}) for n in range(6)], mode=mode)
    together(4, run_group, url)
    ended = app.groups.get(group.id)
    assert ended.status is GroupStatus.COMPLETED
    assert app.doctor().violations == ()


def run_group(url: str, number: int) -> int:
    """Fail each member once, then let it succeed; stop when the queue stays empty."""
    done = idle = 0
    with Penstock(url) as app:
        while idle < 50:
            claims = app.queue.claim(f"host:{number}", 2)
            idle = 0 if claims else idle + 1
            for claim in claims:
                app.queue.finish(claim, Failed("again", delay=0) if claim.attempt_no == 1 else Succeeded())
                done += 1
    return done


def test_a_stale_finish_changes_nothing_while_the_new_run_goes_on(app: Penstock, url: str) -> None:
    app.define("work", max_attempts=3)
    job = app.enqueue("work")
    [stale] = app.queue.claim("host:1", 1, lease_seconds=0.001)
    together(2, recover, url)
    with app.db.write() as tx:  # the jittered delay is not what is tested here
        tx.run(text("UPDATE penstock_waiting SET until = queued_at"))
    fresh = claim_one(app, "host:2")
    assert fresh.job_id == job.id
    answers = race((try_finish, url, stale, Succeeded("stale")), (try_finish, url, stale, Failed("stale")))
    assert answers == ["lost", "lost"]
    with pytest.raises(LeaseLost):
        app.queue.heartbeat(stale)
    app.queue.finish(fresh, Succeeded("fresh"))
    assert app.jobs.get(job.id).result == "fresh"
    assert app.doctor().violations == ()


def recover(url: str, number: int) -> int:
    with Penstock(url) as app:
        return app.recover().total
