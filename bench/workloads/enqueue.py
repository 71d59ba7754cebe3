"""Enqueue: one by one, beside a bare INSERT and commit; in the caller's transaction; in bulk, beside a bare COPY."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import psycopg

from bench.bench import Bench
from bench.environment import call
from bench.peers import Peer
from bench.peers import penstock as ours
from bench.workloads.drain import BULK
from penstock.core.ids import DEFAULT_TENANT_ID, new_id
from penstock.store.types import to_micros

ONE, JOINED = "enqueue one by one", "enqueue in the caller's transaction"
BARE_ONE, BARE_JOINED, BARE_BULK = "bare INSERT and COMMIT", "bare transaction of two INSERTs", "bare bulk load"
COLUMNS = {
    "penstock_jobs": (
        "id", "tenant_id", "definition_key", "queue", "priority", "params", "source", "scheduled_for", "created_at", "max_attempts",
        "retry_mode", "root_id",
    ),
    "penstock_ready": (
        "job_id", "tenant_id", "definition_key", "queue", "priority", "position", "queued_at", "ready_at", "attempt_no", "max_attempts",
        "crashes", "interruptions", "suspect", "slot",
    ),
}  # fmt: skip
"""Of the two rows that an enqueue writes."""


def enqueue(bench: Bench) -> None:
    n = bench.scale.enqueued

    def one_by_one(peer: Peer) -> None:
        with bench.databases.fresh(peer.database) as url:
            call(peer, "setup", url)
            seconds = call(peer, "enqueue", url, n)
            assert seconds is not None
            bench.note(ONE, peer.label, n / seconds, "jobs/s", n)
        if peer.name == "penstock":
            bare(bench, peer, n)  # right after: the machine may be another one in a minute

    bench.each(ONE, one_by_one)
    bench.each(JOINED, lambda peer: joined(bench, peer, n), ours=True)


def rows(conn: Any, position: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The rows that an enqueue writes, made without looking anything up."""
    job, now = str(new_id()), datetime.now(UTC)
    moment = to_micros(now) if isinstance(conn, sqlite3.Connection) else now
    common = job, str(DEFAULT_TENANT_ID), "noop", "default", 100
    return (
        (*common, json.dumps({"sent": 0}), "manual", moment, moment, 1, "requeue", job),
        (*common, position, moment, moment, 0, 1, 0, 0, False, False),
    )


def joined(bench: Bench, peer: Peer, n: int) -> None:
    """A row of the caller's and a job in one transaction, beside a row of the caller's and a bare row."""
    with bench.databases.fresh(peer.database) as url:
        call(peer, "setup", url)
        with ours.open_app(url) as app, closing(connect(url)) as conn:
            app.enqueue("noop", {"sent": 0})
            conn.execute("CREATE TABLE orders (number INTEGER)")
            mark = mark_of(conn)
            started = time.perf_counter()
            for number in range(n):
                conn.execute("BEGIN")
                conn.execute(f"INSERT INTO orders VALUES ({mark})", (number,))
                app.enqueue("noop", {"sent": 0}, connection=conn)
                conn.execute("COMMIT")
            bench.note(JOINED, peer.label, n / (time.perf_counter() - started), "jobs/s", n)
            started = time.perf_counter()
            for number in range(n):
                conn.execute("BEGIN")
                conn.execute(f"INSERT INTO orders VALUES ({mark})", (number,))
                bare_insert(conn, rows(conn, number))
                conn.execute("COMMIT")
            bench.note(JOINED, f"{BARE_JOINED} ({peer.database})", n / (time.perf_counter() - started), "jobs/s", n)


def bare(bench: Bench, peer: Peer, n: int) -> None:
    """The same rows into the same tables and indexes, one INSERT and COMMIT each, and all by COPY or executemany."""
    with bench.databases.fresh(peer.database) as url:
        call(peer, "setup", url)
        with closing(connect(url)) as conn:
            started = time.perf_counter()
            for number in range(n):
                if isinstance(conn, sqlite3.Connection):
                    conn.execute("BEGIN IMMEDIATE")
                bare_insert(conn, rows(conn, number))
                if isinstance(conn, sqlite3.Connection):
                    conn.execute("COMMIT")
            bench.note(ONE, f"{BARE_ONE} ({peer.database})", n / (time.perf_counter() - started), "jobs/s", n)
            many = bench.scale.drained
            started = time.perf_counter()
            load(conn, [rows(conn, number) for number in range(many)])
            bench.note(BULK, f"{BARE_BULK} ({peer.database})", many / (time.perf_counter() - started), "jobs/s", many)


def load(conn: Any, made: list[tuple[tuple[Any, ...], tuple[Any, ...]]]) -> None:
    conn.execute("BEGIN")
    for (table, columns), given in zip(COLUMNS.items(), zip(*made, strict=True), strict=True):
        if isinstance(conn, sqlite3.Connection):
            conn.executemany(insert_into(table, "?"), given)
            continue
        with conn.cursor().copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
            for each in given:
                copy.write_row(each)
    conn.execute("COMMIT")


def connect(url: str) -> Any:
    """In autocommit, as durable as Penstock itself."""
    if not url.startswith("sqlite"):
        return psycopg.connect(url, autocommit=True)
    conn = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=30)
    conn.execute("PRAGMA journal_mode=WAL")
    conn.execute("PRAGMA synchronous=FULL")
    return conn


def mark_of(conn: Any) -> str:
    """The driver's mark for a parameter."""
    return "?" if isinstance(conn, sqlite3.Connection) else "%s"


def insert_into(table: str, mark: str) -> str:
    columns = COLUMNS[table]
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join([mark] * len(columns))})"


def bare_insert(conn: Any, made: tuple[tuple[Any, ...], tuple[Any, ...]]) -> None:
    """Write both rows: on PostgreSQL by one statement, on SQLite, where a statement costs no round trip, by two."""
    first, second = (insert_into(table, mark_of(conn)) for table in COLUMNS)
    if isinstance(conn, sqlite3.Connection):
        conn.execute(first, made[0])
        conn.execute(second, made[1])
    else:
        conn.execute(f"WITH job AS ({first}) {second}", (*made[0], *made[1]))
