"""A worker opens its own connections as the application's are opened: by its creator, with its options and its listeners."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from penstock import Config, Penstock
from penstock.store.database import Database
from tests.worker.conftest import ended, working


class Vault:
    """Knows how to connect; the URL of the engine does not."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self.asked = 0

    def connect(self) -> Any:
        self.asked += 1
        if self._url.get_backend_name() == "sqlite":
            return sqlite3.connect(str(self._url.database), check_same_thread=False)
        return psycopg.connect(self._url.render_as_string(hide_password=False))

    def engine(self, **options: Any) -> Engine:
        sqlite = self._url.get_backend_name() == "sqlite"
        nowhere = (
            f"sqlite:///{self._url.database}" if sqlite else "postgresql+psycopg://nobody:wrong@127.0.0.1:1/nowhere"
        )
        return create_engine(nowhere, creator=self.connect, **options)


@pytest.fixture
def vault(url: str) -> Vault:
    return Vault(url)


@pytest.mark.parametrize("options", [{}, {"poolclass": NullPool}], ids=["pool", "no-pool"])
def test_a_worker_of_an_engine_with_a_creator_connects_by_it(vault: Vault, backend: str, options: Any) -> None:
    engine = vault.engine(**options)
    app = Penstock(engine, config=Config(lease_seconds=5.0, poll_seconds=0.5))

    @app.job(key="add")
    def add(a: int) -> int:
        return a + 1

    before = vault.asked
    with working(app) as worker:
        assert ended(app, add.enqueue(a=1)).result == 2
        if backend == "postgresql":
            assert worker._db.has_short_way, "its own connections take the short way"
    assert vault.asked > before
    assert app.doctor().clean
    app.close()
    engine.dispose()


@pytest.fixture
def postgres_url(postgres: Any) -> Iterator[str]:
    name = postgres.create_database()
    yield postgres.url(name)
    postgres.drop_database(name)


def test_connect_arguments_and_listeners_of_an_engine_reach_the_worker(postgres_url: str) -> None:
    """Penstock in a schema of its own, which only the connect arguments name; and a role that a listener sets."""
    with psycopg.connect(postgres_url, autocommit=True) as conn:
        conn.execute("CREATE SCHEMA apart")
    inside = postgres_url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(inside, connect_args={"options": "-csearch_path=apart"})
    heard = []

    @event.listens_for(engine, "connect")
    def note(connection: Any, _record: Any) -> None:
        heard.append(connection)

    from penstock.store.schema import upgrade

    upgrade(Database(engine))
    app = Penstock(engine, config=Config(lease_seconds=5.0, poll_seconds=0.5))

    @app.job(key="add")
    def add(a: int) -> int:
        return a + 1

    before = len(heard)
    with working(app):
        assert ended(app, add.enqueue(a=1)).result == 2
    assert len(heard) > before, "the worker's connections were not seen by the engine's listener"
    app.close()
    engine.dispose()


def test_the_settings_of_the_application_are_those_of_its_worker(url: str) -> None:
    app = Penstock(url, config=Config(lease_seconds=30.0, busy_timeout=7.0, statement_seconds=4.0))
    own = app.db.beside(3, statement_seconds=10.0)
    assert (own.busy_timeout, own.statement_seconds) == (7.0, 4.0)
    own.close()
    app.close()


def test_what_a_url_says_of_prepared_statements_reaches_the_worker(postgres: Any) -> None:
    name = postgres.create_database(postgres.template)
    app = Penstock(postgres.url(name) + "?prepare_threshold=0")
    own = app.db.beside(3, statement_seconds=10.0)
    for db in (app.db, own):
        borrowed: Any = db.engine.raw_connection()
        assert borrowed.dbapi_connection.prepare_threshold is None
        borrowed.close()
    own.close()
    app.close()
    postgres.drop_database(name)


def test_penstock_works_where_poll_is_missing(url: str) -> None:
    """As on Windows, and in some builds for macOS."""
    program = f"""
import select
del select.poll
from penstock import Penstock
app = Penstock({url!r})
@app.job(key="add")
def add(a: int) -> int:
    return a + 1
job = add.enqueue(a=1)
app.worker(concurrency=1).run(until_idle=True)
assert app.jobs.get(job.id).result == 2
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
