"""Requests that need the same look at the database share it, so that one token's requests do not keep others' look-ups waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from penstock.server.looks import Looks
from tests.server.support import World
from tests.support.waiting import PATIENCE

MANY = 100
"""More than there are threads to look on."""


class Held:
    """The look-ups of tokens. The first one waits until it may go on."""

    def __init__(self) -> None:
        self.number = 0
        self.begun = threading.Event()
        self.may_go_on = threading.Event()

    def __call__(self, _conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.lstrip().upper().startswith("SELECT") and "principals" in statement:
            self.number += 1
            self.begun.set()
            self.may_go_on.wait(PATIENCE)


@contextmanager
def held(world: World) -> Iterator[Held]:
    engine, found = world.penstock.db.engine, Held()
    event.listen(engine, "before_cursor_execute", found)
    try:
        yield found
    finally:
        found.may_go_on.set()
        event.remove(engine, "before_cursor_execute", found)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_token_is_looked_up_once_for_all_its_requests(world: World) -> None:
    gate, token = world.app.state.gate, world.token("viewer")
    now = 1000.0
    gate.clock = lambda: now
    world.client("viewer").get("/api/v1/jobs/summary").raise_for_status()
    tenant_id = world.penstock.ground.tenant_id("acme")
    now += 60  # what was looked up holds no longer

    async def ask_at_once(looking: Held) -> list[int]:
        transport = httpx.ASGITransport(world.app)
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://penstock.test", headers=headers) as http:
            asked = [asyncio.create_task(http.get("/api/v1/jobs/summary")) for _ in range(MANY)]
            await asyncio.to_thread(looking.begun.wait, PATIENCE)
            for _ in range(1000):
                await asyncio.sleep(0)  # let each come as far as it can
            assert gate.tenant_of("token", token) == tenant_id, "whose it is stays known meanwhile"
            looking.may_go_on.set()
            return [each.status_code for each in await asyncio.gather(*asked)]

    with held(world) as looking:
        assert world.loop.run(ask_at_once(looking)) == [200] * MANY
        assert looking.number == 1


@pytest.mark.parametrize("backend", ["sqlite"])
def test_what_is_revoked_while_it_is_looked_up_is_not_remembered(world: World) -> None:
    gate, token = world.app.state.gate, world.token("viewer")

    async def ask(http: httpx.AsyncClient) -> int:
        return (await http.get("/api/v1/jobs/summary")).status_code

    async def revoke_meanwhile(looking: Held) -> None:
        transport = httpx.ASGITransport(world.app)
        headers = {"authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://penstock.test", headers=headers) as http:
            first = asyncio.create_task(ask(http))
            await asyncio.to_thread(looking.begun.wait, PATIENCE)
            gate.forget()
            looking.may_go_on.set()
            assert await first == 200  # it was asked before
            assert gate.tenant_of("token", token) is None
            assert await ask(http) == 200
            assert looking.number == 2

    with held(world) as looking:
        world.loop.run(revoke_meanwhile(looking))


def test_everybody_who_shares_a_look_gets_what_it_raises() -> None:
    async def share() -> list[Any]:
        looks, may_go_on = Looks(), threading.Event()

        def fail() -> None:
            may_go_on.wait(PATIENCE)
            raise ValueError("no")

        asked = [asyncio.create_task(looks.look("it", fail)) for _ in range(3)]
        await asyncio.sleep(0)
        asked[0].cancel()  # who goes takes nothing from the others
        may_go_on.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert await looks.look("it", lambda: 7) == 7
        return found

    gone, *others = asyncio.run(share())
    assert isinstance(gone, asyncio.CancelledError)
    assert [type(each) for each in others] == [ValueError, ValueError]
