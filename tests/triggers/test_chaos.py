"""Five schedulers, killed and restarted at random over 10,000 simulated minutes: no double tick, none missing, each
skip explained."""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import time
import traceback
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import psutil
import sqlalchemy as sa

from penstock import Penstock, Succeeded
from penstock.core.cron import Cron
from penstock.store import triggers as stored
from penstock.store.tables import jobs, ticks
from penstock.triggers.scheduler import Scheduler
from penstock.triggers.schedules import Triggers
from tests.support.children import Child, start

START = datetime(2026, 3, 5, 12, 0, 20, tzinfo=UTC)  # New York's clocks change within the seven days
MINUTES = 10_000
SCHEDULERS = 5
FAILPOINTS = ("tick.after_insert", "enqueue.before", "enqueue.after", "commit.before", "commit.after")
PLANS = {
    "every minute": ("* * * * *", "UTC", {"catch_up": "all"}),
    "sevenths": ("*/7 * * * *", "Asia/Kathmandu", {"catch_up": "latest"}),
    "half hours": ("*/30 * * * *", "Australia/Lord_Howe", {"catch_up": "skip"}),
    "one at a time": ("*/5 * * * *", "UTC", {"catch_up": "all", "overlap": "skip"}),
    "buffered": ("*/10 * * * *", "UTC", {"overlap": "buffer_one"}),
    "replaced": ("*/9 * * * *", "UTC", {"overlap": "cancel_running"}),
    "spread": ("15 * * * *", "America/New_York", {"catch_up": "all", "jitter_seconds": 900}),
    "nightly": ("30 2 * * *", "America/New_York", {"catch_up": "all", "dst_gap": "shift"}),
    "off": ("0 * * * *", "UTC", {"enabled": False}),
}


class SharedClock:
    """Simulated time in a file that every process maps."""

    def __init__(self, path: str, create: bool = False) -> None:
        if create:
            Path(path).write_bytes(struct.pack("d", 0.0))
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)

    def set(self, moment: datetime) -> None:
        self._map[:] = struct.pack("d", moment.timestamp())

    def now(self) -> datetime:
        return datetime.fromtimestamp(struct.unpack("d", self._map[:])[0], UTC)


def schedule_for_ever(url: str, path: str) -> None:
    """A scheduler's process: it ends only by SIGKILL. What goes wrong before that is left in a file."""
    try:
        app = Penstock(url, clock=SharedClock(path))
        scheduler = Scheduler(app.ground)
        while True:
            scheduler.step()
            time.sleep(0.05)
    except Exception:
        Path(f"{path}.{os.getpid()}.error").write_text(traceback.format_exc())
        os.kill(os.getpid(), signal.SIGKILL)


def lifetime(rng: random.Random) -> str:
    """Half of the processes die by themselves, in the middle of a transaction."""
    if rng.random() < 0.5:
        return ""
    return f"{rng.choice(FAILPOINTS)}=exit:0:{rng.randrange(1, 20)}"


def keeping_up(app: Penstock, now: datetime) -> bool:
    """Time waits for schedulers that are hours behind: what is older than the catch-up window would share one tick."""
    with app.db.read() as tx:
        due = stored.next_due_at(tx)
    return due is None or now - due < timedelta(hours=12)


def work(app: Penstock) -> None:
    """Run what `overlap` waits for."""
    claims = app.queue.claim("host:1", 1000, keys=["finished"], lease_seconds=86400)
    app.queue.finish_many([(claim, Succeeded()) for claim in claims])


def decide_the_rest(app: Penstock, end: datetime) -> None:
    """Whatever the dead left behind. The server may hold their locks for a moment longer."""
    until = time.monotonic() + 60
    while True:
        Scheduler(app.ground).step()
        work(app)  # what `buffer_one` waits for
        with app.db.read() as tx:
            due = stored.next_due_at(tx)
        if due is None or due > end:
            return
        assert time.monotonic() < until, f"nobody decided what was due at {due}"
        time.sleep(0.1)


def test_ten_thousand_minutes(url: str, tmp_path: Path) -> None:
    rng = random.Random(20260305)
    path = str(tmp_path / "clock")
    clock = SharedClock(path, create=True)
    clock.set(START)
    app = Penstock(url, clock=clock)
    app.define("plain")
    app.define("finished")  # what overlap looks at must end now and then
    triggers = Triggers(app.ground, "default")
    made = {
        label: triggers.schedule(label, cron, "finished" if "overlap" in more else "plain", timezone=zone, **more)
        for label, (cron, zone, more) in PLANS.items()
    }  # type: ignore[arg-type]
    running: list[Child[None]] = [
        start(schedule_for_ever, url, path, failpoints=lifetime(rng)) for _ in range(SCHEDULERS)
    ]
    deaths = 0
    end = START + timedelta(minutes=MINUTES)
    while (now := clock.now()) < end:
        if keeping_up(app, now):
            clock.set(min(end, now + timedelta(seconds=rng.choice([20, 60, 600, 1800, 3600, 7200]))))
        for index, child in enumerate(running):
            if rng.random() < 0.006:
                child.kill()
            if not psutil.pid_exists(child.pid):
                deaths += 1
                running[index] = start(schedule_for_ever, url, path, failpoints=lifetime(rng))
        if rng.random() < 0.1:
            work(app)
        time.sleep(0.02)
    for child in running:
        child.kill()
    decide_the_rest(app, end)

    assert [error.read_text() for error in tmp_path.glob("*.error")] == []
    assert deaths >= 10
    with app.db.read() as tx:
        told = tx.rows(sa.select(ticks.c.trigger_id, ticks.c.tick_at, ticks.c.outcome, ticks.c.reason, ticks.c.job_id))
        written = {
            row.id: (row.trigger_id, row.tick_at)
            for row in tx.rows(sa.select(jobs.c.id, jobs.c.trigger_id, jobs.c.tick_at))
        }
    for label, trigger in made.items():
        cron = Cron.parse(trigger.cron_expr or "", trigger.timezone or "")
        mine = [row for row in told if row.trigger_id == trigger.id]
        expected = cron.between(START, end, 10**6)
        assert Counter(row.tick_at for row in mine) == Counter(expected), label
        assert all(row.reason for row in mine if row.outcome != "fired"), label
    fired: dict[UUID, tuple[UUID, datetime]] = {
        row.job_id: (row.trigger_id, row.tick_at) for row in told if row.outcome == "fired"
    }
    assert fired == written
    assert {row.outcome for row in told} == {"fired", "skipped"}
    health = app.doctor()
    app.close()
    assert health.clean, health.violations
