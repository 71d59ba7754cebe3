"""How fast one worker drains no-op jobs, beside the same statements driven without a worker; and how soon a job starts.

    python bench/drain.py [--jobs 50000] [--only sqlite|postgresql] [--pings 300] [--batch 400]

The bare loop sends exactly the store's SQL (gate, close, claim: finish one batch and claim the next in one commit) from a
plain psycopg or sqlite3 loop that does nothing in between: the limit that the tables and the disk set. Everything is
durable: fsync and synchronous_commit on, SQLite with synchronous=FULL. Each figure is taken on a fresh database, on the
same machine, one after the other. At least half of the bare loop is the aim; from enqueue to start a p50 under 4 ms on
PostgreSQL and a p95 under 25 ms on SQLite.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import text

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.postgres import Server

from penstock import Penstock
from penstock.core.ids import new_id
from penstock.store.database import Database
from penstock.store.dialects import postgresql, sqlite
from penstock.store.schema import upgrade

KEY = "noop"


def make_app(url: str) -> Penstock:
    app = Penstock(url)

    @app.job(key=KEY)
    def noop() -> None:
        return None

    @app.job(key="ping")
    def ping(asked: float) -> float:
        return time.time()

    app.sync_definitions()
    return app


@contextmanager
def fresh(backend: str, server: Server | None) -> Iterator[str]:
    if server is not None:
        name = server.create_database()
        db = Database(server.url(name))
        upgrade(db)
        db.close()
        yield server.url(name)
        server.drop_database(name)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        yield f"sqlite:///{directory}/bench.db"


def bare_postgresql(url: str, batch: int) -> None:
    def sql(source: str) -> Any:
        return postgresql._for_the_driver(source, False)

    gate, close = sql(postgresql._GATE), sql(postgresql._CLOSE)
    claim = sql(postgresql._claim_sql(False, True, False, False))
    closings: list[dict[str, str]] = []
    with psycopg.connect(url) as conn:
        while True:
            conn.execute(gate, {"lock": postgresql.GATE_LOCK, "moment": None})
            if closings:
                conn.execute(close, {"closings": json.dumps(closings), "shard": 0})
            rows = conn.execute(
                claim,
                {"worker": "bare", "pid": None, "lease": 30.0, "limit": batch, "queue": "default", "keys": [KEY],
                 "run_ids": postgresql._array(new_id() for _ in range(batch))},
            ).fetchall()  # fmt: skip
            conn.commit()
            closings = [_closing(row[0], row[1]) for row in rows]
            if not closings:
                return


def bare_sqlite(url: str, batch: int) -> None:
    find = sqlite._find(1, True, False, False)
    conn = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    for pragma in ("synchronous=FULL", "cache_size=-16000", "temp_store=MEMORY"):
        conn.execute(f"PRAGMA {pragma}")
    keys = json.dumps([KEY])
    closings: list[dict[str, str]] = []
    while True:
        conn.execute("BEGIN IMMEDIATE")
        now = time.time_ns() // 1000
        conn.execute(sqlite._GATE, {"now": now}).fetchall()
        if closings:
            given = {"closings": json.dumps(closings), "now": now}
            conn.execute(sqlite._CLOSE_JOBS, given).fetchall()
            conn.execute(sqlite._CLOSE_RUNS, given)
        found = conn.execute(find, {"queue0": "default", "limit": batch, "now": now, "keys": keys}).fetchall()
        pairs = [(row[0], str(new_id())) for row in found]
        if pairs:
            told = json.dumps(pairs)
            taking = {"pairs": told, "now": now, "lease": now + 30_000_000, "worker": "bare"}
            conn.execute(sqlite._TAKE, taking).fetchall()
            conn.execute(sqlite._OPEN_RUNS, {"pairs": told, "now": now, "worker": "bare", "pid": None})
        conn.execute("COMMIT")
        closings = [_closing(*pair) for pair in pairs]
        if not closings:
            conn.close()
            return


def _closing(job_id: Any, run_id: Any) -> dict[str, str]:
    return {"j": str(job_id), "r": str(run_id), "rs": "succeeded", "js": "succeeded"}


@contextmanager
def workers(url: str, number: int, concurrency: int) -> Iterator[None]:
    command = [sys.executable, __file__, "--worker", url, "--concurrency", str(concurrency)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(number)]
    try:
        for child in children:
            assert child.stdout is not None and child.stdout.readline().strip() == b"ready"
        yield
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait()


def work(url: str, concurrency: int) -> None:
    app = make_app(url)
    print("ready", flush=True)
    app.worker(concurrency).run()


def rate(app: Penstock) -> float:
    """Jobs a second from the first start to the last end, by the database's own record."""
    query = text("SELECT count(*), min(started_at), max(finished_at) FROM penstock_runs WHERE status = 'succeeded'")
    with app.db.read() as tx:
        n, first, last = tx.rows(query)[0]
    seconds = (last - first) / 1e6 if isinstance(first, int) else (last - first).total_seconds()
    return float(n / seconds)


