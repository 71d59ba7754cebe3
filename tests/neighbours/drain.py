"""How much a pooler costs: `python -m tests.neighbours.drain`.

One worker process drains no-op jobs over a direct connection and through a PgBouncer in transaction mode, in turn. What counts is
the ratio of the medians.
"""

from __future__ import annotations

import logging
import statistics
import time

import structlog

from penstock import Penstock
from penstock.store.database import Database
from penstock.store.schema import upgrade
from tests.neighbours.pgbouncer import PooledServer
from tests.support.postgres import Server

JOBS, TURNS = 10_000, 5


def seconds_to_drain(url: str) -> float:
    app = Penstock(url)

    @app.job(key="noop")
    def noop() -> None:
        return None

    try:
        app.enqueue_many("noop", [{}] * JOBS)
        began = time.monotonic()
        app.worker(concurrency=8).run(until_idle=True)
        return time.monotonic() - began
    finally:
        app.close()


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    server = PooledServer(Server(durable=True).start())
    try:
        name = server.create_database()
        db = Database(server.direct.url(name))
        upgrade(db)
        db.close()
        ways = {"direct": server.direct.url(name), "pooled": server.url(name)}
        taken: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(TURNS):
            for way, url in ways.items():
                taken[way].append(seconds_to_drain(url))
        direct, pooled = (statistics.median(taken[way]) for way in ways)
        print(f"{JOBS} jobs: direct {direct:.2f} s, pooled {pooled:.2f} s, ratio {pooled / direct:.2f}")
    finally:
        server.remove()


if __name__ == "__main__":
    main()
