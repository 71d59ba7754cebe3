"""Stopping, and trying again by hand."""

from __future__ import annotations

from uuid import UUID

from penstock.core import status
from penstock.core.errors import NotFound
from penstock.core.nouns import Job
from penstock.core.status import JobStatus, RetryMode, WaitsFor
from penstock.queue import bounds
from penstock.queue.ground import Ended, Ground
from penstock.queue.record import CRASH_RECOVERY
from penstock.store import claims, edits, groups, jobs, states
from penstock.store.database import Tx

BY_HAND = "canceled on request"


def cancel(ground: Ground, tenant_id: UUID, job_id: UUID, reason: str = BY_HAND) -> Job:
    """A queued job is canceled at once; a running one is asked to stop, and its worker sees it with the next heartbeat."""
    return ground.db.transact(lambda tx: cancel_in(ground, tx, tenant_id, job_id, reason))


def cancel_in(ground: Ground, tx: Tx, tenant_id: UUID, job_id: UUID, reason: str = BY_HAND) -> Job:
    job = _held(tx, tenant_id, job_id)
    status.CANCEL.check(job.status)
    if job.status is JobStatus.RUNNING:
        states.ask_to_stop(tx, job_id)
        return _read(tx, tenant_id, job_id)
    states.cancel_queued(tx, job, reason)
    group_ended = groups.advance(tx, job.group_id) if job.group_id else False
    ground.outbox(tx, [Ended(job_id, tenant_id, None, None, job.group_id, group_ended)])
    return _read(tx, tenant_id, job_id)


def retry(ground: Ground, tenant_id: UUID, job_id: UUID) -> Job:
    """Try again what ended badly. The same job, or in chain mode a new one that retries it; always one attempt more."""
    return ground.db.transact(lambda tx: _retry_in(ground, tx, tenant_id, job_id))


def _retry_in(ground: Ground, tx: Tx, tenant_id: UUID, job_id: UUID) -> Job:
    job = _held(tx, tenant_id, job_id)
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
    # Somebody has looked at the job, so its crashes are forgiven. One that was under way in a crash stays a suspect until it
    # has ended by itself.
    suspect = CRASH_RECOVERY in (jobs.error_of_last_run(tx, job) or "")
    if job.retry_mode is RetryMode.CHAIN and job.run_id is not None:
        again_id = claims.chain(tx, job_id, 0.0, max_attempts=allowed, waits_for=waits_for, suspect=suspect)
    else:
        again_id = job_id
        states.begin_again(tx, [job_id], waits_for, max_attempts=allowed, suspects=suspect)
        edits.set_time(tx, job_id, tx.now)
    tx.dialect.wake(tx.conn, [job.queue])
    return _read(tx, tenant_id, again_id)


def _held(tx: Tx, tenant_id: UUID, job_id: UUID) -> Job:
    """The job, held, and its group before it: the end of another member holds the group first, too."""
    group_id = jobs.group_of(tx, tenant_id, job_id)
    if group_id is not None:
        groups.hold(tx, group_id)
    job = jobs.get(tx, tenant_id, job_id, lock=True)
    if job is None:
        raise NotFound("job", job_id)
    return job


def _read(tx: Tx, tenant_id: UUID, job_id: UUID) -> Job:
    job = jobs.get(tx, tenant_id, job_id)
    assert job is not None
    return job
