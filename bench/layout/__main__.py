"""Drive both layouts in the database, in turns, and say how they compare: jobs a second and bytes of WAL a job.

    python -m bench.layout [jobs] [batch] [turns] [postgresql|sqlite]

`now` is the product's own statements (bench/limit.py), `next` the statements of this package.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from tests.support.postgres import Server

from bench.layout import postgresql as next_postgresql
from bench.layout import sqlite as next_sqlite
from bench.limit import bound, drain_in_sqlite, postgres_loop
from penstock import Penstock
from penstock.store.postgresql.locks import GATE_LOCK

JOBS = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
BATCH = int(sys.argv[2]) if len(sys.argv) > 2 else 400
TURNS = int(sys.argv[3]) if len(sys.argv) > 3 else 3
WHERE = sys.argv[4] if len(sys.argv) > 4 else "both"
ORDINARY = {
    "scheduled_for": "NULL", "delay": "NULL", "waits_for_group": "false", "source_ref": "NULL", "dedupe_key": "NULL",
    "correlation_id": "NULL", "group_id": "NULL", "group_position": "NULL", "trigger_id": "NULL", "tick_at": "NULL",
    "created_by": "NULL", "trace": "NULL",
}  # fmt: skip


def loop() -> str:
    claim = bound(
        next_postgresql.CLAIM, queue="'default'", keys="ARRAY['noop']", limit=str(BATCH), lease="60", worker="'limit'", pid="1",
        run_ids="v_new", starting="8", apart="0", open="ARRAY['default']",
    )  # fmt: skip
    head, tail = claim.strip().rsplit("\nSELECT o.job_id", 1)
    claim = f"{head}\nSELECT array_agg(job_id), array_agg(run_id) INTO v_jobs, v_runs FROM (SELECT o.job_id{tail}) AS claimed;"
    closing = bound(next_postgresql.CLOSE, job_ids="v_jobs", run_ids="v_runs", said="'[]'", shard="1").strip()
    head, tail = closing.rsplit("\nSELECT array_agg", 1)
    closing = f"{head}\nSELECT x.a INTO v_left FROM (SELECT array_agg{tail}) AS x(a, b);"
    return f"""
DO $limit$
DECLARE v_new uuid[]; v_jobs uuid[]; v_runs uuid[]; v_left uuid[];
BEGIN
  LOOP
    SELECT array_agg(gen_random_uuid()) INTO v_new FROM generate_series(1, {BATCH});
    PERFORM * FROM ({bound(next_postgresql.GATE, lock=str(GATE_LOCK))}) AS gate;
    {claim}
    COMMIT;
    EXIT WHEN v_jobs IS NULL;
    PERFORM * FROM ({next_postgresql.BY_KEY}) AS by_key;
    {closing}
    COMMIT;
  END LOOP;
