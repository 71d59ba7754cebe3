"""Requests that wait: for a job to claim, for a reservation. A request that waits holds no thread and no connection.

Requests that wait for the same thing stand in one line. Somebody looks for the first of the line; if something is there, it is
the first one's, and the next is looked for at once. So many waiters cost no more than one, and work wakes as many of them as
there is work. One listener for the whole process says when it is worth a look (`store.wake`), and a slow poll beside it catches
what was not heard. One tenant's lines take turns: at most one look of a tenant is under way, on threads that serve nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from uuid import UUID

import anyio
import anyio.to_thread
import structlog
from starlette.requests import Request

from penstock.core.access import Principal
from penstock.core.chance import chance
from penstock.core.errors import PenstockError
from penstock.server.problems import Problem
from penstock.store.database import Database
from penstock.store.wake import Ear, ear

T = TypeVar("T")

LOOKERS = 4
"""Threads that look for those who wait."""
PAUSE = 0.02
"""Seconds between two looks of one tenant that found nothing."""
LISTEN = 0.5
"""Seconds after which the listener looks whether anybody still waits."""
IDLE = 10.0
"""Seconds without waiters after which the listener ends."""


class Places:
    """How many requests of one token and of one tenant may be open at once. Used on the event loop alone."""

    def __init__(self, per_token: int | None, per_tenant: Callable[[UUID], int | None], code: str, what: str) -> None:
        self._per_token = per_token
        self._per_tenant = per_tenant
        self._code = code
        self._what = what
        self._taken: Counter[Hashable] = Counter()

    def take(self, principal: Principal, tenant_id: UUID) -> Callable[[], None]:
        """Take a place; returns what gives it back, once. Raises a Problem if there is none."""
        token, tenant = ("token", principal.id), ("tenant", tenant_id)
        if self._per_token is not None and self._taken[token] >= self._per_token:
            raise self._refusal(self._per_token, "token")
        limit = self._per_tenant(tenant_id)
        if limit is not None and self._taken[tenant] >= limit:
            raise self._refusal(limit, "tenant")
        self._taken.update((token, tenant))
        held = True

        def give_back() -> None:
            nonlocal held
            if held:
                held = False
                for name in (token, tenant):
                    self._taken[name] -= 1
                    if not self._taken[name]:
                        del self._taken[name]

        return give_back

    @contextmanager
    def taken(self, principal: Principal, tenant_id: UUID) -> Iterator[None]:
        give_back = self.take(principal, tenant_id)
        try:
            yield
        finally:
            give_back()

    def of_tenant(self, tenant_id: UUID) -> int:
        """How many are taken."""
        return self._taken[("tenant", tenant_id)]

    def _refusal(self, limit: int, whose: str) -> Problem:
        detail = f"{limit} {self._what} of this {whose} are open, the most there may be. Close one first, or try later."
        return Problem(429, self._code, detail, (), {"retry-after": "5"})


@dataclass(eq=False)
class Waiter(Generic[T]):
    """One request that waits. `look` returns what it waits for, or None; it is short, and called on a thread."""

    look: Callable[[], T | None]
    undo: Callable[[T], object]
    """Gives back what was found for a request that has gone."""
    found: asyncio.Future[T | None]


@dataclass(eq=False)
class Line:
    """Requests that wait for the same thing, first come, first served."""

    name: Hashable
    queues: frozenset[str] | None
    poll: float
    waiters: deque[Waiter[Any]] = field(default_factory=deque)
    due: float = 0.0
    """When it is looked for, also if nothing is heard."""
    woken: bool = True


@dataclass(eq=False)
class Lines:
    """A tenant's lines, and the task that looks for them in turn."""

    by_name: dict[Hashable, Line] = field(default_factory=dict)
    order: deque[Line] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def next(self) -> Line | None:
        """The next line in turn that is to be looked for now."""
        now = time.monotonic()
        for _ in range(len(self.order)):
            line = self.order[0]
            self.order.rotate(-1)
            if line.woken or line.due <= now:
                return line
        return None

    def rest(self) -> float:
        """Seconds until one of them is due."""
        return max(0.0, min((line.due for line in self.order), default=0.0) - time.monotonic())

    def leave(self, line: Line, waiter: Waiter[Any]) -> None:
        with contextlib.suppress(ValueError):
            line.waiters.remove(waiter)
        if not line.waiters and self.by_name.get(line.name) is line:
            del self.by_name[line.name]
            self.order.remove(line)
            self.news.set()


