"""Reservations: one per tenant, the queue as it was, expiry, crashes."""

from __future__ import annotations

from datetime import timedelta

import pytest
import sqlalchemy as sa

from penstock import Busy, InvalidInput, ManualClock, Penstock, Succeeded
from penstock.queue import reserve
from penstock.store import reservations
from penstock.store.tables import reservations as table
from tests.conformance.helpers import claim, claim_one, claimed_numbers, execute, nothing_written, numbered


def test_nothing_is_claimed_meanwhile_and_the_order_stays(app: Penstock) -> None:
    made = numbered(app, range(3))
    before = [app.jobs.get(job.id) for job in made]
    with app.reserve(expires_in=60) as held:
        assert held.status == "active"
        assert claim(app, 9) == []
        assert [app.jobs.get(job.id) for job in made] == before
    assert claimed_numbers(app) == [0, 1, 2]


def test_a_second_one_is_busy(app: Penstock) -> None:
    with app.reserve():
        with nothing_written(app), pytest.raises(Busy, match="Another reservation"), app.reserve():
            pytest.fail("two at once")
        with pytest.raises(Busy), app.reserve(wait=0.1):
            pytest.fail("two at once")
    with app.reserve():
        pass


def test_it_waits_for_running_jobs_and_never_preempts_them(app: Penstock) -> None:
    numbered(app, [1, 2])
    taken = claim_one(app)
    with pytest.raises(Busy, match="1 running job"), app.reserve():
        pytest.fail("a job is running")
    assert claimed_numbers(app) == [2]  # it was given up, so the queue goes on
    for each in [taken, *app.queue.claim("host:2", 9)]:
        app.queue.finish(each, Succeeded())


def test_while_it_waits_nothing_new_starts(app: Penstock) -> None:
    numbered(app, [1, 2])
    taken = claim_one(app)
    tenant_id = app.ground.tenant_id("default")
    held = app.db.transact(lambda tx: reservations.take(tx, tenant_id, "me", 60))
    assert held is not None
    assert claim(app, 9) == []
    app.queue.finish(taken, Succeeded())
    assert claim(app, 9) == []
    reserve.release(app.ground, held.id)
    assert claimed_numbers(app) == [2]


def test_other_tenants_go_on(app: Penstock) -> None:
    app.tenants.create("acme")
    numbered(app, [1])
    numbered(app, [2], tenant="acme")
    with app.reserve():
        assert claimed_numbers(app) == [2]
    for taken in app.queue.claim("host:2", 9):
        app.queue.finish(taken, Succeeded())


def test_it_expires_by_itself(app: Penstock, clock: ManualClock) -> None:
    numbered(app, [1])
    held = reserve.take(app.ground, app.ground.tenant_id("default"), 0, 60)
    assert held.expires_at == clock.now() + timedelta(seconds=60)
    clock.advance(60)
    assert claimed_numbers(app) == [1]
    app.recover()
    assert not reserve.release(app.ground, held.id)


def test_a_new_one_takes_over_one_that_is_over(app: Penstock, clock: ManualClock) -> None:
    first = reserve.take(app.ground, app.ground.tenant_id("default"), 0, 60)
    clock.advance(61)
    with app.reserve() as second:
        assert second.id != first.id
        assert not reserve.release(app.ground, first.id)
        assert claim(app) == []


def test_the_reservation_of_a_dead_process_ends_at_recovery(app: Penstock) -> None:
    from penstock.queue.identity import is_dead, process_identity

    host, _, boot = process_identity().split(":")
    dead = f"{host}:999999:{boot}"
    assert is_dead(dead) and not is_dead(process_identity())
    tenant_id = app.ground.tenant_id("default")
    reserve.take(app.ground, tenant_id, 0, 600, reserved_by=dead)
    assert app.recover().reservations == 1
    reserve.take(app.ground, tenant_id, 0, 600, reserved_by="elsewhere:1:unknown")
    assert app.recover().reservations == 0  # not known to be dead: it is heeded until it expires
    with pytest.raises(Busy), app.reserve():
        pytest.fail("it is heeded")


def test_the_database_refuses_two_active(app: Penstock) -> None:
    now, tenant_id = app.db.moment(), app.ground.tenant_id("default")
    assert now is not None
    with app.reserve() as held, pytest.raises(sa.exc.IntegrityError):
        values = {"tenant_id": tenant_id, "reserved_by": "x", "reserved_at": now, "status": "active"}
        execute(app, sa.insert(table).values(id=tenant_id, expires_at=held.expires_at, **values))


def test_bad_times_are_refused(app: Penstock) -> None:
    with nothing_written(app):
        for given in ({"wait": -1}, {"expires_in": 0}, {"expires_in": -5}, {"expires_in": 10**9}):
            with pytest.raises(InvalidInput), app.reserve(**given):
                pytest.fail("refused")
