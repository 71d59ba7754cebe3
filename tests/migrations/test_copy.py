"""`penstock db copy`: ids and history kept, all or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from penstock import Conflict, Failed, Penstock, Succeeded
from penstock.store.copy import copy_database
from penstock.store.database import Database
from penstock.store.tables import metadata
from tests.support.postgres import Server


def filled(path: Path) -> Penstock:
    app = Penstock(f"sqlite:///{path}")
    app.define("work", arg_schema={"type": "object"}, default_params={"x": 1}, max_attempts=2, retry_mode="chain")
    app.tenants.create("acme", "Acme", weight=3)
    app.triggers.schedule("hourly", "0 * * * *", "work")
    app.enqueue_many("work", [{"n": n} for n in range(20)])
    app.enqueue("work", {"é": [None, True, 1.5]}, tenant="acme", delay=3600, dedupe_key="later")
    done, failed, _left = app.queue.claim("w:1", 3)
    app.queue.finish(done, Succeeded({"ok": "✓"}))
    app.queue.finish(failed, Failed("no"))
    app.groups.create([("work", {}), ("work", {})])
    return app


def rows(db: Database) -> dict[str, list[tuple[object, ...]]]:
    with db.read() as tx:
        return {
            table.name: sorted((tuple(row) for row in tx.rows(select(table))), key=repr)
            for table in metadata.sorted_tables
        }


def test_every_row_arrives_as_it_was(tmp_path: Path, postgres: Server) -> None:
    source = filled(tmp_path / "a.db")
    name = postgres.create_database()
    target = Database(postgres.url(name))
    try:
        counted = copy_database(source.db, target)
        assert counted["jobs"] == 24 and counted["runs"] == 2 and counted["running"] == 1
        before, after = rows(source.db), rows(target)
        assert before == after
        moved = Penstock(postgres.url(name))
        assert moved.doctor().clean
        assert len(moved.queue.claim("w:2", 50)) > 10
        moved.close()
        with pytest.raises(Conflict, match="fresh database"):
            copy_database(source.db, target)
    finally:
        source.close()
        target.close()
        postgres.drop_database(name)
