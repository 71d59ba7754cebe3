"""Close runs and count them, in one statement for a batch, whatever became of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.core.decide import Resolution
from penstock.store.dialect import HotConnection
from penstock.store.hot import Closed, Closing, Closures, counted_as, is_plain, told_once
from penstock.store.postgresql import transaction
from penstock.store.postgresql.transaction import Clock, hot
from penstock.store.postgresql.types import array


class PostgresClose:
    """Close runs."""

    def close(
        self, conn: HotConnection, moment: datetime | None, closings: Sequence[Closing], shard: int, *, alone: bool
    ) -> Closures:
        # Of a plain success nothing is said but its ids; what is said of the others comes beside theirs, so those go first.
        told = [each for each in closings if not is_plain(each.resolution)]
        ordered = [*told, *(each for each in closings if is_plain(each.resolution))] if told else closings
        said = ",".join([f"{{{members}}}" for _, members in told_once(told, _said)])
        given: dict[str, Any] = {
            "job_ids": array(each.job_id for each in ordered), "run_ids": array(each.run_id for each in ordered),
            "said": f"[{said}]", "number": len(ordered), "shard": shard, "alone": alone,
        }  # fmt: skip
        ((closed, followed),) = transaction.run(conn, _CLOSE, moment, given, by_key=True)
        return Closures(
            None if closed is None else {_id(each) for each in closed}, [_closed(row) for row in followed or ()]
        )


def _id(value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(value)


def _closed(row: Sequence[Any]) -> Closed:
    job_id, run_id, tenant_id, group_id, *rest = row
    return Closed(UUID(job_id), UUID(run_id), UUID(tenant_id), UUID(group_id) if group_id else None, *rest)


def _said(r: Resolution) -> dict[str, Any]:
    evidence = r.evidence
    every = {
        "rs": r.run_status, "js": r.job_status, "m": counted_as(r), "e": r.error, "d": r.delay, "res": r.result, "x": evidence.exit_code,
        "so": evidence.stdout_tail, "se": evidence.stderr_tail, "lp": evidence.log_path, "p": evidence.pid,
        "xa": r.extra_attempts or None, "c": r.crashed or None, "i": r.interrupted or None, "s": r.suspect or None,
        "ch": r.chain or None, "a": [dict(artifact) for artifact in evidence.artifacts] or None,
    }  # fmt: skip
    return {key: value for key, value in every.items() if value is not None}


_HOOKED = "tenant_id IN (SELECT tenant_id FROM penstock_webhooks WHERE is_enabled)"


def _tally(clock: Clock) -> str:
    """Count what was closed. What a batch has in common is counted before it is looked at: most of it was claimed at one moment, and
    enqueued at one. Written in one order, so that two workers of a shard wait for each other, and do not deadlock."""
    return f"""g AS (
  SELECT tenant_id, definition_key, queue, rs, m, started_at, CASE WHEN js <> 'queued' THEN ready_at END AS ready_at, count(*) AS n
  FROM u GROUP BY 1, 2, 3, 4, 5, 6, 7
), m AS (
  SELECT tenant_id, definition_key, queue, rs AS measure, CAST(extract(epoch FROM {clock.now} - started_at) AS float8) AS seconds, n FROM g
  UNION ALL
  SELECT tenant_id, definition_key, queue, 'wait', CAST(extract(epoch FROM started_at - ready_at) AS float8), n FROM g
  WHERE ready_at IS NOT NULL
  UNION ALL
  SELECT tenant_id, definition_key, queue, m, 0, n FROM g WHERE m IS NOT NULL
), t AS (
  INSERT INTO penstock_tallies (minute, tenant_id, definition_key, queue, measure, bucket, shard, n)
  SELECT date_trunc('minute', {clock.now} AT TIME ZONE 'UTC') AT TIME ZONE 'UTC', tenant_id, definition_key, queue, measure,
    CAST(floor(2 * ln(greatest(0, seconds) * 1000 + 1) / ln(CAST(2 AS float8))) AS integer) AS b, CAST(:shard AS integer), sum(n)
  FROM m GROUP BY tenant_id, definition_key, queue, measure, b ORDER BY tenant_id, definition_key, queue, measure, b
  ON CONFLICT (minute, tenant_id, definition_key, queue, measure, bucket, shard) DO UPDATE SET n = penstock_tallies.n + excluded.n
)"""


# `running` to `runs`, and to `waiting` where the job is tried again. The fence is the DELETE: who deletes nothing has lost the lease.
# One that is closed `alone` has nothing following: no group that goes on, no webhook that is told; others are left as they are.
# What is found beside a batch is looked up for each of its rows (LATERAL, ANY): statistics that were made while nothing ran say that
# a table of the active ones is empty, and the planner would begin with that one and compare it with the whole batch.
# The answer is NULL if all were closed, else the runs that were; and what is to follow.
_CLOSE = hot(
    lambda clock: (
        f"""
