from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from penstock.core.clock import ManualClock
from penstock.store.database import Database
from penstock.store.schema import upgrade
from tests.neighbours.pgbouncer import PooledServer
from tests.support.postgres import Server

BACKENDS = ("sqlite", "postgresql")

settings.register_profile("penstock", deadline=None)  # how fast an example is depends on what else the machine does
settings.load_profile("penstock")


class ForeignServer:
    """A server that the operator gave by PENSTOCK_TEST_POSTGRES_URL: we make and drop databases on it, nothing else."""

    def __init__(self, url: str) -> None:
        self.base = url.rsplit("/", 1)[0]

    url = lambda self, database="postgres": f"{self.base}/{database}"  # noqa: E731
    execute = Server.execute
    create_database = Server.create_database
    drop_database = Server.drop_database


@pytest.fixture(scope="session")
def postgres() -> Iterator[Any]:
    """The PostgreSQL of this test session, with an empty Penstock schema as `template`. With PENSTOCK_TEST_POOLER, the tests
    reach it through a PgBouncer in transaction mode."""
    given = os.environ.get("PENSTOCK_TEST_POSTGRES_URL")
    server: Any = ForeignServer(given) if given else Server().start()
    template = server.create_database()
    db = Database(server.url(template))
    upgrade(db)
    db.close()
    if "PENSTOCK_TEST_POOLER" in os.environ:
        server = PooledServer(server)
    server.template = template
    yield server
    if given:
        server.drop_database(template)
    else:
        server.remove()


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with an empty Penstock schema, to be copied."""
    path = tmp_path_factory.mktemp("template") / "penstock.db"
    db = Database(f"sqlite:///{path}")
    upgrade(db)
    db.close()
    return path


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh, migrated database on each backend in turn."""
    if backend == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "penstock.db")
        yield f"sqlite:///{tmp_path / 'penstock.db'}"
        return
    server = request.getfixturevalue("postgres")
    name = server.create_database(server.template)
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def db(url: str, clock: ManualClock) -> Iterator[Database]:
    """The store on each backend, with a clock that the test moves."""
    database = Database(url, clock)
    yield database
    database.close()
