"""Write new jobs. What they depend on is read before, under the one write lock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from penstock.core.clock import wall_time
from penstock.core.position import place, step
from penstock.store.dialect import HotConnection
from penstock.store.hot import Alike, NewJob, Written
from penstock.store.sqlite import transaction
from penstock.store.types import from_micros, to_micros


class SqliteInsert:
    """Write new jobs, one or many."""

    def insert_jobs(self, conn: HotConnection, moment: datetime | None, new: Sequence[NewJob]) -> Sequence[Written]:
        """Write the jobs whose tenant and definition are as the caller saw them; return those written."""
        now = to_micros(moment or wall_time())
        seen = _Seen(conn)
        written: list[Written] = []
        cursor = conn.connection.cursor()
        try:
            for job in new:
                found = seen.when(job, now)
                if found is None or not _write(cursor, job, now, found.due_at):
                    continue
                position = seen.place(job) if found.waits_for is None else 0
                if found.waits_for is None:
                    cursor.execute(_INSERT_READY, _ready_row(job, now, position))
                else:
                    cursor.execute(_INSERT_WAITING, _waiting_row(job, now, found))
                written.append(Written(job.id, position, found.waits_for, from_micros(found.due_at), from_micros(now)))
        finally:
            cursor.close()
        return written

    def insert_alike(self, conn: HotConnection, moment: datetime | None, many: Alike) -> int:
        now = to_micros(moment or wall_time())
        job, seen = many.first, _Seen(conn)
        found = seen.when(job, now)
        if found is None:
            return 0
        like = _job_row(job, now, found.due_at)
        between, after = like[1:_PARAMS], like[_PARAMS + 1 : -1]
        ids = [str(each) for each in many.ids]
        cursor = conn.connection.cursor()
        try:
            cursor.executemany(
                _INSERT_JOB,
                [(id_, *between, params, *after, id_) for id_, params in zip(ids, many.params, strict=True)],
            )
            if found.waits_for is None:
                first, stride = seen.place(job), step(seen.weight(job))
                ready = _ready_row(job, now, 0)
                cursor.executemany(_INSERT_READY, [(id_, first + stride * n, *ready[2:]) for n, id_ in enumerate(ids)])
            else:
                waiting = _waiting_row(job, now, found)
                cursor.executemany(_INSERT_WAITING, [(id_, *waiting[1:]) for id_ in ids])
        finally:
            cursor.close()
        return len(ids)


class _When(NamedTuple):
    """When a job is due, and what it waits for."""

    due_at: int
    waits_for: str | None


class _Seen:
    """What jobs depend on, read as it is needed, each thing once: their tenants, their definitions, the places that they get."""

    def __init__(self, conn: HotConnection) -> None:
        self._conn = conn
        self._facts: dict[tuple[UUID, UUID | None, int], Sequence[Any] | None] = {}
        self._next: dict[tuple[UUID, int], int] = {}

    def _of(self, job: NewJob) -> Sequence[Any] | None:
        """The tenant's weight and limit, the definition's version, limit and pause, the tenant's last place and the clock."""
        at = (job.tenant_id, job.definition_id, job.priority)
        if at not in self._facts:
            given = {
                "tenant_id": str(job.tenant_id), "definition_id": job.definition_id and str(job.definition_id),
                "priority": job.priority,
            }  # fmt: skip
            found = transaction.run(self._conn, _SEEN, given)
            self._facts[at] = found[0] if found else None
        return self._facts[at]

    def when(self, job: NewJob, now: int) -> _When | None:
        """None if the tenant or the definition is not as the caller saw it."""
        facts = self._of(job)
        if facts is None or facts[2] != job.definition_version:
            return None
        limited = facts[1] is not None or facts[3] is not None or bool(facts[4])
        due_at = to_micros(job.scheduled_for) if job.scheduled_for else now + round((job.delay or 0) * 1_000_000)
        return _When(
            due_at, "group" if job.waits_for_group else "time" if due_at > now else "limit" if limited else None
        )

    def weight(self, job: NewJob) -> int:
        facts = self._of(job)
        assert facts is not None
        return int(facts[0])

    def place(self, job: NewJob) -> int:
        """The next place of its tenant at its priority."""
        at = (job.tenant_id, job.priority)
        if at not in self._next:
            facts = self._of(job)
            assert facts is not None
            self._next[at] = place(facts[5], facts[6], facts[0])
        position = self._next[at]
        self._next[at] += step(self.weight(job))
        return position


