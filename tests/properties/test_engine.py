"""The engine against the model, on both databases. `PENSTOCK_SOAK=1` runs it long and at random."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from penstock import ManualClock, Penstock
from penstock.store.database import Database, make_engine
from penstock.store.schema import upgrade
from penstock.store.tables import metadata
from tests.properties.machine import Machine

SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
PROFILE = settings(
    max_examples=3_000 if SOAK else 200,
    stateful_step_count=80 if SOAK else 50,
    derandomize=not SOAK,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture
def engine(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    """One database for the whole run, emptied before each example."""
    if backend == "sqlite":
        made = make_engine(f"sqlite:///{tmp_path / 'machine.db'}")
        # What a power cut would do is tested elsewhere; here a sync for each of many thousand steps only costs time.
        sa.event.listen(made, "connect", lambda dbapi, _: dbapi.execute("PRAGMA synchronous=OFF"))
        upgrade(Database(made))
        yield made
    else:
        server = request.getfixturevalue("postgres")
        name = server.create_database(server.template)
        made = make_engine(server.url(name))
        yield made
        made.dispose()
        server.drop_database(name)
        return
    made.dispose()


def empty(engine: sa.Engine) -> None:
    kept = {"penstock_tenants": "slug = 'default'", "penstock_queues": "name = 'default'", "penstock_clock": "id = 1"}
    with Database(engine).write() as tx:
        for table in reversed(metadata.sorted_tables):
            spared = f" WHERE NOT {kept[table.name]}" if table.name in kept else ""
            tx.run(sa.text(f"DELETE FROM {table.name}{spared}"))


@pytest.mark.timeout(7200 if SOAK else 1200)
def test_the_engine_does_what_the_model_says(engine: sa.Engine) -> None:
    class OnThisDatabase(Machine):
        def fresh_app(self, clock: ManualClock) -> Penstock:
            empty(engine)
            return Penstock(engine, clock=clock)

    factory: Any = OnThisDatabase
    run_state_machine_as_test(factory, settings=PROFILE)
