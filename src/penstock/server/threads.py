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

from penstock.core.share import SHARE, Share

T = TypeVar("T")

OTHERS_SECONDS = 10.0
"""How long after its last request a tenant counts as somebody who would have to wait."""
MAX_IDLE = 1000
"""Accounts that are kept before those of quiet tenants are looked for and forgotten."""


@dataclass(slots=True)
class _Tenant:
    """The requests of one tenant, and its share of the processor."""

    id: UUID
    share: Share
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    def is_quiet(self, now: float) -> bool:
        return not self.running and not self.waiting and self.share.is_whole(now)


class Threads:
    """As many threads as the settings say, shared by tenants.

    Python runs one thread at a time, so what many requests of one tenant compute is waited for by everybody. A tenant that has used
    its share of the processor is served one request at a time until it has earned some again; the others of its requests wait without
    a thread. That is so while there is anybody else: a tenant that is alone, or that uses little because its requests wait for the
    database, has three quarters of the threads.

    `crowded` says that there always is somebody else, though not here: so it is in the overflow process.
    """

    def __init__(
        self,
        number: int,
        clock: Callable[[], float] = time.monotonic,
        *,
        processor_share: float = SHARE,
        crowded: bool = False,
    ) -> None:
        self._limiter = anyio.CapacityLimiter(number)
        self._share = max(1, number * 3 // 4)
        self._clock = clock
        self._crowded = crowded
        self._rate = processor_share
        self.used: Callable[[UUID, float], None] | None = None
        """Told how many seconds of the processor a tenant's request used."""
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
                tenant.share.use(used)
                if self.used is not None:
                    self.used(tenant_id, used)

    def charge(self, tenant_id: UUID, seconds: float) -> None:
        """Count processor time that a tenant used elsewhere than on these threads."""
        self._tenant(tenant_id).share.use(seconds)

    def has_used_up(self, tenant_id: UUID) -> bool:
        """Note that a tenant has sent a request. Returns whether its share is used up while there is somebody else."""
        now = self._clock()
        self._saw(tenant_id, now)
        return self._is_bound(self._tenant(tenant_id), now)

    def _tenant(self, tenant_id: UUID) -> _Tenant:
        found = self._tenants.get(tenant_id)
        if found is None:
            if len(self._tenants) > MAX_IDLE:
                self._forget_quiet()
            found = self._tenants[tenant_id] = _Tenant(tenant_id, Share(self._clock(), self._rate))
        return found

    def _saw(self, tenant_id: UUID, now: float) -> None:
        if self._latest[0] != tenant_id:
            self._before = self._latest
        self._latest = (tenant_id, now)

    @asynccontextmanager
    async def _shared(self, tenant_id: UUID) -> AsyncIterator[_Tenant]:
        tenant = self._tenant(tenant_id)
        self._saw(tenant_id, self._clock())
        if tenant.waiting or not self._has_room(tenant):
            await self._turn(tenant)
        else:
            tenant.running += 1
        try:
            yield tenant
        finally:
            tenant.running -= 1
            self._next(tenant)
            if tenant.is_quiet(self._clock()):
                self._tenants.pop(tenant_id, None)

    def _has_room(self, tenant: _Tenant) -> bool:
        return tenant.running < (1 if self._is_bound(tenant, self._clock()) else self._share)

    def _is_bound(self, tenant: _Tenant, now: float) -> bool:
        if not tenant.share.is_used_up(now):
            return False
        _, seen = self._before if self._latest[0] == tenant.id else self._latest
        return self._crowded or now - seen < OTHERS_SECONDS

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
            if tenant.is_quiet(now):
                del self._tenants[tenant_id]
