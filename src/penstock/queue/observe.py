"""Looking: one job, many, how it stands, whether all is well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from penstock.core import check
from penstock.core.audit_chain import Verified
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.leases import present_for
from penstock.core.nouns import Health, Job, Run, Violation, Warning_
from penstock.core.status import TERMINAL, JobStatus, one_of
from penstock.queue import audit, keyring
from penstock.queue.ground import Ground
from penstock.store import audit_chain, jobs, prune, served, waiting, workers
from penstock.store import doctor as checks
from penstock.store.checks import CHECKS
from penstock.store.database import Tx
from penstock.store.jobs import Filter

MAX_PAGE = 1000
TAMPERED = "entry of the audit that was edited, removed, inserted or moved"
UNSEALED = timedelta(hours=1)
FILTERS = frozenset(Filter.__dataclass_fields__) - {"statuses"}


@dataclass(frozen=True, slots=True)
class Summary:
    """How a tenant's queue stands."""

    counts: dict[JobStatus, int]
    oldest_queued_seconds: float | None
    """How long the longest-waiting job has been able to run: since it was enqueued, or since its time came. Jobs that
    are due count, too, while no worker is alive to give them their place."""

    @property
    def running(self) -> int:
        return self.counts[JobStatus.RUNNING]

    @property
    def queued(self) -> int:
        return self.counts[JobStatus.QUEUED]


def get(ground: Ground, tenant_id: UUID, job_id: UUID) -> Job:
    with ground.db.read() as tx:
        found = jobs.get(tx, tenant_id, job_id)
    if found is None:
        raise NotFound("job", job_id)
    return found


def filter_of(status: str | Sequence[str] | None = None, **narrowed: Any) -> Filter:
    given = [status] if isinstance(status, str) else status
    known = [s.value for s in JobStatus]
    statuses = tuple(JobStatus) if given is None else tuple(JobStatus(one_of("status", s, known)) for s in given)
    values: dict[str, Any] = {}
    for name, value in narrowed.items():
        if name not in FILTERS:
            raise InvalidInput(f"Jobs cannot be narrowed by {name!r}; known: {', '.join(sorted(FILTERS))}.")
        if value is None or isinstance(value, datetime):
            values[name] = value
        elif name.endswith("_id") and name != "correlation_id":
            values[name] = check.identifier(name, value)
        else:
            values[name] = check.text(name, value, 500)
    return Filter(statuses=statuses, **values)


def listed(
    ground: Ground, tenant_id: UUID, where: Filter, limit: int = 50, offset: int = 0, before: UUID | None = None
) -> list[Job]:
    """Newest first. `before` is a cursor: the id of the last job of the page before."""
    check.integer("limit", limit, 1, MAX_PAGE)
    check.integer("offset", offset, 0, 1_000_000)
    with ground.db.read() as tx:
        return jobs.listed(tx, tenant_id, where, limit, offset, before)


def summary(ground: Ground, tenant_id: UUID, cap: int | None = None) -> Summary:
    with ground.db.read(patient=True) as tx:  # without a cap it counts all there is
        oldest = waiting.oldest_ready_at(tx, tenant_id)
        age = None if oldest is None else max(0.0, (tx.time() - oldest).total_seconds())
        return Summary(jobs.counts(tx, tenant_id, cap), age)


def runs(ground: Ground, tenant_id: UUID, job_id: UUID) -> list[Run]:
    with ground.db.read() as tx:
        if jobs.get(tx, tenant_id, job_id) is None:
            raise NotFound("job", job_id)
        return jobs.runs_of(tx, tenant_id, job_id)


def chain(ground: Ground, tenant_id: UUID, job_id: UUID) -> list[Job]:
    """The job's whole retry chain, first to last; a chain of one in requeue mode."""
    with ground.db.read() as tx:
        found = jobs.get(tx, tenant_id, job_id)
        if found is None:
            raise NotFound("job", job_id)
        return jobs.chain_of(tx, tenant_id, found.root_id)


def present_workers(ground: Ground) -> list[dict[str, Any]]:
    with ground.db.read() as tx:
        return workers.present(tx, present_for(ground.config.lease_seconds))


def doctor(ground: Ground) -> Health:
    """Every promise as a query over the live database, and what an operator should look at."""
    from penstock.store.pipeline import doctor as pipelines  # a worker does without

    with ground.db.read(patient=True) as tx:
        chains = audit_chain.verify(tx)
        found = [*checks.violations(tx, ground.config.grace_seconds), *_tampered(chains), *pipelines.violations(tx)]
        missed = [Warning_("engine without what Penstock needs", message) for message in ground.db.missing]
        unserved = served.warnings(tx, present_for(ground.config.lease_seconds))
        warned = [*missed, *checks.warnings(tx), *unserved, *_doubtful(tx, chains), *pipelines.warnings(tx)]
        kept = keyring.looked_at(tx)
        return Health(tuple(found), (*warned, *kept.warnings), len(CHECKS) + 2, kept.notes)


def _tampered(chains: Verified) -> list[Violation]:
    told = tuple(str(finding) for finding in chains.findings)
    return [Violation(TAMPERED, "audit", told)] if told else []


def _doubtful(tx: Tx, chains: Verified) -> list[Warning_]:
    notes = [Warning_("audit entry to look at", f"In {note}") for note in chains.notes]
    late = audit_chain.unsealed(tx, tx.time() - UNSEALED) if chains.unsealed else 0
    if late:
        message = (
            f"{late:,} entries of the audit have not been sealed into its hash chain for an hour. The service and every worker seal "
            "them; without either, run `penstock audit head`."
        )
        notes.append(Warning_("unsealed audit", message))
    return notes


def _forget(ground: Ground, tenant_id: UUID, status: JobStatus, before: datetime) -> int:
    """Delete what a tenant's jobs of this status left behind, a batch at a time."""
    removed = 0
    after: UUID | None = prune.FIRST
    while after is not None:
        work = partial(prune.finished_jobs, tenant_id=tenant_id, status=status, before=before, after=after)
        batch, after = ground.db.transact(work, patient=True)
        removed += batch
    return removed


def forget(
    ground: Ground,
    older_than: timedelta | None = None,
    statuses: Sequence[str] | None = None,
    tenant_id: UUID | None = None,
) -> dict[str, int]:
    """Delete what ended long ago, in batches, never anything active. Answers how many of each."""
    age = timedelta(days=ground.config.retention_days) if older_than is None else older_than
    if age < timedelta(0):
        raise InvalidInput(f"older_than is {age}; expected no less than zero.")
    wanted = (
        [JobStatus(one_of("status", s, [t.value for t in TERMINAL])) for s in statuses]
        if statuses
        else sorted(TERMINAL)
    )
    with ground.db.read() as tx:
        before = tx.time() - age
        tenants = prune.with_history(tx, tenant_id)
    removed = sum(_forget(ground, tenant, status, before) for tenant in tenants for status in wanted)
    if statuses is not None or tenant_id is not None:
        return {"jobs": removed}
    others = ground.db.transact(lambda tx: prune.old_rows(tx, before), patient=True)
    return {"jobs": removed, **others, "audit": audit.prune(ground, before)}
