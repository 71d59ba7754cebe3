"""Cron expressions in a time zone, as strictly increasing UTC instants.

Five fields (minute, hour, day of month, month, day of week) with names, lists, ranges and steps, or one of
`@hourly @daily @midnight @weekly @monthly @yearly @annually`. `cronsim` reads the fields and tells which days match;
what a wall-clock time means where clocks change is decided here:

- An expression **follows real time** when its minute or hour field is a wildcard (`*`, `*/15`, or every value
  listed): `*/30 * * * *`, `0 * * * *`, `*/10 2 * * *`. It fires at every instant whose wall clock matches:
  twice where the clock shows a time twice, not where it never shows it. The policies do not apply.
- Any other expression names **fixed times**: `30 1 * * *`, `0 9,17 * * MON-FRI`, `15 8-18 * * *`. Then
  `dst_gap="shift"` fires a time that does not exist at the first instant after the gap (once, however many times
  fell into it), and `"skip"` does not fire it; `dst_overlap="first"` fires a time that occurs twice at its first
  occurrence, and `"both"` at both.

If both day fields are restricted, a day matches when either does; if one begins with `*`, both must (as in Debian).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim

from penstock.core.clock import require_aware
from penstock.core.cron_fields import normalise, parse_fields
from penstock.core.errors import InvalidSchedule
from penstock.core.status import one_of
from penstock.core.zones import zone

DST_GAP = ("shift", "skip")
DST_OVERLAP = ("first", "both")
HORIZON_YEARS = 50
CALENDAR = (1900, 9000)  # far enough from the ends of `datetime` that no offset and no horizon leads out of it

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, eq=False)
class Cron:
    """A schedule: when it fires next, and next.

    >>> nightly = Cron.parse("30 2 * * *", "America/New_York")
    >>> nightly.next_after(datetime(2026, 3, 8, tzinfo=UTC)).isoformat()  # 02:30 does not exist: shifted to 03:00
    '2026-03-08T07:00:00+00:00'
    """

    expression: str
    timezone: str
    dst_gap: str
    dst_overlap: str
    follows_real_time: bool
    _zone: ZoneInfo
    _fields: CronSim
    _minutes: tuple[int, ...]  # minutes of a matching day, from its midnight

    @classmethod
    def parse(cls, expression: str, timezone: str = "UTC", dst_gap: str = "shift", dst_overlap: str = "first") -> Cron:
        """Read an expression, or raise InvalidSchedule with the field, its value, the reason and a hint."""
        one_of("dst_gap", dst_gap, DST_GAP)
        one_of("dst_overlap", dst_overlap, DST_OVERLAP)
        return _parse(normalise(expression), zone(timezone).key, dst_gap, dst_overlap)

    def next_after(self, moment: datetime) -> datetime:
        """The first instant strictly after `moment`, in UTC."""
        for instant in self._after(_checked("moment", moment)):
            return instant
        raise InvalidSchedule(
            f"The schedule {self.expression!r} has no moment within {HORIZON_YEARS} years of {moment.isoformat()}.",
            field="cron_expr",
        )

    def between(self, after: datetime, until: datetime, limit: int) -> list[datetime]:
        """The instants in `(after, until]`, oldest first, at most `limit`."""
        until = _checked("until", until)
        due = takewhile(lambda instant: instant <= until, self._after(_checked("after", after)))
        return list(islice(due, limit))

    def preview(self, n: int, after: datetime) -> list[datetime]:
        """The next `n` instants after `after`."""
        return list(islice(self._after(_checked("after", after)), n))

    def describe(self) -> str:
        """The schedule in words.

        >>> Cron.parse("0 2 * * MON-FRI", "Europe/London").describe()
        'At 02:00 on Monday through Friday (Europe/London)'
        """
        return f"{self._fields.explain()} ({self.timezone})"

    def _after(self, moment: datetime) -> Iterator[datetime]:
        last = moment
        irregular: set[datetime] = set()
        previous = date.min
        for day in self._days(moment.astimezone(self._zone).date() - _DAY):
            start = _steady_midnight(day, self._zone)
            if irregular and (start is not None or day - previous > _DAY):
                # Two irregular days in a row may interleave (clocks going back over midnight): sort them together.
                for instant in sorted(i for i in irregular if i > last):
                    yield (last := instant)
                irregular = set()
            if start is None:
                irregular |= self._instants(day)
            else:
                for minute in self._minutes[bisect_right(self._minutes, _minutes_between(start, last)) :]:
                    yield (last := start + timedelta(minutes=minute))
            previous = day
        yield from sorted(i for i in irregular if i > last)

    def _days(self, day: date) -> Iterator[date]:
        """Matching local dates from `day` on, within the horizon."""
        last_year = day.year + HORIZON_YEARS
        months = self._fields.months
        while day.year <= last_year:
            if day.month not in months:
                day = date(day.year + day.month // 12, day.month % 12 + 1, 1)
                continue
            if self._fields.match_day(day):
                yield day
            day += _DAY

    def _instants(self, day: date) -> set[datetime]:
        """Every instant that the wall-clock times of one local date mean, on the day of a change or any other."""
        gap, overlap = ("skip", "both") if self.follows_real_time else (self.dst_gap, self.dst_overlap)
        found: set[datetime] = set()
        midnight = datetime.combine(day, time())
        for minute in self._minutes:
            wall = midnight + timedelta(minutes=minute)
            first = wall.replace(tzinfo=self._zone)
            second = first.replace(fold=1)
            before, after = first.utcoffset() or timedelta(), second.utcoffset() or timedelta()
            if before < after:  # the clock never shows it
                if gap == "shift":
                    found.add(_end_of_gap(second.astimezone(UTC), first.astimezone(UTC), self._zone))
                continue
            found.add(first.astimezone(UTC))
            if before > after and overlap == "both":
                found.add(second.astimezone(UTC))
        return found


@lru_cache(maxsize=20_000)
def _parse(expression: str, timezone: str, dst_gap: str, dst_overlap: str) -> Cron:
    fields, follows_real_time = parse_fields(expression)
    minutes = tuple(hour * 60 + minute for hour in sorted(fields.hours) for minute in sorted(fields.minutes))
    cron = Cron(expression, timezone, dst_gap, dst_overlap, follows_real_time, zone(timezone), fields, minutes)
    if next(cron._days(date(2000, 1, 1)), None) is None:
        raise InvalidSchedule(
            f"The schedule {expression!r} never fires: no year has such a date. "
            "Check the day of month against the month, for example 28 for every February, or L for a month's last day.",
            field="day-of-month",
        )
    return cron


def _checked(name: str, moment: datetime) -> datetime:
    moment = require_aware(name, moment)
    if not CALENDAR[0] <= moment.year <= CALENDAR[1]:
        raise InvalidSchedule(f"{name} lies in the year {moment.year}; expected {CALENDAR[0]} to {CALENDAR[1]}.")
    return moment


@lru_cache(maxsize=4096)
def _steady_midnight(day: date, zone: ZoneInfo) -> datetime | None:
    """The day's midnight in UTC if the zone's offset is one and the same all day, else None."""
    start = datetime.combine(day, time(), zone)
    end = datetime.combine(day + _DAY, time(), zone)
    offset = start.utcoffset()
    if not (offset == start.replace(fold=1).utcoffset() == end.utcoffset() == end.replace(fold=1).utcoffset()):
        return None
    return start.astimezone(UTC)


def _minutes_between(start: datetime, moment: datetime) -> int:
    return (moment - start) // timedelta(minutes=1)


def _end_of_gap(low: datetime, high: datetime, zone: ZoneInfo) -> datetime:
    """The first instant after a gap, by bisection: `low` lies before the change, `high` at or after it."""
    target = high.astimezone(zone).utcoffset()
    while high - low > _SECOND:
        middle = low + (high - low) // 2
        middle = middle.replace(microsecond=0)
        if middle.astimezone(zone).utcoffset() == target:
            high = middle
        else:
            low = middle
    return high
