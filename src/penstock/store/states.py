"""Moving a job from table to table, where not the hot path does: by hand, by a group, by its time, after a crash.

A move is an INSERT and a DELETE in one transaction, of rows that the caller holds: `hold` takes one job's, and the finders of
`promote` and `recovery` take many with SKIP LOCKED. On SQLite whoever writes holds everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Table,
    and_,
    case,
    column,
    delete,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    tuple_,
    update,
    values,
)

from penstock.core.nouns import Job
from penstock.core.status import JobStatus, WaitsFor
from penstock.store.database import Tx
from penstock.store.tables import CARRIED, dedupe, definitions, jobs, ready, running, runs, tenants, waiting
from penstock.store.types import Id


def hold(tx: Tx, tenant_id: UUID, job_id: UUID) -> bool:
    """Hold a job of this tenant and the row of its state until the transaction ends. Returns whether there is such a job.

    Each look is a statement of its own, so it sees what was committed before it: a job that moves on meanwhile is met in the
    next table, and one that has ended is only begun again by somebody who holds it.
    """
    mine = select(jobs.c.id).where(jobs.c.id == job_id, jobs.c.tenant_id == tenant_id).with_for_update()
    if tx.first(mine) is None:
        return False
    while tx.dialect.many_writers:
        for table in (waiting, ready, running):
            here = select(table.c.job_id).where(table.c.job_id == job_id, table.c.tenant_id == tenant_id)
            if tx.first(here.with_for_update()) is not None:
                return True
        ended = select(runs.c.job_id).where(runs.c.job_id == job_id, runs.c.job_status.is_not(None))
        at = [(table.c.job_id == job_id) & (table.c.tenant_id == tenant_id) for table in (waiting, ready, running)]
        somewhere = or_(*(select(literal(1)).where(here).exists() for here in at))
        if tx.first(ended) is not None or not tx.scalar(select(somewhere)):
            return True
    return True


def of_jobs(table: Table, ids: Sequence[UUID]) -> ColumnElement[bool]:
    """The rows of these jobs in `waiting`, `ready` or `running`. The first two are by tenant and job."""
    if table is running:
        return table.c.job_id.in_(ids)
    return tuple_(table.c.tenant_id, table.c.job_id).in_(select(jobs.c.tenant_id, jobs.c.id).where(jobs.c.id.in_(ids)))


def _leave(tx: Tx, table: Table, ids: Sequence[UUID]) -> None:
    tx.run(delete(table).where(of_jobs(table, ids)))


def _move(tx: Tx, source: Table, target: Table, ids: Sequence[UUID], new: Mapping[str, Any]) -> None:
    """Copy what is carried, with these values beside it or instead of it, and leave."""
    if not ids:
        return
    changed = {
        name: value if isinstance(value, ColumnElement) else literal(value, target.c[name].type)
        for name, value in new.items()
    }
    kept = [name for name in CARRIED if name not in changed]
    columns = [source.c[name] for name in kept] + [value.label(name) for name, value in changed.items()]
    tx.run(insert(target).from_select([*kept, *changed], select(*columns).where(of_jobs(source, ids))))
    _leave(tx, source, ids)


def wait(
    tx: Tx,
    source: Table,
    ids: Sequence[UUID],
    reason: WaitsFor,
    until: Any = None,
    changed: Mapping[str, Any] | None = None,
) -> None:
    """Let jobs of `waiting`, `ready` or `running` wait for this. `until` is when those that wait for their time are due; those
    that were due and have to wait for a slot keep it."""
    if not ids:
        return
    new: dict[str, Any] = {"reason": str(reason), **(changed or {})}
    if until is not None or source is not waiting or reason is WaitsFor.GROUP:
        new["until"] = null() if until is None else until
    if source is not waiting or reason is WaitsFor.GROUP:
        turn = select(jobs.c.group_position).where(jobs.c.id == source.c.job_id).scalar_subquery()
        new["group_position"] = turn if reason is WaitsFor.GROUP else null()
    if source is waiting:
        tx.run(update(waiting).where(of_jobs(waiting, ids)).values(**new))
    else:
        _move(tx, source, waiting, ids, new)


def make_ready(tx: Tx, places: Sequence[tuple[UUID, UUID, int]], *, slot: bool) -> None:
    """Jobs of `waiting` can be claimed from now on. A place is the job's tenant, the job, and its position."""
    if not places:
        return
    placed = (
        values(column("tenant_id", Id), column("job_id", Id), column("place", BigInteger), name="placed")
        .data([*places])
        .cte("placed")
    )
    at = and_(waiting.c.tenant_id == placed.c.tenant_id, waiting.c.job_id == placed.c.job_id)
    new = {"position": placed.c.place, "ready_at": ready_since(tx, waiting), "slot": literal(slot, ready.c.slot.type)}
    columns = [waiting.c[name] for name in CARRIED] + [value.label(name) for name, value in new.items()]
    tx.run(insert(ready).from_select([*CARRIED, *new], select(*columns).join_from(placed, waiting, at)))
    _leave(tx, waiting, [job_id for _, job_id, _ in places])


