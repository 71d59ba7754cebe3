"""The heartbeat of reservations: what it keeps, and when it lets go."""

from __future__ import annotations

import logging
import threading

import pytest

from penstock.pipeline.connection import forget_connections
from penstock.pipeline.lease import BEATS_PER_LEASE, Heart, heart
from tests.pipeline.lab import Lab


def reserved(lab: Lab) -> dict[str, int]:
    lab.fill()
    jobs = lab.FilteredImage.jobs
    jobs.refresh()
    key = jobs.keys()[0]
    assert jobs.reserve(key)
    return key


def test_a_reservation_that_is_gone_is_let_go_after_a_lease(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    reserved(lab)
    held = dict(heart._held)
    heart.step()
    assert heart._held == held
    (lab.FilteredImage.jobs & 'status="reserved"').delete()
    with caplog.at_level(logging.WARNING, "penstock.pipeline"):
        for _ in range(BEATS_PER_LEASE):
            heart.step()
        assert heart._held and not caplog.records
        heart.step()
    assert not heart._held
    assert "was lost" in caplog.text


def test_a_table_that_is_dropped_under_a_reservation_is_not_asked_for_ever(lab: Lab) -> None:
    reserved(lab)
    lab.FilteredImage.jobs.drop_quick()
    for _ in range(BEATS_PER_LEASE + 1):
        heart.step()
    assert not heart._held


def test_a_worker_between_two_batches_holds_on(lab: Lab) -> None:
    jobs = lab.FilteredImage.jobs
    own = Heart()
    with own.holding("none yet", jobs.connection, jobs.store):
        for _ in range(2 * BEATS_PER_LEASE):
            own.step()
        assert list(own._held) == ["none yet"]
    assert not own._held


def test_closing_the_database_ends_the_heartbeat_there(lab: Lab) -> None:
    """A beat after that would open the database again, and leave the connection to the garbage collector."""
    reserved(lab)
    engine = lab.FilteredImage.connection.db.engine
    beats = threading.Thread(target=lambda: [heart.step() for _ in range(50)])
    beats.start()
    forget_connections()
    beats.join()
    assert not heart._held
    assert engine.pool.checkedin() == engine.pool.checkedout() == 0  # type: ignore[attr-defined]
