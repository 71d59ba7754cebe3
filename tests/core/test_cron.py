"""Next-moment arithmetic against a minute scan that knows nothing of folds, offsets or cronsim."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.cron import Cron
from penstock.core.errors import InvalidInput, InvalidSchedule, NaiveDatetime

MINUTE = timedelta(minutes=1)

# Zone, and a day near which its clocks do something odd.
TRANSITIONS = [
    ("America/New_York", date(2026, 3, 8)),
    ("America/New_York", date(2026, 11, 1)),
    ("Europe/London", date(2026, 3, 29)),
    ("Europe/London", date(2026, 10, 25)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),  # half an hour back
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("Asia/Kathmandu", date(1986, 1, 1)),  # a quarter of an hour forward, for good
    ("America/Sao_Paulo", date(2017, 10, 15)),  # midnight does not exist
    ("America/Sao_Paulo", date(2018, 2, 18)),  # the last hour of Saturday comes twice
    ("Pacific/Apia", date(2011, 12, 30)),  # no such day
    ("America/St_Johns", date(2010, 11, 7)),  # at 00:01 back to 23:01 of the day before
    ("America/St_Johns", date(2010, 3, 14)),
    ("Pacific/Kwajalein", date(1993, 8, 21)),  # no such day
    ("Africa/Casablanca", date(2026, 2, 15)),  # back for Ramadan
    ("America/Caracas", date(2016, 5, 1)),
    ("UTC", date(2026, 1, 1)),
]


@lru_cache(maxsize=24)
def walls(zone: str, start: datetime, days: int) -> list[int]:
    """What the wall clock shows at every minute of real time, counted in minutes from the year 1."""
    tz = ZoneInfo(zone)
    shown = ((start + MINUTE * i).astimezone(tz) for i in range(days * 1440))
    return [wall.toordinal() * 1440 + wall.hour * 60 + wall.minute for wall in shown]


class Fields:
    """The oracle's own reading of an expression whose fields are `*`, `*/n`, numbers and lists of numbers."""

    def __init__(self, expression: str) -> None:
        self.parts = expression.split()
        ranges = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]
        minute, hour, self.dom, self.month, self.dow = (
            self._read(part, low, high) for part, (low, high) in zip(self.parts, ranges, strict=True)
        )
        self.times = {h * 60 + m for h in hour for m in minute}
        self.real_time = any(self.parts[i].startswith("*") for i in (0, 1)) or len(minute) == 60 or len(hour) == 24
        self.days: dict[int, bool] = {}

    @staticmethod
    def _read(part: str, low: int, high: int) -> set[int]:
        if part.startswith("*"):
            return set(range(low, high + 1, int(part[2:] or 1)))
        return {int(item) for item in part.split(",")}

    def match(self, wall: int) -> bool:
        if wall % 1440 not in self.times:
            return False
        day = wall // 1440
        if day not in self.days:
            self.days[day] = self._match_day(date.fromordinal(day))
        return self.days[day]

    def _match_day(self, day: date) -> bool:
        if day.month not in self.month:
            return False
        by_date, by_weekday = day.day in self.dom, bool({day.isoweekday(), day.isoweekday() % 7} & self.dow)
        if self.parts[2].startswith("*") or self.parts[4].startswith("*"):
            return by_date and by_weekday
        return by_date or by_weekday


def brute_force(expression: str, zone: str, start: datetime, days: int, gap: str, overlap: str) -> list[datetime]:
    """Walk the minutes: what was shown before is a second showing, what was jumped over is a gap."""
    fields = Fields(expression)
    shown = walls(zone, start, days)
    fired = []
    until = shown[0] - 1
    for index, wall in enumerate(shown):
        fires = fields.match(wall) and (wall > until or overlap == "both" or fields.real_time)
        if wall > until + 1 and gap == "shift" and not fields.real_time:
            fires = fires or any(fields.match(missing) for missing in range(until + 1, wall))
        if fires:
            fired.append(start + MINUTE * index)
        until = max(until, wall)
    return fired


