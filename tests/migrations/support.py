"""Databases as they were: earlier editions and revisions of the schema, with rows in every table."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from penstock.store import schema
from penstock.store.database import Database

HERE = Path(__file__).parent
EDITIONS = ("1", "2", "3", "4", "5", "6")
ROWS_END = datetime(2026, 1, 1, 1, 1, 6, tzinfo=UTC)
"""The time at which the rows of 0001 were left."""


def backend_of(url: str) -> str:
    return "sqlite" if url.startswith("sqlite") else "postgresql"


def create_edition(url: str, edition: str) -> None:
    """Create the tables of one edition of the first schema, which calls itself 0001 like all of them."""
    script = (HERE / "editions" / f"{edition}.{backend_of(url)}.sql").read_text()
    script += (
        f"CREATE TABLE {schema.VERSION_TABLE} (version_num VARCHAR(32) NOT NULL PRIMARY KEY);"
        f"INSERT INTO {schema.VERSION_TABLE} VALUES ('0001');"
    )
    execute(url, script)


def create_revision(url: str, revision: str) -> None:
    """Migrate an empty database to a revision, and at each on the way add the rows that there are for it."""
    for step in schema.REVISIONS[: schema.REVISIONS.index(revision) + 1]:
        db = Database(url)
        schema.upgrade(db, step)
        db.close()
        add_rows(url, step)


def create_states(url: str) -> None:
    """The database as the last program before 0010 left it, with a job in every state that it knew."""
    db = Database(url)
    schema.upgrade(db, "0009")
    db.close()
    _fill(url, HERE / "states" / f"0009.{backend_of(url)}.json")


def create_many(url: str, number: int) -> None:
    """A database of 0009 with this many jobs: of ten, eight have succeeded, one is ready and one waits for its time."""
    db = Database(url)
    schema.upgrade(db, "0009")
    db.close()
    execute(url, _MANY[backend_of(url)].format(number=number))


_SERIES = {
    "sqlite": "WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < {number}),"
    " many AS (SELECT n, n % 10 > 1 AS ended, n % 10 AS kind, '00000000-0000-7000-8000-000000000001' AS tenant, '{{}}' AS params,"
    " '01a1eacb-0000-7000-8000-' || printf('%012x', n) AS id, 1767225600000000 + n AS at FROM series)",
    "postgresql": "WITH many AS (SELECT n, n % 10 > 1 AS ended, n % 10 AS kind,"
    " CAST('00000000-0000-7000-8000-000000000001' AS uuid) AS tenant, CAST('{{}}' AS jsonb) AS params,"
    " CAST('01a1eacb-0000-7000-8000-' || lpad(to_hex(n), 12, '0') AS uuid) AS id,"
    " timestamptz '2026-01-01 00:00Z' + n * interval '1 microsecond' AS at FROM generate_series(1, {number}) AS n)",
}
_MANY = {
    name: f"{series} INSERT INTO penstock_jobs (id, tenant_id, root_id, scheduled_for, created_at, queued_at, position, priority,"
    " attempt_no, max_attempts, claimable, status, queue, definition_key, retry_mode, source, params, waits_for, started_at,"
    " finished_at, run_id, claimed_by) SELECT id, tenant, id, at, at, at, 100 * n, 100, CASE WHEN ended THEN 1 ELSE 0 END, 3, kind = 0,"
    " CASE WHEN ended THEN 'succeeded' ELSE 'queued' END, 'default', 'work', 'requeue', 'manual', params,"
    " CASE kind WHEN 1 THEN 'time' END, CASE WHEN ended THEN at END, CASE WHEN ended THEN at END, CASE WHEN ended THEN id END,"
    f" CASE WHEN ended THEN 'host:1:abc' END FROM many;"
    " INSERT INTO penstock_runs (job_id, attempt_no, id, tenant_id, status, worker_id, started_at, finished_at)"
    " SELECT id, 1, id, tenant_id, 'succeeded', claimed_by, started_at, finished_at FROM penstock_jobs WHERE status = 'succeeded'"
    for name, series in _SERIES.items()
}


def nouns() -> dict[str, dict[str, Any]]:
    """What that program said of each of those jobs and of its runs, by the job's id."""
    told: dict[str, dict[str, Any]] = json.loads((HERE / "states" / "0009.nouns.json").read_text())
    return told


def add_rows(url: str, revision: str = "0001") -> None:
    """Put the rows of a revision in place of what its tables hold."""
    file = HERE / "rows" / f"{revision}.{backend_of(url)}.json"
    if file.exists():
        _fill(url, file)


def _fill(url: str, file: Path) -> None:
    tables: dict[str, list[dict[str, Any]]] = json.loads(file.read_text())
    if backend_of(url) == "sqlite":
        with sqlite3.connect(url.removeprefix("sqlite:///")) as conn:
            for table in reversed(tables):
                conn.execute(f"DELETE FROM {table}")
            for table, rows in tables.items():
                for row in rows:
                    marks = ", ".join("?" * len(row))
                    names = ", ".join(f'"{name}"' for name in row)
                    conn.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))
        conn.close()
        return
    with psycopg.connect(url) as pg:
        for table in reversed(tables):
            pg.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
        for table, rows in tables.items():
            for row in rows:
                name, names = sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, row))
                pg.execute(
                    sql.SQL("INSERT INTO {0} ({1}) SELECT {1} FROM jsonb_populate_record(NULL::{0}, %s)").format(
                        name, names
                    ),
                    [json.dumps(row)],
                )


def counts(url: str) -> dict[str, int]:
    """How many rows each of the tables of 0001 holds; of the runs, all that were begun, wherever they are kept."""
    tables = dict.fromkeys(json.loads((HERE / "rows" / "0001.sqlite.json").read_text()), "")
    db = Database(url)
    if (schema.current(db) or "") >= "0010":
        tables["penstock_runs"] = (
            "WHERE id IS NOT NULL UNION ALL SELECT 'penstock_running', count(*) FROM penstock_running"
        )
    db.close()
    query = " UNION ALL ".join(f"SELECT '{name}', count(*) FROM {name} {more}" for name, more in tables.items())
    found = _pairs(url, query)
    found["penstock_runs"] += found.pop("penstock_running", 0)
    return found


def _pairs(url: str, query: str) -> dict[str, int]:
    if backend_of(url) == "sqlite":
        conn = sqlite3.connect(url.removeprefix("sqlite:///"))
        found = dict(conn.execute(query).fetchall())
        conn.close()
        return found
    with psycopg.connect(url) as pg:
        return dict(pg.execute(query).fetchall())  # type: ignore[call-overload]


def execute(url: str, script: str) -> None:
    if backend_of(url) == "sqlite":
        conn = sqlite3.connect(url.removeprefix("sqlite:///"))
        conn.executescript(script)
        conn.close()
        return
    with psycopg.connect(url) as pg:
        pg.execute(script)  # type: ignore[call-overload]


def frozen_files() -> Iterator[Path]:
    yield schema.MIGRATIONS / "frozen.py"
    yield from sorted((schema.MIGRATIONS / "versions").glob("[0-9]*_*.py"))


def pinned() -> dict[str, str]:
    lines = (HERE / "digests.txt").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines if line)}


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
