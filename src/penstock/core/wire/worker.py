"""What a worker without database access says and hears."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field

from penstock.core.marks import NO_MARKS, Marks
from penstock.core.nouns import Claim as ClaimNoun
from penstock.core.wire.base import Answer, Count, Flag, Instant, JsonObject, Name, Request
from penstock.core.wire.jobs import Progress
from penstock.core.worker_names import own_name

Tail = Annotated[str, Field(max_length=256 * 1024)]
Lease = Annotated[float, Field(gt=0, le=3600)]
MAX_RUNS = 1000
WorkerId = Annotated[Name, Field(examples=["host:4711:0191"])]


class ClaimRequest(Request):
    """Take up to `limit` jobs. `wait_seconds` holds the request while there is nothing to do.

    If the answer to a claim was lost, send its `claim_id` once more with `again`: the jobs that it took are returned and
    their leases start anew, so nothing waits for a lease to end. If it took none, this is a new claim.
    """

    worker_id: WorkerId
    claim_id: UUID | None = None
    again: Flag = False
    limit: Annotated[int, Field(strict=True, ge=1, le=100)] = 1
    queues: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = None
    keys: Annotated[list[Name], Field(max_length=1000)] | None = None
    lease_seconds: Lease | None = None
    wait_seconds: Annotated[float, Field(ge=0, le=20)] = 0
    hostname: Name | None = None
    pid: Count | None = None
    version: Annotated[str, Field(max_length=50)] = ""
    concurrency: Annotated[int, Field(strict=True, ge=1, le=100_000)] = 1


class Claim(Answer):
    """A job to run. Its `run_id` fences every report: send it back with each."""

    job_id: UUID
    run_id: UUID
    tenant_id: UUID
    tenant_slug: str
    definition_id: UUID | None
    definition_key: str
    queue: str
    payload: JsonObject
    attempt_no: int
    max_attempts: int
    retry_mode: Literal["requeue", "chain"]
    root_id: UUID
    group_id: UUID | None
    worker_id: str
    started_at: Instant
    lease_expires_at: Instant
    timeout_seconds: int
    trace: dict[str, str] | None
    correlation_id: str | None
    secret_params: list[str] = Field(default_factory=list)
    """Where the definition's schema marks the payload as secret, as JSON pointers: mask these values in what you log."""

    @classmethod
    def of(cls, claim: ClaimNoun, default_timeout: int, marks: Marks = NO_MARKS) -> Claim:
        others = {"definition_key", "payload", "timeout_seconds", "retry_mode", "trace", "worker_id", "secret_params"}
        same = set(cls.model_fields) - others
        return cls(
            **{name: getattr(claim, name) for name in same},
            worker_id=own_name(claim.tenant_id, claim.worker_id),
            definition_key=claim.key,
            payload=dict(claim.params),
            timeout_seconds=default_timeout if claim.timeout_seconds is None else claim.timeout_seconds,
            retry_mode=claim.retry_mode.value,
            trace=None if claim.trace is None else dict(claim.trace),
            secret_params=marks.pointers(claim.params),
        )


class Claims(Answer):
    items: list[Claim]


class Beat(Request):
    """Keep a run: extends its lease, and carries its progress and what it printed lately."""

    run_id: UUID
    lease_seconds: Lease | None = None
    progress: Progress | None = None
    stdout_tail: Tail | None = None
    stderr_tail: Tail | None = None
    pid: Count | None = None


class Beaten(Answer):
    """`cancel_requested` asks the worker to stop the run."""

    job_id: UUID
    run_id: UUID
    cancel_requested: bool
    lease_seconds: float


class HeldRun(Request):
    """A run in a worker's hands."""

    job_id: UUID
    run_id: UUID


class KeptRun(HeldRun):
    """A run whose lease is to be extended, with its progress and what it printed lately."""

    progress: Progress | None = None
    stdout_tail: Tail | None = None
    stderr_tail: Tail | None = None
    pid: Count | None = None


class BeatMany(Request):
    """Extend the leases of all runs of a worker at once."""

    runs: Annotated[list[KeptRun], Field(min_length=1, max_length=MAX_RUNS)]
    lease_seconds: Lease | None = None


class RunState(Answer):
    """What became of a run's lease. `held` means that the run is still this worker's, but its row was in use at that moment, so
    that the lease ends when it did before: the next heartbeat extends it. `lost` means that the run was closed, passed on or never
    was this worker's: stop it.
    `cancel_requested` asks the worker to stop the run and to report it."""

    job_id: UUID
    run_id: UUID
    state: Literal["extended", "held", "lost"]
    cancel_requested: bool


class BeatenMany(Answer):
    """One entry for each run, in the order of the request."""

    items: list[RunState]
    lease_seconds: float


class Release(Request):
    """Give back claims that were never started."""

    runs: Annotated[list[HeldRun], Field(min_length=1, max_length=MAX_RUNS)]


class Released(Answer):
    """How many jobs went back to the queue, in their old place and without an attempt used."""

    released: int


class RunEvidence(Request):
    run_id: UUID
    exit_code: Annotated[int, Field(strict=True, ge=-255, le=2**31 - 1)] | None = None
    stdout_tail: Tail | None = None
    stderr_tail: Tail | None = None
    pid: Count | None = None
    artifacts: Annotated[list[JsonObject], Field(max_length=100)] = Field(default_factory=list)


class Complete(RunEvidence):
    """The run did its work, or with `skipped` found nothing to do."""

    result: Any = None
    skipped: Flag = False
    reason: Annotated[str, Field(max_length=1000)] = ""


class Fail(RunEvidence):
    """The run failed, ran out of time, was stopped, or wants to be run later (`snoozed`)."""

    error: Annotated[str, Field(min_length=1, max_length=64 * 1024)]
    kind: Literal["failed", "timeout", "canceled", "snoozed"] = "failed"
    fatal: Flag = False
    by_shutdown: Flag = False
    blameless: Flag = False
    delay_seconds: Annotated[float, Field(ge=0, le=365 * 86400)] | None = None


class Recorded(Answer):
    """What became of the job."""

    job_id: UUID
    run_id: UUID
    status: str
