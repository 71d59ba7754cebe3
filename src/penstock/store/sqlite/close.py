"""Close runs and count them, under the one write lock."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.core.clock import wall_time
from penstock.core.decide import Resolution
from penstock.core.ids import id_from
from penstock.core.payload import dumps
from penstock.store import failpoints
from penstock.store.dialect import HotConnection
from penstock.store.hot import WAIT, Closed, Closing, Closures, bucket, counted_as, is_plain, minute_of, told_once
from penstock.store.sqlite import transaction
from penstock.store.types import from_micros, to_micros


class SqliteClose:
    """Close runs."""

    def close(
        self, conn: HotConnection, moment: datetime | None, closings: Sequence[Closing], shard: int, *, alone: bool
    ) -> Closures:
        now = to_micros(moment or wall_time())
        told = {str(each.run_id): each for each in closings if not is_plain(each.resolution)}
        given = ",".join(dict.fromkeys([f'["{each.job_id}","{each.run_id}"]' for each in closings]))
        chained = dumps([str(each.job_id) for each in told.values() if each.resolution.chain])
        [(number, numbers, run_ids, facts, special)] = transaction.run(
            conn, _OURS, {"given": f"[{given}]", "alone": alone, "chained": chained}
        )
        if not number:
            return Closures(set(), [])
        ended = [tuple(each) for each in json.loads(facts)]
        follows: Counter[tuple[str, str, str, str | None]] = Counter()
        if told:
            ours = json.loads(run_ids)
            ended, follows = _as_told(ours, ended, told)
            self._write_told(conn, numbers, ours, told, now)
        else:
            transaction.run(conn, _CLOSE_PLAIN, {"numbers": numbers, "now": now})
        failpoints.reach("finish.after_runs")
        followed = [_closed(row, told) for row in json.loads(special)]
        freed = [row[0] for row in json.loads(special) if row[10] and not _again(told.get(row[1]))]
        if freed:
            transaction.run(conn, _FREE_DEDUPE_KEYS, {"jobs": dumps(freed)})
        transaction.run(conn, _LEAVE, {"numbers": numbers})
        failpoints.reach("finish.after_running")
        _tally(conn, ended, now, shard, follows)
        all_ = number == len(closings)
        wanted = [each for each in followed if each is not None]
        return Closures(None if all_ else {id_from(each) for each in json.loads(run_ids)}, wanted)

    def _write_told(
        self, conn: HotConnection, numbers: str, ours: Sequence[str], told: Mapping[str, Closing], now: int
    ) -> None:
        """Close those of which something is said, and let those wait that are tried again; the others succeeded."""
        said = {
            str(closing.run_id): members
            for closing, members in told_once([told[run] for run in ours if run in told], _said)
        }
        pairs = list(zip(json.loads(numbers), ours, strict=True))
        plain = [number for number, run in pairs if run not in told]
        texts = ",".join([f'{{"n":{number},{said[run]}}}' for number, run in pairs if run in told])
        if plain:
            transaction.run(conn, _CLOSE_PLAIN, {"numbers": dumps(plain), "now": now})
        if texts:
            transaction.run(conn, _CLOSE_TOLD, {"told": f"[{texts}]", "now": now})
            transaction.run(conn, _TRY_AGAIN, {"told": f"[{texts}]", "now": now})


def _again(closing: Closing | None) -> bool:
    return closing is not None and closing.resolution.job_status == "queued"


def _as_told(
    ours: Sequence[str], ended: Sequence[tuple[Any, ...]], told: Mapping[str, Closing]
) -> tuple[list[tuple[Any, ...]], Counter[tuple[str, str, str, str | None]]]:
    """What is counted, of each run that is ours: its facts with how it ended, and what follows."""
    counted: list[tuple[Any, ...]] = []
    follows: Counter[tuple[str, str, str, str | None]] = Counter()
    for run, fact in zip(ours, ended, strict=True):
        closing = told.get(run)
        if closing is None:
            counted.append(fact)
            continue
        tenant_id, key, queue, _, started_at, ready_at = fact
        status = closing.resolution.run_status.value
        counted.append((tenant_id, key, queue, status, started_at, None if _again(closing) else ready_at))
        follows[tenant_id, key, queue, counted_as(closing.resolution)] += 1
    return counted, follows


def _closed(row: Sequence[Any], told: Mapping[str, Closing]) -> Closed | None:
    """None if the run is only here because of its dedupe key."""
    job_id, run_id, tenant_id, group_id, hooked, attempt_no, max_attempts, crashes, interruptions, suspect, _ = row
    closing = told.get(run_id)
    resolution = None if closing is None else closing.resolution
    if group_id is None and not hooked and not (resolution is not None and resolution.chain):
        return None
    if resolution is not None:
        max_attempts += resolution.extra_attempts or 0
        crashes = crashes + 1 if resolution.crashed else crashes if resolution.interrupted else 0
        interruptions += 1 if resolution.interrupted else 0
        suspect = bool(resolution.suspect or (resolution.interrupted and suspect))
    return Closed(
        UUID(job_id), UUID(run_id), UUID(tenant_id), UUID(group_id) if group_id else None, bool(hooked), attempt_no, max_attempts,
        crashes if resolution is not None else 0, interruptions, bool(suspect) if resolution is not None else False,
    )  # fmt: skip


def _said(r: Resolution) -> dict[str, Any]:
    evidence = r.evidence
    artifacts = [dict(artifact) for artifact in evidence.artifacts]
    every = {
        "rs": r.run_status, "js": r.job_status, "e": r.error, "d": r.delay, "x": evidence.exit_code, "so": evidence.stdout_tail,
        "se": evidence.stderr_tail, "lp": evidence.log_path, "p": evidence.pid, "xa": r.extra_attempts or None,
        "c": int(r.crashed) or None, "i": int(r.interrupted) or None, "s": int(r.suspect) or None,
        "res": None if r.result is None else dumps(r.result), "a": dumps(artifacts) if artifacts else None,
    }  # fmt: skip
    return {key: value for key, value in every.items() if value is not None}


def _tally(
    conn: HotConnection,
    ended: Iterable[tuple[Any, ...]],
    now: int,
    shard: int,
    follows: Mapping[tuple[str, str, str, str | None], int],
) -> None:
    """Count runs: of which tenant, key and queue, how they ended, when they began, since when a job that is over was ready;
    and what follows from their end."""
    counts: Counter[tuple[str, str, str, str, int]] = Counter()
    for (tenant_id, key, queue, status, began, ready_at), number in Counter(ended).items():
        counts[tenant_id, key, queue, status, bucket((now - began) / 1000)] += number
        if ready_at is not None:
            counts[tenant_id, key, queue, WAIT, bucket((began - ready_at) / 1000)] += number
    for (tenant_id, key, queue, measure), number in follows.items():
        if measure is not None:
            counts[tenant_id, key, queue, measure, 0] += number
    minute = to_micros(minute_of(from_micros(now)))
    cursor = conn.connection.cursor()
    cursor.executemany(_TALLY, [(minute, *key, shard, n) for key, n in counts.items()])
    cursor.close()


_HOOKED = "r.tenant_id IN (SELECT tenant_id FROM penstock_webhooks WHERE is_enabled)"
# Found to be ours under the write lock: they are closed by their row numbers. Beside them those from which something follows.
_OURS = f"""
SELECT count(*), json_group_array(r.rowid), json_group_array(r.run_id),
  json_group_array(json_array(r.tenant_id, r.definition_key, r.queue, 'succeeded', r.started_at, r.ready_at)),
  json_group_array(json_array(r.job_id, r.run_id, r.tenant_id, r.group_id, {_HOOKED}, r.attempt_no, r.max_attempts, r.crashes,
      r.interruptions, r.suspect, r.dedupe_key IS NOT NULL))
    FILTER (WHERE r.group_id IS NOT NULL OR r.dedupe_key IS NOT NULL OR {_HOOKED}
      OR r.job_id IN (SELECT value FROM json_each(:chained)))
