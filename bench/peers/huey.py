"""Huey on SQLite with `fsync=True`, as durable as the others here, and one worker thread: more only wait for the lock.

Its claim deletes the row, and results are not kept: a crash loses what was running.
"""

from __future__ import annotations

from huey import SqliteHuey

from bench.peers import kit


def open_huey(url: str) -> SqliteHuey:
    return SqliteHuey("bench", filename=url.removeprefix("sqlite:///"), fsync=True, results=False)


def tasked(huey: SqliteHuey):  # type: ignore[no-untyped-def]
    @huey.task(name="noop")
    def noop(sent: int) -> None:
        kit.ran(sent)

    return noop


def setup(url: str) -> None:
    open_huey(url)


def enqueue(url: str, n: int) -> float:
    noop = tasked(open_huey(url))
    with kit.timed() as timer:
        for _ in range(n):
            noop(0)
    return timer.seconds


def work(url: str) -> None:
    huey = open_huey(url)
    tasked(huey)
    huey.create_consumer(workers=1, periodic=False, initial_delay=0.01, max_delay=0.1, backoff=1.15).run()


def probe(url: str, count: int, gap: float) -> None:
    noop = tasked(open_huey(url))
    kit.probing(count, gap, noop)
