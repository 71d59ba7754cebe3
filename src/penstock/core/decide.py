"""What becomes of a job and its run, given how the run ended. The one place that decides, and it is pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from penstock.core.chance import chance
from penstock.core.errors import InvalidInput
from penstock.core.outcomes import NOTHING, Canceled, Evidence, Failed, Outcome, Skipped, Snoozed, Succeeded, TimedOut
from penstock.core.status import JobStatus, RetryMode, RunStatus

MAX_DELAY = 365 * 86400.0
MAX_FACTOR = 100.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff: `base * factor ** (attempt - 1)`, at most `cap` seconds, spread by `jitter` of itself.

    >>> RetryPolicy(base=2, jitter=0).delay(3)
    8.0
    """

    base: float = 5.0
    factor: float = 2.0
    cap: float = 3600.0
    jitter: float = 0.25

    def delay(self, attempt_no: int, rng: Callable[[], float] = chance.random) -> float:
        exponent = min(max(attempt_no - 1, 0), 64)
        wait = min(self.cap, self.base * self.factor**exponent)
        return wait * (1 + self.jitter * (2 * rng() - 1))

    def as_dict(self) -> dict[str, float]:
        return {"base": self.base, "factor": self.factor, "cap": self.cap, "jitter": self.jitter}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any] | None) -> RetryPolicy:
        try:
            policy = cls(**{k: float(v) for k, v in (values or {}).items()})
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"retry_policy takes numbers for base, factor, cap and jitter; got {dict(values or {})!r}."
            ) from error
        if not (
            0 <= policy.base <= MAX_DELAY
            and 1 <= policy.factor <= MAX_FACTOR
            and 0 <= policy.cap <= MAX_DELAY
            and 0 <= policy.jitter <= 1
        ):
            raise InvalidInput(
                f"retry_policy needs 0 ≤ base and cap ≤ 1 year, 1 ≤ factor ≤ 100 and 0 ≤ jitter ≤ 1; got {policy}."
            )
        return policy


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an installation puts up with from one job. `Config` sets both."""

    max_crashes: int = 3
    """So many deaths of its worker in a row, while the job was under way, make the job a dead letter."""
    max_interruptions: int = 10
    """So many attempts of one job are given back that ended through no fault of its own. Later ones count."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The facts of the job that a decision needs, read under the lock that the decision is written under."""

    attempt_no: int
    max_attempts: int
    retry_mode: RetryMode
    policy: RetryPolicy = RetryPolicy()
    cancel_requested: bool = False
    crashes: int = 0
    interruptions: int = 0
    limits: Limits = Limits()

    @property
    def may_be_given_back(self) -> bool:
        return self.interruptions < self.limits.max_interruptions


@dataclass(frozen=True, slots=True)
class Resolution:
    """What is written: how the run ends, where the job goes, and what follows it."""

    run_status: RunStatus
    job_status: JobStatus
    error: str | None = None
    delay: float | None = None
    chain: bool = False
    extra_attempts: int = 0
    crashed: bool = False
    suspect: bool = False
    """Whether the job is to run apart next time."""
    interrupted: bool = False
    """Whether the attempt was given back. What is known of the job's crashes stays as it is."""
    result: Any = None
    evidence: Evidence = NOTHING


def decide(attempt: Attempt, outcome: Outcome, rng: Callable[[], float] = chance.random) -> Resolution:
    match outcome:
        case Succeeded(result, evidence):
            return Resolution(RunStatus.SUCCEEDED, JobStatus.SUCCEEDED, result=result, evidence=evidence)
        case Skipped(reason, evidence):
            return Resolution(RunStatus.SKIPPED, JobStatus.SUCCEEDED, error=reason or None, evidence=evidence)
        case Snoozed(seconds, reason, evidence):
            if attempt.cancel_requested:
                return Resolution(
                    RunStatus.CANCELED, JobStatus.CANCELED, error="canceled on request", evidence=evidence
                )
            wait = _bounded(seconds)
            why = reason or f"snoozed for {wait:g} s"
            return _again(attempt, RunStatus.SKIPPED, why, wait, evidence, extra_attempts=1)
        case Canceled(reason, by_shutdown, evidence):
            if by_shutdown and not attempt.cancel_requested:
                return _give_back_or_retry(attempt, RunStatus.CANCELED, reason, evidence, rng, delay=0.0)
            return Resolution(RunStatus.CANCELED, JobStatus.CANCELED, error=reason, evidence=evidence)
        case TimedOut(error, evidence):
            return _retry_or_bury(attempt, RunStatus.TIMEOUT, error, evidence, rng)
        case Failed(error, fatal, delay, crashed, evidence, blameless, suspect):
            if fatal and not attempt.cancel_requested:
                return Resolution(RunStatus.FAILED, JobStatus.DEAD_LETTER, error=error, evidence=evidence)
            if blameless:
                return _give_back_or_retry(attempt, RunStatus.FAILED, error, evidence, rng, delay=delay)
            if crashed and attempt.crashes + 1 >= attempt.limits.max_crashes and not attempt.cancel_requested:
                why = f"poison: its worker died {attempt.crashes + 1} times while running it; last: {error}"
                return Resolution(
                    RunStatus.FAILED, JobStatus.DEAD_LETTER, error=why, crashed=True, suspect=True, evidence=evidence
                )
            again = _retry_or_bury(attempt, RunStatus.FAILED, error, evidence, rng, delay=delay, crashed=crashed)
            return replace(again, suspect=True) if suspect or crashed else again
    raise TypeError(
        f"{outcome!r} is not an outcome; expected Succeeded, Failed, TimedOut, Canceled, Skipped or Snoozed"
    )


