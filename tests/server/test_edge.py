"""What the outermost layer keeps: deadlines that are total, and what browsers are told under TLS."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from penstock.server import Settings
from penstock.server.middleware import Edge
from tests.server.support import Transport, World

PIECES = 400


@pytest.fixture
def backend() -> str:
    return "sqlite"  # nothing here is about the database


def test_a_body_has_one_deadline_for_all_its_pieces() -> None:
    """A byte every now and then is no body that arrives in time."""
    sent: list[dict[str, Any]] = []
    pieces = 0

    async def receive() -> dict[str, Any]:
        nonlocal pieces
        pieces += 1
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": pieces < PIECES}

    async def send(message: Any) -> None:
        sent.append(message)

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})

    edge = Edge(app, Settings(body_timeout=0.2))
    asyncio.run(edge({"type": "http", "headers": [], "scheme": "http", "path": "/"}, receive, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 408
    assert pieces < PIECES


def secure(world: World) -> httpx.Client:
    return httpx.Client(transport=Transport(world.app, world.loop), base_url="https://penstock.test")


def test_under_tls_only_the_cookie_of_this_very_host_is_read(world: World) -> None:
    page = secure(world)
    signed_in = page.post("/api/v1/session", json={"token": world.token("viewer")})
    assert signed_in.headers["set-cookie"].startswith("__Host-penstock_session=")
    assert page.get("/api/v1/jobs").status_code == 200
    secret = signed_in.cookies["__Host-penstock_session"]

    sibling = secure(world)
    sibling.cookies.set("penstock_session", secret, domain="penstock.test")
    assert sibling.get("/api/v1/jobs").status_code == 401


def test_under_tls_browsers_are_told_to_stay_there(world: World) -> None:
    assert "max-age=31536000" in secure(world).get("/health/live").headers["strict-transport-security"]
    assert "strict-transport-security" not in world.bare().get("/health/live").headers


def test_signing_out_without_a_session_forgets_nobody(world: World) -> None:
    someone = world.client("viewer")
    assert someone.get("/api/v1/jobs").status_code == 200
    known = dict(world.app.state.gate._known)
    assert world.bare().delete("/api/v1/session").status_code == 204
    assert world.app.state.gate._known == known
