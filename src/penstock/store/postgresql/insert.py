"""Write new jobs. One statement finds their places and what they wait for, and writes them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from penstock.core.payload import dumps
from penstock.store.dialect import HotConnection
from penstock.store.hot import Alike, NewJob, Written
from penstock.store.postgresql import transaction
from penstock.store.postgresql.transaction import Clock, hot
from penstock.store.postgresql.types import array, loaded_id, loaded_moment


class PostgresInsert:
    """Write new jobs, one or many."""

    def insert_jobs(self, conn: HotConnection, moment: datetime | None, new: Sequence[NewJob]) -> Sequence[Written]:
        """Write the jobs whose tenant and definition are as the caller saw them; return those written."""
        if len(new) == 1:
            found = transaction.run(conn, _INSERT_ONE, moment, new[0]._asdict())
        else:
            rows = dumps([_row(job, number) for number, job in enumerate(new)])
            found = transaction.run(conn, _INSERT, moment, {"rows": rows})
        return [
            Written(loaded_id(row[0]), row[1], row[2], loaded_moment(row[3]), loaded_moment(row[4])) for row in found
        ]

    def insert_alike(self, conn: HotConnection, moment: datetime | None, many: Alike) -> int:
        # The params are JSON already: together they are an array as they stand.
        params = {**many.first._asdict(), "ids": array(many.ids), "many": f"[{','.join(many.params)}]"}
        ((written,),) = transaction.run(conn, _INSERT_ALIKE, moment, params)
        return int(written)


def _row(job: NewJob, number: int) -> dict[str, Any]:
    """What differs from nothing, as JSON."""
    row = {name: value for name, value in job._asdict().items() if value is not None and value is not False}
    for name in ("id", "tenant_id", "definition_id", "group_id", "trigger_id"):
        if name in row:
            row[name] = str(row[name])
    for name in ("scheduled_for", "tick_at"):
        if name in row:
            row[name] = row[name].isoformat()
    return {"n": number, **row}


def _base(tenant_id: str, priority: str) -> str:
    """The place of a job at the end of its tenant's, but not before the clock: core.position says the same."""
    return f"""greatest(
    coalesce((SELECT max(position) FROM penstock_ready WHERE tenant_id = {tenant_id} AND priority = {priority}), 0),
    coalesce((SELECT coalesce(min(q.first) FILTER (WHERE NOT q.paused),
                              (SELECT max(position) FROM penstock_floors WHERE priority = {priority}), min(q.first))
              FROM (SELECT paused, (SELECT min(position) FROM penstock_ready
                                    WHERE queue = name AND priority = {priority} AND position >= coalesce(
                                      (SELECT f.position FROM penstock_floors f WHERE f.queue = name AND f.priority = {priority}),
                                      -9223372036854775807)) AS first
                    FROM penstock_queues OFFSET 0) AS q), 0) - 100)"""


def _as_seen(clock: Clock) -> str:
    """The tenant and the definition as the caller saw them, when the job is due and what it waits for: no row if they changed."""
    due = f"coalesce(CAST(:scheduled_for AS timestamptz), {clock.now} + make_interval(secs => coalesce(CAST(:delay AS float8), 0)))"
    return f"""b AS MATERIALIZED (
  SELECT t.id AS tenant_id, w.reason, w.due_at, greatest(1, 100 / t.weight) AS stride,
    CASE WHEN w.reason IS NULL THEN {_base("t.id", "CAST(:priority AS integer)")} END AS base
  FROM penstock_tenants t LEFT JOIN penstock_definitions d ON d.id = CAST(:definition_id AS uuid)
  CROSS JOIN LATERAL (
    SELECT due_at, CASE WHEN CAST(:waits_for_group AS boolean) THEN 'group' WHEN due_at > {clock.now} THEN 'time'
      WHEN t.max_running IS NOT NULL OR d.max_running IS NOT NULL OR d.paused THEN 'limit' END AS reason
    FROM (SELECT {due} AS due_at OFFSET 0) AS x OFFSET 0
  ) AS w
  WHERE t.id = CAST(:tenant_id AS uuid) AND t.is_active
    AND (CAST(:definition_id AS uuid) IS NULL OR (d.is_active AND d.version = CAST(:definition_version AS integer)))
)"""


_JOB = """id, tenant_id, root_id, scheduled_for, created_at, priority, max_attempts, queue, definition_key, retry_mode, source, params,
    definition_id, source_ref, dedupe_key, correlation_id, group_id, group_position, trigger_id, tick_at, created_by, trace"""
