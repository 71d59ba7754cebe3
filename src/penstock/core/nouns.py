"""The nouns, as frozen values. The store returns them; nothing else makes them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from penstock.core.decide import RetryPolicy
from penstock.core.quota import Bounds, own_bounds
from penstock.core.status import GroupStatus, JobStatus, RetryMode, RunStatus, WaitsFor


@dataclass(frozen=True, slots=True)
class Tenant:
    id: UUID
    slug: str
    name: str
    timezone: str
    weight: int
    max_running: int | None
    is_active: bool
    created_at: datetime
    quotas: Mapping[str, int | None] = field(default_factory=dict)
    """What the operator has set; None stands for no limit. See `core.quota`."""
    min_priority: int | None = None
    max_priority: int | None = None

    @property
    def bounds(self) -> Bounds:
        """What the operator has set for this tenant."""
        return own_bounds(self.quotas, self.min_priority, self.max_priority)


@dataclass(frozen=True, slots=True)
class Definition:
    """What may be asked for. `tenant_id` is None when every tenant may ask."""

    id: UUID
    tenant_id: UUID | None
    key: str
    description: str
    runner: str
    queue: str
    arg_schema: Mapping[str, Any] = field(repr=False)
    default_params: Mapping[str, Any] = field(repr=False)
    timeout_seconds: int
    max_attempts: int
    retry_mode: RetryMode
    retry_policy: RetryPolicy
    priority: int
    max_running: int | None
    is_active: bool
    paused: bool
    version: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Job:
    """One request for work, with its place in the queue. What may hold secrets is not in its repr."""

    id: UUID
    tenant_id: UUID
    definition_id: UUID | None
    definition_key: str
    queue: str
    status: JobStatus
    waits_for: WaitsFor | None
    priority: int
    position: int
    params: Mapping[str, Any] = field(repr=False)
    source: str
    source_ref: str | None
    dedupe_key: str | None
    correlation_id: str | None
    scheduled_for: datetime
    created_at: datetime
    queued_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempt_no: int
    max_attempts: int
    retry_mode: RetryMode
    root_id: UUID
    retry_of: UUID | None
    group_id: UUID | None
    group_position: int | None
    trigger_id: UUID | None
    tick_at: datetime | None
    run_id: UUID | None
    claimed_by: str | None
    lease_expires_at: datetime | None
    cancel_requested_at: datetime | None
    progress: Mapping[str, Any] | None = field(repr=False)
    result: Any = field(repr=False)
    last_error: str | None = field(repr=False)
    created_by: str | None
    trace: Mapping[str, str] | None

    @property
    def claimable(self) -> bool:
        return self.status is JobStatus.QUEUED and self.waits_for is None

    @property
    def finished(self) -> bool:
        return self.finished_at is not None


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of a job by one worker: the audit record."""

    id: UUID
    job_id: UUID
    tenant_id: UUID
    attempt_no: int
    status: RunStatus
    worker_id: str
    pid: int | None
    started_at: datetime
    finished_at: datetime | None
    exit_code: int | None
    error: str | None = field(repr=False)
    params: Mapping[str, Any] = field(repr=False)
    definition_id: UUID | None
    stdout_tail: str | None = field(repr=False)
    stderr_tail: str | None = field(repr=False)
    artifacts: tuple[Mapping[str, Any], ...] = field(repr=False)
    log_path: str | None


class Claim(NamedTuple):
    """A job given to a worker, with the run that fences it. A tuple, because one is made for every run."""

    job_id: UUID
    run_id: UUID
    tenant_id: UUID
    tenant_slug: str
    definition_id: UUID | None
    key: str
    queue: str
    params: Mapping[str, Any]
    attempt_no: int
    max_attempts: int
    retry_mode: RetryMode
    root_id: UUID
    group_id: UUID | None
    worker_id: str
    started_at: datetime
    lease_expires_at: datetime
    trace: Mapping[str, str] | None = None
    correlation_id: str | None = None
    timeout_seconds: int | None = None
    """What the definition said when the job was claimed; None for a job without a definition."""
    suspicion: int = 0
    """0 for most jobs. A job that was under way, or may have been, when its worker died is a suspect: 1, and 1 more for each
    crash in a row that it was charged with. A worker runs a suspect apart from all other jobs."""
    secrets: tuple[str, ...] = ()
    """Where the schema says that params are secret, as JSON pointers; told to workers that claim over HTTP."""

    def __repr__(self) -> str:
        return f"Claim(key={self.key!r}, job_id={self.job_id!r}, run_id={self.run_id!r}, attempt_no={self.attempt_no})"


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that belong together. The status is derived from the members, never stored."""

    id: UUID
    tenant_id: UUID
    mode: str
    on_failure: str
    label: str | None
    status: GroupStatus
    created_at: datetime
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    id: UUID
    tenant_id: UUID
    reserved_by: str
    reserved_at: datetime
    expires_at: datetime
    status: str


@dataclass(frozen=True, slots=True)
class Why:
    """One sentence and the facts behind it."""

    sentence: str
    reason: str
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True)
class Violation:
    """A row that breaks a promise."""

    check: str
    promise: str
    ids: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.promise} {self.check}: {', '.join(self.ids)}"


@dataclass(frozen=True, slots=True)
class Warning_:
    """Something an operator should look at, though no promise is broken."""

    check: str
    message: str


@dataclass(frozen=True, slots=True)
class Health:
    """What `doctor()` found."""

    violations: tuple[Violation, ...]
    warnings: tuple[Warning_, ...]
    checked: int
    notes: tuple[str, ...] = ()
    """What is neither wrong nor a danger, but worth knowing."""

    @property
    def clean(self) -> bool:
        return not self.violations