def some_of(low: int, high: int, steps: bool = True) -> st.SearchStrategy[str]:
    listed = st.lists(st.integers(low, high), min_size=1, max_size=4).map(lambda v: ",".join(str(i) for i in v))
    wild = [st.just("*"), st.integers(1, high).map(lambda n: f"*/{n}")] if steps else [st.just("*")]
    return st.one_of(listed, *wild)


expressions = st.builds(
    lambda *parts: " ".join(parts),
    some_of(0, 59),
    st.one_of(some_of(0, 23), st.sampled_from(["0,1,2,3", "23,0", "1,2"])),
    st.one_of(st.just("*"), some_of(1, 28)),
    st.just("*"),
    st.one_of(st.just("*"), some_of(0, 7, steps=False)),
)
policies = st.tuples(st.sampled_from(["shift", "skip"]), st.sampled_from(["first", "both"]))


@settings(max_examples=120, deadline=None)
@given(expressions, st.sampled_from(TRANSITIONS), policies)
def test_agrees_with_a_minute_scan_around_every_odd_transition(
    expression: str, where: tuple[str, date], policy: tuple[str, str]
) -> None:
    zone, day = where
    start = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=2)
    expected = brute_force(expression, zone, start, 4, *policy)
    cron = Cron.parse(expression, zone, *policy)
    until = start + timedelta(days=4) - MINUTE
    assert cron.between(start - MINUTE, until, 100_000) == expected
    for earlier, later in list(zip([start - MINUTE, *expected], expected, strict=False))[
        :: max(1, len(expected) // 40)
    ]:
        assert cron.next_after(earlier) == later
        assert cron.next_after(later - timedelta(seconds=1)) == later


YEARS = {
    "America/New_York": 2026,
    "Europe/London": 2026,
    "Australia/Lord_Howe": 2026,
    "Asia/Kathmandu": 1985,
    "America/Sao_Paulo": 2017,
    "Pacific/Apia": 2011,
}


@pytest.mark.parametrize("zone", YEARS)
def test_agrees_with_a_minute_scan_over_whole_years(zone: str) -> None:
    start, days = datetime(YEARS[zone], 1, 1, tzinfo=UTC), 400
    for expression, gap, overlap in (
        ("30 1,2 * * *", "shift", "first"),
        ("30 1,2 * * *", "skip", "both"),
        ("*/30 * * * *", "shift", "first"),
        ("0 0 1,15 * 1", "shift", "first"),
    ):
        cron = Cron.parse(expression, zone, gap, overlap)
        expected = brute_force(expression, zone, start, days, gap, overlap)
        assert cron.between(start - MINUTE, start + timedelta(days=days) - MINUTE, 10**6) == expected
    walls.cache_clear()


@settings(max_examples=150, deadline=None)
@given(expressions, st.sampled_from(TRANSITIONS), policies, st.integers(0, 10**7))
def test_instants_strictly_increase_and_are_whole_minutes(
    expression: str, where: tuple[str, date], policy: tuple[str, str], offset: int
) -> None:
    zone, day = where
    cron = Cron.parse(expression, zone, *policy)
    after = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(days=60) + timedelta(seconds=offset)
    seen = cron.preview(50, after)
    assert all(earlier < later for earlier, later in zip([after, *seen], seen, strict=False))
    assert all(instant.second == 0 and instant.tzinfo is UTC for instant in seen)


@settings(max_examples=150, deadline=None)
@given(expressions, st.sampled_from(TRANSITIONS))
def test_default_policies_agree_with_cronsim_itself_where_it_has_no_fault(
    expression: str, where: tuple[str, date]
) -> None:
    zone, day = where
    if zone in ("Pacific/Apia", "Pacific/Kwajalein", "America/St_Johns"):
        zone = "UTC"
    start = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=5)
    ours = Cron.parse(expression, zone).preview(20, start)
    if any(Cron.parse(expression, zone)._zone.utcoffset(i) != ZoneInfo(zone).utcoffset(start) for i in ours):
        return
    theirs = CronSim(expression, start.astimezone(ZoneInfo(zone)))
    assert ours == [next(theirs).astimezone(UTC) for _ in range(20)]


