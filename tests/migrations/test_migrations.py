"""Migrations: their sum is the schema of the tables; safe to run again, and by many at once; newer is refused."""

from __future__ import annotations

import ast
import multiprocessing
import re
import sqlite3
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
from penstock.store.tables import JOB_VIEW, job_view, metadata
from tests.migrations.support import digest, frozen_files, pinned


def shape(url: str) -> dict[str, Any]:
    """What the database itself says of its tables, constraints and indexes."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as conn:
            rows = conn.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
            columns = conn.execute(
                'SELECT t.name, c.name, c.type, c."notnull", c.dflt_value, c.pk FROM sqlite_master t'
                " JOIN pragma_table_info(t.name) c WHERE t.type = 'table'"
            ).fetchall()
        conn.close()
        return {
            **{f"{kind} {name}": (table, _parts(kind, sql)) for kind, name, table, sql in rows if not _foreign(table)},
            **{f"column {table}.{name}": rest for table, name, *rest in columns if not _foreign(table)},
        }
    queries = {
        "columns": "SELECT table_name || '.' || column_name, table_name, (data_type, is_nullable, column_default)::text"
        " FROM information_schema.columns WHERE table_schema = 'public'",
        "constraints": "SELECT conname, conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace",
        "indexes": "SELECT indexname, tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'",
        "views": "SELECT viewname, viewname, definition FROM pg_views WHERE schemaname = 'public'",
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


def _parts(kind: str, sql: str | None) -> Any:
    """An index's definition, or a table's constraints in any order: its columns are asked for otherwise, because a column
    that was added later stands at another place."""
    flat = re.sub(r"\s+", " ", sql or "")
    if kind != "table":
        return flat
    kept = flat.endswith("WITHOUT ROWID")
    return kept, sorted(
        part.rstrip(") ,") for part in re.split(r"(?=\bCONSTRAINT )", re.sub(r" , \w+ [A-Z]+", "", flat))[1:]
    )


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
        tx.run(sa.text(f"CREATE VIEW {job_view.name} AS {JOB_VIEW}"))
    other.close()
    migrated, created = shape(empty_url), shape(fresh)
    assert len(created) > 50
    assert migrated == created


def test_no_migration_looks_at_live_code() -> None:
    """Else a change of today's code would change the past, and the comparison above would compare a thing with itself."""
    allowed = {"__future__", "alembic", "collections", "datetime", "json", "re", "sqlalchemy", "typing", "uuid"}
    for file in frozen_files():
        for node in ast.walk(ast.parse(file.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in allowed or name == "penstock.store.migrations.frozen", (
                    f"{file.name} imports {name}: a migration must not depend on code that will change. Copy what it needs into it."
                )


def test_migrations_are_one_chain_in_the_order_of_their_numbers() -> None:
    scripts = list(schema._scripts().walk_revisions("base", "heads"))
    chain = [script.revision for script in reversed(scripts)]
    assert chain == sorted(chain) == list(schema.REVISIONS), (
        "each migration has the number that its file name begins with, and follows the one with the number before it; "
        "if another landed first, renumber yours"
    )
    assert [script.down_revision for script in reversed(scripts)] == [None, *chain[:-1]]


def test_landed_migrations_are_never_changed() -> None:
    known = pinned()
    for file in frozen_files():
        line = f"{digest(file)}  {file.name}"
        assert file.name in known, f"{file.name} is new: add this line to tests/migrations/digests.txt:\n{line}"
        assert known[file.name] == digest(file), (
            f"{file.name} was changed, but databases exist that it has made. Restore it and write a new migration instead."
        )
    assert set(known) == {file.name for file in frozen_files()}, "a migration that databases have been through is gone"


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
