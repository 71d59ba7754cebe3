"""A claim that was made ready before there was anything to claim takes what it would have taken, had it been made then."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from penstock import Penstock, Succeeded
from penstock.queue.claim import Ready, claim_ready, make_ready
from penstock.queue.record import report_of


@pytest.fixture
def app(url: str) -> Iterator[Penstock]:
    """By the database's own clock, as a worker has it; the gate has been seen."""
    with Penstock(url) as app:
        app.define("work")
        assert app.queue.claim("w:1", 1) == []
        yield app


@pytest.fixture
def ready(app: Penstock) -> Ready:
    made = make_ready(app.ground, "w:1", 5)
    assert made.rehearsed is not None
    return made


def test_it_finds_what_came_since(app: Penstock, ready: Ready) -> None:
    job = app.enqueue("work")
    [claim] = claim_ready(app.ground, ready).claims()
    assert claim.job_id == job.id
    assert claim.run_id in ready.request.run_ids
    assert claim_ready(app.ground, make_ready(app.ground, "w:1", 5)).claims() == []
    assert app.doctor().violations == ()


def test_it_heeds_what_was_paused_since(app: Penstock, ready: Ready) -> None:
    app.enqueue("work")
    app.queues.pause("default")
    assert claim_ready(app.ground, ready).claims() == []
    app.queues.resume("default")
    assert len(app.queue.claim("w:1", 5)) == 1


def test_it_heeds_a_reservation_made_since(app: Penstock, ready: Ready) -> None:
    app.enqueue("work")
    with app.reserve():
        assert claim_ready(app.ground, ready).claims() == []
    assert len(app.queue.claim("w:1", 5)) == 1


def test_it_takes_what_became_due_since(app: Penstock, ready: Ready) -> None:
    app.enqueue("work", delay=0.05)
    time.sleep(0.1)
    assert len(claim_ready(app.ground, ready).claims()) == 1


def test_it_heeds_a_limit_set_since(app: Penstock, ready: Ready) -> None:
    app.define("narrow", max_running=1)
    app.enqueue_many("narrow", [{}] * 3)
    assert len(claim_ready(app.ground, ready).claims()) == 1
    assert app.queue.claim("w:2", 5) == []


def test_it_takes_from_a_queue_that_was_made_since(app: Penstock, ready: Ready) -> None:
    app.queues.create("another")
    app.enqueue("work", queue="another")
    assert len(claim_ready(app.ground, ready).claims()) == 1


def test_what_ends_with_it_ends_first(app: Penstock, ready: Ready) -> None:
    first, second = app.enqueue("work"), app.enqueue("work")
    [held] = app.queue.claim("w:1", 1)
    [claim] = claim_ready(app.ground, ready, [report_of(held, Succeeded())]).claims()
    assert (held.job_id, claim.job_id) == (first.id, second.id)
    assert app.jobs.get(first.id).status.value == "succeeded"