NY = "America/New_York"


@pytest.mark.parametrize(
    ("expression", "gap", "overlap", "expected"),
    [
        ("30 2 * * *", "shift", "first", ["2026-03-07T07:30", "2026-03-08T07:00", "2026-03-09T06:30"]),
        ("30 2 * * *", "skip", "first", ["2026-03-07T07:30", "2026-03-09T06:30", "2026-03-10T06:30"]),
        ("0,30 2 * * *", "shift", "first", ["2026-03-07T07:00", "2026-03-07T07:30", "2026-03-08T07:00"]),
        ("0 2,3 8 3 *", "shift", "first", ["2026-03-08T07:00", "2027-03-08T07:00", "2027-03-08T08:00"]),
    ],
)
def test_spring_forward(expression: str, gap: str, overlap: str, expected: list[str]) -> None:
    cron = Cron.parse(expression, NY, gap, overlap)
    seen = cron.preview(3, datetime(2026, 3, 7, tzinfo=UTC))
    assert [i.strftime("%Y-%m-%dT%H:%M") for i in seen] == expected


@pytest.mark.parametrize(
    ("expression", "overlap", "expected"),
    [
        ("30 1 * * *", "first", ["05:30"]),
        ("30 1 * * *", "both", ["05:30", "06:30"]),
        ("0,30 1 * * *", "both", ["05:00", "05:30", "06:00", "06:30"]),
        ("0 * * * *", "first", [f"{h:02}:00" for h in range(24)]),
        ("*/30 1 * * *", "first", ["05:00", "05:30", "06:00", "06:30"]),
    ],
)
def test_fall_back(expression: str, overlap: str, expected: list[str]) -> None:
    cron = Cron.parse(expression, NY, "shift", overlap)
    day = datetime(2026, 11, 1, tzinfo=UTC)
    seen = cron.between(day - MINUTE, day + timedelta(hours=23, minutes=59), 100)
    assert [i.strftime("%H:%M") for i in seen] == expected


def test_the_day_that_apia_skipped() -> None:
    noon = datetime(2011, 12, 28, 12, tzinfo=UTC)
    shifted = Cron.parse("0 12 * * *", "Pacific/Apia").preview(3, noon)
    assert [i.astimezone(ZoneInfo("Pacific/Apia")).strftime("%d %H:%M") for i in shifted] == [
        "28 12:00",
        "29 12:00",
        "31 00:00",
    ]
    skipped = Cron.parse("0 12 * * *", "Pacific/Apia", dst_gap="skip").preview(3, noon)
    assert [i.astimezone(ZoneInfo("Pacific/Apia")).day for i in skipped] == [28, 29, 31]


