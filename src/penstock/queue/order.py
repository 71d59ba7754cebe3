"""Changing what waits: its params, its priority, its time, its place."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.core import check, status
from penstock.core.check import UNSET, Unset
from penstock.core.clock import require_aware
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.nouns import Definition, Job
from penstock.core.outside import in_transaction, outside, preparing
from penstock.core.payload import merge, plain, require_object, validate
from penstock.core.position import GAP, place
from penstock.core.status import JobStatus, WaitsFor, one_of
from penstock.queue.ground import Ground
from penstock.store import definitions, edits, jobs, order, promote, tenants
from penstock.store import why as facts
from penstock.store.database import Tx


def update(
    ground: Ground,
    tenant_id: UUID,
    job_id: UUID,
    params: Mapping[str, Any] | None = None,
    priority: int | None = None,
    scheduled_for: datetime | Unset | None = UNSET,
) -> Job:
    """Change a queued job. Params are merged with the definition's defaults and checked, as when it was enqueued.

    `scheduled_for` moves its time, also one that its backoff chose. A time that has passed means now, and so does None.
    """
    if priority is not None:
        check.integer("priority", priority)
        ground.bounds(tenant_id).require_priority(priority)
    wanted = require_aware("scheduled_for", scheduled_for) if isinstance(scheduled_for, datetime) else None
    if wanted is None and scheduled_for is not None and scheduled_for is not UNSET:
        raise InvalidInput(f"scheduled_for is {scheduled_for!r}; expected an aware datetime, or None for now.")

    def work(tx: Tx) -> Job:
        job = _queued(tx, tenant_id, job_id, status.UPDATE)
        if params is not None:
            checked = _checked_params(ground, job, _definition(tx, job), require_object("params", params))
            edits.set_params(tx, job, checked)
        if priority is not None and priority != job.priority:
            _set_priority(tx, job, priority)
        if scheduled_for is not UNSET:
            _reschedule(tx, job, wanted)
        return _read(tx, tenant_id, job_id)

    with preparing():
        if params is not None and not in_transaction():
            prepare_update(ground, tenant_id, job_id, params)
        return ground.db.transact(work)


def prepare_update(ground: Ground, tenant_id: UUID, job_id: UUID, params: Mapping[str, Any]) -> None:
    """Check a job's new params before the transaction that writes them."""
    with ground.db.read() as tx:
        job = jobs.get(tx, tenant_id, job_id)
        definition = _definition(tx, job) if job is not None else None
    if job is not None:
        with suppress(InvalidInput):  # raised again, if the job is one that may be changed
            _checked_params(ground, job, definition, require_object("params", params))


def _set_priority(tx: Tx, job: Job, priority: int) -> None:
    if job.claimable:
        last, first = jobs.largest_position(tx, job.tenant_id, priority), jobs.smallest_position(tx, priority)
        order.put(tx, job, place(last, first, _weight(tx, job.tenant_id)), priority)
    else:
        edits.set_priority(tx, job, priority)


def _reschedule(tx: Tx, job: Job, wanted: datetime | None) -> None:
    now = tx.time()
    if wanted is not None and wanted > now:
        promote.postpone(tx, job.tenant_id, job.id, wanted)
    elif job.waits_for is WaitsFor.TIME:
        promote.run_now(tx, job.tenant_id, job.id)
    elif job.waits_for is WaitsFor.GROUP and job.scheduled_for > now:
        promote.postpone(tx, job.tenant_id, job.id, now)


def run_now(ground: Ground, tenant_id: UUID, job_id: UUID) -> Job:
    """Let a job that waits for its time or its backoff run now: at the end of its tenant's queue, as if it were due.

    A job that is due already is returned as it is; `why` says what it waits for. One that waits for its turn in a group is
    refused.
    """

    def work(tx: Tx) -> Job:
        job = _queued(tx, tenant_id, job_id, status.RUN_NOW)
        if job.waits_for is WaitsFor.GROUP:
            before = facts.predecessor(tx, job)
            what = f"job {before.id}, which is {before.status}" if before else "the job before it"
            raise status.RUN_NOW.refused(job.status, f"it waits for its turn in its group, after {what}")
        if job.waits_for is not WaitsFor.TIME:
            return job
        promote.run_now(tx, tenant_id, job_id)
        return _read(tx, tenant_id, job_id)

    return ground.db.transact(work)