class Lost(StrEnum):
    """What is known of a run whose worker vanished."""

    UNTOUCHED = "untouched"
    """It had not begun: the claim is given back as if it had never been."""
    DOUBTFUL = "doubtful"
    """Nobody can tell. It is given back and charged with nothing, but it runs apart next time, where all can be told."""
    UNDER_WAY = "under way"
    """It had begun and not ended, so it may be what killed the worker: a failed run, and a crash."""
    UNREPORTED = "unreported"
    """It had ended, and the worker died before it said so: a failed run, but no crash. It runs apart next time, so that nobody
    else's crash can cost it a second attempt."""


def lost_run(marked: bool, has_begun: bool | None, has_ended: bool, last_chance: bool) -> Lost:
    """What a run was when its worker vanished: `marked` as begun in the database, and by what the worker's process left behind
    (`has_begun` is None if that cannot be read). With `last_chance`, in chain mode or on its last attempt, a run that may have
    begun counts as begun: it must not run once more than it may."""
    if has_ended:
        return Lost.UNREPORTED
    if marked or has_begun:
        return Lost.UNDER_WAY
    if has_begun is None:
        return Lost.UNDER_WAY if last_chance else Lost.DOUBTFUL
    return Lost.UNTOUCHED


def _bounded(seconds: float) -> float:
    """What a job may ask for: from now to a year. Whatever it says (NaN too), its run must end."""
    return 0.0 if math.isnan(seconds) else min(max(seconds, 0.0), MAX_DELAY)


def _give_back_or_retry(
    attempt: Attempt,
    run_status: RunStatus,
    error: str,
    evidence: Evidence,
    rng: Callable[[], float],
    delay: float | None = None,
) -> Resolution:
    """The attempt ended through no fault of the job: it does not count, unless that has happened too often."""
    if attempt.cancel_requested or not attempt.may_be_given_back:
        return _retry_or_bury(attempt, run_status, error, evidence, rng, delay=delay)
    wait = attempt.policy.delay(attempt.interruptions + 1, rng) if delay is None else _bounded(delay)
    return _again(attempt, run_status, error, wait, evidence, extra_attempts=1, interrupted=True)


def _retry_or_bury(
    attempt: Attempt,
    run_status: RunStatus,
    error: str,
    evidence: Evidence,
    rng: Callable[[], float],
    delay: float | None = None,
    crashed: bool = False,
) -> Resolution:
    if attempt.cancel_requested:
        return Resolution(run_status, JobStatus.CANCELED, error=error, crashed=crashed, evidence=evidence)
    if attempt.attempt_no >= attempt.max_attempts:
        return Resolution(run_status, JobStatus.DEAD_LETTER, error=error, crashed=crashed, evidence=evidence)
    wait = attempt.policy.delay(attempt.attempt_no, rng) if delay is None else _bounded(delay)
    return _again(attempt, run_status, error, wait, evidence, crashed=crashed)


def _again(
    attempt: Attempt,
    run_status: RunStatus,
    error: str,
    wait: float,
    evidence: Evidence,
    extra_attempts: int = 0,
    crashed: bool = False,
    interrupted: bool = False,
) -> Resolution:
    chain = attempt.retry_mode is RetryMode.CHAIN
    return Resolution(
        run_status,
        JobStatus.FAILED if chain else JobStatus.QUEUED,
        error=error,
        delay=wait,
        chain=chain,
        extra_attempts=extra_attempts,
        crashed=crashed,
        interrupted=interrupted,
        evidence=evidence,
    )
