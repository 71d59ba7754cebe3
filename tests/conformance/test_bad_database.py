"""A database that is read-only, locked, corrupt or not there: one clear typed error, and no traceback soup."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock import Config, InvalidInput, Penstock
from penstock.core.errors import DatabaseCorrupt, DatabaseError, DatabaseLocked, DatabaseReadOnly, DatabaseUnavailable
from penstock.store.database import Database
from tests.support.ports import free_port


def test_a_read_only_database(app: Penstock) -> None:
    if app.db.name == "sqlite":
        url = f"sqlite:///file:{app.db.url.database}?mode=ro&uri=true"
    else:
        plain = app.db.url.set(drivername="postgresql").render_as_string(hide_password=False)
        url = f"{plain}?options=-c%20default_transaction_read_only%3Don"
    with Penstock(url) as other:
        with pytest.raises(DatabaseReadOnly, match="cannot be written"):
            other.enqueue("work")
        assert other.jobs.list() == []
    assert app.jobs.list() == []


HOLD = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


def test_locked_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Penstock(f"sqlite:///{path}", config=Config(busy_timeout=0.2)) as app:
        app.define("work")
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(DatabaseLocked, match="Another process held the write lock"):
            app.enqueue("work")
        assert app.jobs.list() == []  # reading goes on
        holder.communicate("")
        app.enqueue("work")


def test_locked_by_another_thread(tmp_path: Path) -> None:
    with Penstock(f"sqlite:///{tmp_path / 'jobs.db'}", config=Config(busy_timeout=0.2)) as app:
        app.define("work")
        with ThreadPoolExecutor(1) as other, app.db.write():
            refused = other.submit(app.enqueue, "work")
            assert isinstance(refused.exception(10), DatabaseLocked)
        assert app.jobs.list() == []
        app.enqueue("work")


def test_threads_write_one_after_another(tmp_path: Path) -> None:
    with (
        Penstock(f"sqlite:///{tmp_path / 'jobs.db'}", config=Config(busy_timeout=5)) as app,
        ThreadPoolExecutor(8) as pool,
    ):
        app.define("work")
        list(pool.map(lambda _: app.enqueue("work"), range(200)))
        assert app.jobs.summary().counts["queued"] == 200


def test_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match="does its directory exist"):
        Penstock(f"sqlite:///{tmp_path / 'no' / 'such' / 'jobs.db'}")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    path.write_bytes(b"these are my holiday notes, do not write over them" * 100)
    before = path.read_bytes()
    with pytest.raises(DatabaseCorrupt, match="not a healthy SQLite database"):
        Penstock(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with Penstock(f"sqlite:///{path}") as app:
        app.define("work")
        app.enqueue_many("work", [{"n": n} for n in range(500)])
    with sqlite3.connect(path) as conn:
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    conn.close()
    content = bytearray(path.read_bytes())
    for at in range(4096, len(content), 4096):
        content[at : at + 64] = b"\xff" * 64
    path.write_bytes(content)
    with pytest.raises(DatabaseError), Penstock(f"sqlite:///{path}") as app:
        app.jobs.list()


def test_no_server_there() -> None:
    with pytest.raises(DatabaseUnavailable, match="does not answer"):
        Penstock(f"postgresql://someone:hunter2@127.0.0.1:{free_port()}/jobs")


def test_the_password_is_never_told() -> None:
    with pytest.raises(DatabaseUnavailable) as refused:
        Penstock(f"postgresql://someone:hunter2@127.0.0.1:{free_port()}/jobs")
    assert "hunter2" not in str(refused.value)


def test_no_such_database(postgres: object) -> None:
    url = postgres.url("no_such_database")  # type: ignore[attr-defined]
    with pytest.raises(DatabaseUnavailable, match="no_such_database"):
        Penstock(url)


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://localhost/x", "sqlite:/x", "://"])
def test_what_is_no_database_url(url: str) -> None:
    with pytest.raises((InvalidInput, DatabaseUnavailable)):
        Penstock(url)


def test_a_dropped_table_says_what_to_run(app: Penstock) -> None:
    from penstock.core.errors import SchemaOutdated

    db = Database(app.db.engine)
    with pytest.raises(SchemaOutdated, match="penstock db upgrade"), db.write() as tx:
        tx.run(sa.text("SELECT 1 FROM penstock_nothing"))
