"""The engine against the model, on both databases, on an engine that the caller brings and on one that Penstock makes from a
URL, which takes shorter ways through the code. `PENSTOCK_SOAK=1` runs it long and at random."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from penstock import Config, ManualClock, Penstock
from penstock.store.database import Database, make_engine
from penstock.store.schema import upgrade
from penstock.store.tables import metadata
from tests.properties.machine import Machine
from tests.properties.model import INTERRUPTIONS

CONFIG = Config(max_interruptions=INTERRUPTIONS)
SOAK = os.environ.get("PENSTOCK_SOAK") == "1"
PROFILE = settings(
    max_examples=1_500 if SOAK else 100,  # for each way
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
        do_not_sync(made)
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


def do_not_sync(engine: sa.Engine) -> None:
    """What a power cut would do is tested elsewhere; here a sync for each of many thousand steps only costs time."""
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", lambda dbapi, _: dbapi.execute("PRAGMA synchronous=OFF"))


def by_url(engine: sa.Engine, clock: ManualClock) -> Penstock:
    """The same database as most users open it."""
    app = Penstock(engine.url.render_as_string(hide_password=False), clock=clock, config=CONFIG)
    app.db.close()  # the connections made so far sync
    do_not_sync(app.db.engine)
    assert app.db.has_short_way
    return app


def empty(engine: sa.Engine) -> None:
    kept = {"penstock_tenants": "slug = 'default'", "penstock_queues": "name = 'default'", "penstock_clock": "id = 1"}
    with Database(engine).write() as tx:
        for table in reversed(metadata.sorted_tables):
            spared = f" WHERE NOT {kept[table.name]}" if table.name in kept else ""
            tx.run(sa.text(f"DELETE FROM {table.name}{spared}"))


@pytest.mark.timeout(7200 if SOAK else 1200)
@pytest.mark.parametrize("way", ["engine", "url"])
def test_the_engine_does_what_the_model_says(engine: sa.Engine, way: str) -> None:
    class OnThisDatabase(Machine):
        def fresh_app(self, clock: ManualClock) -> Penstock:
            empty(engine)
            return by_url(engine, clock) if way == "url" else Penstock(engine, clock=clock, config=CONFIG)

        def teardown(self) -> None:
            super().teardown()
            if hasattr(self, "app"):
                self.app.close()

    factory: Any = OnThisDatabase
    run_state_machine_as_test(factory, settings=PROFILE)