def ready_since(tx: Tx, table: Table) -> ColumnElement[datetime]:
    """Since when a job of `waiting` that is made ready could have run: since its time, if it waited for that."""
    return tx.dialect.greatest(table.c.queued_at, func.coalesce(table.c.until, table.c.queued_at))


def give_back(tx: Tx, ids: Sequence[UUID], *, suspects: bool) -> None:
    """Jobs of `running` that were never begun are ready again, at the place they had, as if they had not been claimed."""
    new: dict[str, Any] = {
        "attempt_no": running.c.attempt_no - 1, "position": running.c.position, "ready_at": running.c.ready_at,
        "slot": running.c.slot,
    }  # fmt: skip
    _move(tx, running, ready, ids, {**new, "suspect": True} if suspects else new)


def give_back_limited(tx: Tx, ids: Sequence[UUID], *, suspects: bool) -> None:
    """The same for jobs whose definition was paused, or limited, meanwhile: they wait for a slot."""
    new: dict[str, Any] = {"attempt_no": running.c.attempt_no - 1}
    wait(tx, running, ids, WaitsFor.LIMIT, running.c.ready_at, {**new, "suspect": True} if suspects else new)


def ask_to_stop(tx: Tx, job_id: UUID) -> None:
    """Ask the worker of a running job to stop it. The first time it was asked for is kept."""
    asked = func.coalesce(running.c.cancel_requested_at, tx.now)
    tx.run(update(running).where(running.c.job_id == job_id).values(cancel_requested_at=asked))


def end_without_run(tx: Tx, source: Table, ids: Sequence[UUID], status: JobStatus, error: str | None) -> None:
    """Jobs of `waiting` or `ready` end without another run: the row in `runs` stands in the place of the next attempt."""
    if not ids:
        return
    columns = {
        "job_id": source.c.job_id, "tenant_id": source.c.tenant_id, "finished_at": tx.dialect.greatest(tx.now, source.c.queued_at),
        "attempt_no": source.c.attempt_no + 1, "max_attempts": source.c.max_attempts, "job_status": literal(str(status)),
        "definition_id": source.c.definition_id, "error": literal(error, runs.c.error.type), "group_id": source.c.group_id,
        "group_position": select(jobs.c.group_position).where(jobs.c.id == source.c.job_id).scalar_subquery(),
    }  # fmt: skip
    ended = select(*(value.label(name) for name, value in columns.items())).where(of_jobs(source, ids))
    tx.run(insert(runs).from_select([*columns], ended))
    forget_dedupe_keys(tx, ids)
    _leave(tx, source, ids)


def cancel_queued(tx: Tx, job: Job, reason: str) -> None:
    """Cancel a job that waits or is ready. The caller holds it."""
    end_without_run(tx, ready if job.claimable else waiting, [job.id], JobStatus.CANCELED, reason)


def forget_dedupe_keys(tx: Tx, ids: Sequence[UUID]) -> None:
    """These jobs are not active any more: another may have their dedupe keys."""
    theirs = select(jobs.c.tenant_id, jobs.c.dedupe_key).where(jobs.c.id.in_(ids), jobs.c.dedupe_key.is_not(None))
    key = tuple_(dedupe.c.tenant_id, dedupe.c.dedupe_key)
    tx.run(delete(dedupe).where(key.in_(theirs), dedupe.c.job_id.in_(ids)))


