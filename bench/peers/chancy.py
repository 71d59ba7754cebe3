"""Chancy with its asyncio executor, 500 jobs at a time (the best we found), polling at once after each job."""

from __future__ import annotations

import asyncio
import logging
import time

from chancy import Chancy, Queue, Worker, job

from bench.peers import kit

CONCURRENCY = 500
logging.disable(logging.INFO)


@job(queue="default")
async def noop(*, sent: int) -> None:
    kit.ran(sent)


def setup(url: str) -> None:
    async def create() -> None:
        async with Chancy(url) as chancy:
            await chancy.migrate()
            executor = "chancy.executors.asyncex.AsyncExecutor"
            queue = Queue("default", concurrency=CONCURRENCY, executor=executor, polling_interval=1, eager_polling=True)
            await chancy.declare(queue, upsert=True)

    asyncio.run(create())


def enqueue(url: str, n: int) -> float:
    async def one_by_one() -> float:
        async with Chancy(url) as chancy:
            with kit.timed() as timer:
                for _ in range(n):
                    await chancy.push(noop.job.with_kwargs(sent=0))
        return timer.seconds

    return asyncio.run(one_by_one())


def enqueue_many(url: str, n: int) -> float:
    async def bulk() -> float:
        async with Chancy(url) as chancy:
            with kit.timed() as timer:
                async for _ in chancy.push_many([noop.job.with_kwargs(sent=0)] * n):
                    pass
        return timer.seconds

    return asyncio.run(bulk())


def work(url: str) -> None:
    async def run() -> None:
        async with Chancy(url) as chancy, Worker(chancy, shutdown_timeout=5) as worker:
            await worker.wait_for_shutdown()

    asyncio.run(run())


def probe(url: str, count: int, gap: float) -> None:
    async def send() -> None:
        async with Chancy(url) as chancy:
            for _ in range(count):
                await chancy.push(noop.job.with_kwargs(sent=time.monotonic_ns()))
                await asyncio.sleep(gap)

    asyncio.run(send())
