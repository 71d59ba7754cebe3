"""After a crash: find what was left half done. Each finder is a bounded query; closing goes through `claims.close`.

A job that runs is a row of `running`, which is its open run: neither can be without the other. What is looked for beside lost leases
should not be there at all. It is bounded by what runs, and what only an operator asks for (`strays`) goes through all there is, a page
at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Table,
    and_,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    text,
    tuple_,
    union,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from penstock.core.ids import new_id
from penstock.core.status import RetryMode, RunStatus
from penstock.store import states
from penstock.store.database import Tx
from penstock.store.sealing import error_of
from penstock.store.tables import dedupe, ended_as, jobs, ready, running, runs, waiting, workers

BATCH = 500
PLACES = (waiting, ready)
SCANNED = 5000
"""How many rows one step of a search through everything looks at."""


def abandoned(tx: Tx, is_dead: Callable[[str], bool] | None = None) -> list[Any]:
    """Open runs whose lease is over, or whose worker is known to be dead."""
    over = running.c.lease_expires_at <= tx.lease_now
    lost = over
    if is_dead is not None:
        # Told by their holders first, so that a batch is filled with what is lost however much else is running.
        holders = tx.rows(select(running.c.worker_id).distinct())
        lost = or_(over, running.c.worker_id.in_([row.worker_id for row in holders if is_dead(row.worker_id)]))
    query = (
        select(
            running.c.job_id.label("id"), running.c.run_id, running.c.worker_id.label("claimed_by"), over.label("over"),
            running.c.begun, jobs.c.retry_mode, running.c.attempt_no, running.c.max_attempts,
        )
        .outerjoin(jobs, jobs.c.id == running.c.job_id)
        .where(lost, _is_there(jobs.c.retry_mode))
        .order_by(running.c.job_id)
        .limit(BATCH)
    )  # fmt: skip
    return list(tx.rows(query.with_for_update(of=running, **tx.dialect.skip_locked)))


def _is_there(joined: ColumnElement[str]) -> ColumnElement[bool]:
    """Whether what runs was joined to this. Asked so that SQLite does not see that it could as well begin with that table."""
    return func.coalesce(joined, "") != ""


def _by_index(tx: Tx) -> None:
    """For this transaction, probe by index whatever the statistics say: what is open is little, history is not."""
    if tx.dialect.name == "postgresql":
        off = ", ".join(f"set_config('enable_{way}', 'off', true)" for way in ("seqscan", "hashjoin", "mergejoin"))
        tx.run(text(f"SELECT {off}"))


class EndedRun(NamedTuple):
    """An open run that is written as closed, and how."""

    id: UUID
    run_id: UUID
    status: str
    error: str | None


def with_ended_run(tx: Tx) -> list[EndedRun]:
    """Open runs that are written as closed too, of jobs that have not ended: they were finishing (seed 004 §4.2)."""
    _by_index(tx)
    at = and_(
        runs.c.job_id == running.c.job_id, runs.c.attempt_no == running.c.attempt_no, runs.c.id == running.c.run_id
    )
    query = (
        select(running.c.job_id, running.c.run_id, runs.c.status, runs.c.error, running.c.tenant_id)
        .outerjoin(runs, at)
        .where(_is_there(runs.c.status), ~_has_ended(running))
        .limit(BATCH)
        .with_for_update(of=running, **tx.dialect.skip_locked)
    )
    return [
        EndedRun(
            row.job_id, row.run_id, row.status, tx.codec.open_text(row.error, partial(error_of, row.tenant_id, row.job_id))
        )
        for row in tx.rows(query)
    ]  # fmt: skip


def reopen_run(tx: Tx, job_id: UUID, run_id: UUID) -> None:
    """Let a finishing run be finished again, job and run in one transaction this time."""
    tx.run(delete(runs).where(runs.c.job_id == job_id, runs.c.id == run_id))


def _has_ended(table: Table) -> ColumnElement[bool]:
    last = runs.alias()
    return exists().where(last.c.job_id == table.c.job_id, last.c.job_status.is_not(None))


def _has_no_job(table: Table) -> ColumnElement[bool]:
    return ~exists().where(jobs.c.id == table.c.job_id)


def _is_in(other: Table, table: Table) -> ColumnElement[bool]:
    return exists().where(other.c.job_id == table.c.job_id, other.c.tenant_id == table.c.tenant_id)


def remove_stray_runs(tx: Tx) -> int:
    """Remove open runs of jobs that have ended, or are not there."""
    _by_index(tx)
    found = select(running.c.job_id).where(or_(_has_ended(running), _has_no_job(running))).limit(BATCH)
    ids = [row.job_id for row in tx.rows(found.with_for_update(of=running, **tx.dialect.skip_locked))]
    if not ids:
        return 0
    states.forget_dedupe_keys(tx, ids)
    return tx.count(delete(running).where(running.c.job_id.in_(ids)))


def remove_second_states(tx: Tx) -> int:
    """A job that runs neither waits nor can be claimed: its open run is the truth, and what is beside it goes."""
    _by_index(tx)
    removed = 0
    for table in (ready, waiting):
        both = select(table.c.job_id).join(
            running, and_(running.c.job_id == table.c.job_id, running.c.tenant_id == table.c.tenant_id)
        )
        ids = [row.job_id for row in tx.rows(both.limit(BATCH))]
        if ids:
            removed += tx.count(delete(table).where(table.c.job_id.in_(ids), _is_in(running, table)))
    return removed


def remove_stray_states(tx: Tx, table: Table, after: tuple[UUID, UUID]) -> tuple[int, tuple[UUID, UUID] | None]:
    """Among the next `SCANNED` rows of `waiting` or `ready` after a tenant's job, remove those of jobs that have ended, are not there,
    or are in another state: of two, `waiting` is the careful one. Return how many there were, and where to go on; None at the end."""
    _by_index(tx)
    key = (table.c.tenant_id, table.c.job_id)
    page = tx.rows(select(*key).where(_after(key, after)).order_by(*key).limit(SCANNED))
    if not page:
        return 0, None
    last = (page[-1].tenant_id, page[-1].job_id)
    here = and_(_after(key, after), ~_after(key, last))
    strays = [_has_ended(table), _has_no_job(table), _is_in(running, table)]
    if table is ready:
        strays.append(_is_in(waiting, ready))
    # Each by itself: PostgreSQL reads all of history for an EXISTS beside an OR.
    found = tx.rows(union(*(select(table.c.job_id).where(here, stray) for stray in strays)))
    ids = [row.job_id for row in found]
    return tx.count(delete(table).where(here, table.c.job_id.in_(ids))) if ids else 0, last


def _after(key: tuple[Any, ...], last: tuple[Any, ...]) -> ColumnElement[bool]:
    """Whether a key comes after this one: compared as a row, so that the index begins there."""
    return tuple_(*key) > tuple_(*(literal(value, each.type) for each, value in zip(key, last, strict=True)))


def remove_orphan_runs(tx: Tx, after: UUID) -> tuple[int, UUID | None]:
    """Remove the runs without a job (seed 004 §5.2) among the next `SCANNED` runs after a job's id. Return how many there were,
    and the job id to go on from; None at the end."""
    _by_index(tx)
    page = tx.rows(select(runs.c.job_id).where(runs.c.job_id > after).order_by(runs.c.job_id).limit(SCANNED))
    if not page:
        return 0, None
    last = page[-1].job_id
    removed = tx.count(delete(runs).where(runs.c.job_id > after, runs.c.job_id <= last, _has_no_job(runs)))
    return removed, last


def lost(tx: Tx, after: UUID) -> tuple[list[UUID], UUID | None]:
    """Of the next `SCANNED` jobs after an id, those that are in no state and have not ended (seed 004 §5.1). And where to go on."""
    _by_index(tx)
    page = tx.rows(select(jobs.c.id).where(jobs.c.id > after).order_by(jobs.c.id).limit(SCANNED))
    if not page:
        return [], None
    last = page[-1].id
    query = select(jobs.c.id).where(jobs.c.id > after, jobs.c.id <= last, _is_nowhere()).order_by(jobs.c.id)
    return [row.id for row in tx.rows(query.with_for_update(of=jobs, **tx.dialect.skip_locked))], last


def _is_nowhere() -> ColumnElement[bool]:
    outside = (
        ~exists().where(table.c.job_id == jobs.c.id, table.c.tenant_id == jobs.c.tenant_id)
        for table in (waiting, ready)
    )
    not_ended = ~exists().where(runs.c.job_id == jobs.c.id, runs.c.job_status.is_not(None))
    return and_(*outside, ~exists().where(running.c.job_id == jobs.c.id), not_ended)


def is_lost(tx: Tx, job_id: UUID) -> bool:
    """Looked at anew, under its lock: another recovery may have taken it up since ours began to look."""
    return tx.first(select(jobs.c.id).where(jobs.c.id == job_id, _is_nowhere())) is not None


def take_up(tx: Tx, job_id: UUID, worker_id: str) -> UUID | None:
    """Give a lost job an open run, so that it can be closed like any other, and return that. One whose last run succeeded has only not
    been said to have ended: it ends, and there is no run to close."""
    last = tx.first(
        select(runs.c.attempt_no, runs.c.max_attempts, runs.c.status)
        .where(runs.c.job_id == job_id)
        .order_by(runs.c.attempt_no.desc())
        .limit(1)
    )
    if last is not None and last.status == RunStatus.SUCCEEDED:
        here = and_(runs.c.job_id == job_id, runs.c.attempt_no == last.attempt_no)
        tx.run(update(runs).where(here).values(job_status="succeeded"))
        states.forget_dedupe_keys(tx, [job_id])
        return None
    attempt = 1 if last is None else last.attempt_no + 1
    allowed = jobs.c.max_attempts if last is None else literal(last.max_attempts)
    run_id = new_id()
    values: dict[str, Any] = {
        "job_id": jobs.c.id, "tenant_id": jobs.c.tenant_id, "queued_at": jobs.c.created_at, "priority": jobs.c.priority,
        "attempt_no": literal(attempt), "max_attempts": tx.dialect.greatest(allowed, literal(attempt)), "crashes": literal(0),
        "interruptions": literal(0), "suspect": literal(True), "queue": jobs.c.queue, "definition_key": jobs.c.definition_key,
        "definition_id": jobs.c.definition_id, "group_id": jobs.c.group_id, "trigger_id": jobs.c.trigger_id,
        "dedupe_key": jobs.c.dedupe_key, "run_id": literal(run_id, running.c.run_id.type), "ready_at": jobs.c.created_at,
        "started_at": tx.dialect.greatest(tx.now, jobs.c.created_at), "lease_expires_at": tx.lease_now, "position": literal(0),
        "slot": literal(False), "begun": literal(True), "worker_id": literal(worker_id),
    }  # fmt: skip
    row = select(*(value.label(name) for name, value in values.items())).where(jobs.c.id == job_id)
    tx.run(insert(running).from_select([*values], row))
    return run_id


def failed_without_retry(tx: Tx) -> list[UUID]:
    """Superseded jobs whose retry was never written (seed 004 §4.4): it must not happen, and is mended if it does."""
    _by_index(tx)
    retry = jobs.alias()
    newer = select(retry.c.id).where(retry.c.retry_of == runs.c.job_id).exists()
    query = (
        select(runs.c.job_id)
        .join(jobs, jobs.c.id == runs.c.job_id)
        .where(
            ended_as("failed"),
            jobs.c.retry_mode == RetryMode.CHAIN,
            runs.c.attempt_no < runs.c.max_attempts,
            ~newer,
        )
        .order_by(runs.c.job_id)
        .limit(BATCH)
        .with_for_update(of=jobs, **tx.dialect.skip_locked)
    )
    return [row.job_id for row in tx.rows(query)]


def remove_stray_keys(tx: Tx, after: tuple[UUID, str]) -> tuple[int, tuple[UUID, str] | None]:
    """Among the next `SCANNED` dedupe keys, forget those of jobs that are not active. Return how many, and where to go on."""
    _by_index(tx)
    key = (dedupe.c.tenant_id, dedupe.c.dedupe_key)
    page = tx.rows(select(*key).where(_after(key, after)).order_by(*key).limit(SCANNED))
    if not page:
        return 0, None
    last = (page[-1].tenant_id, page[-1].dedupe_key)
    inactive = (~_is_in(table, dedupe) for table in (waiting, ready, running))
    return tx.count(delete(dedupe).where(_after(key, after), ~_after(key, last), *inactive)), last


def take_missing_keys(tx: Tx) -> int:
    """Take the dedupe keys of active jobs that nobody has. Where another job has it, that is left to `doctor()` to tell."""
    _by_index(tx)
    taken = 0
    for table in (waiting, ready, running):
        free = ~exists().where(dedupe.c.tenant_id == table.c.tenant_id, dedupe.c.dedupe_key == table.c.dedupe_key)
        query = select(table.c.tenant_id, table.c.dedupe_key, table.c.job_id)
        found = tx.rows(query.where(table.c.dedupe_key.is_not(None), free).order_by(table.c.job_id).limit(BATCH))
        for row in found:
            key = insert(dedupe).values(tenant_id=row.tenant_id, dedupe_key=row.dedupe_key, job_id=row.job_id)
            taken += tx.first(key.on_conflict_do_nothing().returning(dedupe.c.job_id)) is not None
    return taken


def forget_workers(tx: Tx, unseen_for: float, is_dead: Callable[[str], bool] | None = None) -> int:
    """Mark workers as stopped that were not seen for long, or whose process is dead."""
    query = select(workers.c.id, (workers.c.last_seen_at <= tx.later(-unseen_for)).label("old")).where(
        workers.c.stopped_at.is_(None)
    )
    gone = [row.id for row in tx.rows(query) if row.old or (is_dead is not None and is_dead(row.id))]
    if not gone:
        return 0
    return tx.count(update(workers).where(or_(workers.c.id.in_(gone))).values(stopped_at=tx.now, running_count=0))
