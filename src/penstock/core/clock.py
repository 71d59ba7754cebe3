"""Time is injected. In production the database's clock rules; tests hold a `ManualClock`."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from penstock.core.errors import InvalidInput, NaiveDatetime


class Clock(Protocol):
    """Anything that tells the time. `Penstock(..., clock=...)` takes one; without it the database's clock rules."""

    def now(self) -> datetime: ...


class ManualClock:
    """A clock that moves when told to.

    >>> clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    >>> clock.advance(minutes=5)
    datetime.datetime(2026, 1, 1, 0, 5, tzinfo=datetime.timezone.utc)
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._now = require_aware("start", start) if start else datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self._now

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> datetime:
        self._now += timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        return self._now

    def set(self, moment: datetime) -> None:
        self._now = require_aware("moment", moment)


def wall_time() -> datetime:
    """Return the machine's time, as whoever set it says."""
    return datetime.fromtimestamp(time.time(), UTC)


def uptime() -> float:
    """Return the seconds since the machine booted: the same in all its processes, and not moved by setting its time."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


def require_aware(name: str, moment: datetime) -> datetime:
    if not isinstance(moment, datetime):
        raise InvalidInput(f"{name} is a {type(moment).__name__}; expected an aware datetime.")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise NaiveDatetime(name)
    return moment.astimezone(UTC)
