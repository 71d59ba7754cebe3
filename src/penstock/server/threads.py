"""The threads that serve the API. Health checks, the page and the look-up of tokens are on others, and so are those who look for
requests that wait: whatever the API is busy with, these go on."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

import anyio
import anyio.to_thread

T = TypeVar("T")

PROCESSOR_SHARE = 0.25
"""How much of one processor a tenant may use for its requests before they are served one at a time."""
PROCESSOR_SECONDS = 0.5
"""How many seconds of it a tenant that was quiet may use at once."""
MOST_OWED = 5.0
OTHERS_SECONDS = 2.0
"""How long after its last request a tenant counts as somebody who would have to wait."""


@dataclass(slots=True)
class _Tenant:
    """The requests of one tenant, and how much processor time they used lately."""

    id: UUID
    left: float = PROCESSOR_SECONDS
    at: float = 0.0
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def earn(self, now: float) -> None:
        self.left = min(PROCESSOR_SECONDS, self.left + (now - self.at) * PROCESSOR_SHARE)
        self.at = now

    @property
    def is_quiet(self) -> bool:
        return not self.running and not self.waiting and self.left >= PROCESSOR_SECONDS


class Threads:
    """As many threads as the settings say, shared by tenants.

    Python runs one thread at a time, so what many requests of one tenant compute is waited for by everybody. A tenant that has used
    its share of the processor is served one request at a time until it has earned some again; the others of its requests wait without
    a thread. That is so while there is anybody else: a tenant that is alone, or that uses little because its requests wait for the
    database, has three quarters of the threads.
    """

    def __init__(self, number: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limiter = anyio.CapacityLimiter(number)
        self._share = max(1, number * 3 // 4)
        self._clock = clock
        self._tenants: dict[UUID, _Tenant] = {}
        self._latest: tuple[UUID | None, float] = (None, float("-inf"))
        self._before: tuple[UUID | None, float] = (None, float("-inf"))

    async def run(self, tenant_id: UUID, work: Callable[[], T]) -> T:
        """Call `work` on one of the threads."""
        used = 0.0

        def measured() -> T:
            nonlocal used
            before = time.thread_time()
            try:
                return work()
            finally:
                used = time.thread_time() - before

        async with self._shared(tenant_id) as tenant:
            try:
                return await anyio.to_thread.run_sync(measured, limiter=self._limiter)
            finally:
                tenant.left = max(-MOST_OWED, tenant.left - used)

    @asynccontextmanager
    async def _shared(self, tenant_id: UUID) -> AsyncIterator[_Tenant]:
        tenant = self._tenants.get(tenant_id)
        now = self._clock()
        if tenant is None:
            tenant = self._tenants[tenant_id] = _Tenant(tenant_id, at=now)
        if self._latest[0] != tenant_id:
            self._before = self._latest
        self._latest = (tenant_id, now)
        if tenant.waiting or not self._has_room(tenant):
            await self._turn(tenant)
        else:
            tenant.running += 1
        try:
            yield tenant
        finally:
            tenant.running -= 1
            self._next(tenant)
            if tenant.is_quiet:
                self._tenants.pop(tenant_id, None)
            elif len(self._tenants) > 1000:
                self._forget_quiet()

    def _has_room(self, tenant: _Tenant) -> bool:
        now = self._clock()
        tenant.earn(now)
        _, seen = self._before if self._latest[0] == tenant.id else self._latest
        bound = tenant.left <= 0 and now - seen < OTHERS_SECONDS
        return tenant.running < (1 if bound else self._share)

    async def _turn(self, tenant: _Tenant) -> None:
        """Wait until this request may run. Whoever ends lets the next one in, which counts as running from then on."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tenant.waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was let in at the same moment
                tenant.running -= 1
                self._next(tenant)
            raise

    def _next(self, tenant: _Tenant) -> None:
        while tenant.waiting and self._has_room(tenant):
            turn = tenant.waiting.popleft()
            if not turn.done():
                tenant.running += 1
                turn.set_result(None)

    def _forget_quiet(self) -> None:
        now = self._clock()
        for tenant_id, tenant in list(self._tenants.items()):
            tenant.earn(now)
            if tenant.is_quiet:
                del self._tenants[tenant_id]