_READY = """job_id, tenant_id, queued_at, ready_at, position, priority, attempt_no, max_attempts, crashes, interruptions, suspect, slot,
    queue, definition_key, definition_id, group_id, trigger_id, dedupe_key"""
_WAITING = """job_id, tenant_id, queued_at, priority, attempt_no, max_attempts, crashes, interruptions, suspect, reason, queue,
    definition_key, definition_id, group_id, trigger_id, dedupe_key, until, group_position"""


def _values(clock: Clock, id_: str, params: str) -> tuple[str, str, str]:
    """The rows of `jobs`, `ready` and `waiting` for jobs that share what the parameters say; `position` is to be there."""
    named = ":queue, :definition_key, CAST(:definition_id AS uuid)"
    tied = "CAST(:group_id AS uuid), CAST(:trigger_id AS uuid), CAST(:dedupe_key AS text)"
    counts = "CAST(:priority AS integer), 0, CAST(:max_attempts AS integer), 0, 0, false"
    job = f"""{id_}, b.tenant_id, {id_}, b.due_at, {clock.now}, CAST(:priority AS integer), CAST(:max_attempts AS integer), :queue,
    :definition_key, :retry_mode, :source, {params}, CAST(:definition_id AS uuid), CAST(:source_ref AS text), CAST(:dedupe_key AS text),
    CAST(:correlation_id AS text), CAST(:group_id AS uuid), CAST(:group_position AS integer), CAST(:trigger_id AS uuid),
    CAST(:tick_at AS timestamptz), CAST(:created_by AS text), CAST(:trace AS jsonb)"""
    place = "b.base + b.stride * g.n" if id_ == "g.id" else "b.base + b.stride"
    ready = f"{id_}, b.tenant_id, {clock.now}, {clock.now}, {place}, {counts}, false, {named}, {tied}"
    waiting = f"""{id_}, b.tenant_id, {clock.now}, {counts}, b.reason, {named}, {tied}, CASE b.reason WHEN 'time' THEN b.due_at END,
    CASE b.reason WHEN 'group' THEN CAST(:group_position AS integer) END"""
    return job, ready, waiting


# One job. Nothing is written if an active job has its dedupe key, or if there is one of its id or its tick.
def _one(clock: Clock) -> str:
    job, ready, waiting = _values(clock, "CAST(:id AS uuid)", "CAST(:params AS jsonb)")
    return f"""
WITH {_as_seen(clock)}, k AS (
  INSERT INTO penstock_dedupe (tenant_id, dedupe_key, job_id)
  SELECT b.tenant_id, CAST(:dedupe_key AS text), CAST(:id AS uuid) FROM b WHERE CAST(:dedupe_key AS text) IS NOT NULL
  ON CONFLICT DO NOTHING RETURNING job_id
), j AS (
  INSERT INTO penstock_jobs ({_JOB}) SELECT {job} FROM b WHERE CAST(:dedupe_key AS text) IS NULL OR EXISTS (SELECT 1 FROM k)
  ON CONFLICT DO NOTHING RETURNING id
), r AS (
  INSERT INTO penstock_ready ({_READY}) SELECT {ready} FROM b CROSS JOIN j WHERE b.reason IS NULL
), w AS (
  INSERT INTO penstock_waiting ({_WAITING}) SELECT {waiting} FROM b CROSS JOIN j WHERE b.reason IS NOT NULL
)
SELECT j.id, coalesce(b.base + b.stride, 0), b.reason, b.due_at, {clock.now},
  CASE WHEN b.reason IS NULL THEN CAST(pg_notify('penstock', :queue) AS text) END
FROM b CROSS JOIN j
"""


_INSERT_ONE = hot(_one)


# Many jobs that differ in nothing but their ids and params. The ids are new and none has a dedupe key, so nothing can be in
# their way; ON CONFLICT would look into every unique index for each of them first, a fifth of the time.
def _alike(clock: Clock) -> str:
    job, ready, waiting = _values(clock, "g.id", "g.params")
    return f"""
WITH {_as_seen(clock)}, g AS MATERIALIZED (
  SELECT g.id, g.params, g.n FROM b CROSS JOIN ROWS FROM (unnest(CAST(:ids AS uuid[])), jsonb_array_elements(CAST(:many AS jsonb)))
    WITH ORDINALITY AS g(id, params, n)
), j AS (
  INSERT INTO penstock_jobs ({_JOB}) SELECT {job} FROM b CROSS JOIN g
), r AS (
  INSERT INTO penstock_ready ({_READY}) SELECT {ready} FROM b CROSS JOIN g WHERE b.reason IS NULL
), w AS (
  INSERT INTO penstock_waiting ({_WAITING}) SELECT {waiting} FROM b CROSS JOIN g WHERE b.reason IS NOT NULL
), woken AS (
  SELECT count(pg_notify('penstock', :queue)) FROM b WHERE b.reason IS NULL
)
SELECT count(*) FROM g CROSS JOIN woken
"""


