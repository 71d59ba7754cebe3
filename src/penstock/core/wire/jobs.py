"""Jobs on the wire: seed 002's fields under seed 002's names, and what the engine knows beyond them."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from penstock.core import worker_names
from penstock.core.marks import Marks
from penstock.core.masking import hidden_job, hidden_params, hidden_run, knowing
from penstock.core.nouns import Job as JobNoun
from penstock.core.nouns import Run
from penstock.core.wire.base import Answer, Flag, Instant, Int32, JsonObject, Label, Moment, Name, Request

Status = Literal["queued", "running", "succeeded", "failed", "canceled", "dead_letter"]
RunStatus = Literal["running", "succeeded", "failed", "timeout", "canceled", "skipped"]
SourceName = Literal["manual", "event", "schedule", "system"]


class NewJob(Request):
    """Ask for work by hand."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "definition_key": "recompute-trained-tags",
                    "payload": {"model": "siglip"},
                    "priority": 100,
                    "scheduled_for": "2026-02-16T10:30:00Z",
                    "dedupe_key": "tenant:bcg:training:daily",
                }
            ]
        }
    )

    definition_key: Name
    payload: JsonObject = Field(default_factory=dict)
    priority: Int32 | None = None
    queue: Name | None = None
    scheduled_for: Moment | None = None
    delay_seconds: Annotated[float, Field(ge=0, le=10 * 365 * 86400)] | None = None
    dedupe_key: Label | None = None
    correlation_id: Label | None = None


class Job(Answer):
    """One request for work. Secrets in payload and result are masked."""

    id: UUID
    tenant_id: UUID
    status: Status
    definition_key: str
    queued_at: Instant
    definition_id: UUID | None
    source: SourceName
    source_ref: str | None
    queue: str
    priority: int
    position: int
    payload: JsonObject
    dedupe_key: str | None
    correlation_id: str | None
    scheduled_for: Instant
    created_at: Instant
    started_at: Instant | None
    finished_at: Instant | None
    attempt_count: int
    max_attempts: int
    lease_expires_at: Instant | None
    claimed_by_worker: str | None
    last_error: str | None
    created_by: str | None
    waits_for: Literal["time", "group", "limit"] | None
    retry_mode: Literal["requeue", "chain"]
    root_id: UUID
    retry_of: UUID | None
    group_id: UUID | None
    group_position: int | None
    trigger_id: UUID | None
    tick_at: Instant | None
    run_id: UUID | None
    cancel_requested_at: Instant | None
    progress: JsonObject | None
    result: Any

    @classmethod
    def of(cls, job: JobNoun, marks: Marks) -> Job:
        """As people may see it: `marks` are those of its definition."""
        shown = hidden_job(job, marks)
        worker, error = job.claimed_by, shown.last_error
        return cls.model_construct(
            **{name: getattr(shown, name) for name in _SAME},
            payload=shown.params,
            attempt_count=job.attempt_no,
            claimed_by_worker=None if worker is None else worker_names.shown(job.tenant_id, worker),
            last_error=None if error is None else worker_names.masked(job.tenant_id, error),
        )


_SAME = tuple(set(Job.model_fields) - {"payload", "attempt_count", "claimed_by_worker", "last_error"})


def told_row(row: dict[str, Any], marks: Marks) -> dict[str, Any]:
    """A row of plain values under the names of `Job`, secrets masked: what `Job.of` tells, without the object."""
    params = row.pop("params")
    row["payload"] = hidden_params(params, marks)
    row["attempt_count"] = row.pop("attempt_no")
    worker = row.pop("claimed_by")
    row["claimed_by_worker"] = None if worker is None else worker_names.shown(row["tenant_id"], worker)
    del row["trace"]
    if row["result"] is not None or row["last_error"] is not None or row["progress"] is not None:
        mask = knowing(params, marks)
        for name in ("result", "progress"):
            if row[name] is not None:
                row[name] = mask.redact_json(row[name])
        if row["last_error"] is not None:
            row["last_error"] = worker_names.masked(row["tenant_id"], mask.redact_text(row["last_error"]))
    return row


