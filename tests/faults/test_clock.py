"""The machine's time is set while a SQLite fleet is at work. Leases do not notice, due times follow, and nothing is left
of a wrong time once it was corrected. (PostgreSQL's clock is the server's.)"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from penstock import Canceled, Failed, Penstock, Skipped, Snoozed, Succeeded
from penstock.core import clock as core_clock
from penstock.queue.recover import keep_house
from penstock.store import leaders
from penstock.store.database import Database
from penstock.store.schema import HEAD, upgrade
from penstock.store.sqlite import lease_clock

HOUR = 3600.0
LEASE = 30.0


class Machine:
    """A machine whose time can be set, and on which time can be let pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        self.passed = 0.0
        wall, up = time.time, lease_clock.uptime
        monkeypatch.setattr(core_clock.time, "time", lambda: wall() + self.ahead + self.passed)
        monkeypatch.setattr(lease_clock, "uptime", lambda: up() + self.passed)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def app(machine: Machine, url: str) -> Iterator[Penstock]:
    with Penstock(url) as app:
        app.define("work", max_attempts=5, retry_policy={"base": 10, "factor": 1, "jitter": 0})
        yield app
        machine.ahead = 0
        keep_house(app.ground)
        assert app.doctor().violations == ()


def warned(app: Penstock) -> dict[str, str]:
    return {warning.check: warning.message for warning in app.doctor().warnings}


@pytest.mark.parametrize("hours", [10, -5])
def test_no_lease_ends_because_the_time_was_set(app: Penstock, machine: Machine, hours: float) -> None:
    app.enqueue("work")
    [claim] = app.queue.claim("w:1", 1)
    machine.ahead = hours * HOUR
    assert keep_house(app.ground) == 0
    assert app.recover().abandoned == 0
    app.queue.heartbeat([claim])
    app.queue.finish(claim, Succeeded())
    assert app.jobs.get(claim.job_id).status == "succeeded"


@pytest.mark.parametrize("hours", [10, -5])
def test_a_lease_ends_in_time_whatever_the_clock_says(app: Penstock, machine: Machine, url: str, hours: float) -> None:
    """It is given while the time is wrong, which is corrected before it ends; the processes that judge it are old and new."""
    app.enqueue_many("work", [{}, {}])
    machine.ahead = hours * HOUR
    app.queue.claim("w:1", 1)
    machine.ahead = 0
    machine.passed += LEASE - 2
    assert keep_house(app.ground) == 0
    with Penstock(url) as young:
        assert keep_house(young.ground) == 0
        machine.passed += 4
        assert keep_house(young.ground) == 1
        [job] = young.queue.claim("w:2", 1)
        machine.passed += LEASE + 2
    assert keep_house(app.ground) == 1, f"{job} is the old process's to recover, too"


def test_due_times_are_the_corrected_clocks(app: Penstock, machine: Machine, url: str) -> None:
    later = datetime.now(UTC) + timedelta(hours=2)
    job = app.enqueue("work", scheduled_for=later)
    machine.ahead = 10 * HOUR
    during = app.enqueue("work", {"n": 1})
    machine.ahead = 0
    with Penstock(url) as young:
        for each in (app, young):
            keep_house(each.ground)
            again = each.enqueue("work", {"n": 2}, delay=2 * HOUR)
            assert abs((again.created_at - datetime.now(UTC)).total_seconds()) < 60
            assert abs((again.scheduled_for - later).total_seconds()) < 60
            claimed = {claim.job_id for claim in each.queue.claim("w:1", 10)}
            assert claimed == ({during.id} if each is app else set())
            for other in (job, again):
                assert each.jobs.get(other.id).status == "queued"
    machine.passed = 2 * HOUR + 60
    assert job.id in {claim.job_id for claim in app.queue.claim("w:1", 10)}


def test_what_is_due_by_the_clock_runs(app: Penstock, machine: Machine) -> None:
    job = app.enqueue("work", delay=3 * HOUR)
    assert app.queue.claim("w:1", 10) == []
    machine.ahead = 10 * HOUR
    assert [claim.job_id for claim in app.queue.claim("w:1", 10)] == [job.id]


AHEAD = """
import os, sys, time
wall = time.time
time.time = lambda: wall() + 36000
from penstock import Penstock
from penstock.queue.recover import keep_house
app = Penstock(sys.argv[1])
keep_house(app.ground)
app.enqueue("work", {"n": 1})
assert len(app.queue.claim("w:1", 1)) == 1
os._exit(0)
"""