class WaitingRoom:
    """Everyone who waits in this process. Lives on the event loop."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._tenants: dict[UUID | None, Lines] = {}
        self._listener: Listener | None = None
        self._lookers: anyio.CapacityLimiter | None = None
        self.waiting = 0
        """How many requests wait now."""

    async def wait(
        self,
        request: Request,
        seconds: float,
        look: Callable[[], T | None],
        undo: Callable[[T], object],
        *,
        tenant_id: UUID | None,
        line: Hashable,
        queues: Collection[str] | None = None,
        poll: float = 1.0,
    ) -> T | None:
        """What `look` finds within `seconds`; None if the time is over or the client has gone. If it has gone after something
        was found for it, that is given back."""
        loop = asyncio.get_running_loop()
        waiter = Waiter(look, undo, loop.create_future())
        lines, place = self._join(tenant_id, line, queues, poll, waiter)
        gone = asyncio.create_task(_disconnected(request))
        self.waiting += 1
        try:
            await asyncio.wait({waiter.found, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            lines.leave(place, waiter)
            return waiter.found.result() if waiter.found.done() else None
        finally:
            self.waiting -= 1
            lines.leave(place, waiter)
            gone.cancel()
            if not waiter.found.done():
                waiter.found.cancel()  # a look that is under way sees that nobody waits any more

    def _join(
        self, tenant_id: UUID | None, name: Hashable, queues: Collection[str] | None, poll: float, waiter: Waiter[Any]
    ) -> tuple[Lines, Line]:
        lines = self._tenants.setdefault(tenant_id, Lines())
        line = lines.by_name.get(name)
        if line is None:
            served = None if queues is None else frozenset(queues)
            line = lines.by_name[name] = Line(name, served, poll, due=_spread(poll))
            lines.order.append(line)
        line.waiters.append(waiter)
        lines.news.set()
        if lines.task is None:
            lines.task = asyncio.create_task(self._serve(tenant_id, lines))
        if self._listener is None:
            self._listener = Listener(self._db, asyncio.get_running_loop(), self)
        return lines, line

    async def _serve(self, tenant_id: UUID | None, lines: Lines) -> None:
        """Look for the lines of one tenant, one after another, until nobody waits any more."""
        try:
            while lines.order:
                line = lines.next()
                if line is None:
                    lines.news.clear()
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(lines.rest()):
                            await lines.news.wait()
                elif not await self._look(line, lines):
                    await asyncio.sleep(PAUSE)
        finally:
            lines.task = None
            if self._tenants.get(tenant_id) is lines:
                del self._tenants[tenant_id]

    async def _look(self, line: Line, lines: Lines) -> bool:
        """Look for the first of a line. Returns whether something was there."""
        line.woken, line.due = False, _spread(line.poll)
        waiter = line.waiters[0]
        try:
            found = await self.on_thread(waiter.look)
        except Exception as error:
            if not waiter.found.done():
                waiter.found.set_exception(error)
            lines.leave(line, waiter)
            return False
        if found is None:
            return False
        line.woken = True  # perhaps there is more
        if waiter.found.done():  # it has gone meanwhile
            await self._give_back(waiter, found)
        else:
            waiter.found.set_result(found)
            lines.leave(line, waiter)
        return True

    async def _give_back(self, waiter: Waiter[T], found: T) -> None:
        try:
            await self.on_thread(lambda: waiter.undo(found))
        except PenstockError as error:
            structlog.get_logger("penstock.server").warning(
                "wait.give_back", code=error.code
            )  # its lease ends by itself

    async def on_thread(self, work: Callable[[], T]) -> T:
        """Run a short look on one of the threads that are for this alone."""
        if self._lookers is None:
            self._lookers = anyio.CapacityLimiter(LOOKERS)
        return await anyio.to_thread.run_sync(work, limiter=self._lookers)

    def wake(self, queues: Collection[str] | None) -> None:
        """Something may be there, in these queues or in any."""
        for lines in self._tenants.values():
            for line in lines.order:
                if queues is None or line.queues is None or not line.queues.isdisjoint(queues):
                    line.woken = True
                    lines.news.set()

    def listener_ended(self, listener: Listener) -> None:
        if self._listener is listener:
            self._listener = None
            if self._tenants:
                self._listener = Listener(self._db, asyncio.get_running_loop(), self)


class Listener:
    """The one thread that hears of news in the database and tells the waiting room. It ends when nobody waits any more."""

    def __init__(self, db: Database, loop: asyncio.AbstractEventLoop, room: WaitingRoom) -> None:
        self._db = db
        self._loop = loop
        self._room = room
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-waits", daemon=True)
        db.before_close.append(self.stop)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not threading.current_thread():
            self._thread.join(5)

    def _run(self) -> None:
        listening = ear(self._db)
        last = time.monotonic()
        try:
            while not self._stopping.is_set() and time.monotonic() - last < IDLE:
                if self._hears(listening):
                    self._loop.call_soon_threadsafe(self._room.wake, listening.heard())
                if self._room.waiting:
                    last = time.monotonic()
        except RuntimeError:
            pass  # the event loop is closed
        finally:
            listening.close()
            if not self._stopping.is_set():  # else the database is being closed, and goes through that list
                self._db.before_close.remove(self.stop)
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._room.listener_ended, self)

    def _hears(self, listening: Ear) -> bool:
        try:
            return listening.wait(LISTEN)
        except Exception as error:  # whatever the driver raises; those who wait are polled for meanwhile
            structlog.get_logger("penstock.server").warning("wait.listen", error=str(error))
            self._stopping.wait(1.0)
            return False


async def _disconnected(request: Request) -> None:
    """Until the client has gone. The body was read already, so that the next message says so."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return


def _spread(poll: float) -> float:
    """The time of the next poll, such that the lines do not come all at once."""
    return time.monotonic() + poll * (0.75 + chance.random() / 2)
