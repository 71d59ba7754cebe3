"""Migrations: their sum is the schema of the tables; safe to run again, and by many at once; newer is refused."""

from __future__ import annotations

import multiprocessing
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from penstock import ManualClock, Penstock
from penstock.core.errors import SchemaOutdated, SchemaTooNew
from penstock.store import schema
from penstock.store.database import Database
from penstock.store.tables import metadata

VERSIONS = Path(schema.__file__).parent / "migrations" / "versions"


@pytest.fixture
def empty_url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without a single table."""
    if backend == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    server = request.getfixturevalue("postgres")
    name = server.create_database()
    yield server.url(name)
    server.drop_database(name)


def shape(url: str) -> dict[str, Any]:
    """What the database itself says of its tables, constraints and indexes."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as conn:
            rows = conn.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
        return {f"{kind} {name}": (table, _parts(sql)) for kind, name, table, sql in rows if not _foreign(table)}
    queries = {
        "columns": "SELECT table_name || '.' || column_name, table_name, (data_type, is_nullable, column_default)::text"
        " FROM information_schema.columns WHERE table_schema = 'public'",
        "constraints": "SELECT conname, conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace",
        "indexes": "SELECT indexname, tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "options": "SELECT relname, relname, coalesce(reloptions::text, '') FROM pg_class WHERE relkind = 'r'"
        " AND relnamespace = 'public'::regnamespace",
    }
    with psycopg.connect(url) as pg:
        return {
            f"{kind} {name}": definition
            for kind, query in queries.items()
            for name, table, definition in pg.execute(query)  # type: ignore[call-overload]
            if not _foreign(table)
        }


def _foreign(table: str) -> bool:
    return table == schema.VERSION_TABLE or not table.startswith("penstock_")


def _parts(sql: str | None) -> Any:
    """A table's definition without regard to the order of its parts."""
    flat = re.sub(r"\s*\n\)\s*$", "", (sql or "").replace("(\n", "(,\n", 1))
    return sorted(re.sub(r"\s+", " ", part).strip() for part in re.split(r",\s*\n", flat))


def test_the_sum_of_the_migrations_is_the_schema_of_the_tables(
    backend: str, empty_url: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    db = Database(empty_url)
    schema.upgrade(db)
    with db.read() as tx:
        context = MigrationContext.configure(
            tx.conn,
            opts={
                "compare_type": True,
                "compare_server_default": True,
                "version_table": schema.VERSION_TABLE,
                "include_name": lambda name, kind, _: kind != "table" or not _foreign(name or ""),
            },
        )
        assert compare_metadata(context, metadata) == []
    db.close()
    if backend == "sqlite":
        fresh = f"sqlite:///{tmp_path / 'fresh.db'}"
    else:
        server = request.getfixturevalue("postgres")
        fresh = server.url(server.create_database())
    other = Database(fresh)
    with other.write() as tx:
        metadata.create_all(tx.conn)
    other.close()
    migrated, created = shape(empty_url), shape(fresh)
    assert len(created) > 50
    assert migrated == created


def test_no_migration_looks_at_the_live_tables() -> None:
    """Else a changed table would change the past, and the comparison above would compare a thing with itself."""
    files = list(VERSIONS.glob("0*.py"))
    assert files
    for file in files:
        assert "store.tables" not in file.read_text(), file.name
        assert "create_all" not in file.read_text(), file.name


def test_upgrading_again_changes_nothing(empty_url: str) -> None:
    db = Database(empty_url)
    assert schema.current(db) is None
    with pytest.raises(SchemaOutdated, match="penstock db upgrade"):
        schema.check(db)
    assert schema.upgrade(db) == (None, schema.HEAD)
    before = shape(empty_url)
    assert schema.upgrade(db) == (schema.HEAD, schema.HEAD)
    schema.check(db)
    db.close()
    assert shape(empty_url) == before


def _upgrade(url: str, answers: Any) -> None:
    try:
        db = Database(url)
        schema.upgrade(db)
        schema.check(db)
        db.close()
        answers.put("")
    except Exception as error:
        answers.put(repr(error))


def test_four_processes_upgrade_at_once(empty_url: str) -> None:
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    processes = [context.Process(target=_upgrade, args=(empty_url, answers)) for _ in range(4)]
    for process in processes:
        process.start()
    told = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
    assert told == [""] * 4
    db = Database(empty_url)
    with db.read() as tx:
        assert tx.scalar(sa.text("SELECT count(*) FROM penstock_tenants")) == 1
        assert tx.scalar(sa.text("SELECT count(*) FROM penstock_clock")) == 1
    db.close()


@pytest.mark.parametrize("verb", ["check", "upgrade", "open"])
def test_a_newer_database_is_refused_and_not_touched(empty_url: str, verb: str) -> None:
    db = Database(empty_url)
    schema.upgrade(db)
    with db.write() as tx:
        tx.run(sa.text(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9999'"))
    before = shape(empty_url)
    with pytest.raises(SchemaTooNew, match=r"9999.*newer"):
        if verb == "open":
            Penstock(empty_url, clock=ManualClock())
        else:
            getattr(schema, verb)(db)
    assert shape(empty_url) == before
    assert schema.current(db) == "9999"
    db.close()


def test_opening_an_empty_database(backend: str, empty_url: str) -> None:
    """SQLite migrates itself; PostgreSQL is its operator's, and says what to run."""
    if backend == "sqlite":
        Penstock(empty_url).close()
        Penstock(empty_url).close()
    else:
        with pytest.raises(SchemaOutdated, match="penstock db upgrade"):
            Penstock(empty_url)