FROM json_each(:given) f CROSS JOIN penstock_running r ON r.job_id = json_extract(f.value, '$[0]')
WHERE r.run_id = json_extract(f.value, '$[1]') AND (NOT :alone OR (r.group_id IS NULL AND NOT {_HOOKED}))
"""
_RUN = """INSERT INTO penstock_runs (job_id, tenant_id, attempt_no, id, started_at, worker_id, definition_id, progress, cancel_requested_at,
  group_id, finished_at, max_attempts, status, job_status, pid, exit_code, error, result, stdout_tail, stderr_tail, artifacts, log_path)
SELECT r.job_id, r.tenant_id, r.attempt_no, r.run_id, r.started_at, r.worker_id, r.definition_id, r.progress, r.cancel_requested_at,
  r.group_id, max(:now, r.started_at)"""
# A plain success has a statement of its own: to look for what is said of it in JSON would take longer than to write it.
_CLOSE_PLAIN = f"""
{_RUN}, r.max_attempts, 'succeeded', 'succeeded', r.pid, NULL, NULL, NULL, r.stdout_tail, r.stderr_tail, r.artifacts, NULL
FROM json_each(:numbers) f CROSS JOIN penstock_running r ON r.rowid = f.value
"""
_TOLD = """(
  SELECT json_extract(value, '$.n') AS n, coalesce(json_extract(value, '$.rs'), 'succeeded') AS rs,
    coalesce(json_extract(value, '$.js'), 'succeeded') AS js, json_extract(value, '$.e') AS e, json_extract(value, '$.res') AS res,
    json_extract(value, '$.d') AS d, json_extract(value, '$.x') AS x, json_extract(value, '$.so') AS so, json_extract(value, '$.se') AS se,
    json_extract(value, '$.a') AS a, json_extract(value, '$.lp') AS lp, json_extract(value, '$.p') AS p,
    coalesce(json_extract(value, '$.xa'), 0) AS xa, coalesce(json_extract(value, '$.c'), 0) AS c,
    coalesce(json_extract(value, '$.i'), 0) AS i, coalesce(json_extract(value, '$.s'), 0) AS s
  FROM json_each(:told)) AS f CROSS JOIN penstock_running r ON r.rowid = f.n"""
_CLOSE_TOLD = f"""
{_RUN}, r.max_attempts + f.xa, f.rs, NULLIF(f.js, 'queued'), coalesce(f.p, r.pid), f.x, f.e, f.res, coalesce(f.so, r.stdout_tail),
  coalesce(f.se, r.stderr_tail), coalesce(f.a, r.artifacts), f.lp
