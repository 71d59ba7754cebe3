"""Figures on the wire."""

from __future__ import annotations

from uuid import UUID

from penstock.core.wire.base import Answer, Instant, JsonObject
from penstock.core.wire.jobs import Summary


class Point(Answer):
    """One step of time. Durations in seconds, within a fifth."""

    at: Instant
    succeeded: int
    failed: int
    timeout: int
    canceled: int
    skipped: int
    wait_p50: float | None
    wait_p95: float | None
    run_p50: float | None
    run_p95: float | None


class Timeline(Answer):
    minutes: int
    step: int
    items: list[Point]


class Failure(Answer):
    """Jobs that ended badly for the same reason; `#` stands for numbers and ids."""

    error: str
    definition_key: str
    count: int
    dead_letter: int
    last_at: Instant | None
    example_id: UUID


class FailureList(Answer):
    items: list[Failure]


class Upcoming(Answer):
    """A run that a schedule will ask for."""

    trigger_id: UUID
    label: str
    definition_key: str
    at: Instant


class UpcomingList(Answer):
    items: list[Upcoming]


class TenantStanding(Answer):
    """How one tenant's queue stands, for the operator of all."""

    tenant_id: UUID
    slug: str
    summary: Summary


class Standing(Answer):
    items: list[TenantStanding]


class Worker(Answer):
    """A worker. What it runs, for whom and on which machine is told to super admins alone; a tenant's own workers are shown to it in
    full. `name` is how jobs and attempts name the worker."""

    id: str
    worker_id: str
    name: str
    hostname: str | None
    version: str
    queues: list[str]
    keys: list[str] | None
    concurrency: int
    running_count: int | None
    started_at: Instant
    last_seen_at: Instant
    stale: bool
    metadata: JsonObject | None


class WorkerList(Answer):
    items: list[Worker]
