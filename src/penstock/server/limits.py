"""How often somebody may ask: token buckets, kept in memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from uuid import UUID

from penstock.core.quota import FREE
from penstock.queue.ground import Ground
from penstock.server.looks import Looks
from penstock.server.problems import quota_problem
from penstock.server.settings import Settings

MAX_BUCKETS = 10_000


class Buckets:
    """One bucket for each name: `rate` a second, `burst` at once.

    >>> buckets = Buckets(rate=1, burst=2, clock=lambda: 0.0)
    >>> [buckets.take("ann") for _ in range(3)]
    [0.0, 0.0, 1.0]
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._left: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, name: Hashable, rate: float | None = None) -> float:
        """Take one; returns 0, or the seconds to wait until there is one. With `rate`, this name has a rate of its own, and twice as
        many at once."""
        rate, burst = (self.rate, self.burst) if rate is None else (rate, max(1.0, 2 * rate))
        now = self._clock()
        left, since = self._left.pop(name, (burst, now))
        left = min(burst, left + (now - since) * rate)
        allowed = left >= 1
        self._left[name] = (left - 1 if allowed else left, now)
        if len(self._left) > MAX_BUCKETS:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / rate if rate > 0 else 3600.0

    def empty(self, name: Hashable) -> bool:
        """Whether taking one now would have to wait; takes none."""
        left, since = self._left.get(name, (self.burst, 0.0))
        return left + (self._clock() - since) * self.rate < 1


class TenantRate:
    """How often a tenant may ask, summed over all its tokens: its quota `requests_per_second`, in this process of the service."""

    def __init__(self, ground: Ground, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._ground = ground
        self._settings = settings
        self._buckets = Buckets(1.0, 1.0, clock)
        self._looks = Looks()

    async def check(self, tenant_id: UUID | None) -> None:
        """Count one request. Raises a Problem if the tenant has asked too often. Nobody else's requests are counted: the operator's,
        who belongs to no tenant, have the limit of their token alone."""
        if tenant_id is None:
            return
        own = self._ground.known_bounds(tenant_id)
        if own is None:
            own = await self._looks.look(tenant_id, partial(self._ground.bounds, tenant_id))
        rate = own.over(self._settings.default_bounds(False, tenant_id)).limit("requests_per_second")
        wait = 0.0 if rate is None else self._buckets.take(tenant_id, rate)
        if wait:
            assert rate is not None
            raise quota_problem("requests_per_second", rate, rate, wait)


def stream_limit(ground: Ground, default: int, tenant_id: UUID) -> int | None:
    """How many streams of a tenant may be open at once: its quota `streams`, or the default where nothing is set. What is set is known
    because the request that asks was counted a moment ago."""
    own = ground.known_bounds(tenant_id) or FREE
    return own.quotas.get("streams", default)
