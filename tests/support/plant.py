"""Putting rows into a database that its constraints would refuse, and reading whole tables to compare them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text

from penstock.store.database import Database

COMPARED = (
    "penstock_jobs", "penstock_waiting", "penstock_ready", "penstock_running", "penstock_runs", "penstock_dedupe",
    "penstock_reservations", "penstock_groups", "penstock_ticks",
)  # fmt: skip


def rows_of(db: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of the tables that recovery may touch, in one order."""
    with db.read() as tx:
        return {
            table: sorted((tuple(row) for row in tx.rows(text(f"SELECT * FROM {table}"))), key=repr)
            for table in COMPARED
        }


def loosen(db: Database) -> None:
    """Let impossible rows in: drop the checks, unique indexes and foreign keys that refuse them."""
    if db.name == "sqlite":
        _loosen_sqlite(db)
    else:
        _loosen_postgres(db)


def _loosen_postgres(db: Database) -> None:
    with db.write() as tx:
        constraints = tx.rows(
            text(
                "SELECT conrelid::regclass::text, quote_ident(conname) FROM pg_constraint"
                " WHERE conrelid::regclass::text LIKE 'penstock_%' AND contype IN ('c', 'f', 'u')"
                " ORDER BY CASE contype WHEN 'f' THEN 0 ELSE 1 END"
            )
        )
        for table, name in constraints:
            tx.run(text(f"ALTER TABLE {table} DROP CONSTRAINT {name} CASCADE"))
        unique = text("SELECT indexname FROM pg_indexes WHERE tablename LIKE 'penstock_%' AND indexname LIKE 'uq_%'")
        for (name,) in tx.rows(unique):
            tx.run(text(f"DROP INDEX {name}"))


def _loosen_sqlite(db: Database) -> None:
    """SQLite cannot drop a check: the table's text is written anew without its constraints."""
    engine = db.engine
    engine.dispose()
    with engine.connect() as conn:
        raw = conn.connection.driver_connection
        assert raw is not None
        unique = "SELECT name FROM sqlite_master WHERE type = 'index' AND name LIKE 'uq_penstock%' AND sql IS NOT NULL"
        for (name,) in raw.execute(unique).fetchall():
            raw.execute(f"DROP INDEX {name}")
        raw.execute("PRAGMA writable_schema = ON")
        tables = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name LIKE 'penstock_%'"
        for name, sql in raw.execute(tables).fetchall():
            raw.execute(
                "UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = ?", (_without_checks(sql), name)
            )
        version = raw.execute("PRAGMA schema_version").fetchone()[0]
        raw.execute(f"PRAGMA schema_version = {version + 1}")
        raw.execute("PRAGMA writable_schema = OFF")
    engine.dispose()  # connections that know the old schema


def _without_checks(sql: str) -> str:
    """The statement without CHECK and FOREIGN KEY lines, which SQLAlchemy writes one to a line. (UNIQUE ones have an index of
    their own behind them and stay.)"""
    kept = []
    for line in sql.split("\n"):
        stripped = line.strip()
        if stripped.startswith("CONSTRAINT") and (" CHECK " in stripped or " FOREIGN KEY" in stripped):
            continue
        kept.append(line)
    head, _, body = "\n".join(kept).partition("(")
    body, _, options = body.rpartition(")")
    return head + "(" + body.rstrip().removesuffix(",") + "\n)" + options