def take_dedupe_keys(tx: Tx, ids: Sequence[UUID]) -> None:
    """These jobs are active again. Raises if another active job has one of their dedupe keys."""
    theirs = select(jobs.c.tenant_id, jobs.c.dedupe_key, jobs.c.id).where(
        jobs.c.id.in_(ids), jobs.c.dedupe_key.is_not(None)
    )
    tx.run(insert(dedupe).from_select(["tenant_id", "dedupe_key", "job_id"], theirs))


def begin_again(
    tx: Tx, ids: Sequence[UUID], reason: WaitsFor, *, max_attempts: int | None = None, suspects: bool = False
) -> None:
    """Jobs that have ended wait again: for now, or for their turn in their group. The caller holds them, and has made sure that
    no other job has their dedupe keys. What they were forgiven begins at nothing: crashes and interruptions."""
    if not ids:
        return
    last = and_(runs.c.job_id.in_(ids), runs.c.job_status.is_not(None))
    made = runs.c.attempt_no - case((runs.c.id.is_(None), 1), else_=0)
    allowed = runs.c.max_attempts if max_attempts is None else literal(max_attempts)
    new = _entered(tx, reason, made, allowed, suspect=suspects)
    row = select(*(value.label(name) for name, value in new.items())).join_from(runs, jobs, jobs.c.id == runs.c.job_id)
    tx.run(insert(waiting).from_select([*new], row.where(last)))
    tx.run(delete(runs).where(last, runs.c.id.is_(None)))
    tx.run(update(runs).where(last).values(job_status=None, result=None, cancel_requested_at=None))
    take_dedupe_keys(tx, ids)


def enter(
    tx: Tx, job_id: UUID, reason: WaitsFor, attempt_no: int, max_attempts: int, *, suspect: bool = False, until: Any = None,
    crashes: int = 0, interruptions: int = 0,
) -> None:  # fmt: skip
    """A job that is in no table of the active ones waits: for `until` (now if not given), or for its turn. Its dedupe key is
    taken."""
    new = _entered(
        tx, reason, literal(attempt_no), literal(max_attempts), suspect=suspect, until=until, crashes=crashes,
        interruptions=interruptions,
    )  # fmt: skip
    row = select(*(value.label(name) for name, value in new.items())).where(jobs.c.id == job_id)
    tx.run(insert(waiting).from_select([*new], row))
    take_dedupe_keys(tx, [job_id])


def _entered(
    tx: Tx, reason: WaitsFor, attempt_no: ColumnElement[int], max_attempts: ColumnElement[int], *, suspect: bool,
    until: Any = None, crashes: int = 0, interruptions: int = 0,
) -> dict[str, ColumnElement[Any]]:  # fmt: skip
    """A row of `waiting`, made from a job."""
    due = tx.now if until is None else until
    return {
        "job_id": jobs.c.id, "tenant_id": jobs.c.tenant_id, "queued_at": jobs.c.created_at, "priority": jobs.c.priority,
        "attempt_no": attempt_no, "max_attempts": max_attempts, "crashes": literal(crashes), "interruptions": literal(interruptions),
        "suspect": literal(suspect, waiting.c.suspect.type), "queue": jobs.c.queue, "definition_key": jobs.c.definition_key,
        "definition_id": jobs.c.definition_id, "group_id": jobs.c.group_id, "trigger_id": jobs.c.trigger_id,
        "dedupe_key": jobs.c.dedupe_key, "reason": literal(str(reason)), "until": due if reason is WaitsFor.TIME else null(),
        "group_position": jobs.c.group_position,
    }  # fmt: skip


def is_limited(table: Table) -> ColumnElement[bool]:
    """Whether a job of `ready` or `running` is behind a pause, or behind a limit that it holds no slot of."""
    return or_(
        select(definitions.c.id)
        .where(
            definitions.c.id == table.c.definition_id,
            or_(definitions.c.paused, and_(definitions.c.max_running.is_not(None), ~table.c.slot)),
        )
        .exists(),
        select(tenants.c.id)
        .where(tenants.c.id == table.c.tenant_id, tenants.c.max_running.is_not(None), ~table.c.slot)
        .exists(),
    )
