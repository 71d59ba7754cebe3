"""The real app on a real database, spoken to over ASGI."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from penstock import Penstock
from penstock.queue.access import create_token
from penstock.server import uvicorn_config
from tests.support.ports import free_port

BOOTSTRAP = "bootstrap-token-of-the-tests"
ROLES = ("super_admin", "tenant_admin", "operator", "viewer", "worker")


class Loop:
    """An event loop on a thread of its own, for synchronous tests of an asynchronous app."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class Transport(httpx.BaseTransport):
    """Synchronous httpx over ASGI."""

    def __init__(self, app: FastAPI, loop: Loop) -> None:
        self._asgi = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._loop = loop

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        asynchronous = httpx.Request(request.method, request.url, headers=request.headers, content=body)

        async def send() -> httpx.Response:
            answer = await self._asgi.handle_async_request(asynchronous)
            content = await answer.aread()
            return httpx.Response(answer.status_code, headers=answer.headers, content=content)

        response: httpx.Response = self._loop.run(send())
        return response


@dataclass
class World:
    """Two tenants with a token of every role, on one service."""

    penstock: Penstock
    app: FastAPI
    loop: Loop
    tokens: dict[tuple[str, str], str] = field(default_factory=dict)

    def client(self, role: str = "super_admin", tenant: str = "acme", **headers: str) -> httpx.Client:
        return self.bare(Authorization=f"Bearer {self.token(role, tenant)}", **headers)

    def bare(self, **headers: str) -> httpx.Client:
        """A client without a token."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return httpx.Client(transport=Transport(self.app, self.loop), base_url="http://penstock.test", headers=named)

    def token(self, role: str, tenant: str = "acme") -> str:
        owner = "" if role == "super_admin" else tenant
        if (role, owner) not in self.tokens:
            _, token = create_token(self.penstock.ground, role, f"{role} of {owner or 'all'}", owner or None)
            self.tokens[role, owner] = token
        return self.tokens[role, owner]


@contextmanager
def served(world: World) -> Iterator[str]:
    """The app on loopback, as `penstock api` serves it."""
    port = free_port()
    server = uvicorn.Server(uvicorn_config(world.app, host="127.0.0.1", port=port, timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        end = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < end
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)
