"""A tenant's share of the processor: how much it used lately, beside how much it may use before others come first."""

from __future__ import annotations

from dataclasses import dataclass

SHARE = 0.25
"""How much of one processor a tenant may use for long before others come first. A tenant with 40 requests a second uses less; at a tenth it
would have to give way itself, beside the one that attacks it."""
AT_ONCE = 0.5
"""How many seconds of the processor a tenant that was quiet may use at once. A page that is opened takes less."""
MOST_OWED = 2.0
"""What is used beyond this is forgotten, so that a tenant which stops has its share again 10 seconds later."""


@dataclass(slots=True)
class Share:
    """The account of one tenant. `left` is in seconds of the processor; `at` is when it was looked at last.

    >>> share = Share(at=100.0)
    >>> share.use(0.6)
    >>> share.is_used_up(100.0), share.is_used_up(102.0)
    (True, False)
    """

    at: float
    rate: float = SHARE
    left: float = AT_ONCE

    def use(self, seconds: float) -> None:
        self.left = max(-MOST_OWED, self.left - seconds)

    def is_used_up(self, now: float) -> bool:
        self._earn(now)
        return self.left <= 0

    def is_whole(self, now: float) -> bool:
        """Whether nothing of it is in use, so that the account need not be kept."""
        self._earn(now)
        return self.left >= AT_ONCE

    def _earn(self, now: float) -> None:
        self.left = min(AT_ONCE, self.left + (now - self.at) * self.rate)
        self.at = now
