"""Jobs: written, read, listed, and changed while they wait. The hot verbs are in `claims`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, partial
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    union_all,
    update,
)

from penstock.core.cipher import TEXT_MARK, readable
from penstock.core.nouns import Job, Run
from penstock.core.status import JobStatus
from penstock.store import failpoints, rows, states
from penstock.store.database import HotTx, Tx
from penstock.store.hot import Alike, NewJob, Written
from penstock.store.members import how_many, members
from penstock.store.sealing import error_of, snapshot_of
from penstock.store.tables import dedupe, floors, job_view, jobs, queues, ready, running, runs
from penstock.store.types import Id


def insert(tx: HotTx, new: Sequence[NewJob]) -> dict[UUID, Written]:
    """Write them, each at its place. Answers those written: one missing met a changed definition, an inactive tenant,
    or an active job of the same dedupe key."""
    failpoints.reach("enqueue.before")
    written = {made.id: made for made in tx.dialect.insert_jobs(tx.conn, tx.moment, tx.codec.new_jobs(new))}
    failpoints.reach("enqueue.after")
    return written


def insert_alike(tx: Tx, many: Alike) -> int:
    """Write them, each at its place, in their order. Answers how many were written: all, or none if the definition changed
    or the tenant is inactive."""
    failpoints.reach("enqueue.before")
    written = tx.dialect.insert_alike(tx.conn, tx.moment, tx.codec.alike(many))
    failpoints.reach("enqueue.after")
    return written


def get(tx: Tx, tenant_id: UUID, job_id: UUID, *, lock: bool = False) -> Job | None:
    """Return the tenant's job of this id. With `lock`, nobody else moves or changes it until the transaction ends."""
    if lock and not states.hold(tx, tenant_id, job_id):
        return None
    query = select(*rows.JOB_COLUMNS).where(job_view.c.id == job_id, job_view.c.tenant_id == tenant_id)
    row = tx.run(query).mappings().first()
    return rows.job(row, tx.codec) if row else None


def get_many(tx: Tx, ids: Sequence[UUID]) -> list[Job]:
    found = tx.run(select(*rows.JOB_COLUMNS).where(job_view.c.id.in_(ids))).mappings()
    by_id = {row["id"]: rows.job(row, tx.codec) for row in found}
    return [by_id[i] for i in ids if i in by_id]


def active_with_dedupe_key(tx: Tx, tenant_id: UUID, dedupe_key: str) -> Job | None:
    holder = select(dedupe.c.job_id).where(dedupe.c.tenant_id == tenant_id, dedupe.c.dedupe_key == dedupe_key)
    query = select(*rows.JOB_COLUMNS).where(job_view.c.id == holder.scalar_subquery())
    row = tx.run(query).mappings().first()
    return rows.job(row, tx.codec) if row else None


@dataclass(frozen=True, slots=True)
class Filter:
    """What a list may be narrowed by. The tenant is not part of it: it comes first, always."""

    statuses: tuple[JobStatus, ...] = tuple(JobStatus)
    source: str | None = None
    key: str | None = None
    queue: str | None = None
    correlation_id: str | None = None
    group_id: UUID | None = None
    trigger_id: UUID | None = None
    root_id: UUID | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    search: str | None = None
    within: tuple[str, ...] | None = None
    """The definitions that the one who asks is limited to: keys, or beginnings of keys with * at the end."""

    def conditions(self) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = []
        for column, value in (
            (jobs.c.source, self.source),
            (jobs.c.queue, self.queue),
            (jobs.c.correlation_id, self.correlation_id),
            (jobs.c.group_id, self.group_id),
            (jobs.c.trigger_id, self.trigger_id),
            (jobs.c.root_id, self.root_id),
        ):
            if value is not None:
                found.append(column == value)
        if self.key is not None:
            found.append(_matches(jobs.c.definition_key, self.key))
        if self.within is not None:
            found.append(or_(*(_is_within(jobs.c.definition_key, each) for each in self.within)))
        if self.created_after is not None:
            found.append(jobs.c.created_at >= self.created_after)
        if self.created_before is not None:
            found.append(jobs.c.created_at < self.created_before)
        if self.search:
            pattern = f"%{_escape(self.search.lower())}%"
            texts = (jobs.c.definition_key, jobs.c.correlation_id, jobs.c.dedupe_key)
            # In the letters of an encrypted error something could be found that is not in the error.
            error = _last_error()
            plain_error = case((func.substr(error, 1, len(TEXT_MARK)) != TEXT_MARK, error))
            found.append(or_(*(func.lower(column).like(pattern, escape="\\") for column in (*texts, plain_error))))
        return found

    def is_narrow(self) -> bool:
        """Whether one of its conditions has an index of its own in `jobs`, so that few jobs are left for the others."""
        narrow = (self.correlation_id, self.group_id, self.trigger_id, self.root_id)
        return any(value is not None for value in narrow)