class JobPage(Answer):
    """Jobs, newest first. `next_cursor` continues after the last of them; null when there are no more."""

    items: list[Job]
    limit: int
    offset: int
    next_cursor: str | None


class Attempt(Answer):
    """One run of a job."""

    id: UUID
    job_id: UUID
    attempt_no: int
    status: RunStatus
    worker_id: str
    pid: int | None
    started_at: Instant
    finished_at: Instant | None
    exit_code: int | None
    error_text: str | None
    payload: JsonObject
    stdout_tail: str | None
    stderr_tail: str | None
    artifacts: list[JsonObject]

    @classmethod
    def of(cls, run: Run, marks: Marks) -> Attempt:
        """As people may see it: `marks` are those of its job's definition."""
        shown = hidden_run(run, marks)
        name = worker_names.shown(run.tenant_id, run.worker_id)
        pid = None if name == worker_names.opaque(run.worker_id) else run.pid
        error = None if shown.error is None else worker_names.masked(run.tenant_id, shown.error)
        return cls(
            id=run.id, job_id=run.job_id, attempt_no=run.attempt_no, status=run.status.value, worker_id=name,
            pid=pid, started_at=run.started_at, finished_at=run.finished_at, exit_code=run.exit_code,
            error_text=error, payload=dict(shown.params), stdout_tail=shown.stdout_tail,
            stderr_tail=shown.stderr_tail, artifacts=[dict(artifact) for artifact in shown.artifacts],
        )  # fmt: skip


class AttemptList(Answer):
    items: list[Attempt]


class JobList(Answer):
    items: list[Job]


class Counts(Answer):
    queued: int
    running: int
    succeeded: int
    failed: int
    canceled: int
    dead_letter: int


class Summary(Answer):
    """How the queue stands. Counts stop at `capped_at`: a history of millions is not counted to the last row."""

    counts: Counts
    oldest_queued_age_seconds: float | None
    running_count: int
    capped_at: int


class Why(Answer):
    """Why a job is not running, or how it ended: one sentence and the facts."""

    sentence: str
    reason: str
    facts: JsonObject


class Logs(Answer):
    """The end of what an attempt printed."""

    job_id: UUID
    attempt_no: int | None
    status: RunStatus | None
    stdout: str
    stderr: str
    ended: bool


class ChangeJob(Request):
    """Change a queued job. A masked value (`***`) in the payload stays what it was. `scheduled_for` says when the job is
    due; null, or a time that has passed, means now."""

    payload: JsonObject | None = None
    priority: Int32 | None = None
    scheduled_for: Moment | None = None


class MoveJob(Request):
    """Exactly one of before, after and to."""

    before: UUID | None = None
    after: UUID | None = None
    to: Literal["top", "bottom"] | None = None


class JobFilter(Request):
    """Which jobs. Everything given must match; an empty filter matches every job that allows the action."""

    ids: Annotated[list[UUID], Field(max_length=1000)] | None = None
    status: list[Status] | None = None
    source: SourceName | None = None
    definition_key: Name | None = None
    queue: Name | None = None
    correlation_id: Label | None = None
    group_id: UUID | None = None
    trigger_id: UUID | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    search: Name | None = None


class Bulk(Request):
    """Act on many. With `dry_run` nothing changes and `matched` says how many it would be."""

    filter: JobFilter
    dry_run: Flag = False


class BulkDone(Answer):
    """`matched` that allow the action, of which `changed`; `remaining` when there were more than one call takes."""

    matched: int
    changed: int
    refused: int
    remaining: bool
    dry_run: bool


class Progress(Request):
    done: Annotated[float, Field(ge=0)]
    total: Annotated[float, Field(ge=0)] | None = None
    message: Annotated[str, Field(max_length=1000)] = ""
