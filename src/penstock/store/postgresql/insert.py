"""Write new jobs. One statement finds their places and what they wait for, and writes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from penstock.core.payload import dumps
from penstock.store.dialect import Bare
from penstock.store.hot import Alike, NewJob, Written
from penstock.store.postgresql import transaction
from penstock.store.postgresql.types import array, loaded_id, loaded_moment


class PostgresInsert:
    """Write new jobs, one or many."""

    def insert_jobs(self, conn: Connection, moment: datetime | None, new: Sequence[NewJob]) -> Sequence[Written]:
        """Write the jobs whose tenant and definition are as the caller saw them; answer those written."""
        if len(new) == 1:
            found = _insert_one(conn, moment, new[0])
        else:
            rows = dumps([_new_row(job, number) for number, job in enumerate(new)])
            found = transaction.run(conn, _INSERT, moment, {"rows": rows})
        return [
            Written(loaded_id(row[0]), row[1], row[2], loaded_moment(row[3]), loaded_moment(row[4])) for row in found
        ]

    def insert_alike(self, conn: Connection, moment: datetime | None, many: Alike) -> int:
        # The params are JSON already: together they are an array as they stand.
        params = {**many.first._asdict(), "ids": array(many.ids), "many": f"[{','.join(many.params)}]"}
        ((written,),) = transaction.run(conn, _INSERT_ALIKE, moment, params)
        return int(written)


def _insert_one(conn: Connection | Bare, moment: datetime | None, job: NewJob) -> Sequence[Any]:
    """A job without anything rare takes a statement without it, which costs both sides less."""
    sql = _INSERT_PLAIN if job[_FIRST_RARE:] == _ORDINARY else _INSERT_ONE
    return transaction.run(conn, sql, moment, job._asdict())


def _new_row(job: NewJob, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "n": number, "id": str(job.id), "tenant_id": str(job.tenant_id), "definition_key": job.definition_key,
        "queue": job.queue, "priority": job.priority, "params": job.params, "max_attempts": job.max_attempts,
        "retry_mode": job.retry_mode, "source": job.source,
    }  # fmt: skip
    optional = {
        "definition_id": str(job.definition_id) if job.definition_id else None, "definition_version": job.definition_version,
        "source_ref": job.source_ref, "dedupe_key": job.dedupe_key, "correlation_id": job.correlation_id,
        "scheduled_for": job.scheduled_for.isoformat() if job.scheduled_for else None, "delay": job.delay,
        "group_id": str(job.group_id) if job.group_id else None, "group_position": job.group_position,
        "waits_for_group": job.waits_for_group or None, "trigger_id": str(job.trigger_id) if job.trigger_id else None,
        "tick_at": job.tick_at.isoformat() if job.tick_at else None, "created_by": job.created_by, "trace": job.trace,
    }  # fmt: skip
    row.update({key: value for key, value in optional.items() if value is not None})
    return row


_FIRST_RARE = NewJob._fields.index("source_ref")
_RARE = NewJob._fields[_FIRST_RARE:]
_ORDINARY = tuple(NewJob._field_defaults[name] for name in _RARE)
"""What most jobs are without."""

# The place of a job at the end of its tenant's, but not before the clock: core.position says the same.
_BASE = """greatest(
    coalesce((SELECT max(position) FROM penstock_jobs WHERE claimable AND tenant_id = {tenant_id} AND priority = {priority}), 0),
    coalesce((SELECT coalesce(min(q.first) FILTER (WHERE NOT q.paused),
                              (SELECT max(position) FROM penstock_floors WHERE priority = {priority}), min(q.first))
              FROM (SELECT paused, (SELECT min(position) FROM penstock_jobs
                                    WHERE claimable AND queue = name AND priority = {priority} AND position >= coalesce(
                                      (SELECT f.position FROM penstock_floors f WHERE f.queue = name AND f.priority = {priority}),
                                      -9223372036854775807)) AS first
                    FROM penstock_queues OFFSET 0) AS q), 0) - 100)"""

_COLUMNS = """id, tenant_id, definition_id, definition_key, queue, status, claimable, waits_for, priority,
    position, params, source, source_ref, dedupe_key, correlation_id, scheduled_for, created_at, queued_at, max_attempts,
    retry_mode, root_id, group_id, group_position, trigger_id, tick_at, created_by, trace"""

# The tenant and the definition as the caller saw them, when the job is due and what it waits for: no row if they changed.
_AS_SEEN = """FROM penstock_tenants t LEFT JOIN penstock_definitions d ON d.id = CAST(:definition_id AS uuid)
CROSS JOIN LATERAL (
  SELECT due_at, CASE WHEN CAST(:waits_for_group AS boolean) THEN 'group' WHEN due_at > {now} THEN 'time'
    WHEN t.max_running IS NOT NULL OR d.max_running IS NOT NULL OR d.paused THEN 'limit' END AS waits_for
  FROM (SELECT coalesce(CAST(:scheduled_for AS timestamptz),
                        {now} + make_interval(secs => coalesce(CAST(:delay AS float8), 0))) AS due_at OFFSET 0) AS x OFFSET 0
) AS w
WHERE t.id = CAST(:tenant_id AS uuid) AND t.is_active
  AND (CAST(:definition_id AS uuid) IS NULL OR (d.is_active AND d.version = CAST(:definition_version AS integer)))