def _write(cursor: Any, job: NewJob, now: int, due_at: int) -> bool:
    """Whether it was written: not if an active job has its dedupe key, or if there is one of its id or its tick."""
    if job.dedupe_key is not None:
        cursor.execute(_INSERT_DEDUPE, (str(job.tenant_id), job.dedupe_key, str(job.id)))
        if not cursor.rowcount:
            return False
    cursor.execute(_INSERT_JOB, _job_row(job, now, due_at))
    return bool(cursor.rowcount)


_PARAMS = 10
"""Where a row of `_job_row` has its params."""


def _text(id_: UUID | None) -> str | None:
    return None if id_ is None else str(id_)


def _job_row(job: NewJob, now: int, due_at: int) -> tuple[Any, ...]:
    return (
        str(job.id), str(job.tenant_id), due_at, now, job.priority, job.max_attempts, job.queue, job.definition_key, job.retry_mode,
        job.source, job.params, _text(job.definition_id), job.source_ref, job.dedupe_key, job.correlation_id, _text(job.group_id),
        job.group_position, _text(job.trigger_id), to_micros(job.tick_at) if job.tick_at else None, job.created_by, job.trace, str(job.id),
    )  # fmt: skip


def _ready_row(job: NewJob, now: int, position: int) -> tuple[Any, ...]:
    return (
        str(job.id), position, str(job.tenant_id), now, now, job.priority, job.max_attempts, job.queue, job.definition_key,
        _text(job.definition_id), _text(job.group_id), _text(job.trigger_id), job.dedupe_key,
    )  # fmt: skip


def _waiting_row(job: NewJob, now: int, when: _When) -> tuple[Any, ...]:
    return (
        str(job.id), str(job.tenant_id), now, job.priority, job.max_attempts, when.waits_for, job.queue, job.definition_key,
        _text(job.definition_id), _text(job.group_id), _text(job.trigger_id), job.dedupe_key,
        when.due_at if when.waits_for == "time" else None, job.group_position if when.waits_for == "group" else None,
    )  # fmt: skip


_INSERT_DEDUPE = "INSERT INTO penstock_dedupe (tenant_id, dedupe_key, job_id) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_INSERT_JOB = """
INSERT INTO penstock_jobs (id, tenant_id, scheduled_for, created_at, priority, max_attempts, queue, definition_key, retry_mode, source,
  params, definition_id, source_ref, dedupe_key, correlation_id, group_id, group_position, trigger_id, tick_at, created_by, trace, root_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_INSERT_READY = """
INSERT INTO penstock_ready (job_id, position, tenant_id, queued_at, ready_at, priority, max_attempts, queue, definition_key, definition_id,
  group_id, trigger_id, dedupe_key, attempt_no, crashes, interruptions, suspect, slot)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0, 0)
"""
_INSERT_WAITING = """
INSERT INTO penstock_waiting (job_id, tenant_id, queued_at, priority, max_attempts, reason, queue, definition_key, definition_id, group_id,
  trigger_id, dedupe_key, until, group_position, attempt_no, crashes, interruptions, suspect)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0, 0)
"""
_SEEN = """
SELECT t.weight, t.max_running, d.version, d.max_running, d.paused,
  (SELECT max(position) FROM penstock_ready WHERE tenant_id = :tenant_id AND priority = :priority),
  (SELECT coalesce(min(CASE WHEN NOT q.paused THEN q.first END), (SELECT max(position) FROM penstock_floors WHERE priority = :priority),
                   min(q.first))
   FROM (SELECT paused, (SELECT min(position) FROM penstock_ready
                         WHERE queue = name AND priority = :priority AND position >= coalesce(
                           (SELECT f.position FROM penstock_floors f WHERE f.queue = name AND f.priority = :priority),
                           -9223372036854775807)) AS first FROM penstock_queues) AS q)
FROM penstock_tenants t LEFT JOIN penstock_definitions d ON d.id = :definition_id AND d.is_active
WHERE t.id = :tenant_id AND t.is_active
"""
