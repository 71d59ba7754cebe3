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
    insert,
    literal,
    null,
    or_,
    select,
    update,
    values,
)

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
        somewhere = or_(*(select(t.c.job_id).where(t.c.job_id == job_id).exists() for t in (waiting, ready, running)))
        if tx.first(ended) is not None or not tx.scalar(select(somewhere)):
            return True
    return True


def _of(table: Table, ids: Sequence[UUID]) -> ColumnElement[bool]:
    return table.c.job_id.in_(ids)


def _leave(tx: Tx, table: Table, ids: Sequence[UUID]) -> None:
    tx.run(delete(table).where(_of(table, ids)))


def _move(tx: Tx, source: Table, target: Table, ids: Sequence[UUID], values: Mapping[str, Any]) -> None:
    """Copy what is carried, with these values beside it or instead of it, and leave."""
    changed = {
        name: value if isinstance(value, ColumnElement) else literal(value, target.c[name].type)
        for name, value in values.items()
    }
    kept = [name for name in CARRIED if name not in changed]
    columns = [source.c[name] for name in kept] + [value.label(name) for name, value in changed.items()]
    tx.run(insert(target).from_select([*kept, *changed], select(*columns).where(_of(source, ids))))
    _leave(tx, source, ids)


def wait(
    tx: Tx,
    source: Table,
    ids: Sequence[UUID],
    reason: WaitsFor,
    until: Any = None,
    changed: Mapping[str, Any] | None = None,
) -> None:
    """Let jobs of `waiting`, `ready` or `running` wait for this. `until` is when those that wait for their time are due."""
    if not ids:
        return
    new: dict[str, Any] = {"reason": str(reason), "until": null() if until is None else until, **(changed or {})}
    if source is waiting:
        tx.run(update(waiting).where(_of(waiting, ids)).values(**new))
        return
    turn = select(jobs.c.group_position).where(jobs.c.id == source.c.job_id).scalar_subquery()
    new["group_position"] = turn if reason is WaitsFor.GROUP else null()
    _move(tx, source, waiting, ids, new)


def make_ready(tx: Tx, places: Sequence[tuple[UUID, int]], *, slot: bool) -> None:
    """Jobs of `waiting` can be claimed from now on, each at its place."""
    if not places:
        return
    placed = values(column("job_id", Id), column("place", BigInteger), name="placed").data([*places]).cte("placed")
    columns = [waiting.c[name] for name in CARRIED]
    extra = [placed.c.place, since(tx).label("ready_at"), literal(slot).label("slot")]
    rows = select(*columns, *extra).join(placed, placed.c.job_id == waiting.c.job_id)
    tx.run(insert(ready).from_select([*CARRIED, "position", "ready_at", "slot"], rows))
    _leave(tx, waiting, [job_id for job_id, _ in places])


def since(tx: Tx) -> ColumnElement[datetime]:
    """Since when a job of `waiting` that is made ready could have run: since its time, if that is what it waited for."""
    return case(
        (waiting.c.until.is_not(None), tx.dialect.greatest(waiting.c.queued_at, waiting.c.until)),
        else_=waiting.c.queued_at,
    )


def give_back(tx: Tx, ids: Sequence[UUID], *, suspects: bool) -> None:
    """Jobs of `running` that were never begun are ready again, at the place they had, as if they had not been claimed."""
    values: dict[str, Any] = {
        "attempt_no": running.c.attempt_no - 1, "position": running.c.position, "ready_at": running.c.ready_at,
        "slot": running.c.slot,
    }  # fmt: skip
    if suspects:
        values["suspect"] = True
    _move(tx, running, ready, ids, values)


def end_without_run(tx: Tx, source: Table, ids: Sequence[UUID], status: JobStatus, error: str | None) -> None:
    """Jobs of `waiting` or `ready` end without another run: the row in `runs` stands in the place of the next attempt."""
    if not ids:
        return
    columns = {
        "job_id": source.c.job_id, "tenant_id": source.c.tenant_id, "finished_at": tx.dialect.greatest(tx.now, source.c.queued_at),
        "attempt_no": source.c.attempt_no + 1, "max_attempts": source.c.max_attempts, "job_status": literal(str(status)),
        "definition_id": source.c.definition_id, "error": literal(error, runs.c.error.type), "group_id": source.c.group_id,
    }  # fmt: skip
    values = select(*(value.label(name) for name, value in columns.items())).where(_of(source, ids))
    tx.run(insert(runs).from_select([*columns], values))
    forget_dedupe_keys(tx, ids)
    _leave(tx, source, ids)


