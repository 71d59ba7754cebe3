"""Rows become nouns here, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from penstock.core.cipher import is_sealed, is_sealed_text
from penstock.core.decide import RetryPolicy
from penstock.core.nouns import Claim, Definition, Job, Reservation, Run, Tenant
from penstock.core.status import JobStatus, RetryMode, RunStatus, WaitsFor
from penstock.store.hot import NewJob, Written
from penstock.store.sealing import (
    Codec,
    Place,
    defaults_of,
    error_of,
    params_of,
    progress_of,
    result_of,
    snapshot_of,
    stderr_of,
    stdout_of,
)
from penstock.store.tables import job_view
from penstock.store.types import json_object

_JOB_FIELDS = frozenset(Job.__dataclass_fields__)
JOB_COLUMNS = [job_view.c[name] for name in Job.__dataclass_fields__]

_PLAIN_OF_A_RUN = (
    "id", "job_id", "tenant_id", "attempt_no", "worker_id", "pid", "started_at", "finished_at", "exit_code", "error",
    "definition_id", "stdout_tail", "stderr_tail", "log_path",
)  # fmt: skip
RUN_COLUMNS = (*_PLAIN_OF_A_RUN, "status", "params_snapshot", "artifacts")
"""What `run` needs of a row, beside its job's `params` and `root_id`."""


def job(row: Mapping[Any, Any], codec: Codec) -> Job:
    values = {name: row[name] for name in _JOB_FIELDS}
    values["status"] = JobStatus(values["status"])
    values["retry_mode"] = RetryMode(values["retry_mode"])
    values["waits_for"] = WaitsFor(values["waits_for"]) if values["waits_for"] else None
    values["params"], values["trace"] = json_object(values["params"]), json_object(values["trace"])
    return Job(**opened_job(values, codec))


def opened_job(values: dict[str, Any], codec: Codec) -> dict[str, Any]:
    """The members of a job as they were given, where they are sealed in its row. Ids may be texts."""
    for name, place, column in _JSON_OF_A_JOB:
        found = values.get(name)
        if is_sealed(found):
            values[name] = codec.open(found, partial(_place, place, values, column))
    if is_sealed_text(values["last_error"]):
        values["last_error"] = codec.open_text(values["last_error"], partial(_place, error_of, values, "id"))
    return values


def _place(place: Callable[[UUID, UUID], Place], values: Mapping[str, Any], column: str) -> Place:
    return place(_uuid(values["tenant_id"]), _uuid(values[column]))


def _uuid(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)


_JSON_OF_A_JOB = (
    ("params", params_of, "root_id"),
    ("result", result_of, "id"),
    ("progress", progress_of, "id"),
)


def run(row: Mapping[Any, Any], codec: Codec) -> Run:
    values = {name: row[name] for name in _PLAIN_OF_A_RUN}
    tenant_id, job_id, run_id = row["tenant_id"], row["job_id"], row["id"]
    values["error"] = codec.open_text(values["error"], lambda: error_of(tenant_id, job_id))
    values["stdout_tail"] = codec.open_text(values["stdout_tail"], lambda: stdout_of(tenant_id, run_id))
    values["stderr_tail"] = codec.open_text(values["stderr_tail"], lambda: stderr_of(tenant_id, run_id))
    snapshot = codec.open(row["params_snapshot"], lambda: snapshot_of(tenant_id, job_id))
    if snapshot is None:
        snapshot = codec.open(json_object(row["params"]), lambda: params_of(tenant_id, row["root_id"]))
    return Run(
        **values,
        status=RunStatus(row["status"]),
        params=snapshot,
        artifacts=tuple(row["artifacts"] or ()),
    )


def claim(row: Mapping[Any, Any], worker_id: str) -> Claim:
    return Claim(worker_id=worker_id, **{**row, "retry_mode": RetryMode(row["retry_mode"])})


def tenant(row: Mapping[Any, Any]) -> Tenant:
    values = {name: row[name] for name in Tenant.__dataclass_fields__}
    values["quotas"] = json_object(values["quotas"]) if values["quotas"] else {}
    return Tenant(**values)


def definition(row: Mapping[Any, Any], codec: Codec) -> Definition:
    values = {name: row[name] for name in Definition.__dataclass_fields__}
    values["retry_mode"] = RetryMode(values["retry_mode"])
    for name in ("arg_schema", "default_params"):
        values[name] = json_object(values[name])
    place = partial(defaults_of, values["tenant_id"], values["id"])
    values["default_params"] = codec.open(values["default_params"], place)
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