@pytest.mark.parametrize(
    ("expression", "field", "says"),
    [
        ("61 * * * *", "minute", "61 is outside 0-59"),
        ("* 24 * * *", "hour", "24 is outside 0-23"),
        ("* * 0 * *", "day-of-month", "outside 1-31"),
        ("* * * JNA *", "month", "Did you mean"),
        ("* * * * SAT-SUN", "day-of-week", "SAT,SUN"),
        ("0 22-6 * * *", "hour", "22-23,0-6"),
        ("*/0 * * * *", "minute", "not a positive number"),
        ("*/90 * * * *", "minute", "fire only once"),
        ("*/99999999999999999999999 * * * *", "minute", "fire only once"),
        ("* * * * MON#6", "day-of-week", "#1 to #5"),
        ("1,,2 * * * *", "minute", "a value is missing"),
        ("٣ * * * *", "minute", "is not a value"),
        ("0 0 L/2 * *", "day-of-month", "is not a value"),
        ("* * * * * *", "cron_expr", "no seconds field"),
        ("* * * *", "cron_expr", "expected five"),
        ("", "cron_expr", "is needed"),
        ("  ", "cron_expr", "is needed"),
        ("* " * 200, "cron_expr", "longer than"),
        ("@dayly", "cron_expr", "@daily"),
        ("@reboot", "cron_expr", "start script"),
        ("@every 5m", "cron_expr", "Known:"),
    ],
)
def test_a_bad_expression_is_refused_with_its_field_and_reason(expression: str, field: str, says: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        Cron.parse(expression)
    assert refused.value.field == field
    assert says in str(refused.value)


@pytest.mark.parametrize("expression", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31 2,4 */2"])
def test_an_impossible_date_is_refused_at_once(expression: str) -> None:
    began = time.thread_time()
    with pytest.raises(InvalidSchedule, match="never fires"):
        Cron.parse(expression)
    assert time.thread_time() - began < 1


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 29 2 *", date(2028, 2, 29)),
        ("0 0 * 2 MON#5", date(2044, 2, 29)),
        ("0 0 L 2 *", date(2026, 2, 28)),
        ("0 0 LW 5 *", date(2026, 5, 29)),
        ("0 0 * * 5L", date(2026, 1, 30)),
        ("0 0 30 2 1", date(2026, 2, 2)),
    ],
)
def test_a_rare_date_is_found(expression: str, expected: date) -> None:
    assert Cron.parse(expression).next_after(datetime(2026, 1, 1, tzinfo=UTC)).date() == expected


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("america/new_york", "America/New_York"),
        ("New York", "America/New_York"),
        ("Europe/Londn", "Europe/London"),
        ("Mars/Olympus", "IANA name"),
        ("../../etc/passwd", "IANA name"),
        ("localtime", "not known"),
        ("", "IANA name"),
        ("x" * 10_000, "not known"),
    ],
)
def test_an_unknown_zone_is_refused_with_near_matches(name: str, says: str) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        Cron.parse("0 0 * * *", name)
    assert refused.value.field == "timezone"
    assert says in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("shorthand", "meaning"),
    [
        ("@hourly", "0 * * * *"),
        ("@Daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * 0"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
    ],
)
def test_shorthands_are_written_out(shorthand: str, meaning: str) -> None:
    assert Cron.parse(shorthand).expression == meaning


def test_names_and_spacing_are_normalised() -> None:
    cron = Cron.parse("  0  9 * jan-mar\tmon,fri ")
    assert cron.expression == "0 9 * JAN-MAR MON,FRI"
    assert cron.describe() == "At 09:00 on Monday and Friday in every month from January through March (UTC)"


def test_bad_policies_and_moments_are_refused() -> None:
    with pytest.raises(InvalidInput, match="dst_gap"):
        Cron.parse("0 0 * * *", dst_gap="bend")
    with pytest.raises(InvalidInput, match="dst_overlap"):
        Cron.parse("0 0 * * *", dst_overlap="thrice")
    with pytest.raises(NaiveDatetime):
        Cron.parse("0 0 * * *").next_after(datetime(2026, 1, 1))  # noqa: DTZ001
    for moment in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)):
        with pytest.raises(InvalidSchedule, match="year"):
            Cron.parse("0 0 * * *", NY).next_after(moment)


def moments_of(cron: Cron, start: datetime) -> Iterator[datetime]:
    while True:
        yield (start := cron.next_after(start))


def test_one_step_at_a_time_equals_many_at_once() -> None:
    cron = Cron.parse("*/20 * * * *", "Australia/Lord_Howe")
    start = datetime(2026, 4, 4, tzinfo=UTC)
    stepped = [moment for moment, _ in zip(moments_of(cron, start), range(300), strict=False)]
    assert stepped == cron.preview(300, start)