def forget_dedupe_keys(tx: Tx, ids: Sequence[UUID]) -> None:
    """These jobs are not active any more: another may have their dedupe keys."""
    theirs = select(jobs.c.tenant_id, jobs.c.dedupe_key, jobs.c.id).where(
        jobs.c.id.in_(ids), jobs.c.dedupe_key.is_not(None)
    )
    for row in tx.rows(theirs):
        tx.run(
            delete(dedupe).where(
                dedupe.c.tenant_id == row.tenant_id, dedupe.c.dedupe_key == row.dedupe_key, dedupe.c.job_id == row.id
            )
        )


def begin_again(tx: Tx, job_id: UUID, reason: WaitsFor, *, max_attempts: int, suspect: bool | None = None) -> None:
    """A job that has ended waits again: for now, or for its turn in its group. The caller holds it, and has made sure that no
    other job has its dedupe key. What it was forgiven begins at nothing: crashes and interruptions."""
    last = tx.run(select(runs).where(runs.c.job_id == job_id, runs.c.job_status.is_not(None))).mappings().one()
    attempts = last["attempt_no"] - (1 if last["id"] is None else 0)
    if last["id"] is None:
        tx.run(delete(runs).where(runs.c.job_id == job_id, runs.c.attempt_no == last["attempt_no"]))
    else:
        ours = and_(runs.c.job_id == job_id, runs.c.attempt_no == last["attempt_no"])
        tx.run(update(runs).where(ours).values(job_status=None, result=None, cancel_requested_at=None))
    enter(tx, job_id, reason, attempts, max_attempts, suspect=bool(suspect))


def enter(
    tx: Tx, job_id: UUID, reason: WaitsFor, attempt_no: int, max_attempts: int, *, suspect: bool = False, until: Any = None,
    crashes: int = 0, interruptions: int = 0,
) -> None:  # fmt: skip
    """A job that is in no table of the active ones waits: for `until` (now if not given), or for its turn. Its dedupe key is taken."""
    due: Any = tx.now if until is None else until
    values: dict[str, Any] = {
        "job_id": jobs.c.id, "tenant_id": jobs.c.tenant_id, "queued_at": tx.now, "priority": jobs.c.priority,
        "attempt_no": literal(attempt_no), "max_attempts": literal(max_attempts), "crashes": literal(crashes),
        "interruptions": literal(interruptions), "suspect": literal(suspect), "queue": jobs.c.queue,
        "definition_key": jobs.c.definition_key, "definition_id": jobs.c.definition_id, "group_id": jobs.c.group_id,
        "trigger_id": jobs.c.trigger_id, "dedupe_key": jobs.c.dedupe_key, "reason": literal(str(reason)),
        "until": due if reason is WaitsFor.TIME else null(), "group_position": jobs.c.group_position,
    }  # fmt: skip
    row = select(*(value.label(name) for name, value in values.items())).where(jobs.c.id == job_id)
    tx.run(insert(waiting).from_select([*values], row))
    key = select(jobs.c.tenant_id, jobs.c.dedupe_key, jobs.c.id).where(
        jobs.c.id == job_id, jobs.c.dedupe_key.is_not(None)
    )
    tx.run(insert(dedupe).from_select(["tenant_id", "dedupe_key", "job_id"], key))


def is_limited(table: Table) -> ColumnElement[bool]:
    """Whether a job of this table is behind a limit or a pause that it holds no slot of."""
    holds = table.c.slot if "slot" in table.c else literal(False)
    return or_(
        select(definitions.c.id)
        .where(
            definitions.c.id == table.c.definition_id,
            or_(definitions.c.paused, and_(definitions.c.max_running.is_not(None), ~holds)),
        )
        .exists(),
        select(tenants.c.id)
        .where(tenants.c.id == table.c.tenant_id, tenants.c.max_running.is_not(None), ~holds)
        .exists(),
    )
