"""What webhooks tell: the names of the messages, and their bodies in the shape of the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.core.decide import Resolution
from penstock.core.marks import Marks
from penstock.core.masking import hidden_job
from penstock.core.nouns import Job
from penstock.core.payload import dumps
from penstock.core.status import GroupStatus, JobStatus, RunStatus
from penstock.core.worker_names import masked

JOB_TYPES = ("job.run.completed", "job.run.failed", "job.run.skipped", "job.run.dead_letter", "job.run.canceled")
GROUP_TYPES = ("group.completed", "group.partial", "group.canceled")
TEST_TYPE = "webhook.test"
TYPES = (*JOB_TYPES, *GROUP_TYPES)
MAX_RESULT = 64 * 1024

_BY_RUN = {
    RunStatus.SUCCEEDED: "job.run.completed",
    RunStatus.SKIPPED: "job.run.skipped",
    RunStatus.FAILED: "job.run.failed",
    RunStatus.TIMEOUT: "job.run.failed",
    RunStatus.CANCELED: "job.run.canceled",
}
_BY_GROUP = {
    GroupStatus.COMPLETED: "group.completed",
    GroupStatus.PARTIAL: "group.partial",
    GroupStatus.CANCELED: "group.canceled",
}


def job_types(resolution: Resolution | None) -> list[str]:
    """What the end of a run, or of a job that never ran, is called. A failed run that was the last one is told twice:
    as failed, and as the job's dead letter."""
    if resolution is None:
        return ["job.run.canceled"]
    told = [_BY_RUN[resolution.run_status]]
    if resolution.job_status is JobStatus.DEAD_LETTER:
        told.append("job.run.dead_letter")
    return told


def group_type(status: GroupStatus) -> str | None:
    return _BY_GROUP.get(status)


def job_data(job: Job, resolution: Resolution | None, marks: Marks) -> dict[str, Any]:
    """A job as the API shows it, secrets masked, with how its run ended. `marks` are those of its definition."""
    job = hidden_job(job, marks)
    result = job.result
    return {
        "id": str(job.id),
        "tenant_id": str(job.tenant_id),
        "definition_key": job.definition_key,
        "status": str(job.status),
        "run_status": str(resolution.run_status) if resolution else None,
        "run_id": str(job.run_id) if job.run_id else None,
        "attempt_no": job.attempt_no,
        "max_attempts": job.max_attempts,
        "payload": dict(job.params) if len(dumps(job.params)) <= MAX_RESULT else None,
        "result": result if result is None or len(dumps(result)) <= MAX_RESULT else None,
        "error": masked(job.tenant_id, job.last_error)[:4000] if job.last_error else None,
        "source": str(job.source),
        "source_ref": job.source_ref,
        "correlation_id": job.correlation_id,
        "group_id": str(job.group_id) if job.group_id else None,
        "trigger_id": str(job.trigger_id) if job.trigger_id else None,
        "queued_at": _iso(job.queued_at),
        "started_at": _iso(job.started_at),
        "finished_at": _iso(job.finished_at),
    }


def body(type_: str, moment: datetime, data: Mapping[str, Any]) -> dict[str, Any]:
    """The message itself."""
    return {"type": type_, "timestamp": _iso(moment), "data": dict(data)}


def _iso(moment: datetime | None) -> str | None:
    return moment.isoformat().replace("+00:00", "Z") if moment else None
