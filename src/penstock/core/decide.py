"""What becomes of a job and its run, given how the run ended. The one place that decides, and it is pure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import InvalidInput
from penstock.core.outcomes import NOTHING, Canceled, Evidence, Failed, Outcome, Skipped, Snoozed, Succeeded, TimedOut
from penstock.core.status import JobStatus, RetryMode, RunStatus

MAX_CRASHES = 3
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

    def delay(self, attempt_no: int, rng: Callable[[], float] = random.random) -> float:
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
class Attempt:
    """The facts of the job that a decision needs, read under the lock that the decision is written under."""

    attempt_no: int
    max_attempts: int
    retry_mode: RetryMode
    policy: RetryPolicy = RetryPolicy()
    cancel_requested: bool = False
    crashes: int = 0


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
    result: Any = None
    evidence: Evidence = NOTHING


def decide(attempt: Attempt, outcome: Outcome, rng: Callable[[], float] = random.random) -> Resolution:
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
                return _retry_or_bury(attempt, RunStatus.CANCELED, reason, evidence, rng, delay=0.0)
            return Resolution(RunStatus.CANCELED, JobStatus.CANCELED, error=reason, evidence=evidence)
        case TimedOut(error, evidence):
            return _retry_or_bury(attempt, RunStatus.TIMEOUT, error, evidence, rng)
        case Failed(error, fatal, delay, crashed, evidence):
            if fatal and not attempt.cancel_requested:
                return Resolution(RunStatus.FAILED, JobStatus.DEAD_LETTER, error=error, evidence=evidence)
            if crashed and attempt.crashes + 1 >= MAX_CRASHES and not attempt.cancel_requested:
                why = f"poison: its worker died {attempt.crashes + 1} times while running it; last: {error}"
                return Resolution(RunStatus.FAILED, JobStatus.DEAD_LETTER, error=why, crashed=True, evidence=evidence)
            return _retry_or_bury(attempt, RunStatus.FAILED, error, evidence, rng, delay=delay, crashed=crashed)
    raise TypeError(
        f"{outcome!r} is not an outcome; expected Succeeded, Failed, TimedOut, Canceled, Skipped or Snoozed"
    )


def _bounded(seconds: float) -> float:
    """What a job may ask for: from now to a year. Whatever it says (NaN too), its run must end."""
    return 0.0 if math.isnan(seconds) else min(max(seconds, 0.0), MAX_DELAY)


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
        evidence=evidence,
    )
