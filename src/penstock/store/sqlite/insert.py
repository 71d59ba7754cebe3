"""Write new jobs. What they depend on is read before, under the one write lock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from penstock.core.clock import wall_time
from penstock.core.payload import dumps
from penstock.core.position import place, step
from penstock.store.hot import Alike, NewJob, Written
from penstock.store.sqlite import transaction
from penstock.store.types import from_micros, to_micros


class SqliteInsert:
    """Write new jobs, one or many."""

    def insert_jobs(self, conn: Connection, moment: datetime | None, new: Sequence[NewJob]) -> Sequence[Written]:
        """Write the jobs whose tenant and definition are as the caller saw them; answer those written."""
        now = to_micros(moment or wall_time())
        if len(new) == 1:
            return _insert_one(conn, now, new[0])
        tenants = _tenants(conn, {job.tenant_id for job in new})
        definitions = _definitions(conn, {job.definition_id for job in new if job.definition_id})
        places: dict[tuple[UUID, int], int] = {}
        rows: list[tuple[Any, ...]] = []
        written: list[Written] = []
        for job in new:
            tenant = tenants.get(job.tenant_id)
            definition = definitions.get(job.definition_id) if job.definition_id else (None, False)
            if tenant is None or definition is None or definition[0] != job.definition_version:
                continue
            weight, tenant_limited = tenant
            due_at, waits = _when(job, now, definition[1] or tenant_limited)
            position = 0
            if waits is None:
                at = (job.tenant_id, job.priority)
                if at not in places:
                    places[at] = _place(conn, *at, weight)
                position = places[at]
                places[at] += step(weight)
            rows.append(_insert_row(job, now, due_at, waits, position))
            written.append(Written(job.id, position, waits, from_micros(due_at), from_micros(now)))
        cursor = conn.connection.cursor()
        try:
            if not any(job.dedupe_key or job.tick_at for job in new):
                cursor.executemany(_INSERT, rows)
                return written
            kept = []
            for row, made in zip(rows, written, strict=True):
                cursor.execute(_INSERT + " RETURNING id", row)
                if cursor.fetchall():
                    kept.append(made)
            return kept
        finally:
            cursor.close()

    def insert_alike(self, conn: Connection, moment: datetime | None, many: Alike) -> int:
        now = to_micros(moment or wall_time())
        job = many.first
        tenant = _tenants(conn, {job.tenant_id}).get(job.tenant_id)
        definition = (
            _definitions(conn, {job.definition_id}).get(job.definition_id) if job.definition_id else (None, False)
        )
        if tenant is None or definition is None or definition[0] != job.definition_version:
            return 0
        due_at, waits = _when(job, now, definition[1] or tenant[1])
        place_, stride = (
            (_place(conn, job.tenant_id, job.priority, tenant[0]), step(tenant[0])) if waits is None else (0, 0)
        )
        like = _insert_row(job, now, due_at, waits, 0)
        before, between, after = like[1:_POSITION], like[_POSITION + 2 : _ROOT], like[_ROOT + 1 :]
        rows = [
            (id_, *before, place_ + stride * number, params, *between, id_, *after)
            for number, (id_, params) in enumerate(zip(map(str, many.ids), many.params, strict=True))
        ]
        cursor = conn.connection.cursor()
        try:
            cursor.executemany(_INSERT, rows)
        finally:
            cursor.close()
        return len(many.ids)


def _tenants(conn: Connection, ids: set[UUID]) -> dict[UUID, tuple[int, bool]]:
    rows = transaction.run(conn, _TENANTS, {"ids": dumps([str(i) for i in ids])})
    return {UUID(tenant_id): (weight, max_running is not None) for tenant_id, weight, max_running in rows}


def _definitions(conn: Connection, ids: set[UUID]) -> dict[UUID | None, tuple[int, bool]]:
    rows = transaction.run(conn, _DEFINITIONS, {"ids": dumps([str(i) for i in ids])})
    return {UUID(row[0]): (row[1], row[2] is not None or bool(row[3])) for row in rows}


def _place(conn: Connection, tenant_id: UUID, priority: int, weight: int) -> int:
    [(largest, smallest)] = transaction.run(conn, _PLACE, {"tenant_id": str(tenant_id), "priority": priority})
    return place(largest, smallest, weight)


def _insert_one(conn: Connection, now: int, job: NewJob) -> Sequence[Written]:
    """One job: everything that it depends on is read by one statement."""
    seen = {
        "tenant_id": str(job.tenant_id),
        "definition_id": job.definition_id and str(job.definition_id),
        "priority": job.priority,
    }
    cursor = conn.connection.cursor()
    try:
        cursor.execute(_SEEN, seen)
        found = cursor.fetchone()
        if found is None or found[2] != job.definition_version:
            return []
        weight, tenant_limit, _, limit, paused, largest, smallest = found
        due_at, waits = _when(job, now, tenant_limit is not None or limit is not None or bool(paused))
        position = place(largest, smallest, weight) if waits is None else 0
        cursor.execute(_INSERT, _insert_row(job, now, due_at, waits, position))
        if not cursor.rowcount:
            return []
    finally:
        cursor.close()
    return [Written(job.id, position, waits, from_micros(due_at), from_micros(now))]


def _when(job: NewJob, now: int, limited: bool) -> tuple[int, str | None]:
    """When it is due, and what it waits for."""
    due_at = to_micros(job.scheduled_for) if job.scheduled_for else now + round((job.delay or 0) * 1_000_000)
    return due_at, "group" if job.waits_for_group else "time" if due_at > now else "limit" if limited else None


_POSITION, _ROOT = 8, 19
"""Where a row of `_insert_row` has its position, its params after that, and its root."""


def _insert_row(job: NewJob, now: int, due_at: int, waits: str | None, position: int) -> tuple[Any, ...]:
    return (
        str(job.id), str(job.tenant_id), str(job.definition_id) if job.definition_id else None, job.definition_key,
        job.queue, waits is None, waits, job.priority, position, job.params, job.source, job.source_ref, job.dedupe_key,
        job.correlation_id, due_at, now, now, job.max_attempts, job.retry_mode, str(job.id),
        str(job.group_id) if job.group_id else None, job.group_position, str(job.trigger_id) if job.trigger_id else None,
        to_micros(job.tick_at) if job.tick_at else None, job.created_by, job.trace,
    )  # fmt: skip


_COLUMNS = (
    "id, tenant_id, definition_id, definition_key, queue, claimable, waits_for, priority, position, params, source,"
    " source_ref, dedupe_key, correlation_id, scheduled_for, created_at, queued_at, max_attempts, retry_mode, root_id,"
    " group_id, group_position, trigger_id, tick_at, created_by, trace"
)
_INSERT = (
    f"INSERT INTO penstock_jobs ({_COLUMNS}, status, slot, attempt_no, crashes)"
    f" VALUES ({', '.join('?' * 26)}, 'queued', 0, 0, 0) ON CONFLICT DO NOTHING"
)
_TENANTS = (
    "SELECT id, weight, max_running FROM penstock_tenants WHERE is_active AND id IN (SELECT value FROM json_each(:ids))"
)
_DEFINITIONS = (
    "SELECT id, version, max_running, paused FROM penstock_definitions"
    " WHERE is_active AND id IN (SELECT value FROM json_each(:ids))"
)
_PLACES = (
    "(SELECT max(position) FROM penstock_jobs WHERE claimable AND tenant_id = :tenant_id AND priority = :priority),"
    " (SELECT coalesce(min(CASE WHEN NOT q.paused THEN q.first END), (SELECT max(position) FROM penstock_floors"
    "  WHERE priority = :priority), min(q.first)) FROM (SELECT paused, (SELECT min(position) FROM penstock_jobs"
    "  WHERE claimable AND queue = name AND priority = :priority AND position >= coalesce((SELECT f.position FROM penstock_floors f"
    "  WHERE f.queue = name AND f.priority = :priority), -9223372036854775807)) AS first FROM penstock_queues) AS q)"
)
_PLACE = f"SELECT {_PLACES}"
_SEEN = (
    f"SELECT t.weight, t.max_running, d.version, d.max_running, d.paused, {_PLACES} FROM penstock_tenants t"
    " LEFT JOIN penstock_definitions d ON d.id = :definition_id AND d.is_active WHERE t.id = :tenant_id AND t.is_active"
)
