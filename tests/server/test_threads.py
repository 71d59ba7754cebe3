"""How the API's threads are shared: a tenant that computes much has one while others are there."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from uuid import uuid4

import pytest

from penstock.core.ids import new_id
from penstock.core.share import AT_ONCE, SHARE
from penstock.server.threads import OTHERS_SECONDS, Threads

ALPHA, BETA = uuid4(), uuid4()


def burn(seconds: float) -> Callable[[], None]:
    def work() -> None:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            new_id()

    return work


class Gauge:
    """How many of a tenant's requests are on a thread at once. Each stays until it is let go."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.go = threading.Event()
        self._lock = threading.Lock()

    def work(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.go.wait(60)
        with self._lock:
            self.inside -= 1


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("company", [True, False])
def test_who_used_its_share_is_served_one_at_a_time_while_others_are_there(company: bool) -> None:
    async def scene() -> int:
        now = 100.0
        threads = Threads(8, lambda: now)
        await threads.run(ALPHA, burn(AT_ONCE + 0.05))
        if company:
            await threads.run(BETA, lambda: None)
        gauge = Gauge()
        tasks = [asyncio.create_task(threads.run(ALPHA, gauge.work)) for _ in range(6)]
        await until(lambda: gauge.inside == (1 if company else 6))
        assert await threads.run(BETA, lambda: "served") == "served", "another tenant does not wait for them"
        gauge.go.set()
        await asyncio.gather(*tasks)
        return gauge.most

    assert asyncio.run(scene()) == (1 if company else 6)


def test_a_share_is_earned_again_with_time() -> None:
    async def scene() -> None:
        now = 100.0
        threads = Threads(8, lambda: now)
        await threads.run(ALPHA, burn(AT_ONCE + 0.05))
        now += OTHERS_SECONDS + 2 * AT_ONCE / SHARE
        await threads.run(BETA, lambda: None)
        gauge = Gauge()
        tasks = [asyncio.create_task(threads.run(ALPHA, gauge.work)) for _ in range(6)]
        await until(lambda: gauge.inside == 6)
        gauge.go.set()
        await asyncio.gather(*tasks)

    asyncio.run(scene())


def test_a_request_that_goes_away_while_it_waits_takes_no_place() -> None:
    async def scene() -> None:
        now = 100.0
        threads = Threads(8, lambda: now)
        await threads.run(ALPHA, burn(AT_ONCE + 0.05))
        await threads.run(BETA, lambda: None)
        gauge = Gauge()
        first = asyncio.create_task(threads.run(ALPHA, gauge.work))
        await until(lambda: gauge.inside == 1)
        waiting = [asyncio.create_task(threads.run(ALPHA, gauge.work)) for _ in range(3)]
        await asyncio.sleep(0)
        for each in waiting[:2]:
            each.cancel()
        gauge.go.set()
        await first
        await waiting[2]
        assert await threads.run(ALPHA, lambda: 7) == 7
        assert gauge.most == 1

    asyncio.run(scene())
