"""PgQueuer on asyncpg with uvloop, 500 jobs a batch: the settings of its own benchmark tool, and the best we found."""

from __future__ import annotations

import asyncio
import signal
import time
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers import kit

BATCH = 500


def setup(url: str) -> None:
    async def install() -> None:
        connection = await asyncpg.connect(url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    uvloop.run(install())


def enqueue(url: str, n: int) -> float:
    async def one_by_one() -> float:
        connection = await asyncpg.connect(url)
        queries = Queries(AsyncpgDriver(connection))
        with kit.timed() as timer:
            for _ in range(n):
                await queries.enqueue("noop", b"0")
        await connection.close()
        return timer.seconds

    return uvloop.run(one_by_one())


def enqueue_many(url: str, n: int) -> float:
    async def bulk() -> float:
        connection = await asyncpg.connect(url)
        queries = Queries(AsyncpgDriver(connection))
        with kit.timed() as timer:
            for start in range(0, n, 5_000):
                size = min(5_000, n - start)
                await queries.enqueue(["noop"] * size, [b"0"] * size, [0] * size)
        await connection.close()
        return timer.seconds

    return uvloop.run(bulk())


def work(url: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(url)
        pgq = PgQueuer(AsyncpgDriver(connection))

        @pgq.entrypoint("noop")
        async def noop(job: Job) -> None:
            kit.ran(int(job.payload or b"0"))

        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, pgq.shutdown.set)
        await pgq.run(batch_size=BATCH, dequeue_timeout=timedelta(seconds=30))

    uvloop.run(run())


def probe(url: str, count: int, gap: float) -> None:
    async def send() -> None:
        connection = await asyncpg.connect(url)
        queries = Queries(AsyncpgDriver(connection))
        for _ in range(count):
            await queries.enqueue("noop", str(time.monotonic_ns()).encode())
            await asyncio.sleep(gap)
        await connection.close()

    uvloop.run(send())
