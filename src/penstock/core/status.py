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
    """A named step of a job from one of some states to one state."""

    name: str
    sources: tuple[JobStatus, ...]
    target: JobStatus

    def check(self, status: str, why: str = "") -> None:
        if status not in self.sources:
            raise IllegalTransition(self.name, status, self.sources, self.target, why)


CLAIM = Transition("claim", (JobStatus.QUEUED,), JobStatus.RUNNING)
SUCCEED = Transition("succeed", (JobStatus.RUNNING,), JobStatus.SUCCEEDED)
REQUEUE = Transition("requeue", (JobStatus.RUNNING,), JobStatus.QUEUED)
SUPERSEDE = Transition("supersede", (JobStatus.RUNNING,), JobStatus.FAILED)
BURY = Transition("bury", (JobStatus.RUNNING,), JobStatus.DEAD_LETTER)
CANCEL = Transition("cancel", (JobStatus.QUEUED, JobStatus.RUNNING), JobStatus.CANCELED)
RETRY = Transition("retry", (JobStatus.FAILED, JobStatus.DEAD_LETTER, JobStatus.CANCELED), JobStatus.QUEUED)
UPDATE = Transition("update", (JobStatus.QUEUED,), JobStatus.QUEUED)
MOVE = Transition("move", (JobStatus.QUEUED,), JobStatus.QUEUED)


def one_of(name: str, value: str, allowed: Collection[str]) -> str:
    if value not in allowed:
        raise InvalidInput(f"{name} is {value!r}; expected one of {', '.join(sorted(allowed))}.")
    return value