def drained(app: Penstock) -> None:
    while app.jobs.list(("queued", "running"), limit=1, key=KEY):
        time.sleep(0.25)


def measure_bare(backend: str, server: Server | None, jobs: int, batch: int) -> float:
    with fresh(backend, server) as url:
        app = make_app(url)
        app.enqueue_many(KEY, [{} for _ in range(jobs)])
        (bare_postgresql if server else bare_sqlite)(url, batch)
        figure = rate(app)
        app.close()
    return figure


def measure_workers(backend: str, server: Server | None, jobs: int, number: int, concurrency: int) -> float:
    with fresh(backend, server) as url:
        app = make_app(url)
        app.enqueue_many(KEY, [{} for _ in range(jobs)])
        with workers(url, number, concurrency):
            drained(app)
        figure = rate(app)
        assert app.doctor().clean
        app.close()
    return figure


def measure_latency(backend: str, server: Server | None, pings: int) -> list[float]:
    with fresh(backend, server) as url:
        app = make_app(url)
        with workers(url, 1, 8):
            time.sleep(1.0)
            asked = []
            for number in range(pings + 20):
                at = time.time()
                job = app.enqueue("ping", {"asked": at})
                asked.append((at, job))
                time.sleep(0.02 + (number % 7) * 0.003)
            time.sleep(0.5)
            found = [(app.jobs.get(job.id).result - at) * 1000 for at, job in asked[20:]]
        app.close()
    return sorted(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--pings", type=int, default=300)
    parser.add_argument("--batch", type=int, default=400)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(given.worker, given.concurrency)
        return
    for backend in ("sqlite", "postgresql"):
        if given.only and given.only != backend:
            continue
        server = Server(durable=True).start() if backend == "postgresql" else None
        try:
            report(backend, server, given)
        finally:
            if server is not None:
                server.remove()


def report(backend: str, server: Server | None, given: argparse.Namespace) -> None:
    def show(what: str, take: Callable[[], float], beside: float | None = None) -> float:
        figure = take()
        share = f"  {figure / beside:5.0%} of the bare loop" if beside else ""
        print(f"{backend:11} {what:22} {figure:9,.0f} jobs/s{share}", flush=True)
        return figure

    bare = show(f"bare loop, batch {given.batch}", lambda: measure_bare(backend, server, given.jobs, given.batch))
    for number in (1, 2):
        what = f"{number} worker{'s' if number > 1 else ''}"
        show(what, lambda n=number: measure_workers(backend, server, given.jobs, n, given.concurrency), bare)
    found = measure_latency(backend, server, given.pings)
    p50, p95 = statistics.median(found), found[int(len(found) * 0.95)]
    print(
        f"{backend:11} enqueue to start       p50 {p50:.1f} ms, p95 {p95:.1f} ms, worst {found[-1]:.1f} ms", flush=True
    )


if __name__ == "__main__":
    os.environ.pop("PENSTOCK_DATABASE_URL", None)
    main()
