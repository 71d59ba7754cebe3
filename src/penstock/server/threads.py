"""The threads that serve the API. Health checks, the page and the look-up of tokens are on others, and so are those who look for
requests that wait: whatever the API is busy with, these go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar
from uuid import UUID

import anyio
import anyio.to_thread

T = TypeVar("T")


class Threads:
    """As many threads as the settings say. One tenant has at most three quarters of them at a time, so that nobody else waits
    until all of its requests are done."""

    def __init__(self, number: int) -> None:
        self._limiter = anyio.CapacityLimiter(number)
        self._share = max(1, number * 3 // 4)
        self._tenants: dict[UUID, tuple[asyncio.Semaphore, int]] = {}

    async def run(self, tenant_id: UUID, work: Callable[[], T]) -> T:
        """Call `work` on one of the threads."""
        async with self._shared(tenant_id):
            return await anyio.to_thread.run_sync(work, limiter=self._limiter)

    @asynccontextmanager
    async def _shared(self, tenant_id: UUID) -> AsyncIterator[None]:
        places, users = self._tenants.get(tenant_id) or (asyncio.Semaphore(self._share), 0)
        self._tenants[tenant_id] = places, users + 1
        try:
            async with places:
                yield
        finally:
            places, users = self._tenants[tenant_id]
            if users == 1:
                del self._tenants[tenant_id]
            else:
                self._tenants[tenant_id] = places, users - 1
