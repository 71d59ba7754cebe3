"""Ten thousand schedules due at one minute: how long until every job is there.

python -m bench.triggers            # both databases
python -m bench.triggers --schedules 1000 --schedulers 3
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa
from tests.support.postgres import Server

from penstock import ManualClock, Penstock
from penstock.core.ids import DEFAULT_TENANT_ID, new_id
from penstock.store.database import Database
from penstock.store.schema import upgrade
from penstock.store.tables import jobs, ticks, triggers
from penstock.triggers.fields import POLICIES
from penstock.triggers.scheduler import Scheduler

START = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = ("UTC", "America/New_York", "Europe/London", "Asia/Kathmandu", "Australia/Lord_Howe")


@contextmanager
def databases() -> Iterator[dict[str, str]]:
    """A fresh, migrated database of each kind."""
    server = Server().start()
    try:
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
            urls = {
                "sqlite": f"sqlite:///{Path(directory) / 'penstock.db'}",
                "postgresql": server.url(server.create_database()),
            }
            for url in urls.values():
                db = Database(url)
                upgrade(db)
                db.close()
            yield urls
    finally:
        server.remove()


def plant(app: Penstock, count: int) -> None:
    """Schedules with a mix of zones and params, all due at one minute."""
    definition = app.define("work")
    rows = [
        {
            **POLICIES, "id": new_id(), "tenant_id": DEFAULT_TENANT_ID, "label": f"schedule {number}", "is_enabled": True,
            "trigger_type": "schedule", "cron_expr": "*/15 * * * *", "timezone": ZONES[number % len(ZONES)],
            "definition_id": definition.id, "definition_key": "work", "version": 1,
            "payload_template": {"n": number, "day": "{{tick.date}}"}, "next_trigger_at": START + timedelta(minutes=15),
            "created_at": START, "updated_at": START,
        }
        for number in range(count)
    ]  # fmt: skip
    with app.db.write() as tx:
        tx.run(sa.insert(triggers), rows)


def measure(url: str, count: int, schedulers: int) -> float:
    """Seconds from the moment until the last job is written."""
    clock = ManualClock(START)
    app = Penstock(url, clock=clock)
    plant(app, count)
    clock.advance(minutes=15)
    threads = [threading.Thread(target=Scheduler(app.ground).step) for _ in range(schedulers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    Scheduler(app.ground).step()
    took = time.perf_counter() - began
    with app.db.read() as tx:
        made = tx.scalar(sa.select(sa.func.count()).select_from(jobs))
        told = tx.scalar(sa.select(sa.func.count()).select_from(ticks).where(ticks.c.outcome == "fired"))
    assert made == told == count, (made, told)
    assert app.doctor().clean
    app.close()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--schedulers", type=int, default=1)
    given = parser.parse_args()
    with databases() as urls:
        for name, url in urls.items():
            took = measure(url, given.schedules, given.schedulers)
            rate = given.schedules / took
            print(
                f"{name:<12} {given.schedules} schedules, {given.schedulers} scheduler(s): {took:6.2f} s  {rate:8.0f} jobs/s"
            )


if __name__ == "__main__":
    main()