_INSERT_ALIKE = hot(_alike)

# Jobs of any kind, each described in JSON.
_INSERT = hot(
    lambda clock: (
        f"""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS g(
    n integer, id uuid, tenant_id uuid, definition_id uuid, definition_version integer, definition_key text, queue text,
    priority integer, params text, max_attempts integer, retry_mode text, source text, source_ref text, dedupe_key text,
    correlation_id text, scheduled_for timestamptz, delay float8, group_id uuid, group_position integer,
    waits_for_group boolean, trigger_id uuid, tick_at timestamptz, created_by text, trace text)
), place AS MATERIALIZED (
  SELECT p.tenant_id, p.priority, {_base("p.tenant_id", "p.priority")} AS base
  FROM (SELECT DISTINCT tenant_id, priority FROM given) AS p
), seen AS MATERIALIZED (
  SELECT x.*, CASE WHEN x.reason IS NULL
      THEN x.base + x.stride * row_number() OVER (PARTITION BY x.tenant_id, x.priority, x.reason ORDER BY x.n) ELSE 0 END AS position
  FROM (
    SELECT g.*, greatest(1, 100 / t.weight) AS stride, p.base, y.due_at,
      CASE WHEN g.waits_for_group THEN 'group' WHEN y.due_at > {clock.now} THEN 'time'
           WHEN t.max_running IS NOT NULL OR d.max_running IS NOT NULL OR d.paused THEN 'limit' END AS reason
    FROM given g JOIN place p ON p.tenant_id = g.tenant_id AND p.priority = g.priority
    JOIN penstock_tenants t ON t.id = g.tenant_id AND t.is_active
    LEFT JOIN penstock_definitions d ON d.id = g.definition_id
    CROSS JOIN LATERAL (SELECT coalesce(g.scheduled_for, {clock.now} + make_interval(secs => coalesce(g.delay, 0))) AS due_at) AS y
    WHERE g.definition_id IS NULL OR (d.is_active AND d.version = g.definition_version)
  ) AS x
), k AS (
  INSERT INTO penstock_dedupe (tenant_id, dedupe_key, job_id) SELECT tenant_id, dedupe_key, id FROM seen
  WHERE dedupe_key IS NOT NULL ORDER BY n ON CONFLICT DO NOTHING RETURNING job_id
), j AS (
  INSERT INTO penstock_jobs ({_JOB})
  SELECT id, tenant_id, id, due_at, {clock.now}, priority, max_attempts, queue, definition_key, retry_mode, source,
    CAST(params AS jsonb), definition_id, source_ref, dedupe_key, correlation_id, group_id, group_position, trigger_id, tick_at, created_by,
    CAST(trace AS jsonb)
  FROM seen WHERE dedupe_key IS NULL OR id IN (SELECT job_id FROM k) ORDER BY n
  ON CONFLICT DO NOTHING RETURNING id
), r AS (
  INSERT INTO penstock_ready ({_READY})
  SELECT s.id, tenant_id, {clock.now}, {clock.now}, position, priority, 0, max_attempts, 0, 0, false, false, queue, definition_key,
    definition_id, group_id, trigger_id, dedupe_key
  FROM seen s JOIN j ON j.id = s.id WHERE s.reason IS NULL
), w AS (
  INSERT INTO penstock_waiting ({_WAITING})
  SELECT s.id, tenant_id, {clock.now}, priority, 0, max_attempts, 0, 0, false, reason, queue, definition_key, definition_id, group_id,
    trigger_id, dedupe_key, CASE reason WHEN 'time' THEN due_at END, CASE reason WHEN 'group' THEN group_position END
  FROM seen s JOIN j ON j.id = s.id WHERE s.reason IS NOT NULL
), woken AS (
  SELECT count(pg_notify('penstock', queue)) FROM (
    SELECT DISTINCT s.queue FROM seen s JOIN j ON j.id = s.id WHERE s.reason IS NULL) AS w
)
SELECT s.id, s.position, s.reason, s.due_at, {clock.now} FROM seen s JOIN j ON j.id = s.id CROSS JOIN woken ORDER BY s.n
"""
    )
)
