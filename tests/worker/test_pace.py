"""How much a worker takes ahead, and how long a finished run waits for company."""

from __future__ import annotations

import pytest

from penstock.core.settings.worker import WorkerSettings
from penstock.worker.pace import LINGER_SECONDS, Pace

MOST_AHEAD, MOST_LINGER_SECONDS = WorkerSettings.claim_ahead_limit, WorkerSettings.report_delay_seconds


def paced(seconds: float, batches: int = 20) -> Pace:
    pace = Pace(concurrency=8)
    for _ in range(batches):
        pace.ran([seconds] * 8)
    return pace


def test_short_jobs_are_claimed_ahead_and_long_ones_are_not() -> None:
    assert paced(0.0001).ahead == MOST_AHEAD
    assert paced(0.01).ahead == 40
    assert paced(0.2).ahead == 0


def test_one_quick_job_does_not_fill_the_buffer() -> None:
    pace = paced(1.0)
    pace.ran([0.0001])
    assert pace.ahead == 0


def test_a_buffer_that_was_not_worked_off_is_given_up() -> None:
    pace = paced(0.0001)
    pace.stalled()
    assert pace.ahead == 0


@pytest.mark.parametrize(("took", "linger"), [(0.0001, LINGER_SECONDS), (0.005, 0.005), (0.2, MOST_LINGER_SECONDS)])
def test_a_run_waits_for_company_about_as_long_as_it_took(took: float, linger: float) -> None:
    assert paced(took).linger == pytest.approx(linger)
    assert Pace(concurrency=8).linger == LINGER_SECONDS


def test_claiming_ahead_and_waiting_for_others_are_settings() -> None:
    none = Pace(8, WorkerSettings(claim_ahead_seconds=0, report_delay_seconds=0))
    for _ in range(20):
        none.ran([0.0001] * 8)
    assert (none.ahead, none.linger, none.least_linger) == (0, 0, 0)
    few = Pace(8, WorkerSettings(claim_ahead_limit=16))
    for _ in range(20):
        few.ran([0.0001] * 8)
    assert few.ahead == 16