FROM {_TOLD}
"""
_TRY_AGAIN = f"""
INSERT INTO penstock_waiting (job_id, tenant_id, queued_at, priority, attempt_no, max_attempts, crashes, interruptions, suspect, reason,
  queue, definition_key, definition_id, group_id, trigger_id, dedupe_key, until)
SELECT r.job_id, r.tenant_id, r.queued_at, r.priority, r.attempt_no, r.max_attempts + f.xa,
  CASE WHEN f.c THEN r.crashes + 1 WHEN f.i THEN r.crashes ELSE 0 END, r.interruptions + f.i, f.s OR (f.i AND r.suspect), 'time', r.queue,
  r.definition_key, r.definition_id, r.group_id, r.trigger_id, r.dedupe_key,
  :now + CAST(round(coalesce(f.d, 0) * 1000000) AS INTEGER)
FROM {_TOLD} WHERE f.js = 'queued'
"""
_FREE_DEDUPE_KEYS = """
DELETE FROM penstock_dedupe WHERE (tenant_id, dedupe_key) IN (
  SELECT tenant_id, dedupe_key FROM penstock_running WHERE job_id IN (SELECT value FROM json_each(:jobs)))
  AND job_id IN (SELECT value FROM json_each(:jobs))
"""
_LEAVE = "DELETE FROM penstock_running WHERE rowid IN (SELECT value FROM json_each(:numbers))"
_TALLY = (
    "INSERT INTO penstock_tallies (minute, tenant_id, definition_key, queue, measure, bucket, shard, n) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET n = n + excluded.n"
)