def test_another_process_whose_clock_was_wrong(app: Penstock, machine: Machine, url: str) -> None:
    """It was the first of this boot to count a lease, and died with it."""
    subprocess.run([sys.executable, "-c", textwrap.dedent(AHEAD), url], check=True, timeout=120)
    with Penstock(url) as young:
        job = young.enqueue("work", delay=2 * HOUR)
        assert young.queue.claim("w:2", 10) == []
        assert young.jobs.get(job.id).status == "queued"
        assert "10 h" in warned(young)["clock that ran backwards"]
        assert "10 h" in warned(young)["lease clock apart from the machine's"]
        assert keep_house(young.ground) == 0
        machine.passed += LEASE + 2
        assert keep_house(young.ground) == 1, "the lease ends when it should"
        young.recover()
        assert "clock that ran backwards" not in warned(young)
        assert "lease clock apart from the machine's" not in warned(young)
        machine.passed += 2  # recovery's jitter
        [claim] = young.queue.claim("w:2", 10)
        assert abs((claim.lease_expires_at - core_clock.wall_time()).total_seconds() - LEASE) < 60
        young.queue.finish(claim, Succeeded())


def test_every_outcome_after_the_clock_was_set_back(app: Penstock, machine: Machine) -> None:
    outcomes = [Succeeded({"x": 1}), Failed("no"), Skipped("not needed"), Canceled("stop"), Snoozed(5)]
    app.enqueue_many("work", [{}] * len(outcomes))
    claims = app.queue.claim("w:1", len(outcomes))
    machine.ahead = -5 * HOUR
    for claim, outcome in zip(claims, outcomes, strict=True):
        app.queue.heartbeat([claim])
        app.queue.finish(claim, outcome)
    app.jobs.cancel(app.enqueue("work").id)
    assert app.doctor().violations == ()


def test_leases_of_another_boot_are_over(
    app: Penstock, monkeypatch: pytest.MonkeyPatch, machine: Machine, url: str
) -> None:
    """Whatever the time was then, nobody holds them any more."""
    app.enqueue("work")
    machine.ahead = 10 * HOUR
    app.queue.claim("other-host:1:abc", 1)
    machine.ahead = 0
    with app.db.write() as tx:
        tx.run(text("UPDATE penstock_clock SET boot_id = 'the boot before', booted_at = booted_at + 36000000000"))
        tx.run(text("UPDATE penstock_running SET lease_expires_at = lease_expires_at + 36000000000"))
    with Penstock(url) as young:
        assert keep_house(young.ground) == 1


def test_a_boot_is_noted_by_who_can_end_its_leases(url: str) -> None:
    """A pipeline counts leases in a file whose tables are not upgraded yet. It leaves the new boot to the first who knows them."""
    for revision in ("0009", HEAD):
        db = Database(url)
        upgrade(db, revision)
        with db.write() as tx:
            if revision != HEAD:
                tx.run(text("UPDATE penstock_clock SET boot_id = 'the boot before', booted_at = 0"))
            assert tx.lease_time() is not None
        with db.read() as tx:
            noted = tx.scalar(text("SELECT boot_id FROM penstock_clock"))
            assert noted == ("the boot before" if revision != HEAD else lease_clock.boot_id())
        db.close()


def test_a_scheduler_that_led_in_a_wrong_time_is_followed(app: Penstock, machine: Machine) -> None:
    machine.ahead = 10 * HOUR
    assert app.db.transact(lambda tx: leaders.lead_schedules(tx, "one", 10))
    machine.ahead = 0
    assert not app.db.transact(lambda tx: leaders.lead_schedules(tx, "two", 10))
    machine.passed += 12
    assert app.db.transact(lambda tx: leaders.lead_schedules(tx, "two", 10))


def test_a_reservation_of_a_wrong_time_ends_with_it(app: Penstock, machine: Machine) -> None:
    app.enqueue("work")
    machine.ahead = 10 * HOUR
    held = app.reserve(wait=0, expires_in=600)
    held.__enter__()
    machine.ahead = 0
    keep_house(app.ground)
    assert len(app.queue.claim("w:1", 1)) == 1
    held.__exit__(None, None, None)


def test_a_dedupe_window_does_not_last_until_a_wrong_time(app: Penstock, machine: Machine) -> None:
    app.triggers.on_event("uploads", "image.uploaded", "work", dedupe_window_seconds=120)
    machine.ahead = 10 * HOUR
    app.emit("image.uploaded", {"id": 7})
    machine.ahead = 0
    app.emit("image.uploaded", {"id": 7})
    app.emit("image.uploaded", {"id": 7})
    assert len(app.jobs.list()) == 2, "the second is new, the third is within its window"


def test_doctor_tells_of_times_in_the_future(app: Penstock, machine: Machine) -> None:
    assert not {"times in the future", "clock that ran backwards"} & set(warned(app))
    machine.ahead = 10 * HOUR
    app.enqueue("work")
    keep_house(app.ground)
    machine.ahead = 0
    told = warned(app)
    assert "1 jobs" in told["times in the future"] and "10 h" in told["times in the future"]
    assert "10 h behind" in told["clock that ran backwards"]
    app.recover()
    assert "clock that ran backwards" not in warned(app)
