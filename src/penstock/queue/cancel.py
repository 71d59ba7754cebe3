"""Stopping, and trying again by hand."""

from __future__ import annotations

from uuid import UUID

from penstock.core import status
from penstock.core.errors import NotFound
from penstock.core.nouns import Job
from penstock.core.status import JobStatus, RetryMode, WaitsFor
from penstock.queue import bounds
from penstock.queue.ground import Ended, Ground
from penstock.store import claims, groups, jobs
from penstock.store.database import Tx

BY_HAND = "canceled on request"
_FORGIVEN = {"crashes": 0, "interruptions": 0}
"""Somebody has looked at the job. One that was under way in a crash stays a suspect until it has ended by itself."""


def cancel(ground: Ground, tenant_id: UUID, job_id: UUID, reason: str = BY_HAND) -> Job:
    """A queued job is canceled at once; a running one is asked to stop, and its worker sees it with the next heartbeat."""
    return ground.db.transact(lambda tx: cancel_in(ground, tx, tenant_id, job_id, reason))


def cancel_in(ground: Ground, tx: Tx, tenant_id: UUID, job_id: UUID, reason: str = BY_HAND) -> Job:
    job = _locked(tx, tenant_id, job_id)
    status.CANCEL.check(job.status)
    if job.status is JobStatus.RUNNING:
        changed = jobs.change(tx, job_id, {"cancel_requested_at": job.cancel_requested_at or tx.now})
        assert changed is not None
        return changed
    values = {"status": JobStatus.CANCELED, "claimable": False, "waits_for": None, "slot": False, "finished_at": tx.now}
    changed = jobs.change(tx, job_id, {**values, "last_error": reason})
    assert changed is not None
    group_ended = groups.advance(tx, job.group_id) if job.group_id else False
    ground.outbox(tx, [Ended(job_id, tenant_id, None, None, job.group_id, group_ended)])
    return changed


def retry(ground: Ground, tenant_id: UUID, job_id: UUID) -> Job:
    """Try again what ended badly. The same job, or in chain mode a new one that retries it; always one attempt more."""
    return ground.db.transact(lambda tx: _retry_in(ground, tx, tenant_id, job_id))


def _retry_in(ground: Ground, tx: Tx, tenant_id: UUID, job_id: UUID) -> Job:
    job = _locked(tx, tenant_id, job_id)
    status.RETRY.check(job.status)
    bounds.admit(ground, tx, tenant_id)
    newer = jobs.retry_of(tx, job_id)
    if newer is not None:
        raise status.RETRY.refused(job.status, f"job {newer} already retries it")
    if job.dedupe_key is not None:
        active = jobs.active_with_dedupe_key(tx, tenant_id, job.dedupe_key)
        if active is not None:
            because = f"job {active.id}, which is {active.status}, has the same dedupe key"
            raise status.RETRY.refused(job.status, because)
    allowed = max(job.max_attempts, job.attempt_no + 1)
    waits_for = WaitsFor.TIME
    if job.group_id is not None and job.group_position is not None:
        has_to_wait = groups.rearm(tx, job.group_id, job.group_position)
        waits_for = WaitsFor.GROUP if has_to_wait else WaitsFor.TIME
    if job.retry_mode is RetryMode.CHAIN and job.attempt_no > 0 and job.run_id is not None:
        if job.max_attempts < allowed:
            jobs.change(tx, job_id, {"max_attempts": allowed})
        retry_id = claims.chain(tx, job_id, 0.0)
        again = jobs.change(tx, retry_id, {**_FORGIVEN, "waits_for": waits_for})
    else:
        values = {
            "status": JobStatus.QUEUED,
            "waits_for": waits_for,
            "finished_at": None,
            "cancel_requested_at": None,
        }
        again = jobs.change(
            tx, job_id, {**values, **_FORGIVEN, "scheduled_for": tx.now, "max_attempts": allowed, "result": None}
        )
    assert again is not None
    tx.dialect.wake(tx.conn, [again.queue])
    return again


def _locked(tx: Tx, tenant_id: UUID, job_id: UUID) -> Job:
    job = jobs.get(tx, tenant_id, job_id, lock=True)
    if job is None:
        raise NotFound("job", job_id)
    return job
