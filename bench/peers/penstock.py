"""Penstock, with everything on: leases, run rows, fencing, tallies. The settings are the defaults."""

from __future__ import annotations

import os

from bench.peers import kit
from penstock import Penstock
from penstock.store import schema
from penstock.store.database import Database
from penstock.worker.tuning import tuned_for_work

CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "8"))


def open_app(url: str) -> Penstock:
    app = Penstock(url)

    @app.job(key="noop")
    def noop(sent: int = 0) -> None:
        kit.ran(sent)

    return app


def setup(url: str) -> None:
    database = Database(url)
    schema.upgrade(database)
    database.close()
    with open_app(url) as app:
        app.sync_definitions()


def enqueue(url: str, n: int) -> float:
    with open_app(url) as app:
        app.enqueue("noop", {"sent": 0})
        with kit.timed() as timer:
            for _ in range(n - 1):
                app.enqueue("noop", {"sent": 0})
    return timer.seconds * n / max(1, n - 1)


def enqueue_many(url: str, n: int) -> float:
    with open_app(url) as app:
        app.sync_definitions()
        with kit.timed() as timer:
            app.enqueue_many("noop", [{"sent": 0}] * n)
    return timer.seconds


def work(url: str) -> None:
    """Work as `penstock worker` does."""
    with open_app(url) as app, tuned_for_work():
        app.worker(concurrency=CONCURRENCY).run()


def probe(url: str, count: int, gap: float) -> None:
    with open_app(url) as app:
        app.sync_definitions()
        kit.probing(count, gap, lambda sent: app.enqueue("noop", {"sent": sent}))
