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
from penstock.store.postgresql.transaction import BY_KEY, Hot
from penstock.store.sqlite import claim as sqlite_claim
from penstock.store.sqlite import close as sqlite_close


def bound(statement: Hot, **values: str) -> str:
    """The statement with its parameters written in: the names of PL/pgSQL variables, or literals."""
    return re.sub(r"(?<!:):([a-z_]+)\b", lambda found: values[found[1]], statement.by_server).strip()


def postgres_loop(batch: int) -> str:
    """Claim and COMMIT, close and COMMIT, as a worker that has much to do: until nothing is claimed any more."""
    gate = bound(postgresql_claim._GATE, lock=str(GATE_LOCK))
    claim = bound(
        postgresql_claim._claim_sql(False, True, False, True, guarded=True, by_worker=True),
        queue="'default'", keys="ARRAY['noop']", limit=str(batch), lease="60", worker="'limit'", pid="1", run_ids="v_new",
        starting="8", apart="0", open="ARRAY['default']",
    )  # fmt: skip
    closing = bound(
        postgresql_close._CLOSE, job_ids="v_jobs", run_ids="v_runs", said="'[]'", shard="1", alone="true",
        number="cardinality(v_jobs)",
    )  # fmt: skip
    return f"""
DO $limit$
DECLARE v_new uuid[]; v_jobs uuid[]; v_runs uuid[]; v_left uuid[]; v_followed jsonb;
BEGIN
  LOOP
    SELECT array_agg(gen_random_uuid()) INTO v_new FROM generate_series(1, {batch});
    PERFORM * FROM ({gate}) AS gate;
    {_into(claim, "o.job_id", "array_agg(x.a), array_agg(x.b)", "v_jobs, v_runs")}
    COMMIT;
    EXIT WHEN v_jobs IS NULL;
    PERFORM * FROM ({BY_KEY}) AS by_key;
    {_into(closing, "CASE", "x.a, x.b", "v_left, v_followed")}
    COMMIT;
  END LOOP;
END $limit$"""


def _into(statement: str, begins: str, kept: str, variables: str) -> str:
    """Keep what the statement returns, to go on with it."""
    head, tail = statement.rsplit(f"\nSELECT {begins}", 1)
    return f"{head}\nSELECT {kept} INTO {variables} FROM (SELECT {begins}{tail}) AS x(a, b);"


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
            asked = {"given": given, "alone": True, "chained": "[]"}
            [(_, numbers, *_)] = conn.execute(sqlite_close._OURS, asked).fetchall()
            conn.execute(sqlite_close._CLOSE_PLAIN, {"numbers": numbers, "now": now})
            conn.execute(sqlite_close._LEAVE, {"numbers": numbers})
        searched = {"queue0": "default", "keys": keys, "limit": batch, "now": now}
        [(numbers, rows, *_)] = conn.execute(find, searched).fetchall()
        found = json.loads(numbers)
        if found:
            pairs = json.dumps(list(zip(found, run_ids, strict=False)))
            took = {"now": now, "lease": now + 60_000_000, "worker": "limit", "pid": 1, "starting": 8, "apart": 0}
            conn.execute(sqlite_claim._TAKE, {"pairs": pairs, **took})
            conn.execute(sqlite_claim._LEAVE, {"numbers": numbers})
        conn.execute("COMMIT")
        if not found:
            break
        given = json.dumps([(row[0], run_id) for row, run_id in zip(json.loads(rows), run_ids, strict=False)])
    conn.close()
    return time.perf_counter() - started
