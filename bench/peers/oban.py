"""Oban for Python: one queue of 100 at a time, on its own pool; other settings are its defaults."""

from __future__ import annotations

import asyncio
import signal
import time

from oban import Oban, worker
from oban.schema import install

from bench.peers import kit

LIMIT = 100


@worker(queue="default")
class Noop:
    async def process(self, job) -> None:  # type: ignore[no-untyped-def]
        kit.ran(job.args["sent"])


def setup(url: str) -> None:
    async def create() -> None:
        pool = await Oban.create_pool(dsn=url)
        await install(pool)
        await pool.close()

    asyncio.run(create())


def enqueue(url: str, n: int) -> float:
    async def one_by_one() -> float:
        pool = await Oban.create_pool(dsn=url)
        oban = Oban(pool=pool)
        with kit.timed() as timer:
            for _ in range(n):
                await oban.enqueue(Noop.new({"sent": 0}))
        await pool.close()
        return timer.seconds

    return asyncio.run(one_by_one())


def enqueue_many(url: str, n: int) -> float:
    async def bulk() -> float:
        pool = await Oban.create_pool(dsn=url)
        oban = Oban(pool=pool)
        with kit.timed() as timer:
            for start in range(0, n, 1_000):
                await oban.enqueue_many(Noop.new({"sent": 0}) for _ in range(min(1_000, n - start)))
        await pool.close()
        return timer.seconds

    return asyncio.run(bulk())


def work(url: str) -> None:
    async def run() -> None:
        pool = await Oban.create_pool(dsn=url)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with Oban(pool=pool, queues={"default": LIMIT}):
            await stop.wait()
        await pool.close()

    asyncio.run(run())


def probe(url: str, count: int, gap: float) -> None:
    async def send() -> None:
        pool = await Oban.create_pool(dsn=url)
        oban = Oban(pool=pool)
        for _ in range(count):
            await oban.enqueue(Noop.new({"sent": time.monotonic_ns()}))
            await asyncio.sleep(gap)
        await pool.close()

    asyncio.run(send())
