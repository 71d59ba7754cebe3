from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.store.database import Database
from penstock.store.schema import upgrade
from tests.neighbours.pgbouncer import PooledServer
from tests.support.postgres import Server


@pytest.fixture(scope="session")
def pooled() -> Iterator[PooledServer]:
    """A PostgreSQL behind a PgBouncer in transaction mode."""
    direct = Server().start()
    try:
        server = PooledServer(direct)
    except BaseException:
        direct.remove()
        raise
    yield server
    server.remove()


@pytest.fixture
def database(pooled: PooledServer) -> Iterator[str]:
    """The name of a database that was migrated through the pooler."""
    name = pooled.create_database()
    db = Database(pooled.url(name))
    upgrade(db)
    db.close()
    yield name
    pooled.drop_database(name)


@pytest.fixture
def url(pooled: PooledServer, database: str) -> str:
    """Through the pooler."""
    return pooled.url(database)
