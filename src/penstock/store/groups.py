"""Groups: jobs that belong together. What a member's end means for the rest is written with that end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, func, insert, or_, select, update

from penstock.core.nouns import Job
from penstock.core.status import JobStatus, WaitsFor
from penstock.store import failpoints, rows, states
from penstock.store.database import Tx
from penstock.store.tables import (
    died_in_group,
    groups,
    job_view,
    jobs,
    moves_in_group,
    ready,
    running,
    runs,
    waiting,
    waiting_for,
)

PREDECESSOR_FAILED = "predecessor failed"
BATCH = 1000


def add(
    tx: Tx, tenant_id: UUID, group_id: UUID, mode: str, on_failure: str, label: str | None, created_by: str | None
) -> None:
    values = {"id": group_id, "tenant_id": tenant_id, "mode": mode, "on_failure": on_failure, "label": label}
    tx.run(insert(groups).values(**values, created_by=created_by, created_at=tx.now))
    failpoints.reach("group.after_insert")


def header(tx: Tx, tenant_id: UUID, group_id: UUID) -> dict[str, object] | None:
    row = tx.run(select(groups).where(groups.c.id == group_id, groups.c.tenant_id == tenant_id)).mappings().first()
    return dict(row) if row else None


def listed(tx: Tx, tenant_id: UUID, limit: int, offset: int = 0) -> list[UUID]:
    query = select(groups.c.id).where(groups.c.tenant_id == tenant_id).order_by(groups.c.id.desc())
    return [row.id for row in tx.rows(query.limit(limit).offset(offset))]


def members(tx: Tx, group_id: UUID) -> list[Job]:
    """Every member by its chain's last job, in the group's order."""
    query = (
        select(*rows.JOB_COLUMNS)
        .where(job_view.c.group_id == group_id, ~_is_retried(job_view.c.id))
        .order_by(job_view.c.group_position, job_view.c.id)
    )
    return [rows.job(row, tx.codec) for row in tx.run(query).mappings()]


def _is_retried(job_id: ColumnElement[UUID]) -> ColumnElement[bool]:
    """Whether a newer job has taken over from this one."""
    retry = jobs.alias()
    return select(retry.c.id).where(retry.c.retry_of == job_id).exists()


def hold(tx: Tx, group_id: UUID) -> Any:
    """Hold a group until the transaction ends: before its members, wherever one of them moves because of another. Returns its
    mode and what a failure means, or None if there is no such group."""
    query = select(groups.c.mode, groups.c.on_failure).where(groups.c.id == group_id)
    return tx.first(query.with_for_update())


def advance(tx: Tx, group_id: UUID) -> bool:
    """After a member ended: let the next one go, or cancel the rest. Returns whether the whole group has now ended.
    What it reads does not grow with the group."""
    group = hold(tx, group_id)
    if group is None:
        return False
    failpoints.reach("finish.before_group")
    if _on_the_move(tx, group_id):
        return False
    following = tx.first(
        select(waiting.c.job_id, waiting.c.queue, waiting.c.group_position)
        .where(waiting.c.group_id == group_id, waiting_for(WaitsFor.GROUP))
        .order_by(waiting.c.group_position, waiting.c.job_id)
        .limit(1)
        .with_for_update()
    )
    if following is None:
        return True
    if group.on_failure == "stop" and _died_before(tx, group_id, following.group_position):
        _cancel_waiting(tx, group_id)
        return True
    # It waits for its time now, which may be over: the next claim gives it its place.
    its_time = select(jobs.c.scheduled_for).where(jobs.c.id == following.job_id).scalar_subquery()
    states.wait(tx, waiting, [following.job_id], WaitsFor.TIME, its_time)
    tx.dialect.wake(tx.conn, [following.queue])
    return False


def _on_the_move(tx: Tx, group_id: UUID) -> bool:
    """Whether a member runs, or waits for anything but its turn in the group. One statement: a member that moves from table to
    table meanwhile is seen in one of them."""
    return bool(
        tx.scalar(
            select(
                or_(
                    select(waiting.c.job_id).where(waiting.c.group_id == group_id, moves_in_group()).exists(),
                    select(ready.c.job_id).where(ready.c.group_id == group_id).exists(),
                    select(running.c.job_id).where(running.c.group_id == group_id).exists(),
                )
            )
        )
    )


def _died_before(tx: Tx, group_id: UUID, position: int) -> bool:
    """Of those that ended without a run there may be many behind this place, canceled by hand: their rows are in order. Those
    that died in a run are few, since each stops the group."""
    died = select(runs.c.job_id).where(runs.c.group_id == group_id, died_in_group(), ~_is_retried(runs.c.job_id))
    its_place = select(jobs.c.group_position).where(jobs.c.id == runs.c.job_id).scalar_subquery()
    return bool(
        tx.scalar(
            select(
                or_(
                    died.where(runs.c.group_position < position).exists(),
                    died.where(runs.c.group_position.is_(None), its_place < position).exists(),
                )
            )
        )
    )


def _cancel_waiting(tx: Tx, group_id: UUID) -> None:
    turn = select(waiting.c.job_id).where(waiting.c.group_id == group_id, waiting_for(WaitsFor.GROUP))
    ids = [row.job_id for row in tx.rows(turn.order_by(waiting.c.job_id).with_for_update())]
    for part in _parts(ids):
        states.end_without_run(tx, waiting, part, JobStatus.CANCELED, PREDECESSOR_FAILED)


def _parts(ids: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    return (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))


def rearm(tx: Tx, group_id: UUID, position: int) -> bool:
    """A member of a sequential group is about to be tried again: those behind it wait for it again, also those canceled
    because of it. Returns whether it has to wait itself: for one before it, or for one behind it that runs already."""
    group = hold(tx, group_id)
    if group is None or group.mode != "sequential":
        return False
    canceled = (
        select(runs.c.job_id)
        .join(jobs, jobs.c.id == runs.c.job_id)
        .where(
            runs.c.group_id == group_id, died_in_group(), jobs.c.group_position > position, runs.c.id.is_(None),
            runs.c.error == PREDECESSOR_FAILED, runs.c.attempt_no == 1,
        )
        .order_by(runs.c.job_id)
        .with_for_update(of=jobs)
    )  # fmt: skip
    for part in _parts([row.job_id for row in tx.rows(canceled)]):
        states.begin_again(tx, part, WaitsFor.GROUP)
    _to_their_turn(tx, group_id, position)
    earlier = select(waiting.c.job_id).where(
        waiting.c.group_id == group_id, waiting.c.group_position < position, waiting_for(WaitsFor.GROUP)
    )
    return _on_the_move(tx, group_id) or tx.scalar(earlier.limit(1)) is not None


def _to_their_turn(tx: Tx, group_id: UUID, position: int) -> None:
    """Members behind this place that wait for something else, or are ready, wait for their turn. They keep their time."""
    for table, here in ((waiting, moves_in_group()), (ready, ready.c.group_id.is_not(None))):
        behind = (
            select(table.c.job_id)
            .join(jobs, jobs.c.id == table.c.job_id)
            .where(table.c.group_id == group_id, here, jobs.c.group_position > position)
        )
        ids = [row.job_id for row in tx.rows(behind.order_by(table.c.job_id).with_for_update(of=table))]
        if table is waiting and ids:
            until = select(waiting.c.until).where(
                waiting.c.tenant_id == jobs.c.tenant_id, waiting.c.job_id == jobs.c.id
            )
            tx.run(
                update(jobs)
                .where(jobs.c.id.in_(ids))
                .values(scheduled_for=func.coalesce(until.scalar_subquery(), jobs.c.scheduled_for))
            )
        states.wait(tx, table, ids, WaitsFor.GROUP)


def mend(tx: Tx, group_id: UUID) -> bool:
    """`advance` for a group that may have stalled; whether that moved anything. Of many at once only one says so."""
    hold(tx, group_id)
    turn = select(func.count()).where(waiting.c.group_id == group_id, waiting_for(WaitsFor.GROUP))
    before = tx.scalar(turn)
    advance(tx, group_id)
    return bool(tx.scalar(turn) != before)


def stalled(tx: Tx) -> list[UUID]:
    """Groups with a member that waits for its turn: candidates for `advance` after a crash of older code."""
    query = select(waiting.c.group_id).where(waiting_for(WaitsFor.GROUP)).distinct().order_by(waiting.c.group_id)
    return [row.group_id for row in tx.rows(query)]
