"""Close runs and count them, in one statement for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import Connection

from penstock.core.decide import Resolution
from penstock.core.payload import dumps
from penstock.store.hot import Closed, Closing, Success, counted_as, told_once
from penstock.store.postgresql import transaction
from penstock.store.postgresql.transaction import BY_KEY, HELD
from penstock.store.postgresql.types import array


class PostgresClose:
    """Close runs, whatever became of them."""

    def close(
        self, conn: Connection, moment: datetime | None, closings: Sequence[Closing], shard: int
    ) -> Sequence[Closed]:
        texts = [
            f'{{"j":"{closing.job_id.hex}","r":"{closing.run_id.hex}",{told}}}'
            for closing, told in told_once(closings, _resolution_row)
        ]
        given = {"closings": f"[{','.join(texts)}]", "shard": shard, "moment": moment}
        if not transaction.begins(conn):
            return [Closed(*row) for row in transaction.run(conn, _CLOSE, moment, given)]
        from penstock.store.postgresql import wire

        close = wire.Statement(transaction.timed(_CLOSE, moment is not None), given, binary=True)
        _, answer = transaction.ask(conn, [wire.Statement(BY_KEY, {}), close])
        ids = wire.Ids({each.bytes: each for closing in closings for each in (closing.job_id, closing.run_id)})
        return [Closed(*row) for row in wire.decoded(answer, (ids, ids, ids, ids, wire.Booleans()))]

    def close_successes(
        self, conn: Connection, moment: datetime | None, successes: Sequence[Success], shard: int
    ) -> set[UUID] | None:
        given: dict[str, Any] = {
            "job_ids": array(each.job_id for each in successes), "run_ids": array(each.run_id for each in successes),
            "number": len(successes), "shard": shard,
        }  # fmt: skip
        with_results = any(each.result is not None for each in successes)
        if with_results:
            given["results"] = dumps([each.result for each in successes])
        ((closed,),) = transaction.run(conn, _close_successes_sql(with_results), moment, given, by_key=True)
        return None if closed is None else set(closed)


def _resolution_row(r: Resolution) -> dict[str, Any]:
    evidence = r.evidence
    row: dict[str, Any] = {"rs": r.run_status, "js": r.job_status}
    optional = {
        "m": counted_as(r), "e": r.error, "d": r.delay, "res": r.result, "x": evidence.exit_code, "so": evidence.stdout_tail,
        "se": evidence.stderr_tail, "lp": evidence.log_path, "p": evidence.pid, "xa": r.extra_attempts or None, "c": r.crashed or None,
        "i": r.interrupted or None, "s": r.suspect or None,
        "a": [dict(artifact) for artifact in evidence.artifacts] or None,
    }  # fmt: skip
    row.update({key: value for key, value in optional.items() if value is not None})
    return row


@lru_cache(maxsize=2)
def _close_successes_sql(with_results: bool) -> str:
    ids = "unnest(CAST(:job_ids AS uuid[])), unnest(CAST(:run_ids AS uuid[]))"
    given, result = f"ROWS FROM ({ids}) AS f(j, r)", "NULL"
    if with_results:
        given, result = (
            f"ROWS FROM ({ids}, jsonb_array_elements(CAST(:results AS jsonb))) AS f(j, r, res)",
            "NULLIF(f.res, 'null')",
        )
    return _CLOSE_SUCCESSES.replace("{given}", given).replace("{result}", result)


# What both ways of closing do once they know which jobs: close the runs, and count. Nothing follows a success.
_CLOSE_RUNS = """c AS (
  UPDATE penstock_runs r SET finished_at = greatest({now}, r.started_at), {ending}
  FROM u WHERE r.job_id = u.id AND r.attempt_no = u.attempt_no AND r.id = u.run_id AND r.finished_at IS NULL
  RETURNING u.tenant_id, u.definition_key, u.queue, u.finished_at, u.ready_at{follows}, r.started_at, r.status AS rs
), m AS (
  SELECT tenant_id, definition_key, queue, rs AS measure, CAST(extract(epoch FROM {now} - started_at) AS float8) AS seconds FROM c
  UNION ALL
  SELECT tenant_id, definition_key, queue, 'wait', CAST(extract(epoch FROM started_at - ready_at) AS float8) FROM c
  WHERE finished_at IS NOT NULL{more}
), t AS (
  INSERT INTO penstock_tallies (minute, tenant_id, definition_key, queue, measure, bucket, shard, n)
  SELECT date_trunc('minute', {now} AT TIME ZONE 'UTC') AT TIME ZONE 'UTC', tenant_id, definition_key, queue, measure,
    CAST(floor(2 * ln(greatest(0, seconds) * 1000 + 1) / ln(CAST(2 AS float8))) AS integer) AS b, :shard, count(*)
  FROM m GROUP BY tenant_id, definition_key, queue, measure, b
  ORDER BY tenant_id, definition_key, queue, measure, b -- in one order, so that two workers of a shard wait, not deadlock
  ON CONFLICT (minute, tenant_id, definition_key, queue, measure, bucket, shard)
  DO UPDATE SET n = penstock_tallies.n + excluded.n
)"""
_FOLLOWS = "\n  UNION ALL SELECT tenant_id, definition_key, queue, m, 0 FROM c WHERE m IS NOT NULL"
_AS_TOLD = """status = u.rs, error = u.e, exit_code = u.x,
    stdout_tail = coalesce(u.so, r.stdout_tail), stderr_tail = coalesce(u.se, r.stderr_tail),
    artifacts = coalesce(u.a, r.artifacts), log_path = coalesce(u.lp, r.log_path), pid = coalesce(u.p, r.pid)"""
_HOOKED = "tenant_id IN (SELECT tenant_id FROM penstock_webhooks WHERE is_enabled)"

_CLOSE = f"""
WITH f AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:closings AS jsonb)) AS f(
    j uuid, r uuid, rs text, js text, m text, e text, d float8, res jsonb, x integer, so text, se text, lp text, xa integer, c boolean,
    i boolean, s boolean, a jsonb, p integer)
), u AS (
  UPDATE penstock_jobs j SET status = f.js, waits_for = CASE f.js WHEN 'queued' THEN 'time' END, slot = false,
    scheduled_for = CASE f.js WHEN 'queued' THEN {{now}} + make_interval(secs => coalesce(f.d, 0)) ELSE j.scheduled_for END,
    finished_at = CASE f.js WHEN 'queued' THEN NULL ELSE greatest({{now}}, j.started_at) END, lease_expires_at = NULL,
    cancel_requested_at = CASE f.js WHEN 'queued' THEN NULL ELSE j.cancel_requested_at END,
    last_error = f.e, result = f.res, max_attempts = j.max_attempts + coalesce(f.xa, 0),
    crashes = CASE WHEN f.c THEN j.crashes + 1 WHEN f.i THEN j.crashes ELSE 0 END,
    suspect = f.s IS TRUE OR (f.i IS TRUE AND j.suspect), interruptions = j.interruptions + CASE WHEN f.i THEN 1 ELSE 0 END
  FROM f WHERE j.id = f.j AND j.run_id = f.r AND {HELD}
  RETURNING j.id, j.run_id, j.tenant_id, j.definition_key, j.queue, j.group_id, j.attempt_no, j.finished_at,
    greatest(j.queued_at, j.scheduled_for) AS ready_at, f.m, f.rs, f.e, f.x, f.so, f.se, f.a, f.lp, f.p
), {_CLOSE_RUNS.replace("{ending}", _AS_TOLD).replace("{follows}", ", u.m").replace("{more}", _FOLLOWS)}
SELECT u.id, u.run_id, u.tenant_id, u.group_id, u.{_HOOKED} FROM u
"""

# Nothing follows from these but that they are over: no retry, no group, no webhook. The answer is NULL if that is true of all
# that were given, else the runs of which it is.
_CLOSE_SUCCESSES = f"""
WITH u AS (
  UPDATE penstock_jobs j SET status = 'succeeded', waits_for = NULL, slot = false, finished_at = greatest({{now}}, j.started_at),
    lease_expires_at = NULL, last_error = NULL, result = {{result}}, crashes = 0,
    suspect = false
  FROM {{given}} WHERE j.id = f.j AND j.run_id = f.r AND {HELD} AND j.group_id IS NULL AND NOT j.{_HOOKED}
  RETURNING j.id, j.run_id, j.tenant_id, j.definition_key, j.queue, j.attempt_no, j.finished_at,
    greatest(j.queued_at, j.scheduled_for) AS ready_at
), {_CLOSE_RUNS.replace("{ending}", "status = 'succeeded'").replace("{follows}", "").replace("{more}", "")}
SELECT CASE WHEN count(*) < :number THEN coalesce(array_agg(run_id), '{{}}') END FROM u
"""
