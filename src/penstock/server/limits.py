"""How often somebody may ask: token buckets, kept in memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

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

    def take(self, name: Hashable) -> float:
        """Take one; answers 0, or the seconds to wait until there is one."""
        now = self._clock()
        left, since = self._left.pop(name, (self.burst, now))
        left = min(self.burst, left + (now - since) * self.rate)
        allowed = left >= 1
        self._left[name] = (left - 1 if allowed else left, now)
        if len(self._left) > MAX_BUCKETS:
            self._left.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self.rate

    def empty(self, name: Hashable) -> bool:
        """Whether taking one now would have to wait; takes none."""
        left, since = self._left.get(name, (self.burst, 0.0))
        return left + (self._clock() - since) * self.rate < 1
