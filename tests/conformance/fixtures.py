"""Fixtures for tests of verbs: a wiped database instead of a new one, because PostgreSQL takes half a second to make one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import ManualClock, Penstock
from penstock.store.database import Database
from penstock.store.schema import VERSION_TABLE, upgrade
from penstock.store.tables import metadata

SEEDED = ("penstock_tenants", "penstock_queues", "penstock_clock")


@pytest.fixture(scope="session")
def reused_postgres(postgres: Any) -> Iterator[str]:
    name = postgres.create_database(postgres.template)
    yield postgres.url(name)
    postgres.drop_database(name)


def wipe(url: str) -> None:
    """Back to what the migrations left: nothing but the default tenant, the default queue and the clock."""
    ours = [table.name for table in reversed(metadata.sorted_tables)]
    statements = [f"DELETE FROM {name}" for name in ours if name not in SEEDED]
    statements += [
        "DELETE FROM penstock_tenants WHERE slug <> 'default'",
        "UPDATE penstock_tenants SET weight = 1, max_running = NULL, is_active = true, quotas = NULL, min_priority = NULL,"
        " max_priority = NULL",
        "DELETE FROM penstock_queues WHERE name <> 'default'",
        "UPDATE penstock_queues SET paused = false",
    ]
    with psycopg.connect(url) as conn:
        tables = conn.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        strangers = {name for (name,) in tables} - set(ours) - {VERSION_TABLE}
        statements += [f'DROP TABLE "{name}" CASCADE' for name in strangers]
        conn.execute("; ".join(statements))  # type: ignore[call-overload]


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty, migrated database on each backend in turn."""
    if backend == "postgresql":
        reused: str = request.getfixturevalue("reused_postgres")
        wipe(reused)
        return reused
    path = f"sqlite:///{tmp_path / 'penstock.db'}"
    db = Database(path)
    upgrade(db)
    db.close()
    return path


@pytest.fixture
def app(url: str, clock: ManualClock) -> Iterator[Penstock]:
    """The engine on each database, with one plain definition `work`. Whatever a test does, doctor() is clean after it."""
    penstock = Penstock(url, clock=clock)
    penstock.define("work", retry_policy={"base": 10, "factor": 2, "jitter": 0})
    yield penstock
    health = penstock.doctor()
    penstock.close()
    assert health.clean, health.violations
