"""decide(): exhaustively over small attempts, and by property."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.decide import MAX_DELAY, Attempt, Limits, Lost, RetryPolicy, decide, lost_run
from penstock.core.errors import InvalidInput
from penstock.core.outcomes import Canceled, Evidence, Failed, Outcome, Skipped, Snoozed, Succeeded, TimedOut
from penstock.core.status import TERMINAL, JobStatus, RetryMode, RunStatus

OUTCOMES: list[Outcome] = [
    Succeeded(1), Skipped(), Skipped("none"), Snoozed(5), Snoozed(-1), Canceled(), Canceled("x", by_shutdown=True),
    TimedOut(), Failed("e"), Failed("e", fatal=True), Failed("e", delay=3), Failed("e", crashed=True),
    Failed("e", fatal=True, crashed=True), Failed("e", blameless=True), Failed("e", blameless=True, delay=3),
    Failed("e", suspect=True),
]  # fmt: skip
ATTEMPTS = [
    Attempt(number, most, mode, RetryPolicy(jitter=0), asked, crashes, interruptions, limits)
    for limits in (Limits(), Limits(max_crashes=1, max_interruptions=0), Limits(max_crashes=2, max_interruptions=1))
    for number, most, mode, asked, crashes, interruptions in itertools.product(
        (1, 2, 3), (1, 2, 3), RetryMode, (False, True), range(limits.max_crashes), range(limits.max_interruptions + 1)
    )
    if number <= most
]


def is_interruption(outcome: Outcome) -> bool:
    return (isinstance(outcome, Canceled) and outcome.by_shutdown) or (
        isinstance(outcome, Failed) and outcome.blameless
    )


@pytest.mark.parametrize("outcome", OUTCOMES, ids=repr)
def test_every_attempt_and_outcome(outcome: Outcome) -> None:
    for attempt in ATTEMPTS:
        found = decide(attempt, outcome)
        assert found.run_status is not RunStatus.RUNNING
        assert found.job_status is not JobStatus.RUNNING
        again = found.delay is not None
        assert again == (found.job_status is JobStatus.QUEUED or found.chain)
        assert found.chain == (again and attempt.retry_mode is RetryMode.CHAIN)
        assert (found.job_status in TERMINAL) == (not again or found.chain)
        if isinstance(outcome, Succeeded | Skipped):
            assert found.job_status is JobStatus.SUCCEEDED
        elif attempt.cancel_requested:
            assert (found.job_status, again) == (JobStatus.CANCELED, False)
        elif isinstance(outcome, Failed) and outcome.fatal:
            assert found.job_status is JobStatus.DEAD_LETTER
        elif isinstance(outcome, Failed) and outcome.crashed and attempt.crashes + 1 >= attempt.limits.max_crashes:
            assert (found.job_status, found.crashed) == (JobStatus.DEAD_LETTER, True)
        elif isinstance(outcome, Canceled) and not outcome.by_shutdown:
            assert found.job_status is JobStatus.CANCELED
        elif isinstance(outcome, Snoozed):
            assert (again, found.extra_attempts, found.interrupted) == (True, 1, False)
        elif is_interruption(outcome) and attempt.interruptions < attempt.limits.max_interruptions:
            assert (again, found.extra_attempts, found.interrupted) == (True, 1, True)
        else:
            assert (found.extra_attempts, found.interrupted) == (0, False)
            assert again == (attempt.attempt_no < attempt.max_attempts)
            assert again or found.job_status is JobStatus.DEAD_LETTER


def test_who_runs_apart() -> None:
    attempt = Attempt(1, 3, RetryMode.REQUEUE)
    for outcome in OUTCOMES:
        expected = isinstance(outcome, Failed) and not outcome.fatal and (outcome.crashed or outcome.suspect)
        assert decide(attempt, outcome).suspect == expected


@pytest.mark.parametrize(
    ("marked", "has_begun", "has_ended", "last_chance", "expected"),
    [
        (False, False, False, False, Lost.UNTOUCHED),
        (False, False, False, True, Lost.UNTOUCHED),
        (True, False, False, False, Lost.UNDER_WAY),
        (False, True, False, False, Lost.UNDER_WAY),
        (True, True, False, True, Lost.UNDER_WAY),
        (False, True, True, False, Lost.UNREPORTED),
        (True, True, True, True, Lost.UNREPORTED),
        (False, None, False, False, Lost.DOUBTFUL),
        (False, None, False, True, Lost.UNDER_WAY),
        (True, None, False, False, Lost.UNDER_WAY),
    ],
)
def test_what_a_run_was_when_its_worker_vanished(
    marked: bool, has_begun: bool | None, has_ended: bool, last_chance: bool, expected: Lost
) -> None:
    assert lost_run(marked, has_begun, has_ended, last_chance) is expected


def test_a_fault_outside_the_job_backs_off_by_how_often_it_happened() -> None:
    policy = RetryPolicy(base=2, jitter=0)
    found = [
        decide(Attempt(5, 9, RetryMode.REQUEUE, policy, interruptions=number), Failed("e", blameless=True)).delay
        for number in range(3)
    ]
    assert found == [2, 4, 8]


def test_what_was_left_behind_is_kept() -> None:
    left = Evidence(exit_code=3, stdout_tail="out")
    for outcome in (
        Succeeded(evidence=left), Failed("e", evidence=left), TimedOut(evidence=left), Canceled(evidence=left),
        Skipped(evidence=left), Snoozed(1, evidence=left),
    ):  # fmt: skip
        for asked in (False, True):
            assert decide(Attempt(1, 3, RetryMode.REQUEUE, cancel_requested=asked), outcome).evidence is left


def test_what_is_no_outcome_is_refused() -> None:
    with pytest.raises(TypeError, match="not an outcome"):
        decide(ATTEMPTS[0], "done")  # type: ignore[arg-type]


numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(numbers, numbers)
def test_a_delay_is_always_from_now_to_a_year(snooze: float, delay: float) -> None:
    attempt = Attempt(1, 3, RetryMode.REQUEUE)
    for outcome in (Snoozed(snooze), Failed("e", delay=delay)):
        found = decide(attempt, outcome).delay
        assert found is not None and 0 <= found <= MAX_DELAY


policies = st.builds(
    RetryPolicy, base=st.floats(0, MAX_DELAY), factor=st.floats(1, 100), cap=st.floats(0, MAX_DELAY),
    jitter=st.floats(0, 1),
)  # fmt: skip


@given(policies, st.integers(0, 1000), st.floats(0, 1, exclude_max=True))
def test_backoff_is_bounded(policy: RetryPolicy, attempt: int, luck: float) -> None:
    assert 0 <= policy.delay(attempt, lambda: luck) <= policy.cap * (1 + policy.jitter) * 1.000001
    assert RetryPolicy.from_dict(policy.as_dict()) == policy


@given(policies, st.integers(1, 500))
def test_without_jitter_backoff_never_shrinks(policy: RetryPolicy, attempt: int) -> None:
    still = RetryPolicy(policy.base, policy.factor, policy.cap, 0)
    assert still.delay(attempt) <= still.delay(attempt + 1) <= still.cap


@pytest.mark.parametrize(
    "values",
    [{"base": -1}, {"factor": 0.9}, {"factor": 101}, {"cap": -1}, {"cap": 1e12}, {"jitter": 2}, {"base": "x"},
     {"jitter": float("nan")}, {"what": 1}, {"base": None}],
)  # fmt: skip
def test_bad_policies_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="retry_policy"):
        RetryPolicy.from_dict(values)