WITH f AS MATERIALIZED (
  SELECT j, r, coalesce(rs, 'succeeded') AS rs, coalesce(js, 'succeeded') AS js, m, e, d, res, x, so, se, lp, xa, c, i, s, ch, a, p
  FROM ROWS FROM (unnest(CAST(:job_ids AS uuid[])), unnest(CAST(:run_ids AS uuid[])), jsonb_to_recordset(CAST(:said AS jsonb)) AS (
    rs text, js text, m text, e text, d float8, res jsonb, x integer, so text, se text, lp text, xa integer, c boolean, i boolean,
    s boolean, ch boolean, a jsonb, p integer)) AS f(j, r, rs, js, m, e, d, res, x, so, se, lp, xa, c, i, s, ch, a, p)
), u AS (
  DELETE FROM penstock_running r USING f WHERE r.job_id = ANY(CAST(:job_ids AS uuid[])) AND r.job_id = f.j AND r.run_id = f.r
    AND (NOT CAST(:alone AS boolean) OR (r.group_id IS NULL AND NOT r.{_HOOKED}))
  RETURNING r.job_id, r.tenant_id, r.queued_at, r.run_id, r.ready_at, r.started_at, r.priority, r.attempt_no,
    r.max_attempts + coalesce(f.xa, 0) AS max_attempts, CASE WHEN f.c THEN r.crashes + 1 WHEN f.i THEN r.crashes ELSE 0 END AS crashes,
    r.interruptions + CASE WHEN f.i THEN 1 ELSE 0 END AS interruptions, f.s IS TRUE OR (f.i IS TRUE AND r.suspect) AS suspect,
    r.worker_id, r.queue, r.definition_key, r.definition_id, r.group_id, r.trigger_id, r.dedupe_key, coalesce(f.p, r.pid) AS pid,
    r.cancel_requested_at, r.progress, coalesce(f.so, r.stdout_tail) AS so, coalesce(f.se, r.stderr_tail) AS se,
    coalesce(f.a, r.artifacts) AS a, f.rs, f.js, f.m, f.e, f.d, f.res, f.x, f.lp, f.ch
), c AS (
  INSERT INTO penstock_runs (job_id, tenant_id, finished_at, attempt_no, max_attempts, id, started_at, status, worker_id, job_status,
    pid, definition_id, exit_code, error, result, progress, cancel_requested_at, stdout_tail, stderr_tail, artifacts, log_path, group_id)
  SELECT job_id, tenant_id, greatest({clock.now}, started_at), attempt_no, max_attempts, run_id, started_at, rs, worker_id,
    NULLIF(js, 'queued'), pid, definition_id, x, e, res, progress, cancel_requested_at, so, se, a, lp, group_id
  FROM u
), w AS (
  INSERT INTO penstock_waiting (job_id, tenant_id, queued_at, priority, attempt_no, max_attempts, crashes, interruptions, suspect,
    reason, queue, definition_key, definition_id, group_id, trigger_id, dedupe_key, until)
  SELECT job_id, tenant_id, queued_at, priority, attempt_no, max_attempts, crashes, interruptions, suspect, 'time', queue,
    definition_key, definition_id, group_id, trigger_id, dedupe_key, {clock.now} + make_interval(secs => coalesce(d, 0))
  FROM u WHERE js = 'queued'
), k AS (
  DELETE FROM penstock_dedupe WHERE ctid = ANY(ARRAY(
    SELECT x.at FROM u CROSS JOIN LATERAL (
      SELECT ctid AS at FROM penstock_dedupe WHERE tenant_id = u.tenant_id AND dedupe_key = u.dedupe_key AND job_id = u.job_id OFFSET 0
    ) AS x WHERE u.dedupe_key IS NOT NULL AND u.js <> 'queued'))
), {_tally(clock)}
SELECT CASE WHEN count(*) < CAST(:number AS integer) THEN coalesce(array_agg(run_id), '{{}}') END,
  jsonb_agg(jsonb_build_array(job_id, run_id, tenant_id, group_id, {_HOOKED}, attempt_no, max_attempts, crashes, interruptions, suspect))
    FILTER (WHERE group_id IS NOT NULL OR ch OR {_HOOKED})
FROM u
"""
    )
)
