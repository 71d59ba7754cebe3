"""Live changes: one look at the database for all who watch a tenant."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import structlog
from pydantic_core import to_jsonable_python

from penstock.core.errors import PenstockError
from penstock.core.redact import Redactor
from penstock.core.worker_names import masked, shown
from penstock.queue import observe
from penstock.queue.ground import Ground
from penstock.server.waits import WaitingRoom
from penstock.store import stats

T = TypeVar("T")
COUNT_CAP = 100_000
MAX_EVENT_JOBS = 200
QUEUE_SIZE = 100
_redactor = Redactor()


@dataclass(eq=False)
class Watcher:
    """One who watches. Too slow a one loses events and is told to read everything again."""

    events: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(QUEUE_SIZE))
    missed: bool = False

    def tell(self, event: str) -> None:
        if self.missed:
            return
        try:
            self.events.put_nowait(event)
        except asyncio.QueueFull:
            self.missed = True

    def take_missed(self) -> bool:
        missed, self.missed = self.missed, False
        if missed:
            while not self.events.empty():
                self.events.get_nowait()
        return missed


@dataclass(eq=False)
class Channel:
    """A tenant's watchers, and the one task that looks for them."""

    watchers: set[Watcher] = field(default_factory=set)
    task: asyncio.Task[None] | None = None
    seen: dict[UUID, dict[str, Any]] | None = None
    summary: dict[str, Any] = field(default_factory=dict)


class Hub:
    """Every tenant's channel. Lives on the event loop."""

    def __init__(self, ground: Ground, room: WaitingRoom, interval: float) -> None:
        self._ground = ground
        self._room = room
        self._interval = interval
        self._channels: dict[UUID, Channel] = {}
        self._looks: dict[Hashable, asyncio.Task[Any]] = {}
        self._turns: dict[UUID, asyncio.Lock] = {}

    async def look(self, tenant_id: UUID, name: Hashable, work: Callable[[], T]) -> T:
        """Call `work` on a thread. Streams that look for the same thing share one look, and the looks of one tenant come one
        after another."""
        key = (tenant_id, name)
        task = self._looks.get(key)
        if task is None:
            task = self._looks[key] = asyncio.create_task(self._in_turn(tenant_id, work))
            task.add_done_callback(lambda _: self._looks.pop(key, None))
        found: T = await asyncio.shield(task)
        return found

    async def _in_turn(self, tenant_id: UUID, work: Callable[[], T]) -> T:
        turn = self._turns.setdefault(tenant_id, asyncio.Lock())
        try:
            async with turn:
                return await self._room.on_thread(work)
        finally:
            if not turn.locked():
                self._turns.pop(tenant_id, None)

    @asynccontextmanager
    async def watching(self, tenant_id: UUID) -> AsyncIterator[Watcher]:
        channel = self._channels.setdefault(tenant_id, Channel())
        watcher = Watcher()
        if channel.summary:
            watcher.tell(sse("summary", channel.summary))
        channel.watchers.add(watcher)
        if channel.task is None:
            channel.task = asyncio.create_task(self._poll(tenant_id, channel))
        try:
            yield watcher
        finally:
            channel.watchers.discard(watcher)
            if not channel.watchers:
                self._channels.pop(tenant_id, None)
                if channel.task is not None:
                    channel.task.cancel()

    async def _poll(self, tenant_id: UUID, channel: Channel) -> None:
        while True:
            try:
                found = await self._room.on_thread(partial(self._look, tenant_id, list(channel.seen or ())))
            except PenstockError as error:
                structlog.get_logger("penstock.server").warning("stream", code=error.code)
            else:
                self._publish(channel, *found)
            await asyncio.sleep(self._interval)

    def _look(self, tenant_id: UUID, watched: list[UUID]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        with self._ground.db.read() as tx:
            rows = [_named(tenant_id, row) for row in stats.pulse(tx, tenant_id, watched[-2000:])]
        summary = observe.summary(self._ground, tenant_id, COUNT_CAP)
        age = summary.oldest_queued_seconds
        return rows, {
            "counts": {status.value: n for status, n in summary.counts.items()},
            "oldest_queued_age_seconds": None if age is None else int(age),
            "running_count": summary.running,
            "capped_at": COUNT_CAP,
        }

    def _publish(self, channel: Channel, rows: list[dict[str, Any]], summary: dict[str, Any]) -> None:
        now = {row["id"]: row for row in rows}
        if channel.seen is not None:
            changed = [row for key, row in now.items() if channel.seen.get(key) != row]
            for start in range(0, len(changed), MAX_EVENT_JOBS):
                self._tell(channel, "jobs", {"items": [_told(row) for row in changed[start : start + MAX_EVENT_JOBS]]})
        if summary != channel.summary:
            self._tell(channel, "summary", summary)
        channel.seen, channel.summary = _still_watched(now), summary

    def _tell(self, channel: Channel, name: str, data: Mapping[str, Any]) -> None:
        event = sse(name, data)
        for watcher in channel.watchers:
            watcher.tell(event)


def _named(tenant_id: UUID, row: dict[str, Any]) -> dict[str, Any]:
    """The row without the identity of the operator's worker."""
    worker, error = row["claimed_by"], row["last_error"]
    return {**row, "claimed_by": worker and shown(tenant_id, worker), "last_error": error and masked(tenant_id, error)}


def _still_watched(now: dict[UUID, dict[str, Any]]) -> dict[UUID, dict[str, Any]]:
    """Jobs that have ended were told of; only the newest of them are watched on."""
    return dict(sorted(now.items())[-2000:])


def _told(row: dict[str, Any]) -> dict[str, Any]:
    told = {**row, "attempt_count": row["attempt_no"], "claimed_by_worker": row["claimed_by"]}
    for name in ("attempt_no", "claimed_by"):
        del told[name]
    if told["last_error"]:
        told["last_error"] = _redactor.redact_text(told["last_error"])[:1000]
    if told["progress"]:
        told["progress"] = _redactor.redact_json(told["progress"])
    return told


def sse(name: str, data: Mapping[str, Any]) -> str:
    """One server-sent event. JSON has no raw line breaks, so the data cannot end the event early."""
    return f"event: {name}\ndata: {json.dumps(to_jsonable_python(data), ensure_ascii=False)}\n\n"