"""

# One job, without what a batch needs: no JSON to take apart, nothing to number, nothing to sort.
_INSERT_ONE = f"""
INSERT INTO penstock_jobs ({_COLUMNS})
SELECT CAST(:id AS uuid), t.id, CAST(:definition_id AS uuid), :definition_key, :queue, 'queued', w.waits_for IS NULL, w.waits_for,
  CAST(:priority AS integer), CASE WHEN w.waits_for IS NULL
    THEN {_BASE.format(tenant_id="t.id", priority="CAST(:priority AS integer)")} + greatest(1, 100 / t.weight) ELSE 0 END,
  CAST(:params AS jsonb), :source, CAST(:source_ref AS text), CAST(:dedupe_key AS text), CAST(:correlation_id AS text), w.due_at,
  {{now}}, {{now}}, CAST(:max_attempts AS integer), :retry_mode, CAST(:id AS uuid), CAST(:group_id AS uuid),
  CAST(:group_position AS integer), CAST(:trigger_id AS uuid), CAST(:tick_at AS timestamptz), CAST(:created_by AS text),
  CAST(:trace AS jsonb)
{_AS_SEEN}ON CONFLICT DO NOTHING
RETURNING id, position, waits_for, scheduled_for, queued_at, CASE WHEN claimable THEN CAST(pg_notify('penstock', queue) AS text) END
"""

_INSERT_PLAIN = re.sub(rf":({'|'.join(_RARE)})\b", "NULL", _INSERT_ONE)

# Many jobs that differ in nothing but their ids and params. The ids are new and none has a dedupe key, so nothing can be in
# their way; ON CONFLICT would look into every unique index for each of them first, a fifth of the time.
_INSERT_ALIKE = f"""
WITH b AS MATERIALIZED (
  SELECT t.id AS tenant_id, w.waits_for, w.due_at, greatest(1, 100 / t.weight) AS stride,
    {_BASE.format(tenant_id="t.id", priority="CAST(:priority AS integer)")} AS base
  {_AS_SEEN}
), written AS (
  INSERT INTO penstock_jobs ({_COLUMNS})
  SELECT g.id, b.tenant_id, CAST(:definition_id AS uuid), :definition_key, :queue, 'queued', b.waits_for IS NULL, b.waits_for,
    CAST(:priority AS integer), CASE WHEN b.waits_for IS NULL THEN b.base + b.stride * g.n ELSE 0 END, g.params, :source,
    CAST(:source_ref AS text), CAST(:dedupe_key AS text), CAST(:correlation_id AS text), b.due_at, {{now}}, {{now}},
    CAST(:max_attempts AS integer), :retry_mode, g.id, CAST(:group_id AS uuid), CAST(:group_position AS integer),
    CAST(:trigger_id AS uuid), CAST(:tick_at AS timestamptz), CAST(:created_by AS text), CAST(:trace AS jsonb)
  FROM b CROSS JOIN ROWS FROM (unnest(CAST(:ids AS uuid[])), jsonb_array_elements(CAST(:many AS jsonb)))
    WITH ORDINALITY AS g(id, params, n)
  RETURNING queue, claimable
), woken AS (
  SELECT count(pg_notify('penstock', queue)) FROM (SELECT DISTINCT queue FROM written WHERE claimable) AS w
)
SELECT count(*) FROM written CROSS JOIN woken
"""

_INSERT = f"""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS g(
    n integer, id uuid, tenant_id uuid, definition_id uuid, definition_version integer, definition_key text, queue text,
    priority integer, params text, max_attempts integer, retry_mode text, source text, source_ref text, dedupe_key text,
    correlation_id text, scheduled_for timestamptz, delay float8, group_id uuid, group_position integer,
    waits_for_group boolean, trigger_id uuid, tick_at timestamptz, created_by text, trace text)
), place AS MATERIALIZED (
  SELECT p.tenant_id, p.priority, {_BASE.format(tenant_id="p.tenant_id", priority="p.priority")} AS base
  FROM (SELECT DISTINCT tenant_id, priority FROM given) AS p
), ready AS (
  SELECT g.*, greatest(1, 100 / t.weight) AS stride, p.base,
    coalesce(g.scheduled_for, {{now}} + make_interval(secs => coalesce(g.delay, 0))) AS due_at,
    CASE WHEN g.waits_for_group THEN 'group'
         WHEN coalesce(g.scheduled_for, {{now}} + make_interval(secs => coalesce(g.delay, 0))) > {{now}} THEN 'time'
         WHEN t.max_running IS NOT NULL OR d.max_running IS NOT NULL OR d.paused THEN 'limit' END AS waits_for
  FROM given g JOIN place p ON p.tenant_id = g.tenant_id AND p.priority = g.priority
  JOIN penstock_tenants t ON t.id = g.tenant_id AND t.is_active
  LEFT JOIN penstock_definitions d ON d.id = g.definition_id
  WHERE g.definition_id IS NULL OR (d.is_active AND d.version = g.definition_version)
), written AS (
  INSERT INTO penstock_jobs ({_COLUMNS})
  SELECT id, tenant_id, definition_id, definition_key, queue, 'queued', waits_for IS NULL, waits_for, priority,
    CASE WHEN waits_for IS NULL THEN base + stride * row_number() OVER (PARTITION BY tenant_id, priority, waits_for ORDER BY n)
         ELSE 0 END,
    CAST(params AS jsonb), source, source_ref, dedupe_key, correlation_id, due_at, {{now}}, {{now}}, max_attempts,
    retry_mode, id, group_id, group_position, trigger_id, tick_at, created_by, CAST(trace AS jsonb)
  FROM ready ORDER BY n
  ON CONFLICT DO NOTHING
  RETURNING id, position, waits_for, scheduled_for, queued_at, queue, claimable
), woken AS (
  SELECT count(pg_notify('penstock', queue)) FROM (SELECT DISTINCT queue FROM written WHERE claimable) AS w
)
SELECT id, position, waits_for, scheduled_for, queued_at FROM written CROSS JOIN woken
"""