def _definition(tx: Tx, job: Job) -> Definition | None:
    return definitions.by_id(tx, job.definition_id) if job.definition_id else None


def _checked_params(
    ground: Ground, job: Job, definition: Definition | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    validator = None if definition is None else ground.validator_of(definition)
    version = None if definition is None else (definition.id, definition.version)

    def compute() -> dict[str, Any]:
        params = merge(definition.default_params if definition else {}, given)
        plain("params", params)
        if validator is not None:
            validate(job.definition_key, validator, params)
        return params

    return outside(("changed params", version), given, compute)


def move(
    ground: Ground,
    tenant_id: UUID,
    job_id: UUID,
    *,
    before: UUID | None = None,
    after: UUID | None = None,
    to: str | None = None,
) -> Job:
    """Put a waiting job before or after another, or at the top or bottom of its tenant's jobs of its priority."""
    if sum(choice is not None for choice in (before, after, to)) != 1:
        raise InvalidInput("move takes exactly one of before=, after= or to='top'|'bottom'.")
    if to is not None:
        one_of("to", to, ("top", "bottom"))

    def work(tx: Tx) -> Job:
        job = _queued(tx, tenant_id, job_id, status.MOVE)
        if not job.claimable:
            raise InvalidInput(
                f"Job {job_id} waits for its {job.waits_for} and has no place yet; change its priority instead."
            )
        if to is not None:
            order.put(tx, job, _edge(tx, job, to), job.priority)
        else:
            _put_beside(ground, tx, job, before, after)
        return _read(tx, tenant_id, job_id)

    return ground.db.transact(work)


def _edge(tx: Tx, job: Job, to: str) -> int:
    found = order.edge(tx, job.tenant_id, job.priority, first=to == "top", but=job.id)
    if found is None:
        return job.position
    # One step only: a tenant reorders its own jobs, it does not overtake other tenants.
    return found - 1 if to == "top" else found + GAP


def _put_beside(ground: Ground, tx: Tx, job: Job, before: UUID | None, after: UUID | None) -> None:
    other_id = before or after
    assert other_id is not None
    if other_id == job.id:
        return
    for _ in range(2):
        other = _queued(tx, job.tenant_id, other_id, status.MOVE)
        if not other.claimable:
            raise InvalidInput(f"Job {other_id} waits for its {other.waits_for} and has no place yet.")
        if other.priority != job.priority:
            ground.bounds(job.tenant_id, tx).require_priority(other.priority)
        beyond = order.neighbour(tx, other, job.id, before=before is not None)
        if before is not None:
            low, high = (other.position - 2 * GAP if beyond is None else beyond), other.position
        else:
            low, high = other.position, (other.position + 2 * GAP if beyond is None else beyond)
        if high - low >= 2:
            order.put(tx, job, (low + high) // 2, other.priority)
            return
        order.normalise(tx, job.tenant_id, other.priority)  # the gap is used up: spread the places, then there is one
    raise AssertionError("a renumbered queue has gaps")


def normalise(ground: Ground, tenant_id: UUID, priority: int | None = None) -> int:
    """Spread a tenant's places evenly again (seed 004 §3.2). Answers how many jobs were renumbered."""

    def work(tx: Tx) -> int:
        chosen = order.priorities(tx, tenant_id) if priority is None else [priority]
        return sum(order.normalise(tx, tenant_id, each) for each in chosen)

    return ground.db.transact(work)


def _queued(tx: Tx, tenant_id: UUID, job_id: UUID, transition: status.Transition) -> Job:
    job = jobs.get(tx, tenant_id, job_id, lock=True)
    if job is None:
        raise NotFound("job", job_id)
    newer = jobs.retry_of(tx, job_id) if job.status is JobStatus.FAILED else None
    if newer is not None:
        raise transition.refused(job.status, f"it has failed, and job {newer} retries it")
    transition.check(job.status)
    return job


def _read(tx: Tx, tenant_id: UUID, job_id: UUID) -> Job:
    job = jobs.get(tx, tenant_id, job_id)
    assert job is not None
    return job


def _weight(tx: Tx, tenant_id: UUID) -> int:
    tenant = tenants.by_id(tx, tenant_id)
    return tenant.weight if tenant else 1
