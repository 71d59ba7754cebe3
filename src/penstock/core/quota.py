"""What a tenant may have and ask for: its quotas, and the range of its priorities.

A tenant's own quotas and range are set by the operator and bind whoever acts for it, by whichever door. What is not set has a
default, and that binds only what is done through the service, and never the tenant `default`: a program that embeds the
engine is not surprised by a limit that nobody set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from penstock.core import check
from penstock.core.errors import InvalidInput, PriorityOutOfRange, QuotaExceeded

QUOTAS: Mapping[str, str] = MappingProxyType({
    "tokens": "tokens that are neither revoked nor expired",
    "triggers": "triggers",
    "webhooks": "webhooks",
    "queued_jobs": "jobs that wait or are ready to run",
    "jobs_per_event": "jobs that one event creates",
    "jobs_per_request": "jobs that one request creates",
    "streams": "live streams and log streams open at once",
    "workers": "workers that claim over HTTP",
    "requests_per_second": "requests a second, summed over all tokens of the tenant",
})  # fmt: skip
"""Every quota, and what it counts."""

SERVICE_DEFAULTS: Mapping[str, int] = MappingProxyType({
    "tokens": 50, "triggers": 100, "webhooks": 20, "queued_jobs": 100_000, "jobs_per_event": 50, "jobs_per_request": 1_000,
    "streams": 100, "workers": 100, "requests_per_second": 1_000,
})  # fmt: skip
"""What binds a tenant through the service where the operator has set nothing."""

SERVICE_PRIORITIES = (0, 1000)
UNLIMITED, DEFAULT = "unlimited", "default"

Quotas = Mapping[str, int | None]
"""What is set, by name. None stands for no limit; what is not there has its default."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What binds a tenant: quotas by name, and the range of its priorities. None stands for no bound."""

    quotas: Quotas = field(default_factory=dict)
    min_priority: int | None = None
    max_priority: int | None = None

    def over(self, defaults: Bounds) -> Bounds:
        """These bounds, and the defaults where nothing is set."""
        low = defaults.min_priority if self.min_priority is None else self.min_priority
        high = defaults.max_priority if self.max_priority is None else self.max_priority
        return Bounds({**defaults.quotas, **self.quotas}, low, high)

    def limit(self, name: str) -> int | None:
        return self.quotas.get(name)

    def require(self, name: str, used: int, more: int = 1) -> None:
        """Raise QuotaExceeded unless `more` fit beside those in use.

        >>> Bounds({"tokens": 3}).require("tokens", used=2)
        """
        limit = self.quotas.get(name)
        if limit is not None and used + more > limit:
            raise QuotaExceeded(name, QUOTAS[name], limit, used, more)

    def require_priority(self, priority: int | None) -> None:
        """Raise PriorityOutOfRange for a priority that this tenant may not ask for."""
        if priority is not None and priority != self.clamp(priority):
            raise PriorityOutOfRange(priority, self.min_priority, self.max_priority)

    def clamp(self, priority: int) -> int:
        """The priority within the range that is next to this one.

        >>> Bounds(min_priority=0, max_priority=1000).clamp(-5)
        0
        """
        if self.min_priority is not None:
            priority = max(priority, self.min_priority)
        return priority if self.max_priority is None else min(priority, self.max_priority)


FREE = Bounds()
"""No bounds at all: what embedded use has unless somebody sets some."""


def own_bounds(quotas: Quotas | None, min_priority: int | None, max_priority: int | None) -> Bounds:
    """What is set for one tenant; `FREE` itself if nothing is."""
    if not quotas and min_priority is None and max_priority is None:
        return FREE
    return Bounds(dict(quotas or {}), min_priority, max_priority)


def changed(stored: Quotas, given: Any) -> dict[str, int | None]:
    """The quotas after a change: a number, "unlimited" (or None), or "default" to forget what was set.

    >>> changed({"tokens": 5}, {"tokens": "default", "triggers": 7, "webhooks": "unlimited"})
    {'triggers': 7, 'webhooks': None}
    """
    if not isinstance(given, Mapping):
        raise InvalidInput(f"quotas is {type(given).__name__}; expected a mapping of names to numbers.")
    after = dict(stored)
    for name, value in given.items():
        if name not in QUOTAS:
            raise InvalidInput(f"There is no quota {name!r}; known are {', '.join(QUOTAS)}.")
        if value == DEFAULT:
            after.pop(name, None)
        elif value is None or value == UNLIMITED:
            after[name] = None
        else:
            after[name] = check.integer(f"the quota {name}", value, 0)
    return after


def parsed(pairs: tuple[str, ...] | list[str]) -> dict[str, int | str]:
    """Read `tokens=100`, `triggers=unlimited` or `webhooks=default`, as the command line and the settings have them.

    >>> parsed(["tokens=100", "triggers=unlimited"])
    {'tokens': 100, 'triggers': 'unlimited'}
    """
    found: dict[str, int | str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not (value in (UNLIMITED, DEFAULT) or value.isdecimal()):
            raise InvalidInput(
                f"{pair!r} is not a quota; expected NAME=NUMBER, NAME={UNLIMITED} or NAME={DEFAULT}. Names: {', '.join(QUOTAS)}."
            )
        found[name] = value if value in (UNLIMITED, DEFAULT) else int(value)
    changed({}, found)
    return found


def check_range(low: int | None, high: int | None) -> None:
    for name, value in (("min_priority", low), ("max_priority", high)):
        if value is not None:
            check.integer(name, value)
    if low is not None and high is not None and low > high:
        raise InvalidInput(f"min_priority is {low}, more than max_priority, which is {high}.")
