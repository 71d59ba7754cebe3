"""Server-sent events: a tenant's changes, and a job's log as it is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from penstock.core.access import Need
from penstock.core.errors import PenstockError
from penstock.core.wire.base import MAX_INT32
from penstock.server.auth import Gate
from penstock.server.calls import Call
from penstock.server.live import Hub, sse
from penstock.server.problems import Problem
from penstock.server.routes.jobs import logs_of
from penstock.server.routing import Caller, Routes

routes = Routes("stream")
KEEP_ALIVE = 15.0
RECHECK = 5.0
LONGEST = 3600.0
EVENTS = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}, "description": "Server-sent events"}}
HEADERS = {"x-accel-buffering": "no", "cache-control": "no-store"}


@routes.get("/stream", Need.VIEW, response_class=StreamingResponse, responses=EVENTS)
async def stream_changes(call: Caller, request: Request) -> StreamingResponse:
    """Changes of the tenant's queue, as server-sent events.

    `summary` carries the counts, `jobs` what changed; `reset` says that events were missed and everything is to be read
    again. It ends after an hour, or when the token does; browsers come back."""
    hub: Hub = request.app.state.hub
    give_back = request.app.state.streams.take(call.principal, call.tenant_id)

    async def events() -> AsyncIterator[str]:
        async with hub.watching(call.tenant_id) as watcher:
            yield sse("hello", {"tenant": call.tenant})
            async for _ in _while_welcome(call, request):
                if watcher.take_missed():
                    yield sse("reset", {})
                try:
                    async with asyncio.timeout(RECHECK):
                        event = await watcher.events.get()
                except TimeoutError:
                    event = ": still here\n\n"
                yield event

    return Stream(events(), give_back)


class Stream(StreamingResponse):
    """Server-sent events. However it ends, its place is given back."""

    def __init__(self, events: AsyncIterator[str], give_back: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream", headers=HEADERS)
        self._give_back = give_back

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._give_back()


async def _while_welcome(call: Call, request: Request) -> AsyncIterator[None]:
    """Until the hour is over or the caller's token is no longer good; looked at every few seconds."""
    gate: Gate = request.app.state.gate
    end = time.monotonic() + LONGEST
    checked = time.monotonic()
    while time.monotonic() < end:
        yield
        if time.monotonic() - checked >= RECHECK:
            checked = time.monotonic()
            try:
                await gate.whoever(request)
            except (Problem, PenstockError):
                return


@routes.get("/jobs/{job_id}/logs/stream", Need.VIEW, response_class=StreamingResponse, responses=EVENTS)
async def stream_logs(
    call: Caller,
    request: Request,
    job_id: UUID,
    attempt_no: Annotated[int | None, Query(ge=1, le=MAX_INT32)] = None,
) -> StreamingResponse:
    """The log of an attempt as it is written: `log` with the newest tails whenever they change, `end` when it ended."""
    hub: Hub = request.app.state.hub
    look = partial(logs_of, call, job_id, attempt_no)
    interval = call.settings.stream_interval
    give_back = request.app.state.streams.take(call.principal, call.tenant_id)
    try:
        first = await call.on_thread(look)
    except BaseException:
        give_back()
        raise

    async def events() -> AsyncIterator[str]:
        latest = first
        yield sse("log", latest.model_dump(mode="json"))
        quiet = time.monotonic()
        async for _ in _while_welcome(call, request):
            if latest.ended:
                yield sse("end", {"status": latest.status})
                return
            await asyncio.sleep(interval)
            found = await hub.look(call.tenant_id, (job_id, attempt_no), look)
            if found != latest:
                latest, quiet = found, time.monotonic()
                yield sse("log", latest.model_dump(mode="json"))
            elif time.monotonic() - quiet > KEEP_ALIVE:
                quiet = time.monotonic()
                yield ": still here\n\n"

    return Stream(events(), give_back)