def _last_error() -> ColumnElement[str]:
    """The error of a job's last run."""
    newest = select(runs.c.error).where(runs.c.job_id == jobs.c.id).order_by(runs.c.attempt_no.desc()).limit(1)
    return newest.correlate(jobs).scalar_subquery()


def _is_within(column: ColumnElement[str], pattern: str) -> ColumnElement[bool]:
    """Not LIKE, which on SQLite takes capitals for small letters."""
    beginning = pattern.removesuffix("*")
    return func.substr(column, 1, len(beginning)) == beginning if beginning != pattern else column == pattern


def key_of(tx: Tx, job_id: UUID, tenant_id: UUID | None) -> str | None:
    """The key of a job's definition, if it is this tenant's; any tenant's, if none is given."""
    query = select(jobs.c.definition_key).where(jobs.c.id == job_id)
    found: str | None = tx.scalar(query if tenant_id is None else query.where(jobs.c.tenant_id == tenant_id))
    return found


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _matches(column: Any, pattern: str) -> ColumnElement[bool]:
    if "*" not in pattern:
        return and_(column == pattern)
    return and_(column.like("%".join(_escape(part) for part in pattern.split("*")), escape="\\"))


def listed(
    tx: Tx, tenant_id: UUID, where: Filter, limit: int, offset: int = 0, before: UUID | None = None
) -> list[Job]:
    """Newest first."""
    if not where.statuses:
        return []
    ids = page_of_ids(where, before is not None)
    query = select(*rows.JOB_COLUMNS).where(tx.dialect.among(job_view.c.id, ids)).order_by(job_view.c.id.desc())
    return [rows.job(row, tx.codec) for row in tx.run(query, page_params(tenant_id, limit, offset, before)).mappings()]


def page_params(tenant_id: UUID, limit: int, offset: int, before: UUID | None) -> dict[str, Any]:
    """What `page_of_ids` takes."""
    given: dict[str, Any] = {"tenant": tenant_id, "reach": limit + offset, "take": limit, "skip": offset}
    return given if before is None else {**given, "before": before}


def page_of_ids(where: Filter, after_cursor: bool) -> Select[Any]:
    """The ids of a page of jobs, newest first. One ordered index probe per table, merged: history is never sorted."""
    conditions = where.conditions()
    if conditions:
        return _page(_branches(where.statuses, conditions, where.is_narrow(), after_cursor))
    return _plain(frozenset(where.statuses), after_cursor)


@lru_cache(maxsize=256)
def _plain(statuses: frozenset[JobStatus], after_cursor: bool) -> Select[Any]:
    return _page(_branches([each for each in JobStatus if each in statuses], (), False, after_cursor))


def _page(branches: Sequence[Select[Any]]) -> Select[Any]:
    take: Any = bindparam("take")
    skip: Any = bindparam("skip")
    if len(branches) == 1:
        return branches[0].order_by(branches[0].selected_columns[0].desc()).limit(take).offset(skip)
    # Subqueries, because SQLite allows no ORDER BY inside the parts of a UNION.
    parts = (
        select(branch.order_by(branch.selected_columns[0].desc()).limit(bindparam("reach")).subquery())
        for branch in branches
    )
    merged = union_all(*parts).subquery()
    return select(merged.c.id).order_by(merged.c.id.desc()).limit(take).offset(skip)


def _branches(
    statuses: Sequence[JobStatus], conditions: Sequence[ColumnElement[bool]], is_narrow: bool, after_cursor: bool
) -> list[Select[Any]]:
    """The ids of a tenant's jobs, from each table that holds some of them: from `jobs` itself if no status is left out, or if
    the conditions leave few; else from where the status has its index."""
    tenant, before = bindparam("tenant", type_=Id), bindparam("before", type_=Id)
    mine = select(jobs.c.id).where(jobs.c.tenant_id == tenant, *conditions)
    if after_cursor:
        mine = mine.where(jobs.c.id < before)
    if set(statuses) == set(JobStatus):
        return [mine]
    places = [place for status in statuses for place in members(status, tenant)]
    if is_narrow:
        return [mine.where(select(literal(1)).where(t.c.job_id == jobs.c.id, here).exists()) for t, here in places]
    branches = []
    for table, here in places:
        branch = select(table.c.job_id.label("id")).where(here)
        if after_cursor:
            branch = branch.where(table.c.job_id < before)
        if conditions:
            branch = branch.join(jobs, jobs.c.id == table.c.job_id).where(*conditions)
        branches.append(branch)
    return branches


def count(tx: Tx, tenant_id: UUID, where: Filter, cap: int | None = None) -> int:
    if not where.statuses:
        return 0
    branches = _branches(where.statuses, where.conditions(), where.is_narrow(), False)
    found: Any = union_all(*branches) if len(branches) > 1 else branches[0]
    some = (found.limit(cap) if cap else found).subquery()
    return int(tx.scalar(select(func.count()).select_from(some), {"tenant": tenant_id}))


