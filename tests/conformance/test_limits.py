"""Limits per definition and per tenant are exact, and fairness among tenants."""

from __future__ import annotations

import pytest

from penstock import Failed, ManualClock, Penstock, Succeeded
from penstock.core.status import JobStatus
from tests.conformance.helpers import claim, claim_one, claimed_numbers, numbered


def running(app: Penstock) -> int:
    return app.jobs.summary().running


def test_a_definitions_limit(app: Penstock) -> None:
    app.define("narrow", max_running=2)
    numbered(app, range(5), key="narrow")
    numbered(app, [100])
    first = claim(app, 9)
    assert sorted(each.params["n"] for each in first) == [0, 1, 100]
    assert claim(app, 9) == []
    app.queue.finish(next(each for each in first if each.params["n"] == 0), Succeeded())
    assert claimed_numbers(app) == [2]
    assert claim(app, 9) == []


def test_a_tenants_limit(app: Penstock) -> None:
    app.tenants.create("acme", max_running=1)
    numbered(app, range(3), tenant="acme")
    numbered(app, [100])
    first = claim(app, 9)
    assert sorted(each.params["n"] for each in first) == [0, 100]
    assert claim(app, 9) == []
    app.queue.finish(next(each for each in first if each.params["n"] == 0), Succeeded())
    assert claimed_numbers(app) == [1]


def test_both_limits_together(app: Penstock) -> None:
    app.tenants.create("acme", max_running=3)
    app.define("narrow", max_running=2)
    numbered(app, range(5), key="narrow", tenant="acme")
    numbered(app, range(10, 15), tenant="acme")
    taken = []
    for _ in range(6):
        taken += claim(app, 9)
    assert len(taken) == 3
    assert sum(each.key == "narrow" for each in taken) <= 2


def test_a_limit_of_zero_lets_nothing_through(app: Penstock) -> None:
    app.define("work", max_running=0)
    numbered(app, [1])
    assert claim(app, 9) == []
    app.define("work", max_running=1)
    assert claimed_numbers(app) == [1]


def test_a_limit_set_later_holds_for_what_waits(app: Penstock) -> None:
    numbered(app, range(6))
    held = claim(app, 2)
    app.define("work", max_running=3)
    assert claimed_numbers(app) == [2]
    assert claim(app, 9) == []
    app.queue.finish(held[0], Succeeded())
    assert claimed_numbers(app) == [3]
    app.define("work", max_running=None)
    assert claimed_numbers(app) == [4, 5]


def test_a_tenants_limit_set_later_and_lifted(app: Penstock) -> None:
    numbered(app, range(4))
    app.tenants.update("default", max_running=1)
    assert claimed_numbers(app) == [0]
    assert claim(app, 9) == []
    app.tenants.update("default", max_running=None)
    assert claimed_numbers(app) == [1, 2, 3]


def test_claims_given_back_count_no_more_and_no_less(app: Penstock) -> None:
    numbered(app, range(4))
    taken = claim(app, 1)  # before there is a limit: it holds no slot
    app.define("work", max_running=1)
    assert claim(app, 9) == []
    app.queue.release(taken)
    assert len(claim(app, 9)) == 1
    assert claim(app, 9) == []
    assert running(app) == 1


def test_a_limited_claim_given_back_keeps_its_slot(app: Penstock) -> None:
    app.define("work", max_running=1)
    numbered(app, range(3))
    app.queue.release(claim(app, 1))
    assert claimed_numbers(app) == [0]
    assert claim(app, 9) == []


def test_a_canceled_job_frees_its_slot(app: Penstock) -> None:
    app.define("work", max_running=1)
    app.define("other")
    jobs = numbered(app, range(3))
    claim(app, 9, keys=["other"])  # lets the first through without claiming it
    app.jobs.cancel(jobs[0].id)
    assert claimed_numbers(app) == [1]
    assert claim(app, 9) == []


def test_retries_and_due_jobs_wait_for_slots_too(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_running=1)
    numbered(app, [1])
    app.enqueue("work", {"n": 2}, delay=5)
    app.queue.finish(claim_one(app), Failed("no", delay=5))
    clock.advance(5)
    assert len(claim(app, 9)) == 1
    assert claim(app, 9) == []
    assert running(app) == 1


def test_slots_of_a_worker_that_vanished_come_back(app: Penstock, clock: ManualClock) -> None:
    app.define("work", max_running=1)
    (job, _) = numbered(app, [1, 2])
    claim_one(app)
    clock.advance(31)
    app.recover()
    clock.advance(5)
    assert len(claim(app, 9)) == 1
    assert app.jobs.get(job.id).status in (JobStatus.QUEUED, JobStatus.RUNNING)


def test_tenants_share_a_definitions_slots(app: Penstock) -> None:
    app.define("narrow", max_running=2)
    for slug in ("a", "b"):
        app.tenants.create(slug)
        numbered(app, range(20), key="narrow", tenant=slug)
    served = {"a": 0, "b": 0}
    for _ in range(12):
        for taken in claim(app, 9):
            served[taken.tenant_slug] += 1
            app.queue.finish(taken, Succeeded())
    assert min(served.values()) > 0


@pytest.mark.parametrize("batch", [1, 4])
def test_tenants_are_served_in_turn(app: Penstock, batch: int) -> None:
    """P13: whatever the backlog, of n waiting tenants any n consecutive claims take one each, give or take one."""
    for slug, backlog in (("big", 200), ("mid", 30), ("small", 6)):
        app.tenants.create(slug)
        app.enqueue_many("work", [{"n": n} for n in range(backlog)], tenant=slug)
    order = []
    while len(order) < 18:
        order += [taken.tenant_slug for taken in claim(app, batch)]
    for start in range(0, 15):
        window = order[start : start + 3]
        assert all(window.count(slug) <= 2 for slug in ("big", "mid", "small"))
    assert all(5 <= order[:18].count(slug) <= 7 for slug in ("big", "mid", "small"))


def test_a_newcomer_is_served_soon(app: Penstock) -> None:
    app.tenants.create("late")
    app.enqueue_many("work", [{"n": n} for n in range(300)])
    for _ in range(50):
        claim(app, 1)
    app.enqueue("work", {"n": -1}, tenant="late")
    assert -1 in claimed_numbers(app, 4)


def test_weight_is_a_share(app: Penstock) -> None:
    app.tenants.create("heavy", weight=3)
    app.tenants.create("light", weight=1)
    for slug in ("light", "heavy"):
        app.enqueue_many("work", [{}] * 60, tenant=slug)
    order = [claim_one(app).tenant_slug for _ in range(40)]
    assert 27 <= order.count("heavy") <= 33
