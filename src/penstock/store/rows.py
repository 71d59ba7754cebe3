"""Rows become nouns here, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from penstock.core.decide import RetryPolicy
from penstock.core.nouns import Claim, Definition, Job, Reservation, Run, Tenant
from penstock.core.status import JobStatus, RetryMode, RunStatus, WaitsFor
from penstock.store.hot import NewJob, Written
from penstock.store.tables import jobs
from penstock.store.types import json_object

_JOB_FIELDS = frozenset(Job.__dataclass_fields__)
JOB_COLUMNS = [jobs.c[name] for name in Job.__dataclass_fields__]


def job(row: Mapping[Any, Any]) -> Job:
    values = {name: row[name] for name in _JOB_FIELDS}
    values["status"] = JobStatus(values["status"])
    values["retry_mode"] = RetryMode(values["retry_mode"])
    values["waits_for"] = WaitsFor(values["waits_for"]) if values["waits_for"] else None
    values["params"], values["trace"] = json_object(values["params"]), json_object(values["trace"])
    return Job(**values)


def run(row: Mapping[Any, Any]) -> Run:
    names = (
        "id", "job_id", "tenant_id", "attempt_no", "worker_id", "pid", "started_at", "finished_at", "exit_code", "error",
        "definition_id", "stdout_tail", "stderr_tail", "log_path",
    )  # fmt: skip
    snapshot = row["params_snapshot"]
    return Run(
        **{name: row[name] for name in names},
        status=RunStatus(row["status"]),
        params=row["params"] if snapshot is None else snapshot,
        artifacts=tuple(row["artifacts"] or ()),
    )


def claim(row: Mapping[Any, Any], worker_id: str) -> Claim:
    return Claim(worker_id=worker_id, **{**row, "retry_mode": RetryMode(row["retry_mode"])})


def tenant(row: Mapping[Any, Any]) -> Tenant:
    values = {name: row[name] for name in Tenant.__dataclass_fields__}
    values["quotas"] = json_object(values["quotas"]) if values["quotas"] else {}
    return Tenant(**values)


def definition(row: Mapping[Any, Any]) -> Definition:
    values = {name: row[name] for name in Definition.__dataclass_fields__}
    values["retry_mode"] = RetryMode(values["retry_mode"])
    for name in ("arg_schema", "default_params"):
        values[name] = json_object(values[name])
    values["retry_policy"] = RetryPolicy.from_dict(json_object(values["retry_policy"]))
    return Definition(**values)


def reservation(row: Mapping[Any, Any]) -> Reservation:
    return Reservation(**{name: row[name] for name in Reservation.__dataclass_fields__})


def fresh_job(new: NewJob, written: Written, params: Mapping[str, Any]) -> Job:
    """The job as it was just written, without reading it back."""
    return Job(
        id=new.id, tenant_id=new.tenant_id, definition_id=new.definition_id, definition_key=new.definition_key,
        queue=new.queue, status=JobStatus.QUEUED, waits_for=WaitsFor(written.waits_for) if written.waits_for else None,
        priority=new.priority, position=written.position, params=params, source=new.source, source_ref=new.source_ref,
        dedupe_key=new.dedupe_key, correlation_id=new.correlation_id, scheduled_for=written.scheduled_for,
        created_at=written.queued_at, queued_at=written.queued_at, started_at=None, finished_at=None, attempt_no=0,
        max_attempts=new.max_attempts, retry_mode=RetryMode(new.retry_mode), root_id=new.id, retry_of=None,
        group_id=new.group_id, group_position=new.group_position, trigger_id=new.trigger_id, tick_at=new.tick_at,
        run_id=None, claimed_by=None, lease_expires_at=None, cancel_requested_at=None, progress=None, result=None,
        last_error=None, created_by=new.created_by, trace=json.loads(new.trace) if new.trace else None,
    )  # fmt: skip