def counts(tx: Tx, tenant_id: UUID, cap: int | None = None) -> dict[JobStatus, int]:
    """How many in each status; `cap` bounds the work on long histories."""
    found = tx.run(select(*(how_many(status, tenant_id, cap) for status in JobStatus))).one()
    return dict(zip(JobStatus, (int(n) for n in found), strict=True))


def runs_of(tx: Tx, tenant_id: UUID, job_id: UUID) -> list[Run]:
    """A job's runs, first to last: the closed ones and the open one, in one look."""
    closed = select(*(runs.c[name].label(name) for name in rows.RUN_COLUMNS)).where(
        runs.c.job_id == job_id, runs.c.id.is_not(None)
    )
    known = {"id": running.c.run_id, "status": literal_column("'running'")}
    opened = select(
        *(
            known.get(name, running.c[name] if name in running.c else cast(null(), runs.c[name].type)).label(name)
            for name in rows.RUN_COLUMNS
        )
    ).where(running.c.job_id == job_id)
    all_runs = union_all(closed, opened).subquery()
    query = (
        select(all_runs, jobs.c.params, jobs.c.root_id)
        .join(jobs, jobs.c.id == all_runs.c.job_id)
        .where(jobs.c.tenant_id == tenant_id)
        .order_by(all_runs.c.attempt_no)
    )
    return [rows.run(row, tx.codec) for row in tx.run(query).mappings()]


def chain_of(tx: Tx, tenant_id: UUID, root_id: UUID) -> list[Job]:
    """A root and its retries, first to last."""
    query = select(*rows.JOB_COLUMNS).where(
        job_view.c.tenant_id == tenant_id,
        or_(job_view.c.id == root_id, and_(job_view.c.root_id == root_id, job_view.c.retry_of.is_not(None))),
    )
    found = {row["retry_of"]: rows.job(row, tx.codec) for row in tx.run(query).mappings()}
    ordered: list[Job] = []
    current = found.get(None)
    while current is not None and len(ordered) < len(found):
        ordered.append(current)
        current = found.get(current.id)
    return ordered


def group_of(tx: Tx, tenant_id: UUID, job_id: UUID) -> UUID | None:
    found: UUID | None = tx.scalar(select(jobs.c.group_id).where(jobs.c.id == job_id, jobs.c.tenant_id == tenant_id))
    return found


def error_of_last_run(tx: Tx, job: Job) -> str | None:
    """What its last run said; a job that was canceled before its next one has a reason of its own."""
    last = select(runs.c.error).where(runs.c.job_id == job.id, runs.c.id.is_not(None))
    said = tx.scalar(last.order_by(runs.c.attempt_no.desc()).limit(1))
    return tx.codec.open_text(said, partial(error_of, job.tenant_id, job.id))


def retry_of(tx: Tx, job_id: UUID) -> UUID | None:
    """The job that retries this one, if there is one."""
    found: UUID | None = tx.scalar(select(jobs.c.id).where(jobs.c.retry_of == job_id))
    return found


def largest_position(tx: Tx, tenant_id: UUID, priority: int) -> int | None:
    value: int | None = tx.scalar(
        select(func.max(ready.c.position)).where(ready.c.tenant_id == tenant_id, ready.c.priority == priority)
    )
    return value


def smallest_position(tx: Tx, priority: int) -> int | None:
    """The clock: the first place of anyone at this priority, one probe per queue, from the queue's floor on. What waits in a
    paused queue does not hold it, unless there is nothing else."""
    floor = select(floors.c.position).where(floors.c.queue == queues.c.name, floors.c.priority == priority)
    from_here = func.coalesce(floor.correlate(queues).scalar_subquery(), literal_column("-9223372036854775807"))
    first = (
        select(func.min(ready.c.position))
        .where(ready.c.queue == queues.c.name, ready.c.priority == priority)
        .where(ready.c.position >= from_here)
        .correlate(queues)
        .scalar_subquery()
    )
    lanes = select(queues.c.paused, first.label("first")).subquery()
    open_first = func.min(case((~lanes.c.paused, lanes.c.first)))
    highest = select(func.max(floors.c.position)).where(floors.c.priority == priority).scalar_subquery()
    value: int | None = tx.scalar(select(func.coalesce(open_first, highest, func.min(lanes.c.first))))
    return value


def keep_snapshots(tx: Tx, job: Job) -> None:
    """Before its params change, give the earlier runs their own copy of what they ran with."""
    kept = tx.codec.seal(dict(readable(job.params)), snapshot_of(job.tenant_id, job.id))
    bare = and_(runs.c.job_id == job.id, runs.c.id.is_not(None), runs.c.params_snapshot.is_(None))
    tx.run(update(runs).where(bare).values(params_snapshot=kept))
