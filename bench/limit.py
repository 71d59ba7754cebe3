"""The limit: the statements of a worker, driven inside the database without Python.

On PostgreSQL a server-side loop runs the very texts that a worker sends (gate, close, claim, COMMIT) with plan caching as
prepared statements have it; on SQLite a bare `sqlite3` loop does.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
import uuid

import psycopg

from penstock.store.dialects import postgresql, sqlite

KEYS = "ARRAY['noop']"


def bound(sql: str, **values: str) -> str:
    """The statement with its parameters written in: the names of PL/pgSQL variables, or literals."""
    timed = postgresql._timed(sql, False)
    return re.sub(r"(?<!:):([a-z_]+)\b", lambda found: values[found[1]], timed)


def postgres_loop(batch: int) -> str:
    gate = bound(postgresql._GATE, lock=str(postgresql.GATE_LOCK))
    close = bound(postgresql._CLOSE, closings="v_closings", shard="1")
    claim = bound(
        postgresql._claim_sql(False, True, False, True),
        queue="'default'", keys=KEYS, limit=str(batch), lease="60", worker="'limit'", pid="1", run_ids="v_runs",
    )  # fmt: skip
    return f"""
DO $limit$
DECLARE v_closings jsonb; v_runs uuid[]; v_more jsonb;
BEGIN
  LOOP
    SELECT array_agg(gen_random_uuid()) INTO v_runs FROM generate_series(1, {batch});
    PERFORM * FROM ({gate}) AS gate;
    IF v_closings IS NOT NULL THEN
      WITH closed AS MATERIALIZED (SELECT 1) SELECT NULL INTO v_more;
      {close.strip().replace("SELECT u.id, u.run_id", "SELECT to_jsonb(count(*)) INTO v_more FROM (SELECT u.id, u.run_id", 1)}) AS done;
    END IF;
    {_into(claim)}
    COMMIT;
    EXIT WHEN v_closings IS NULL;
  END LOOP;
END $limit$"""


def _into(claim: str) -> str:
    """Keep what was claimed as the next closings."""
    head, tail = claim.strip().rsplit("\nSELECT u.id AS job_id", 1)
    rows = "jsonb_agg(jsonb_build_object('j', job_id, 'r', run_id, 'rs', 'succeeded', 'js', 'succeeded'))"
    return f"{head}\nSELECT {rows} INTO v_closings FROM (SELECT u.id AS job_id{tail}) AS claimed;"


def drain_in_postgres(url: str, batch: int = 400) -> float:
    """Seconds in which the database alone works off what waits."""
    with psycopg.connect(url, autocommit=True) as conn:
        started = time.perf_counter()
        conn.execute(postgres_loop(batch))  # type: ignore[call-overload]
        return time.perf_counter() - started


def drain(url: str, batch: int = 400) -> float:
    """Seconds in which the database alone works off what waits."""
    return drain_in_sqlite(url, batch) if url.startswith("sqlite") else drain_in_postgres(url, batch)


def drain_in_sqlite(url: str, batch: int) -> float:
    """Gate, close, claim and COMMIT on a bare connection, with the texts and the settings of the worker."""
    conn = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-16000"):
        conn.execute(f"PRAGMA {pragma}")
    find = sqlite._find(1, True, False, False)
    run_ids = [str(uuid.uuid4()) for _ in range(batch)]
    keys = json.dumps(["noop"])
    given: str | None = None
    started = time.perf_counter()
    while True:
        now = time.time_ns() // 1000
        conn.execute("BEGIN IMMEDIATE")
        conn.execute(sqlite._GATE, {"now": now}).fetchall()
        if given is not None:
            [(_, jobs, runs, *_)] = conn.execute(sqlite._SUCCESSES, {"given": given}).fetchall()
            conn.execute(sqlite._CLOSE_SUCCESSES, {"numbers": jobs, "now": now})
            conn.execute(sqlite._CLOSE_THEIR_RUNS, {"numbers": runs, "now": now})
        searched = {"queue0": "default", "keys": keys, "limit": batch, "now": now}
        [(numbers, rows, _)] = conn.execute(find, searched).fetchall()
        found = json.loads(numbers)
        if found:
            pairs = json.dumps(list(zip(found, run_ids, strict=False)))
            conn.execute(sqlite._TAKE, {"pairs": pairs, "now": now, "lease": now + 60_000_000, "worker": "limit"})
            conn.execute(sqlite._OPEN_RUNS, {"numbers": numbers, "now": now, "worker": "limit", "pid": 1})
        conn.execute("COMMIT")
        if not found:
            break
        given = json.dumps([(row[0], run_id) for row, run_id in zip(json.loads(rows), run_ids, strict=False)])
    conn.close()
    return time.perf_counter() - started
