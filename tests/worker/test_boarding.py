"""Claims on their way to the executors are counted from the moment that they are ours."""

from __future__ import annotations

import threading
import time

import pytest

from penstock import Penstock
from penstock.core.nouns import Claim
from penstock.store.hot import NOTHING_TAKEN, Taken
from penstock.worker.boarding import Boarding
from penstock.worker.flight import Flight
from penstock.worker.heartbeat import Heartbeater
from penstock.worker.reporter import Reporter
from tests.worker.conftest import eventually


@pytest.fixture
def flight() -> Flight:
    return Flight()


@pytest.fixture
def boarding(app: Penstock, flight: Flight) -> Boarding:
    ground = app.ground
    beats = Heartbeater(ground, "w:1", flight, 30.0)
    return Boarding(ground, ground, flight, Reporter(ground), beats, few=2)


def claims(app: Penstock, number: int) -> list[Claim]:
    app.define("work", timeout_seconds=77)
    app.enqueue_many("work", [{}] * number)
    return app.queue.claim("w:1", number)


def test_a_few_board_at_once(app: Penstock, boarding: Boarding, flight: Flight) -> None:
    taken = claims(app, 2)
    boarding.take(Taken(2, lambda: taken), 5.0)
    assert flight.held == 2
    first = flight.ready.get_nowait()
    assert first is not None
    assert (first.claim, first.timeout, first.claimed_at) == (taken[0], 77.0, 5.0)
    assert {control.claim.run_id for control in flight.runs} == {claim.run_id for claim in taken}


def test_many_are_held_before_they_are_read(app: Penstock, boarding: Boarding, flight: Flight) -> None:
    taken = claims(app, 3)
    go = threading.Event()

    def read() -> list[Claim]:
        go.wait(200)
        return taken

    boarding.start()
    try:
        boarding.take(Taken(3, read), 0.0)
        assert (flight.held, len(flight.runs)) == (3, 0)
        go.set()
        eventually(lambda: len(flight.runs) == 3)
        eventually(lambda: flight.held == 3)
        assert [flight.ready.get().claim for _ in range(3)] == taken  # type: ignore[union-attr]
    finally:
        boarding.stop()
        assert boarding.join(5)


def test_a_few_do_not_pass_many(app: Penstock, boarding: Boarding, flight: Flight) -> None:
    taken = claims(app, 4)
    boarding.take(Taken(3, lambda: taken[:3]), 0.0)
    boarding.take(Taken(1, lambda: taken[3:]), 0.0)
    assert flight.ready.empty()
    assert flight.held == 4
    assert boarding.attempt()
    assert boarding.attempt()
    assert [flight.ready.get_nowait().claim for _ in range(4)] == taken  # type: ignore[union-attr]


def test_what_cannot_be_read_is_not_waited_for(boarding: Boarding, flight: Flight) -> None:
    def unreadable() -> list[Claim]:
        raise ValueError("not JSON")

    boarding.take(Taken(3, unreadable), 0.0)
    assert flight.held == 3
    assert not boarding.attempt()
    assert flight.held == 0


def test_nothing_is_nothing(boarding: Boarding, flight: Flight) -> None:
    boarding.take(NOTHING_TAKEN, 0.0)
    assert flight.held == 0
    assert flight.ready.empty()


def test_a_worker_that_is_stopped_in_a_drain_leaves_nothing_running(app: Penstock) -> None:
    ran: list[None] = []

    @app.job(key="quick")
    def quick() -> None:
        ran.append(None)

    app.enqueue_many("quick", [{}] * 3000)
    for enough in (10, 200, 1000):
        worker = app.worker(concurrency=4).start()
        while len(ran) < enough:
            time.sleep(0.001)
        worker.stop()
        assert worker.flight.held == 0
        assert app.jobs.list("running", limit=1) == []
        assert app.doctor().clean
