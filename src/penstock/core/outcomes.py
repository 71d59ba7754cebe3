"""How a run ended. A closed sum type: exactly one `match`, in `decide`, turns an outcome into a transition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a run left behind, whatever its outcome."""

    exit_code: int | None = None
    stdout_tail: str | None = None
    stderr_tail: str | None = None
    artifacts: Sequence[Mapping[str, Any]] = ()
    log_path: str | None = None
    pid: int | None = None
    """The process that did the work, where it had one of its own."""


NOTHING = Evidence()


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The work is done. `result` is JSON."""

    result: Any = None
    evidence: Evidence = NOTHING


@dataclass(frozen=True, slots=True)
class Failed:
    """The work failed. `fatal` means that trying again is of no use; `delay` overrides the backoff.

    `crashed` means that its worker died while the work was under way, `suspect` that it died before it had reported the end of it:
    both run apart next time, and only the first is charged with a crash. `blameless` means that the fault was not the work's own
    (the database was away, no process could be started): the attempt is given back, within a bound per job."""

    error: str
    fatal: bool = False
    delay: float | None = None
    crashed: bool = False
    evidence: Evidence = NOTHING
    blameless: bool = False
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The work did not end within its time and was stopped."""

    error: str = "timed out"
    evidence: Evidence = NOTHING


@dataclass(frozen=True, slots=True)
class Canceled:
    """The work was stopped: on request (for good), or by the worker's shutdown (the attempt is given back, within a bound per
    job)."""

    reason: str = "canceled"
    by_shutdown: bool = False
    evidence: Evidence = NOTHING


@dataclass(frozen=True, slots=True)
class Skipped:
    """There was nothing to do."""

    reason: str = ""
    evidence: Evidence = NOTHING


@dataclass(frozen=True, slots=True)
class Snoozed:
    """Not now: run again in `seconds`, without using up an attempt."""

    seconds: float
    reason: str = ""
    evidence: Evidence = NOTHING


Outcome = Succeeded | Failed | TimedOut | Canceled | Skipped | Snoozed


class Skip(Exception):
    """Raise it in a job when there is nothing to do: the run ends as skipped."""


class Snooze(Exception):
    """Raise it in a job to run again later without using up an attempt: `raise Snooze(30)`, or
    `raise Snooze(timedelta(minutes=5), "the file is not there yet")`."""

    def __init__(self, seconds: float | timedelta, reason: str = "") -> None:
        wait = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        told = f"{wait:g} s" if isinstance(wait, int | float) else repr(wait)
        super().__init__(reason or f"snoozed for {told}")
        self.seconds = wait
        self.reason = reason


class Fatal(Exception):
    """Raise it in a job when trying again is of no use: the job goes to dead_letter at once."""
