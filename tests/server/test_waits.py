"""Requests that wait cost nobody a thread: other tenants are served meanwhile, and who has gone is gone."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar, cast

import httpx
import pytest

from penstock.core.nouns import Claim
from penstock.queue import claim as claiming
from penstock.server import Settings
from penstock.server.waits import Places, WaitingRoom
from tests.server.support import BOOTSTRAP, World, served

T = TypeVar("T")

MANY = 30
"""Many more than the threads of the service."""
PATIENCE = 120.0
WAIT = 20
"""The longest wait that a request may ask for, in seconds."""


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> Settings:
    given = getattr(request, "param", {})
    return Settings(bootstrap_token=BOOTSTRAP, stream_interval=0.1, **given)


def room(world: World) -> WaitingRoom:
    found: WaitingRoom = world.app.state.room
    return found


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it never came to be so"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def client(address: str, token: str) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    headers = {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        base_url=f"{address}/api/v1", headers=headers, limits=limits, timeout=PATIENCE
    ) as made:
        yield made


def claims(http: httpx.AsyncClient, number: int, queue: str = "default") -> list[asyncio.Task[httpx.Response]]:
    return [
        asyncio.create_task(
            http.post("/worker/jobs/claim", json={"worker_id": f"{queue}-{n}", "queues": [queue], "wait_seconds": 20})
        )
        for n in range(number)
    ]


async def end(tasks: list[asyncio.Task[httpx.Response]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def run(test: Awaitable[T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(2 * PATIENCE):
            return await test

    return asyncio.run(bounded())


@pytest.mark.parametrize("settings", [{"threads": 4}], indirect=True)
def test_others_are_served_while_many_claims_wait(world: World) -> None:
    async def attack(address: str) -> None:
        async with (
            client(address, world.token("worker")) as acme,
            client(address, world.token("viewer", "bolt")) as bolt,
        ):
            waiting = claims(acme, MANY)
            await until(lambda: room(world).waiting == MANY)
            for path in ("/jobs/summary", "/jobs", "/definitions"):
                assert (await bolt.get(path)).status_code == 200
            assert (await bolt.get(f"{address}/health/ready")).status_code == 200
            assert room(world).waiting == MANY and not any(task.done() for task in waiting)
            await end(waiting)

    with served(world) as address:
        run(attack(address))


@pytest.mark.parametrize("settings", [{"threads": 4}], indirect=True)
def test_others_are_served_while_many_reservations_wait(world: World) -> None:
    acme = world.penstock.as_tenant("acme")
    acme.enqueue("echo")
    [running] = world.penstock.queue.claim("w", 1)

    async def attack(address: str) -> None:
        async with (
            client(address, world.token("operator")) as http,
            client(address, world.token("viewer", "bolt")) as bolt,
        ):
            asked = {"wait_seconds": 20, "expires_in_seconds": 60}
            waiting = [asyncio.create_task(http.post("/reservations", json=asked)) for _ in range(MANY)]
            await until(lambda: room(world).waiting == MANY)
            assert (await bolt.get("/jobs/summary")).status_code == 200
            assert room(world).waiting == MANY and not any(task.done() for task in waiting)
            world.penstock.queue.release([running])
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done = [task for task in waiting if task.done()]
            assert [task.result().status_code for task in done] == [201]
            assert room(world).waiting == MANY - 1
            await end(waiting)
            await until(lambda: room(world).waiting == 0)
            [held] = (await http.get("/reservations")).json()["items"]
            assert held["id"] == done[0].result().json()["id"]

    with served(world) as address:
        run(attack(address))


def test_a_waiter_that_has_gone_is_gone_at_once(world: World) -> None:
    async def leave(address: str) -> None:
        async with client(address, world.token("worker")) as http:
            waiting = claims(http, 20)
            await until(lambda: room(world).waiting == 20)
            await end(waiting)
            await until(lambda: room(world).waiting == 0)
            assert world.app.state.waits.of_tenant(world.penstock.ground.tenant_id("acme")) == 0
        job = world.penstock.as_tenant("acme").enqueue("echo")
        async with client(address, world.token("worker")) as http:
            answer = await http.post("/worker/jobs/claim", json={"worker_id": "later"})
            assert [each["job_id"] for each in answer.json()["items"]] == [str(job.id)]

    with served(world) as address:
        run(leave(address))


def test_a_reservation_whose_waiter_has_gone_is_given_back(world: World) -> None:
    acme = world.penstock.as_tenant("acme")
    acme.enqueue("echo")
    [running] = world.penstock.queue.claim("w", 1)

    def held() -> list[Any]:
        return list(world.client("viewer").get("/api/v1/reservations").json()["items"])

    async def leave(address: str) -> bool:
        """Whether it was given back before its wait would have ended by itself. On a busy machine an attempt may take longer than that."""
        async with client(address, world.token("operator")) as http:
            begun = time.monotonic()
            waiting = [asyncio.create_task(http.post("/reservations", json={"wait_seconds": WAIT}))]
            while not await asyncio.to_thread(held):
                if waiting[0].done():
                    return False
            await end(waiting)
            while await asyncio.to_thread(held):
                pass
            return time.monotonic() - begun < WAIT

    with served(world) as address:
        given_back = [run(leave(address)) for _ in range(4)]
        assert any(given_back), "nobody waited, and yet each wait went on to its end"
    assert world.penstock.queue.release([running]) == 1


class Staying:
    """A client that does not go."""

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError


def test_as_many_waiters_get_a_job_as_there_are_jobs(world: World) -> None:
    number, jobs = 300, 7
    acme = world.penstock.as_tenant("acme")
    made = WaitingRoom(world.penstock.db)
    looks: list[int] = []

    def look(worker: str) -> list[Claim] | None:
        taken = claiming.claim(world.penstock.ground, worker, 1, tenant_id=acme.jobs.tenant_id)
        looks.append(len(taken))
        return taken or None

    async def wait() -> None:
        waiting = [
            asyncio.create_task(
                made.wait(
                    cast(Any, Staying()), 600, partial(look, f"w{n}"), list, tenant_id=None, line="claim", poll=60
                )
            )
            for n in range(number)
        ]
        await until(lambda: made.waiting == number and bool(looks))
        before = len(looks)
        enqueued = await asyncio.to_thread(acme.enqueue_many, "echo", [{} for _ in range(jobs)])
        await until(lambda: sum(looks) == jobs and made.waiting == number - jobs)
        answers = [task.result() for task in waiting if task.done()]
        assert sorted(each.job_id for found in answers for each in found or []) == sorted(enqueued)
        assert [len(found or []) for found in answers] == [1] * jobs
        assert len(looks) - before < 10 * jobs, "they are woken one by one, not all of them for each job"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert made.waiting == 0

    run(wait())


def test_a_job_found_for_one_who_has_gone_goes_to_the_next(world: World) -> None:
    """The first one leaves while somebody looks for it, and finds a job."""
    acme = world.penstock.as_tenant("acme")
    made = WaitingRoom(world.penstock.db)
    looking, gone = threading.Event(), threading.Event()

    def slow() -> list[Claim] | None:
        looking.set()
        assert gone.wait(PATIENCE)
        return claiming.claim(world.penstock.ground, "first", 1) or None

    def give_back(taken: list[Claim]) -> None:
        assert claiming.release(world.penstock.ground, taken) == 1

    def look() -> list[Claim] | None:
        return claiming.claim(world.penstock.ground, "second", 1) or None

    async def wait() -> None:
        one, two = (
            asyncio.create_task(
                made.wait(cast(Any, Staying()), 600, work, give_back, tenant_id=None, line="claim", poll=0.2)
            )
            for work in (slow, look)
        )
        await asyncio.to_thread(looking.wait, PATIENCE)
        job = await asyncio.to_thread(acme.enqueue, "echo")
        one.cancel()
        await asyncio.gather(one, return_exceptions=True)
        gone.set()
        [taken] = await two or []
        assert (taken.job_id, taken.worker_id, taken.attempt_no) == (job.id, "second", 1)

    run(wait())


def test_waiters_of_other_queues_are_left_alone(world: World) -> None:
    world.penstock.queues.create("slow")

    async def wait(address: str) -> None:
        async with client(address, world.token("worker")) as http:
            slow, usual = claims(http, 3, "slow"), claims(http, 3)
            await until(lambda: room(world).waiting == 6)
            world.penstock.as_tenant("bolt").enqueue("echo")
            job = world.penstock.as_tenant("acme").enqueue("echo")
            await asyncio.wait(usual, return_when=asyncio.FIRST_COMPLETED)
            [taken] = [task.result().json()["items"] for task in usual if task.done()]
            assert [each["job_id"] for each in taken] == [str(job.id)]
            assert not any(task.done() for task in slow)
            await end([*slow, *usual])

    with served(world) as address:
        run(wait(address))


def test_a_wait_ends_with_nothing_when_its_time_is_over(world: World) -> None:
    answer = world.client("worker").post("/api/v1/worker/jobs/claim", json={"worker_id": "w", "wait_seconds": 0.3})
    assert (answer.status_code, answer.json()) == (200, {"items": []})
    acme = world.penstock.as_tenant("acme")
    acme.enqueue("echo")
    world.penstock.queue.claim("w", 1)
    answer = world.client("operator").post("/api/v1/reservations", json={"wait_seconds": 0.3})
    assert (answer.status_code, answer.json()["code"]) == (409, "busy")
    assert "1 running job(s)" in answer.json()["detail"]
    assert world.client("viewer").get("/api/v1/reservations").json()["items"] == []


@pytest.mark.parametrize(
    "settings", [{"waits_per_token": 2}, {"waits_per_tenant": 2}], indirect=True, ids=["token", "tenant"]
)
def test_a_waiter_too_many_is_refused(world: World) -> None:
    async def crowd(address: str) -> None:
        async with (
            client(address, world.token("worker")) as acme,
            client(address, world.token("worker", "bolt")) as bolt,
        ):
            waiting = claims(acme, 2)
            await until(lambda: room(world).waiting == 2)
            refused = await acme.post("/worker/jobs/claim", json={"worker_id": "w", "wait_seconds": 20})
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many_waits")
            assert "retry-after" in refused.headers
            assert (await acme.post("/worker/jobs/claim", json={"worker_id": "w"})).status_code == 200
            others = await bolt.post("/worker/jobs/claim", json={"worker_id": "w", "wait_seconds": 0.1})
            assert others.status_code == 200
            await end(waiting)
            await until(lambda: room(world).waiting == 0)
            again = await acme.post("/worker/jobs/claim", json={"worker_id": "w", "wait_seconds": 0.1})
            assert again.status_code == 200

    with served(world) as address:
        run(crowd(address))


@pytest.mark.parametrize("settings", [{"stream_limit": 3}], indirect=True)
def test_streams_and_log_streams_share_one_limit(world: World) -> None:
    job = world.penstock.as_tenant("acme").enqueue("echo")
    world.penstock.queue.claim("w", 1)
    streams: Places = world.app.state.streams
    tenant = world.penstock.ground.tenant_id("acme")

    async def crowd(address: str) -> None:
        async with client(address, world.token("viewer")) as http:
            paths = ["/stream", f"/jobs/{job.id}/logs/stream", f"/jobs/{job.id}/logs/stream"]
            opened = [asyncio.create_task(http.get(path)) for path in paths]
            await until(lambda: streams.of_tenant(tenant) == 3)
            for path in set(paths):
                refused = await http.get(path)
                assert (refused.status_code, refused.json()["code"]) == (429, "too_many_streams")
            assert (await http.get(f"/jobs/{job.id}/logs")).status_code == 200
            await end(opened)
            await until(lambda: streams.of_tenant(tenant) == 0)
            missing = await http.get(f"/jobs/{world.penstock.ground.tenant_id('bolt')}/logs/stream")
            assert (missing.status_code, streams.of_tenant(tenant)) == (404, 0)

    with served(world) as address:
        run(crowd(address))
