"""What the hot verbs take: plain values, in batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from penstock.core.decide import Attempt, Resolution, decide
from penstock.core.nouns import Claim
from penstock.core.outcomes import Succeeded
from penstock.core.payload import dumps
from penstock.core.status import JobStatus, RetryMode, RunStatus

PLAIN_SUCCESS = decide(Attempt(1, 1, RetryMode.REQUEUE), Succeeded())
"""What is decided of a run that succeeded and left nothing behind: one object, so that it is known by sight."""
RETRY_MODES = {mode.value: mode for mode in RetryMode}
WAIT, RETRY, DEAD_LETTER = "wait", "retry", "dead_letter"
"""Measures of the tallies beside the statuses of runs."""


class NewJob(NamedTuple):
    """A job about to be written. Its place, and whether it must wait, are found by the statement that writes it."""

    id: UUID
    tenant_id: UUID
    definition_id: UUID | None
    definition_version: int | None
    definition_key: str
    queue: str
    priority: int
    params: str
    max_attempts: int
    retry_mode: str
    source: str = "manual"
    # From here on what most jobs are without.
    source_ref: str | None = None
    dedupe_key: str | None = None
    correlation_id: str | None = None
    scheduled_for: datetime | None = None
    delay: float | None = None
    group_id: UUID | None = None
    group_position: int | None = None
    waits_for_group: bool = False
    trigger_id: UUID | None = None
    tick_at: datetime | None = None
    created_by: str | None = None
    trace: str | None = None


@dataclass(frozen=True, slots=True)
class Alike:
    """Many jobs of one definition that differ in nothing but their ids and params: what `enqueue_many` writes."""

    first: NewJob
    ids: Sequence[UUID]
    params: Sequence[str]


class Written(NamedTuple):
    """What the statement found for a job that it wrote."""

    id: UUID
    position: int
    waits_for: str | None
    scheduled_for: datetime
    queued_at: datetime


class HotStatement(NamedTuple):
    """A statement of the hot path as it is shown: what it is for, its text, and the settings that it is planned under."""

    what: str
    sql: str
    off: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Who claims, under which run ids, and of what: all queues, keys and tenants unless some are named."""

    worker: str
    pid: int | None
    lease_seconds: float
    queues: tuple[str, ...] | None
    keys: tuple[str, ...] | None
    tenant_id: UUID | None
    run_ids: tuple[UUID, ...]
    open: tuple[str, ...] = ()
    """Of its queues those that the gate says are open."""
    heed_reservations: bool = True
    starting: int | None = None
    """How many of them begin at once; the others wait in a buffer. With a number the claim ends with the first suspect that it
    meets. None for a caller that begins with all of them, suspects too."""
    alone: bool = False
    """Whether the worker has nothing else in hand, so that a suspect that comes first begins at once."""

    @property
    def limit(self) -> int:
        return len(self.run_ids)

    def through(self, gate: Gate) -> ClaimRequest | None:
        """The request as the gate lets it through; None if there is nothing to ask for."""
        queues = tuple(name for name in gate.queues if self.queues is None or name in self.queues)
        if not queues or not self.run_ids:
            return None
        return replace(self, open=queues, heed_reservations=gate.reserved)


class Closing(NamedTuple):
    """A run to close, fenced by its id, with what was decided."""

    job_id: UUID
    run_id: UUID
    resolution: Resolution
    tenant_id: UUID | None = None
    """Whose job it is, where the caller knows."""


def told_once(
    closings: Iterable[Closing], tell: Callable[[Resolution], Mapping[str, Any]]
) -> Iterator[tuple[Closing, str]]:
    """Each closing with the members of a JSON object that say what was decided: written out once for those that share it, as
    plain successes do."""
    last, told = None, ""
    for closing in closings:
        if closing.resolution is not last:
            last = closing.resolution
            told = dumps(tell(last))[1:-1]
        yield closing, told


def counted_as(resolution: Resolution) -> str | None:
    """What a run's end is tallied as beside its status: RETRY if it failed and the job is tried again, DEAD_LETTER if it
    was the last. A run that was put off, or cut short by a shutdown, is neither."""
    if resolution.job_status is JobStatus.DEAD_LETTER:
        return DEAD_LETTER
    again = resolution.job_status is JobStatus.QUEUED or resolution.chain
    return RETRY if again and resolution.run_status in (RunStatus.FAILED, RunStatus.TIMEOUT) else None


class Closed(NamedTuple):
    """A run that was closed and from which something follows: its group goes on, a webhook is told, or another job retries it.
    The counts are those that the retry begins with."""

    job_id: UUID
    run_id: UUID
    tenant_id: UUID
    group_id: UUID | None
    hooked: bool
    attempt_no: int
    max_attempts: int
    crashes: int
    interruptions: int
    suspect: bool


class Closures(NamedTuple):
    """What was closed, as run ids; None if all that was asked for. What is missing was no longer ours, or was to be closed alone
    and could not. Beside it those from which something follows."""

    run_ids: set[UUID] | None
    followed: list[Closed]


def is_plain(resolution: Resolution) -> bool:
    """Whether nothing is to be said of it but that it succeeded."""
    return resolution is PLAIN_SUCCESS


@dataclass(frozen=True, slots=True)
class Taken:
    """What a claim took. It is read once the transaction is over: others wait for that."""

    number: int
    claims: Callable[[], list[Claim]]


NOTHING_TAKEN = Taken(0, list)


class Rehearsed(NamedTuple):
    """A claim made ready for the gate as expected, perhaps before there was anything to claim: it is only to be sent."""

    expected: Gate
    request: ClaimRequest
    statements: Any


class Beats(NamedTuple):
    """What a heartbeat found, as run ids. What is in neither of the first two is no longer ours."""

    renewed: set[UUID]
    passed_by: set[UUID]
    """Ours, but somebody held the row at that moment, so that the lease was not extended."""
    asked_to_stop: set[UUID]

    @property
    def kept(self) -> set[UUID]:
        return self.renewed | self.passed_by


class Gate(NamedTuple):
    """What a claim must know before it claims, read under the lock that keeps it true."""

    due: bool
    limited: bool
    reserved: bool
    queues: tuple[str, ...]

    def lets_through(self, expected: Gate) -> bool:
        """Whether a claim that was made ready for the gate as expected may be made: nothing is to take its place first."""
        return not self.due and not self.limited and self.queues == expected.queues


@lru_cache(maxsize=1024)  # the runs of a batch began and ended together
def bucket(milliseconds: float) -> int:
    """Half-octaves: percentiles within a fifth, from a handful of counters."""
    return math.floor(2 * math.log2(max(0.0, milliseconds) + 1))


def minute_of(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(second=0, microsecond=0)