END $limit$"""


def processor(conn: Any) -> float:
    """Seconds of processor time that the connection's server process has used: what a busy machine does not change."""
    fields = Path(f"/proc/{conn.info.backend_pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wal(conn: Any) -> int:
    return int(conn.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()[0])


def now_in_postgres(url: str) -> Found:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("TRUNCATE penstock_jobs, penstock_runs, penstock_tallies")
        app = Penstock(url)
        app.define("noop", runner="python")
        started = time.perf_counter()
        app.enqueue_many("noop", [{} for _ in range(JOBS)])
        enqueued = time.perf_counter() - started
        app.close()
        conn.execute("ANALYZE penstock_jobs")
        conn.execute("CHECKPOINT")
        before, used, started = wal(conn), processor(conn), time.perf_counter()
        conn.execute(postgres_loop(BATCH))
        took, used = time.perf_counter() - started, processor(conn) - used
        assert conn.execute("SELECT count(*) FROM penstock_jobs WHERE status = 'succeeded'").fetchone() == (JOBS,)
        return Found(JOBS / took, JOBS / used, (wal(conn) - before) / JOBS, JOBS / enqueued)


def next_in_postgres(url: str) -> Found:
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(next_postgresql.DROP)
        conn.execute(next_postgresql.TABLES)
        conn.execute("TRUNCATE penstock_tallies")
        (tenant,) = conn.execute("SELECT id FROM penstock_tenants LIMIT 1").fetchone()
        (definition, version) = conn.execute(
            "SELECT id, version FROM penstock_definitions WHERE key = 'noop'"
        ).fetchone()
        started = time.perf_counter()
        for first in range(0, JOBS, 10_000):
            size = min(10_000, JOBS - first)
            now = time.time_ns() // 1_000_000
            ids = "{" + ",".join(f"{now:012x}7{first + i:019x}" for i in range(size)) + "}"
            conn.execute(bound(
                next_postgresql.ENQUEUE, **ORDINARY, tenant_id=f"'{tenant}'", definition_id=f"'{definition}'",
                definition_version=str(version), definition_key="'noop'", queue="'default'", priority="100", max_attempts="3",
                retry_mode="'requeue'", source="'manual'", ids="%s", many="%s",
            ), (ids, "[" + ",".join(["{}"] * size) + "]"))  # fmt: skip
        enqueued = time.perf_counter() - started
        conn.execute("ANALYZE next_jobs, next_ready")
        conn.execute("CHECKPOINT")
        before, used, started = wal(conn), processor(conn), time.perf_counter()
        conn.execute(loop())
        took, used = time.perf_counter() - started, processor(conn) - used
        written = (wal(conn) - before) / JOBS
        assert conn.execute("SELECT count(*) FROM next_runs WHERE job_status = 'succeeded'").fetchone() == (JOBS,)
        assert conn.execute(
            "SELECT (SELECT count(*) FROM next_ready) + (SELECT count(*) FROM next_running)"
        ).fetchone() == (0,)
        return Found(JOBS / took, JOBS / used, written, JOBS / enqueued)


def in_postgres() -> None:
    server = Server(durable=True, settings={"shared_buffers": "512MB"}).start()
    try:
        url = server.url()
        from penstock.store.database import Database
        from penstock.store.schema import upgrade

        db = Database(url)
        upgrade(db)
        db.close()
        ways = {
            "now": lambda: now_in_postgres(url),
            "next": lambda: next_in_postgres(url),
        }
        compare(ways)
    finally:
        server.remove()


def in_sqlite() -> None:
    compare({"now": lambda: in_a_file(False), "next": lambda: in_a_file(True)})


def in_a_file(next_layout: bool) -> Found:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/jobs.db"
        app = Penstock(f"sqlite:///{path}")
        app.define("noop", runner="python")
        if next_layout:
            app.close()
            took, used = next_sqlite.drain(path, JOBS, BATCH)
            return Found(JOBS / took, JOBS / used)
        app.enqueue_many("noop", [{} for _ in range(JOBS)])
        app.close()
        before = time.process_time()
        took = drain_in_sqlite(f"sqlite:///{path}", BATCH)
        return Found(JOBS / took, JOBS / (time.process_time() - before))


def compare(ways: dict[str, Any]) -> None:
    found: dict[str, list[Found]] = {name: [] for name in ways}
    for _ in range(TURNS):
        for name, run in ways.items():
            found[name].append(run())
            print(f"       {name:22} {found[name][-1]}", flush=True)
    medians = {
        name: Found(*(statistics.median(each) for each in zip(*told, strict=True))) for name, told in found.items()
    }
    now = medians["now"]
    for name, each in medians.items():
        print(
            f"median {name:22} {each}  drain {each.drained / now.drained:.2f}x, by processor time {each.by_cpu / now.by_cpu:.2f}x"
        )


class Found(NamedTuple):
    drained: float
    by_cpu: float
    wal: float = 0
    enqueued: float = 0

    def __str__(self) -> str:
        return (
            f"{self.drained:8,.0f} jobs/s  {self.by_cpu:8,.0f} a second of processor time  "
            f"{self.wal:6,.0f} B of WAL a job  {self.enqueued:8,.0f} enqueued/s"
        )


if __name__ == "__main__":
    if WHERE in ("both", "postgresql"):
        in_postgres()
    if WHERE in ("both", "sqlite"):
        in_sqlite()
