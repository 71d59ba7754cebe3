"""Corners where two wishes meet."""

from __future__ import annotations

import pytest

from penstock import ManualClock, Penstock
from penstock.core.status import JobStatus
from penstock.queue import reserve

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
def app(url: str, clock: ManualClock):
    made = Penstock(url, clock=clock)
    made.define("work")
    yield made
    assert made.doctor().violations == ()
    made.close()


def test_a_claim_given_back_after_a_cancel_request_is_canceled(app: Penstock) -> None:
    kept, stopped = app.enqueue("work"), app.enqueue("work")
    held = app.queue.claim("w:1", 2)
    app.jobs.cancel(stopped.id)
    assert app.queue.release(held) == 1
    assert app.jobs.get(kept.id).status is JobStatus.QUEUED
    assert app.jobs.get(stopped.id).status is JobStatus.CANCELED


def test_releasing_a_reservation_that_is_over_says_so(app: Penstock, clock: ManualClock) -> None:
    tenant_id = app.ground.tenant_id("default")
    held = reserve.take(app.ground, tenant_id, wait=0, expires_in=10)
    clock.advance(11)
    assert reserve.release(app.ground, held.id) is False
    assert reserve.take(app.ground, tenant_id, wait=0, expires_in=10).id != held.id


def test_why_names_the_limit_that_is_reached(app: Penstock) -> None:
    app.define("limited", max_running=5)
    app.tenants.create("acme", max_running=1)
    acme = app.as_tenant("acme")
    jobs = [acme.enqueue("limited") for _ in range(2)]
    assert len(app.queue.claim("w:1", 2)) == 1
    assert "The tenant runs at most 1" in str(acme.jobs.why(jobs[1].id))
