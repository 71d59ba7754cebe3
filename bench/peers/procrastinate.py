"""Procrastinate on psycopg 3, ten jobs at a time (more were no faster), LISTEN/NOTIFY on."""

from __future__ import annotations

import asyncio
import time

from procrastinate import App, PsycopgConnector

from bench.peers import kit

CONCURRENCY = 10


def open_app(url: str) -> App:
    app = App(connector=PsycopgConnector(conninfo=url, min_size=2, max_size=CONCURRENCY + 4))

    @app.task(name="noop")
    async def noop(sent: int) -> None:
        kit.ran(sent)

    return app


def setup(url: str) -> None:
    async def apply() -> None:
        app = open_app(url)
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    asyncio.run(apply())


def enqueue(url: str, n: int) -> float:
    async def one_by_one() -> float:
        app = open_app(url)
        async with app.open_async():
            noop = app.tasks["noop"]
            with kit.timed() as timer:
                for _ in range(n):
                    await noop.defer_async(sent=0)
        return timer.seconds

    return asyncio.run(one_by_one())


def enqueue_many(url: str, n: int) -> float:
    async def bulk() -> float:
        app = open_app(url)
        async with app.open_async():
            noop = app.tasks["noop"]
            with kit.timed() as timer:
                for start in range(0, n, 5_000):
                    await noop.batch_defer_async(*({"sent": 0} for _ in range(min(5_000, n - start))))
        return timer.seconds

    return asyncio.run(bulk())


def work(url: str) -> None:
    async def run() -> None:
        app = open_app(url)
        async with app.open_async():
            await app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=True)

    asyncio.run(run())


def probe(url: str, count: int, gap: float) -> None:
    async def send() -> None:
        app = open_app(url)
        async with app.open_async():
            for _ in range(count):
                await app.tasks["noop"].defer_async(sent=time.monotonic_ns())
                await asyncio.sleep(gap)

    asyncio.run(send())
