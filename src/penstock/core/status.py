"""The states of jobs and runs, and the named transitions between them. Nobody sets a status by hand."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from penstock.core.errors import IllegalTransition, InvalidInput


class JobStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    DEAD_LETTER = "dead_letter"


class RunStatus(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELED = "canceled"
    SKIPPED = "skipped"


class GroupStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    PARTIAL = "partial"
    CANCELED = "canceled"


class WaitsFor(StrEnum):
    """Why a queued job cannot be claimed yet. A job without one is claimable."""

    TIME = "time"
    GROUP = "group"
    LIMIT = "limit"


class RetryMode(StrEnum):
    REQUEUE = "requeue"
    CHAIN = "chain"


class Source(StrEnum):
    MANUAL = "manual"
    EVENT = "event"
    SCHEDULE = "schedule"
    SYSTEM = "system"


ACTIVE = frozenset({JobStatus.QUEUED, JobStatus.RUNNING})
TERMINAL = frozenset(JobStatus) - ACTIVE


@dataclass(frozen=True, slots=True)
class Transition:
    """What a person may do to a job, and the states that allow it. What a run's end does is decided in `decide`."""

    name: str
    done: str
    """The name as a participle, for "The job cannot be retried"."""
    sources: tuple[JobStatus, ...]

    def check(self, status: str) -> None:
        if status not in self.sources:
            raise self.refused(status)

    def refused(self, status: str, because: str = "") -> IllegalTransition:
        """The error for a job in this state. `because` is a clause for a reason other than the state itself."""
        return IllegalTransition(self.name, self.done, status, self.sources, because)


CANCEL = Transition("cancel", "canceled", (JobStatus.QUEUED, JobStatus.RUNNING))
RETRY = Transition("retry", "retried", (JobStatus.FAILED, JobStatus.DEAD_LETTER, JobStatus.CANCELED))
UPDATE = Transition("update", "updated", (JobStatus.QUEUED,))
MOVE = Transition("move", "moved", (JobStatus.QUEUED,))
RUN_NOW = Transition("run now", "run now", (JobStatus.QUEUED,))


def one_of(name: str, value: str, allowed: Collection[str]) -> str:
    if value not in allowed:
        raise InvalidInput(f"{name} is {value!r}; expected one of {', '.join(sorted(allowed))}.")
    return value
