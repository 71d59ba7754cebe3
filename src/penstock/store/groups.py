"""Groups: jobs that belong together. What a member's end means for the rest is written with that end."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import and_, func, insert, select, update

from penstock.core.nouns import Job
from penstock.core.status import JobStatus, WaitsFor
from penstock.store import failpoints, rows
from penstock.store.database import Tx
from penstock.store.tables import died_in_group, groups, jobs, moves_in_group, waiting_for

PREDECESSOR_FAILED = "predecessor failed"


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
    retry = jobs.alias()
    newer = select(retry.c.id).where(retry.c.retry_of == jobs.c.id).exists()
    query = (
        select(*rows.JOB_COLUMNS).where(jobs.c.group_id == group_id, ~newer).order_by(jobs.c.group_position, jobs.c.id)
    )
    return [rows.job(row, tx.codec) for row in tx.run(query).mappings()]


def advance(tx: Tx, group_id: UUID) -> bool:
    """After a member ended: let the next one go, or cancel the rest. Answers whether the whole group has now ended.
    What it reads does not grow with the group."""
    group = tx.first(select(groups).where(groups.c.id == group_id).with_for_update())
    if group is None:
        return False
    failpoints.reach("finish.before_group")
    if _on_the_move(tx, group_id):
        return False
    waiting = select(jobs.c.id, jobs.c.queue, jobs.c.group_position).where(
        jobs.c.group_id == group_id, waiting_for(WaitsFor.GROUP)
    )
    following = tx.first(waiting.order_by(jobs.c.group_position, jobs.c.id).limit(1))
    if following is None:
        return True
    if group.on_failure == "stop" and _died_before(tx, group_id, following.group_position):
        _cancel_waiting(tx, group_id)
        return True
    # It waits for its time now, which may be over: the next claim gives it its place.
    tx.run(update(jobs).where(jobs.c.id == following.id, waiting_for(WaitsFor.GROUP)).values(waits_for=WaitsFor.TIME))
    tx.dialect.wake(tx.conn, [following.queue])
    return False


def _on_the_move(tx: Tx, group_id: UUID) -> bool:
    """Whether a member runs, or waits for anything but its turn in the group."""
    query = select(jobs.c.id).where(jobs.c.group_id == group_id, moves_in_group())
    return tx.scalar(query.limit(1)) is not None


def _died_before(tx: Tx, group_id: UUID, position: int) -> bool:
    retry = jobs.alias()
    newer = select(retry.c.id).where(retry.c.retry_of == jobs.c.id).exists()
    died = select(jobs.c.id).where(
        jobs.c.group_id == group_id, jobs.c.group_position < position, died_in_group(), ~newer
    )
    return tx.scalar(died.limit(1)) is not None


def _cancel_waiting(tx: Tx, group_id: UUID) -> None:
    tx.run(
        update(jobs)
        .where(jobs.c.group_id == group_id, waiting_for(WaitsFor.GROUP))
        .values(status=JobStatus.CANCELED, waits_for=None, finished_at=tx.now, last_error=PREDECESSOR_FAILED)
    )


def rearm(tx: Tx, group_id: UUID, position: int) -> bool:
    """A member of a sequential group is about to be tried again: those behind it wait for it again, also those canceled
    because of it. Answers whether it has to wait itself: for one before it, or for one behind it that runs already."""
    group = tx.first(select(groups.c.mode).where(groups.c.id == group_id).with_for_update())
    if group is None or group.mode != "sequential":
        return False
    later = and_(jobs.c.group_id == group_id, jobs.c.group_position > position)
    tx.run(
        update(jobs)
        .where(
            later,
            jobs.c.status == JobStatus.CANCELED,
            jobs.c.last_error == PREDECESSOR_FAILED,
            jobs.c.attempt_no == 0,
        )
        .values(status=JobStatus.QUEUED, waits_for=WaitsFor.GROUP, finished_at=None, last_error=None)
    )
    tx.run(
        update(jobs)
        .where(later, jobs.c.status == JobStatus.QUEUED)
        .values(claimable=False, waits_for=WaitsFor.GROUP, slot=False)
    )
    earlier = select(jobs.c.id).where(
        jobs.c.group_id == group_id, jobs.c.group_position < position, waiting_for(WaitsFor.GROUP)
    )
    return _on_the_move(tx, group_id) or tx.scalar(earlier.limit(1)) is not None


def mend(tx: Tx, group_id: UUID) -> bool:
    """`advance` for a group that may have stalled; whether that moved anything. Of many at once only one says so."""
    tx.first(select(groups.c.id).where(groups.c.id == group_id).with_for_update())
    waiting = select(func.count()).where(jobs.c.group_id == group_id, waiting_for(WaitsFor.GROUP))
    before = tx.scalar(waiting)
    advance(tx, group_id)
    return bool(tx.scalar(waiting) != before)


def stalled(tx: Tx) -> list[UUID]:
    """Groups with a member that waits for its turn: candidates for `advance` after a crash of older code."""
    query = select(jobs.c.group_id).where(waiting_for(WaitsFor.GROUP)).distinct().order_by(jobs.c.group_id)
    return [row.group_id for row in tx.rows(query)]
