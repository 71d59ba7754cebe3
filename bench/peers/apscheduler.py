"""APScheduler 3 on a SQLite job store with `synchronous=FULL`: jobs due at once, each removed by a commit of its own.

It is a scheduler, not a queue: only one process may use a job store, and it does not hear of what another adds.
"""

from __future__ import annotations

import signal
import threading

from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from sqlalchemy import create_engine, event

from bench.peers import kit


def noop(sent: int) -> None:
    kit.ran(sent)


def open_scheduler(url: str, paused: bool) -> BackgroundScheduler:
    engine = create_engine(url)

    @event.listens_for(engine, "connect")
    def durable(connection, _record) -> None:  # type: ignore[no-untyped-def]
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    scheduler = BackgroundScheduler(
        jobstores={"default": SQLAlchemyJobStore(engine=engine)},
        job_defaults={"misfire_grace_time": None, "coalesce": False, "max_instances": 1},
        executors={"default": {"type": "threadpool", "max_workers": 8}},
    )
    scheduler.start(paused=paused)
    return scheduler


def setup(url: str) -> None:
    open_scheduler(url, paused=True).shutdown()


def enqueue(url: str, n: int) -> float:
    scheduler = open_scheduler(url, paused=True)
    with kit.timed() as timer:
        for _ in range(n):
            scheduler.add_job("bench.peers.apscheduler:noop", args=[0])
    scheduler.shutdown()
    return timer.seconds


def work(url: str) -> None:
    scheduler = open_scheduler(url, paused=False)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stop.wait()
    scheduler.shutdown(wait=False)
