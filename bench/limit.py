"""The limit: the statements of a worker, driven inside the database without Python.

On PostgreSQL a server-side loop runs the very texts that a worker sends, with plan caching as prepared statements have it; on
SQLite a bare `sqlite3` loop does. One connection each: a worker on PostgreSQL claims on one and closes on another, so that it
may pass what is the limit of one.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
import uuid

import psycopg

from penstock.store.postgresql import claim as postgresql_claim
from penstock.store.postgresql import close as postgresql_close
from penstock.store.postgresql.locks import GATE_LOCK
from penstock.store.postgresql.transaction import BY_KEY
from penstock.store.postgresql.transaction import timed as told_by_the_clock
from penstock.store.sqlite import claim as sqlite_claim
from penstock.store.sqlite import close as sqlite_close

KEYS = "ARRAY['noop']"


def bound(sql: str, **values: str) -> str:
    """The statement with its parameters written in: the names of PL/pgSQL variables, or literals."""
    timed = told_by_the_clock(sql, False)
    return re.sub(r"(?<!:):([a-z_]+)\b", lambda found: values[found[1]], timed)


def postgres_loop(batch: int) -> str:
    """Claim and COMMIT, close and COMMIT, as a worker that has much to do: until nothing is claimed any more."""
    gate = bound(postgresql_claim._GATE, lock=str(GATE_LOCK))
    claim = bound(
        postgresql_claim._claim_sql(False, True, False, True, by_worker=True),
        queue="'default'", keys=KEYS, limit=str(batch), lease="60", worker="'limit'", pid="1", run_ids="v_new",
        starting="8", apart="0",
    )  # fmt: skip
    close = bound(
        postgresql_close._close_successes_sql(False),
        job_ids="v_jobs",
        run_ids="v_runs",
        number="cardinality(v_jobs)",
        shard="1",
    )
    return f"""
DO $limit$
DECLARE v_new uuid[]; v_jobs uuid[]; v_runs uuid[]; v_left uuid[];
BEGIN
  LOOP
    SELECT array_agg(gen_random_uuid()) INTO v_new FROM generate_series(1, {batch});
    PERFORM * FROM ({gate}) AS gate;
    {_into(claim)}
    COMMIT;
    EXIT WHEN v_jobs IS NULL;
    PERFORM * FROM ({BY_KEY}) AS by_key;
    {close.strip().replace("END FROM u", "END INTO v_left FROM u")};
    COMMIT;
  END LOOP;
END $limit$"""


def _into(claim: str) -> str:
    """Keep what was claimed, to close it."""
    head, tail = claim.strip().rsplit("\nSELECT u.id AS job_id", 1)
    kept = "array_agg(job_id), array_agg(run_id) INTO v_jobs, v_runs"
    return f"{head}\nSELECT {kept} FROM (SELECT u.id AS job_id{tail}) AS claimed;"


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
    find = sqlite_claim._find(1, True, False, False)
    run_ids = [str(uuid.uuid4()) for _ in range(batch)]
    keys = json.dumps(["noop"])
    given: str | None = None
    started = time.perf_counter()
    while True:
        now = time.time_ns() // 1000
        conn.execute("BEGIN IMMEDIATE")
        conn.execute(sqlite_claim._GATE, {"now": now}).fetchall()
        if given is not None:
            [(_, jobs, runs, *_)] = conn.execute(sqlite_close._SUCCESSES, {"given": given}).fetchall()
            conn.execute(sqlite_close._CLOSE_SUCCESSES, {"numbers": jobs, "now": now})
            conn.execute(sqlite_close._CLOSE_THEIR_RUNS, {"numbers": runs, "now": now})
        searched = {"queue0": "default", "keys": keys, "limit": batch, "now": now}
        [(numbers, rows, *_)] = conn.execute(find, searched).fetchall()
        found = json.loads(numbers)
        if found:
            pairs = json.dumps(list(zip(found, run_ids, strict=False)))
            begun = {"starting": 8, "apart": 0}
            conn.execute(
                sqlite_claim._TAKE, {"pairs": pairs, "now": now, "lease": now + 60_000_000, "worker": "limit", **begun}
            )
            conn.execute(sqlite_claim._OPEN_RUNS, {"numbers": numbers, "now": now, "worker": "limit", "pid": 1})
        conn.execute("COMMIT")
        if not found:
            break
        given = json.dumps([(row[0], run_id) for row, run_id in zip(json.loads(rows), run_ids, strict=False)])
    conn.close()
    return time.perf_counter() - started
