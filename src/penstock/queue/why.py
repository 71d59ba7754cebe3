"""Why a queued job is not running, or why it ended as it did: one sentence, and the facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from penstock.core.errors import NotFound
from penstock.core.leases import present_for
from penstock.core.masking import hidden_job
from penstock.core.nouns import Job, Why
from penstock.core.status import JobStatus, WaitsFor
from penstock.core.worker_names import masked, own_name, shown
from penstock.queue.ground import Ground
from penstock.queue.shown import marks_for
from penstock.store import definitions, jobs, reservations, tenants
from penstock.store import why as facts
from penstock.store.database import Tx

Name = Callable[[str], str]
"""How a worker is called by whoever is told."""
SHOWN = 5
"""How many jobs that hold a limit are named."""


def why(ground: Ground, tenant_id: UUID, job_id: UUID, *, for_tenant: bool = False) -> Why:
    """Tell why a job is not running, or why it ended as it did. `for_tenant` says nothing of the operator's machines."""
    name = (lambda worker: shown(tenant_id, worker)) if for_tenant else (lambda worker: own_name(tenant_id, worker))
    with ground.db.read() as tx:
        job = jobs.get(tx, tenant_id, job_id)
        if job is None:
            raise NotFound("job", job_id)
        job = hidden_job(job, marks_for(tx, [job.definition_id])[job.definition_id])  # the sentence quotes its error
        told = _waiting(ground, tx, job, name) if job.status is JobStatus.QUEUED else _moved(tx, job, name)
    if not for_tenant:
        return told
    plain = {name: masked(tenant_id, fact) if isinstance(fact, str) else fact for name, fact in told.facts.items()}
    return Why(masked(tenant_id, told.sentence), told.reason, plain)


def _waiting(ground: Ground, tx: Tx, job: Job, name: Name) -> Why:
    now = tx.time()
    if job.waits_for is WaitsFor.GROUP:
        before = facts.predecessor(tx, job)
        told: dict[str, Any] = {"group_id": str(job.group_id), "predecessor": str(before.id) if before else None}
        what = f"job {before.id}, which is {before.status}" if before else "its predecessor"
        return Why(f"It waits for its turn in its group, after {what}.", "group", told)
    if job.scheduled_for > now:
        wait = (job.scheduled_for - now).total_seconds()
        retry = f" It is attempt {job.attempt_no + 1} after: {job.last_error}" if job.last_error else ""
        told = {"scheduled_for": job.scheduled_for.isoformat(), "seconds": wait}
        return Why(f"It is due at {job.scheduled_for:%Y-%m-%d %H:%M:%S} UTC, in {wait:.0f} s.{retry}", "time", told)
    held = reservations.active(tx, job.tenant_id)
    if held is not None:
        told = {"reserved_by": held.reserved_by, "expires_at": held.expires_at.isoformat()}
        sentence = f"Its tenant is reserved by {held.reserved_by} until {held.expires_at:%H:%M:%S} UTC at the latest."
        return Why(sentence, "reserved", told)
    if facts.queue_paused(tx, job.queue):
        return Why(f"Its queue {job.queue!r} is paused.", "paused", {"queue": job.queue})
    limited = _limit(tx, job)
    if limited is not None:
        return limited
    offering = facts.offering(tx, job, present_for(ground.config.lease_seconds))
    if not offering:
        told = {"queue": job.queue, "key": job.definition_key}
        return Why(
            f"No worker that is alive offers {job.definition_key!r} on the queue {job.queue!r}.", "no_worker", told
        )
    ahead = facts.ahead(tx, job)
    return Why(
        f"It is next after {ahead} other job(s); {len(offering)} worker(s) offer it.",
        "in_line",
        {"ahead": ahead, "workers": [name(each) for each in offering]},
    )


def _limit(tx: Tx, job: Job) -> Why | None:
    definition = definitions.by_id(tx, job.definition_id) if job.definition_id else None
    if definition is not None and definition.paused:
        return Why(f"The definition {definition.key!r} is paused.", "paused", {"definition": definition.key})
    if job.waits_for is not WaitsFor.LIMIT:
        return None
    tenant = tenants.by_id(tx, job.tenant_id)
    if tenant is not None and not tenant.is_active:
        return Why("Its tenant is inactive.", "paused", {"tenant": tenant.slug})
    limits = [
        (f"{definition.key!r} runs", definition.max_running, {"definition_id": definition.id}) if definition else None,
        ("The tenant runs", tenant.max_running, {"tenant_id": tenant.id}) if tenant else None,
    ]
    for who, most, scope in filter(None, limits):
        holders = facts.running_of(tx, **scope, most=most) if most is not None else []
        if most is not None and len(holders) >= most:
            shown = holders[:SHOWN]
            told: dict[str, Any] = {"max_running": most, "running": [str(i) for i in shown]}
            return Why(f"{who} at most {most} at a time; running: {_names(shown)}.", "limit", told)
    return Why("It gets its place with the next claim.", "limit", {})


def _names(ids: list[UUID]) -> str:
    return ", ".join(str(i) for i in ids) or "none yet"


def _moved(tx: Tx, job: Job, name: Name) -> Why:
    told: dict[str, Any] = {"status": str(job.status), "attempt_no": job.attempt_no, "max_attempts": job.max_attempts}
    if job.status is JobStatus.RUNNING:
        asked = " It was asked to stop." if job.cancel_requested_at else ""
        worker = "a worker" if job.claimed_by is None else name(job.claimed_by)
        return Why(
            f"It is running on {worker}, attempt {job.attempt_no} of {job.max_attempts}.{asked}",
            "running",
            told,
        )
    if job.status is JobStatus.SUCCEEDED:
        return Why(f"It succeeded at attempt {job.attempt_no}.", "succeeded", told)
    reason = job.last_error or "no reason was recorded"
    if job.status is JobStatus.CANCELED:
        return Why(f"It was canceled: {reason}.", "canceled", told)
    if job.status is JobStatus.FAILED:
        newer = jobs.retry_of(tx, job.id)
        return Why(f"It failed: {reason}. Job {newer} retries it.", "failed", {**told, "retried_by": str(newer)})
    used = (
        f"all {job.max_attempts} attempts are used up"
        if job.attempt_no >= job.max_attempts
        else "trying again is of no use"
    )
    return Why(f"It failed for good, {used}: {reason}. Retry it by hand when the cause is mended.", "dead_letter", told)
