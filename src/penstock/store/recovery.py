"""After a crash: find what was left half done. Each finder is a bounded query; closing goes through `claims.close`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import and_, delete, insert, or_, select, text, update

from penstock.core.ids import new_id
from penstock.core.status import JobStatus, RetryMode, RunStatus
from penstock.store.database import Tx
from penstock.store.sealing import error_of
from penstock.store.tables import in_status, jobs, run_in_status, runs, workers

BATCH = 500
SCANNED = 5000
"""How many runs one step of the search for orphans looks at."""


def abandoned(tx: Tx, is_dead: Callable[[str], bool] | None = None) -> list[Any]:
    """Running jobs whose lease is over, or whose worker is known to be dead, with what is known of their runs."""
    over = jobs.c.lease_expires_at <= tx.lease_now
    lost = over
    if is_dead is not None:
        # Told by their holders first, so that a batch is filled with what is lost however much else is running.
        holders = tx.rows(select(jobs.c.claimed_by).where(in_status(JobStatus.RUNNING)).distinct())
        lost = or_(over, jobs.c.claimed_by.in_([row.claimed_by for row in holders if is_dead(row.claimed_by)]))
    query = (
        select(
            jobs.c.id, jobs.c.run_id, jobs.c.claimed_by, over.label("over"), jobs.c.begun, jobs.c.retry_mode, jobs.c.attempt_no,
            jobs.c.max_attempts,
        )
        .where(in_status(JobStatus.RUNNING), lost)
        .order_by(jobs.c.id)
        .limit(BATCH)
    )  # fmt: skip
    return list(tx.rows(query.with_for_update(**tx.dialect.skip_locked)))


def _by_index(tx: Tx) -> None:
    """For this transaction, probe by index whatever the statistics say: what is open is little, history is not."""
    if tx.dialect.name == "postgresql":
        off = ", ".join(f"set_config('enable_{way}', 'off', true)" for way in ("seqscan", "hashjoin", "mergejoin"))
        tx.run(text(f"SELECT {off}"))


def without_run(tx: Tx) -> list[Any]:
    """Running jobs without their run row (seed 004 §5.1): it must not happen, and is mended if it does."""
    _by_index(tx)
    query = (
        select(jobs)
        .outerjoin(runs, and_(runs.c.job_id == jobs.c.id, runs.c.id == jobs.c.run_id))
        .where(in_status(JobStatus.RUNNING), runs.c.id.is_(None))
        .limit(BATCH)
        .with_for_update(of=jobs, **tx.dialect.skip_locked)
    )
    return list(tx.run(query).mappings())


def open_missing_run(tx: Tx, job: Any) -> UUID:
    """Give a running job the run row it lacks, so that it can be closed like any other."""
    run_id: UUID = job["run_id"] or new_id()
    tx.run(
        insert(runs).values(
            job_id=job["id"], attempt_no=max(1, job["attempt_no"]), id=run_id, tenant_id=job["tenant_id"],
            status=RunStatus.RUNNING, worker_id=job["claimed_by"] or "unknown", definition_id=job["definition_id"],
            started_at=job["started_at"] or tx.now,
        )
    )  # fmt: skip
    tx.run(update(jobs).where(jobs.c.id == job["id"]).values(run_id=run_id, attempt_no=max(1, job["attempt_no"])))
    return run_id


class EndedRun(NamedTuple):
    """A running job whose run has ended, and how."""

    id: UUID
    run_id: UUID
    status: str
    error: str | None


def with_ended_run(tx: Tx) -> list[EndedRun]:
    """Running jobs whose run has ended: the job was finishing (seed 004 §4.2)."""
    _by_index(tx)
    query = (
        select(jobs.c.id, jobs.c.run_id, runs.c.status, runs.c.error, jobs.c.tenant_id)
        .join(runs, and_(runs.c.job_id == jobs.c.id, runs.c.id == jobs.c.run_id))
        .where(in_status(JobStatus.RUNNING), runs.c.status != RunStatus.RUNNING)
        .limit(BATCH)
        .with_for_update(of=jobs, **tx.dialect.skip_locked)
    )
    return [
        EndedRun(
            row.id, row.run_id, row.status, tx.codec.open_text(row.error, partial(error_of, row.tenant_id, row.id))
        )
        for row in tx.rows(query)
    ]


def reopen_run(tx: Tx, job_id: UUID, run_id: UUID) -> None:
    """Let a finishing run be finished again, job and run in one transaction this time."""
    tx.run(
        update(runs)
        .where(runs.c.job_id == job_id, runs.c.id == run_id)
        .values(status=RunStatus.RUNNING, finished_at=None, exit_code=None)
    )


def close_stray_runs(tx: Tx) -> int:
    """Open runs whose job is not running on them."""
    _by_index(tx)
    ours = and_(jobs.c.id == runs.c.job_id, jobs.c.run_id == runs.c.id, in_status(JobStatus.RUNNING))
    return tx.count(
        update(runs)
        .where(run_in_status(RunStatus.RUNNING), ~select(jobs.c.id).where(ours).exists())
        .values(
            status=RunStatus.FAILED,
            finished_at=tx.dialect.greatest(runs.c.started_at, tx.now),
            error="crash recovery: its job had moved on",
        )
    )


def remove_orphan_runs(tx: Tx, after: UUID) -> tuple[int, UUID | None]:
    """Remove the runs without a job (seed 004 §5.2) among the next `SCANNED` runs after a job's id. Return how many there were,
    and the job id to go on from; None at the end."""
    _by_index(tx)
    page = tx.rows(select(runs.c.job_id).where(runs.c.job_id > after).order_by(runs.c.job_id).limit(SCANNED))
    if not page:
        return 0, None
    last = page[-1].job_id
    orphan = ~select(jobs.c.id).where(jobs.c.id == runs.c.job_id).exists()
    removed = tx.count(delete(runs).where(runs.c.job_id > after, runs.c.job_id <= last, orphan))
    return removed, last


def failed_without_retry(tx: Tx) -> list[UUID]:
    """Superseded jobs whose retry was never written (seed 004 §4.4): it must not happen, and is mended if it does."""
    _by_index(tx)
    retry = jobs.alias()
    newer = select(retry.c.id).where(retry.c.retry_of == jobs.c.id).exists()
    query = (
        select(jobs.c.id)
        .where(
            in_status(JobStatus.FAILED),
            jobs.c.retry_mode == RetryMode.CHAIN,
            jobs.c.attempt_no < jobs.c.max_attempts,
            ~newer,
        )
        .order_by(jobs.c.id)
        .limit(BATCH)
        .with_for_update(**tx.dialect.skip_locked)
    )
    return [row.id for row in tx.rows(query)]


def forget_workers(tx: Tx, unseen_for: float, is_dead: Callable[[str], bool] | None = None) -> int:
    """Mark workers as stopped that were not seen for long, or whose process is dead."""
    query = select(workers.c.id, (workers.c.last_seen_at <= tx.later(-unseen_for)).label("old")).where(
        workers.c.stopped_at.is_(None)
    )
    gone = [row.id for row in tx.rows(query) if row.old or (is_dead is not None and is_dead(row.id))]
    if not gone:
        return 0
    return tx.count(update(workers).where(or_(workers.c.id.in_(gone))).values(stopped_at=tx.now, running_count=0))
