"""Every numbered rule of seed 004, sections 3 to 5, by its number there."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from penstock import Busy, Failed, LeaseLost, ManualClock, Penstock, Succeeded
from penstock.queue import reserve
from penstock.store import failpoints
from penstock.store.failpoints import InjectedError
from penstock.store.tables import running, runs
from tests.conformance.helpers import claim, claim_one, claimed_numbers, everything, execute, nothing_written, numbered
from tests.support.states import lose_state, remove


def test_seed_004_3_1_order_is_priority_position_arrival(app: Penstock) -> None:
    numbered(app, [1, 2])
    (third,) = numbered(app, [3])
    numbered(app, [4], priority=1)
    app.jobs.move(third.id, to="top")
    assert claimed_numbers(app) == [4, 3, 1, 2]


def test_seed_004_3_2_position_is_max_plus_gap(app: Penstock) -> None:
    assert [job.position for job in numbered(app, [1, 2, 3])] == [100, 200, 300]
    assert numbered(app, [4], priority=5)[0].position == 100
    claim(app, 2)  # the one of priority 5, and the first
    assert numbered(app, [5])[0].position == 400
    assert [app.jobs.get(id).position for id in app.enqueue_many("work", [{}, {}])] == [500, 600]


def test_seed_004_3_2_without_jobs_at_its_priority_it_is_the_gap(app: Penstock) -> None:
    numbered(app, [1])
    claim(app)
    assert numbered(app, [2])[0].position == 100


def test_seed_004_3_2_normalisation_reassigns_100_200_300(app: Penstock) -> None:
    made = numbered(app, [1, 2, 3])
    app.jobs.move(made[2].id, after=made[0].id)
    app.jobs.normalise()
    assert [app.jobs.get(made[i].id).position for i in (0, 2, 1)] == [100, 200, 300]


def test_seed_004_3_3_nothing_is_dispatched_while_reserved(app: Penstock, clock: ManualClock) -> None:
    numbered(app, [1, 2])
    held = reserve.take(app.ground, app.ground.tenant_id("default"), 0, 60)
    assert claim(app, 9) == []
    clock.advance(60)
    assert claimed_numbers(app, 1) == [1]
    app.recover()
    assert not reserve.release(app.ground, held.id)


def test_seed_004_3_3_the_head_of_the_queue_is_the_same_after_release(app: Penstock) -> None:
    numbered(app, [1, 2])
    before = [(job.id, job.priority, job.position) for job in app.jobs.list()]
    with app.reserve():
        pass
    assert [(job.id, job.priority, job.position) for job in app.jobs.list()] == before
    assert claimed_numbers(app, 1) == [1]


@pytest.mark.parametrize(
    "point",
    ["enqueue.before", "enqueue.after", "claim.before", "finish.before", "finish.before_retry", "commit.before"],
)
def test_seed_004_3_4_a_failed_write_leaves_nothing_behind(app: Penstock, point: str) -> None:
    app.define("work", retry_mode="chain")
    numbered(app, [1, 2])
    held = claim_one(app)
    calls: dict[str, Any] = {
        "enqueue": lambda: numbered(app, [3]),
        "claim": lambda: claim(app),
        "finish": lambda: app.queue.finish(held, Failed("no")),
        "commit": lambda: app.queue.finish(held, Failed("no")),
    }
    app.ground.forget_definitions()  # so that enqueue is a transaction of several statements, which can be torn
    with nothing_written(app), failpoints.armed(point, "error"), pytest.raises(InjectedError):
        calls[point.split(".")[0]]()
    app.queue.finish(held, Succeeded())
    assert claimed_numbers(app) == [2]


def test_seed_004_4_1_the_queue_survives_a_restart_in_order(app: Penstock, url: str, clock: ManualClock) -> None:
    numbered(app, range(3))
    app.close()
    with Penstock(url, clock=clock) as again:
        assert again.recover().total == 0
        assert claimed_numbers(again) == [0, 1, 2]


def test_seed_004_4_2_a_running_job_is_failed_and_retried_never_resumed(app: Penstock, clock: ManualClock) -> None:
    app.define("work", retry_mode="chain")
    numbered(app, [1])
    taken = claim_one(app)
    clock.advance(31)
    app.recover()
    (run,) = app.jobs.runs(taken.job_id)
    assert run.status == "failed" and "crash recovery" in (run.error or "")
    chain = app.jobs.chain(taken.job_id)
    assert [job.status for job in chain] == ["failed", "queued"]
    with pytest.raises(LeaseLost):
        app.queue.finish(taken, Succeeded())


def test_seed_004_4_2_a_finishing_job_is_finished(app: Penstock, clock: ManualClock) -> None:
    numbered(app, [1])
    taken = claim_one(app)
    closed = {
        "job_id": taken.job_id, "tenant_id": taken.tenant_id, "finished_at": clock.now(), "attempt_no": 1, "max_attempts": 3,
        "id": taken.run_id, "started_at": taken.started_at, "status": "succeeded", "worker_id": taken.worker_id,
    }  # fmt: skip
    execute(app, sa.insert(runs).values(closed))
    assert app.recover().finishing == 1
    assert app.jobs.get(taken.job_id).status == "succeeded"


def test_seed_004_4_3_a_stale_reservation_does_not_block_for_ever(app: Penstock, clock: ManualClock) -> None:
    numbered(app, [1])
    reserve.take(app.ground, app.ground.tenant_id("default"), 0, 300)
    clock.advance(299)
    assert app.recover().reservations == 0
    assert claim(app) == []
    clock.advance(1)
    assert app.recover().reservations == 1
    assert claimed_numbers(app) == [1]


def test_seed_004_4_4_a_missing_retry_is_created_once(app: Penstock) -> None:
    app.define("work", retry_mode="chain")
    (job,) = numbered(app, [1])
    app.queue.finish(claim_one(app), Failed("no"))
    remove(app, app.jobs.chain(job.id)[1].id)
    assert [app.recover().retries for _ in range(3)] == [1, 0, 0]
    assert len(app.jobs.chain(job.id)) == 2


def test_seed_004_4_4_no_retry_past_the_last_attempt(app: Penstock) -> None:
    app.define("work", retry_mode="chain")
    job = app.enqueue("work", max_attempts=1)
    app.queue.finish(claim_one(app), Failed("no"))
    assert app.recover().retries == 0
    assert [each.status for each in app.jobs.chain(job.id)] == ["dead_letter"]


def test_seed_004_4_5_queued_is_resumed_without_action(app: Penstock) -> None:
    numbered(app, [1])
    with nothing_written(app):
        assert app.recover().total == 0
    assert claimed_numbers(app) == [1]


def test_seed_004_4_5_running_without_a_run_gets_a_failed_one(app: Penstock) -> None:
    numbered(app, [1])
    taken = claim_one(app)
    lose_state(app, taken.job_id)
    assert app.recover().without_run == 1
    assert [run.status for run in app.jobs.runs(taken.job_id)] == ["failed"]


def test_seed_004_4_5_running_with_an_open_run_is_failed(app: Penstock, clock: ManualClock) -> None:
    numbered(app, [1])
    taken = claim_one(app)
    clock.advance(31)
    assert app.recover().abandoned == 1
    assert app.jobs.get(taken.job_id).status == "queued"


def test_seed_004_5_1_no_running_without_a_run(app: Penstock) -> None:
    numbered(app, [1, 2])
    with failpoints.armed("commit.before", "error"), pytest.raises(InjectedError):
        claim(app)
    assert {job.status for job in app.jobs.list()} == {"queued"}
    taken = claim(app, 2)
    assert all(len(app.jobs.runs(each.job_id)) == 1 for each in taken)


def test_seed_004_5_2_no_orphan_runs(app: Penstock, clock: ManualClock) -> None:
    """No foreign key on the hot path: prune takes both, and doctor() looks."""
    from datetime import timedelta

    numbered(app, [1])
    app.queue.finish(claim_one(app), Succeeded())
    clock.advance(days=2)
    app.prune(timedelta(days=1))
    assert everything(app)["penstock_runs"] == []


def test_seed_004_5_3_no_duplicate_execution(app: Penstock) -> None:
    numbered(app, [1])
    assert len(claim(app, 9)) == 1
    assert claim(app, 9) == []


def test_seed_004_5_3_one_open_run_per_job_by_the_database_itself(app: Penstock) -> None:
    numbered(app, [1])
    taken = claim_one(app)
    with pytest.raises(sa.exc.IntegrityError):
        execute(
            app,
            sa.insert(running).from_select(
                running.c.keys(), sa.select(running).where(running.c.job_id == taken.job_id)
            ),
        )


def test_seed_004_5_4_the_same_rows_give_the_same_order(app: Penstock, url: str, clock: ManualClock) -> None:
    app.tenants.create("acme")
    for n in range(12):
        app.enqueue("work", {"n": n}, priority=n % 2, tenant="acme" if n % 3 else "default")
    orders = []
    for _ in range(3):
        with Penstock(url, clock=clock) as other:
            taken = claim(other, 12)
            orders.append([each.params["n"] for each in taken])
            other.queue.release(taken)
    assert orders[0] == orders[1] == orders[2]


def test_seed_004_5_5_at_most_one_reservation(app: Penstock) -> None:
    with app.reserve(), pytest.raises(Busy), app.reserve():
        pytest.fail("two at once")
