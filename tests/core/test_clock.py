from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from penstock.core.clock import ManualClock, require_aware, uptime, wall_time
from penstock.core.errors import InvalidInput, NaiveDatetime


def test_a_manual_clock_moves_when_told_to() -> None:
    clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
    assert clock.advance(1, minutes=1, hours=1, days=1) == datetime(2026, 1, 2, 1, 1, 1, tzinfo=UTC) == clock.now()
    clock.set(datetime(2020, 1, 1, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == datetime(2019, 12, 31, 22, tzinfo=UTC)


def test_uptime_is_not_moved_by_setting_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    before = uptime()
    monkeypatch.setattr(time, "time", lambda: 1_000_000.0)
    assert wall_time() == datetime.fromtimestamp(1_000_000, UTC)
    assert before <= uptime() < before + 3600


def test_only_aware_datetimes() -> None:
    with pytest.raises(NaiveDatetime, match="when has no time zone"):
        require_aware("when", datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidInput, match="when is a str"):
        require_aware("when", "today")  # type: ignore[arg-type]
