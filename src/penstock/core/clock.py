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


class ForwardClock:
    """The machine's clock, kept from running backwards: when the wall jumps back, monotonic time carries on."""

    def __init__(self) -> None:
        self._anchor = time.time()
        self._started = time.monotonic()

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.timestamp(), UTC)

    def timestamp(self) -> float:
        carried = self._anchor + (time.monotonic() - self._started)
        wall = time.time()
        if wall > carried:
            self._anchor, self._started = wall, time.monotonic()
            return wall
        return carried

    def not_before(self, moment: datetime) -> None:
        """Carry on from `moment` if it is later than now: what the database last saw."""
        if moment.timestamp() > self.timestamp():
            self._anchor, self._started = moment.timestamp(), time.monotonic()


def require_aware(name: str, moment: datetime) -> datetime:
    if not isinstance(moment, datetime):
        raise InvalidInput(f"{name} is a {type(moment).__name__}; expected an aware datetime.")
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise NaiveDatetime(name)
    return moment.astimezone(UTC)
