"""Close runs and count them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Connection

from penstock.core.clock import wall_time
from penstock.core.decide import Resolution
from penstock.core.ids import id_from
from penstock.core.payload import dumps
from penstock.store import failpoints
from penstock.store.hot import WAIT, Closed, Closing, Success, bucket, counted_as, minute_of, told_once
from penstock.store.sqlite import transaction
from penstock.store.types import from_micros, to_micros


class SqliteClose:
    """Close runs, whatever became of them."""

    def close(
        self, conn: Connection, moment: datetime | None, closings: Sequence[Closing], shard: int
    ) -> Sequence[Closed]:
        now = to_micros(moment or wall_time())
        by_run: dict[str, Closing] = {}
        texts = []
        for closing, told in told_once(closings, _resolution_row):
            run_id = str(closing.run_id)
            by_run[run_id] = closing
            texts.append(f'{{"j":"{closing.job_id}","r":"{run_id}",{told}}}')
        given = f"[{','.join(texts)}]"
        found = [_ClosedRow(*row) for row in transaction.run(conn, _CLOSE_JOBS, {"closings": given, "now": now})]
        failpoints.reach("finish.after_jobs")
        if not found:
            return []
        transaction.run(conn, _CLOSE_RUNS, {"closings": given, "now": now})
        failpoints.reach("finish.after_runs")
        ended = [
            (
                row.tenant_id, row.definition_key, row.queue, by_run[row.run_id].resolution.run_status.value,
                row.run_started, None if row.finished_at is None else row.ready_at,
            )
            for row in found
        ]  # fmt: skip
        follows = Counter(
            (row.tenant_id, row.definition_key, row.queue, counted_as(by_run[row.run_id].resolution)) for row in found
        )
        _tally(conn, ended, now, shard, follows)
        tenants = {tenant_id: UUID(tenant_id) for tenant_id in {row.tenant_id for row in found}}
        closed = []
        for row in found:
            closing = by_run[row.run_id]
            group_id = UUID(row.group_id) if row.group_id else None
            closed.append(Closed(closing.job_id, closing.run_id, tenants[row.tenant_id], group_id, bool(row.hooked)))
        return closed

    def close_successes(
        self, conn: Connection, moment: datetime | None, successes: Sequence[Success], shard: int
    ) -> set[UUID] | None:
        now = to_micros(moment or wall_time())
        given = ",".join(dict.fromkeys([f'["{each.job_id}","{each.run_id}"]' for each in successes]))
        [(number, jobs, runs, run_ids, facts)] = transaction.run(conn, _SUCCESSES, {"given": f"[{given}]"})
        if not number:
            return set()
        results = {str(each.run_id): dumps(each.result) for each in successes if each.result is not None}
        if results:
            pairs = zip(json.loads(jobs), json.loads(run_ids), strict=True)
            told = dumps([(job, results.get(run_id)) for job, run_id in pairs])
            transaction.run(conn, _CLOSE_WITH_RESULTS, {"given": told, "now": now})
        else:
            transaction.run(conn, _CLOSE_SUCCESSES, {"numbers": jobs, "now": now})
        failpoints.reach("finish.after_jobs")
        transaction.run(conn, _CLOSE_THEIR_RUNS, {"numbers": runs, "now": now})
        failpoints.reach("finish.after_runs")
        _tally(conn, map(tuple, json.loads(facts)), now, shard)
        return None if number == len(successes) else {id_from(each) for each in json.loads(run_ids)}


def _resolution_row(r: Resolution) -> dict[str, Any]:
    row: dict[str, Any] = {"rs": r.run_status, "js": r.job_status}
    evidence = r.evidence
    for key, value in (
        ("e", r.error), ("x", evidence.exit_code), ("so", evidence.stdout_tail), ("se", evidence.stderr_tail),
        ("lp", evidence.log_path), ("p", evidence.pid), ("d", r.delay),
    ):  # fmt: skip
        if value is not None:
            row[key] = value
    if r.result is not None:
        row["res"] = dumps(r.result)
    if evidence.artifacts:
        row["a"] = dumps([dict(artifact) for artifact in evidence.artifacts])
    if r.extra_attempts:
        row["xa"] = r.extra_attempts
    if r.crashed:
        row["c"] = 1
    if r.suspect:
        row["s"] = 1
    if r.interrupted:
        row["i"] = 1
    return row


class _ClosedRow(NamedTuple):
    job_id: str
    run_id: str
    tenant_id: str
    definition_key: str
    queue: str
    group_id: str | None
    finished_at: int | None
    hooked: int
    run_started: int
    ready_at: int


def _tally(
    conn: Connection,
    ended: Iterable[tuple[str, str, str, str, int, int | None]],
    now: int,
    shard: int,
    follows: Mapping[tuple[str, str, str, str | None], int] | None = None,
) -> None:
    """Count runs: of which tenant, key and queue, how they ended, when they began, since when a job that is over was ready;
    and what follows from their end."""
    counts: Counter[tuple[str, str, str, str, int]] = Counter()
    for (tenant_id, key, queue, status, began, ready_at), number in Counter(ended).items():
        counts[tenant_id, key, queue, status, bucket((now - began) / 1000)] += number
        if ready_at is not None:
            counts[tenant_id, key, queue, WAIT, bucket((began - ready_at) / 1000)] += number
    for (tenant_id, key, queue, measure), number in (follows or {}).items():
        if measure is not None:
            counts[tenant_id, key, queue, measure, 0] += number
    minute = to_micros(minute_of(from_micros(now)))
    cursor = conn.connection.cursor()
    cursor.executemany(_TALLY, [(minute, *key, shard, n) for key, n in counts.items()])
    cursor.close()


# Likewise: once seen to be ours, they are closed by their row numbers.
_SUCCESSES = (
    "SELECT count(*), json_group_array(j.rowid), json_group_array(r.rowid), json_group_array(r.id), json_group_array("
    "json_array(j.tenant_id, j.definition_key, j.queue, 'succeeded', r.started_at, max(j.queued_at, j.scheduled_for)))"
    " FROM json_each(:given) f"
    " CROSS JOIN penstock_jobs j ON j.id = json_extract(f.value, '$[0]')"
    " CROSS JOIN penstock_runs r ON r.job_id = j.id AND r.attempt_no = j.attempt_no"
    " WHERE j.status = 'running' AND j.run_id = json_extract(f.value, '$[1]') AND r.id = j.run_id AND j.group_id IS NULL"
    " AND j.tenant_id NOT IN (SELECT tenant_id FROM penstock_webhooks WHERE is_enabled)"
)
_SUCCEEDED = (
    "UPDATE penstock_jobs SET status = 'succeeded', slot = 0, finished_at = max(:now, started_at), lease_expires_at = NULL,"
    " last_error = NULL, crashes = 0, suspect = 0, result = "
)
_CLOSE_SUCCESSES = f"{_SUCCEEDED}NULL WHERE rowid IN (SELECT value FROM json_each(:numbers))"
_CLOSE_WITH_RESULTS = (
    f"{_SUCCEEDED}f.result FROM (SELECT json_extract(value, '$[0]') AS number, json_extract(value, '$[1]') AS result"
    " FROM json_each(:given)) AS f WHERE penstock_jobs.rowid = f.number"
)
_CLOSE_THEIR_RUNS = (
    "UPDATE penstock_runs SET status = 'succeeded', finished_at = max(:now, started_at)"
    " WHERE rowid IN (SELECT value FROM json_each(:numbers))"
)
_CLOSE_JOBS = (
    "UPDATE penstock_jobs SET status = f.js, waits_for = CASE f.js WHEN 'queued' THEN 'time' END, slot = 0,"
    " scheduled_for = CASE f.js WHEN 'queued' THEN :now + CAST(round(f.d * 1000000) AS INTEGER) ELSE scheduled_for END,"
    " finished_at = CASE f.js WHEN 'queued' THEN NULL ELSE max(:now, started_at) END, lease_expires_at = NULL,"
    " cancel_requested_at = CASE f.js WHEN 'queued' THEN NULL ELSE cancel_requested_at END,"
    " last_error = f.e, result = f.res, max_attempts = max_attempts + f.xa,"
    " crashes = CASE WHEN f.c THEN crashes + 1 WHEN f.i THEN crashes ELSE 0 END, suspect = f.s OR (f.i AND suspect),"
    " interruptions = interruptions + f.i"
    " FROM (SELECT json_extract(value, '$.j') AS j, json_extract(value, '$.r') AS r, json_extract(value, '$.js') AS js,"
    "  json_extract(value, '$.e') AS e, json_extract(value, '$.res') AS res, json_extract(value, '$.d') AS d,"
    "  coalesce(json_extract(value, '$.xa'), 0) AS xa, coalesce(json_extract(value, '$.c'), 0) AS c,"
    "  coalesce(json_extract(value, '$.i'), 0) AS i, coalesce(json_extract(value, '$.s'), 0) AS s FROM json_each(:closings)) AS f"
    " WHERE penstock_jobs.id = f.j AND penstock_jobs.run_id = f.r AND penstock_jobs.status = 'running'"
    " RETURNING penstock_jobs.id, run_id, tenant_id, definition_key, queue, group_id, finished_at,"
    " tenant_id IN (SELECT tenant_id FROM penstock_webhooks WHERE is_enabled) AS hooked,"
    " (SELECT started_at FROM penstock_runs r WHERE r.job_id = penstock_jobs.id AND r.attempt_no = penstock_jobs.attempt_no)"
    "  AS run_started, max(queued_at, scheduled_for) AS ready_at"
)
_CLOSE_RUNS = (
    "UPDATE penstock_runs SET status = f.rs, finished_at = max(:now, started_at), error = f.e, exit_code = f.x,"
    " stdout_tail = coalesce(f.so, stdout_tail), stderr_tail = coalesce(f.se, stderr_tail),"
    " artifacts = coalesce(f.a, artifacts), log_path = coalesce(f.lp, log_path), pid = coalesce(f.p, pid)"
    " FROM (SELECT json_extract(value, '$.j') AS j, json_extract(value, '$.r') AS r, json_extract(value, '$.rs') AS rs,"
    "  json_extract(value, '$.e') AS e, json_extract(value, '$.x') AS x, json_extract(value, '$.so') AS so,"
    "  json_extract(value, '$.se') AS se, json_extract(value, '$.a') AS a, json_extract(value, '$.lp') AS lp,"
    "  json_extract(value, '$.p') AS p"
    "  FROM json_each(:closings)) AS f"
    " WHERE penstock_runs.job_id = f.j AND penstock_runs.id = f.r AND penstock_runs.status = 'running'"
)
_TALLY = (
    "INSERT INTO penstock_tallies (minute, tenant_id, definition_key, queue, measure, bucket, shard, n) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET n = n + excluded.n"
)
