from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from penstock.core.clock import ForwardClock, ManualClock, require_aware
from penstock.core.errors import InvalidInput, NaiveDatetime


def test_a_manual_clock_moves_when_told_to() -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    assert clock.advance(1, minutes=1, hours=1, days=1) == datetime(2026, 1, 2, 1, 1, 1, tzinfo=UTC) == clock.now()
    clock.set(datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2019, 12, 31, 22, tzinfo=UTC)


def test_a_forward_clock_never_runs_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, steady = 1_000_000.0, 50.0
    monkeypatch.setattr(time, "time", lambda: wall)
    monkeypatch.setattr(time, "monotonic", lambda: steady)
    clock = ForwardClock()
    assert clock.timestamp() == 1_000_000
    wall, steady = wall - 3600, steady + 5  # the wall jumps back; monotonic time carries on
    assert clock.timestamp() == 1_000_005
    wall, steady = 1_000_100, steady + 1  # it jumps ahead, and we follow
    assert clock.timestamp() == 1_000_100
    wall, steady = 1_000_050, steady + 2
    assert clock.timestamp() == 1_000_102


def test_a_forward_clock_carries_on_from_what_the_database_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = 10.0
    monkeypatch.setattr(time, "time", lambda: 1_000.0)
    monkeypatch.setattr(time, "monotonic", lambda: steady)
    clock = ForwardClock()
    clock.not_before(datetime.fromtimestamp(500, UTC))
    assert clock.timestamp() == 1_000
    clock.not_before(datetime.fromtimestamp(2_000, UTC))
    steady += 3
    assert clock.timestamp() == 2_003
    assert clock.now() == datetime.fromtimestamp(2_003, UTC)


def test_only_aware_datetimes() -> None:
    with pytest.raises(NaiveDatetime, match="when has no time zone"):
        require_aware("when", datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidInput, match="when is a str"):
        require_aware("when", "today")  # type: ignore[arg-type]
