"""Every check of doctor finds its planted violation, on both databases; a clean database has none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text

from penstock import Failed, Penstock, Succeeded
from penstock.store import doctor
from penstock.store.checks import CHECKS
from penstock.store.database import Database, Tx
from penstock.store.schema import upgrade
from tests.conftest import BACKENDS
from tests.doctor.plants import PLANTS
from tests.support.plant import loosen

NAMES = [check.name for check in CHECKS] + [doctor.MISSING_INDEX]
GRACE = 60.0


COLUMNS = {
    "reservations": "reserved_at",
    "ready": "queued_at",
    "running": "queued_at",
    "waiting": "queued_at",
    "runs": "started_at",
}
"""A time of each table that `{long_ago}` and the like are counted from."""


class World:
    """A small clean database without constraints, and the ids of its rows."""

    def __init__(self, url: str) -> None:
        self.app = Penstock(url)
        self.ids = self._fill()
        loosen(self.app.db)

    def _fill(self) -> dict[str, str]:
        app = self.app
        app.tenants.create("acme")
        app.define("work", max_attempts=3)
        app.define("chained", max_attempts=3, retry_mode="chain")
        ids = {"limited": app.define("limited", max_running=1).id}
        ids["private"] = app.as_tenant("acme").define("private").id
        ids["acme"] = app.tenants.get("acme").id
        ids["succeeded"] = app.enqueue("work").id
        ids["superseded"] = app.enqueue("chained").id
        done, retried = app.queue.claim("host:1", 2)
        app.queue.finish(done, Succeeded())
        app.queue.finish(retried, Failed("no", delay=3600))
        ids["retry"] = app.jobs.chain(retried.job_id)[-1].id
        ids["running"] = app.enqueue("work").id
        app.queue.claim("host:1", 1, lease_seconds=3600)
        ids["queued"] = app.enqueue("work").id
        group = app.groups.create([("work", {}), ("work", {})])
        ids["first"], ids["second"] = (job.id for job in group.jobs)
        ids["trigger"] = uuid4()
        with app.db.write() as tx:
            trigger = (
                "INSERT INTO penstock_triggers (id, tenant_id, label, trigger_type, cron_expr, timezone, definition_id,"
                " definition_key, payload_template, created_at, updated_at) SELECT {trigger}, j.tenant_id, 't', 'schedule',"
                " '* * * * *', 'UTC', j.definition_id, 'work', '{}', j.created_at, j.created_at FROM penstock_jobs j WHERE j.id = {queued}"
            )
            shown = {name: f"'{value}'" for name, value in ids.items()}
            tx.run(text(trigger.replace("{trigger}", shown["trigger"]).replace("{queued}", shown["queued"])))
        return {name: str(value) for name, value in ids.items()}

    def plant(self, tx: Tx, statement: str) -> None:
        day, days = (
            ("86400000000", "172800000000")
            if self.app.db.name == "sqlite"
            else ("interval '1 day'", "interval '2 days'")
        )
        table = re.findall(r"(?:UPDATE|FROM) penstock_(\w+)", statement)
        column = COLUMNS.get(table[-1] if table else "", "created_at")
        statement = statement.replace("{farther}", f"({column} + {days})")
        statement = statement.replace("{long_ago}", f"({column} - {day})").replace("{far}", f"({column} + {day})")
        for name, value in self.ids.items():
            statement = statement.replace("{" + name + "}", f"'{value}'")
        while "{new}" in statement:
            statement = statement.replace("{new}", f"'{uuid4()}'", 1)
        tx.run(text(statement))


@pytest.fixture(scope="module", params=BACKENDS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if request.param == "sqlite":
        url = f"sqlite:///{Path(tmp_path_factory.mktemp('doctor')) / 'jobs.db'}"
        db = Database(url)
        upgrade(db)
        db.close()
        made = World(url)
        yield made
        made.app.close()
        return
    server = request.getfixturevalue("postgres")
    name = server.create_database(server.template)
    made = World(server.url(name))
    yield made
    made.app.close()
    server.drop_database(name)


class Undo(Exception):
    """Takes a planted violation back."""


@pytest.mark.parametrize("name", NAMES)
def test_each_check_finds_its_planted_violation(world: World, name: str) -> None:
    with pytest.raises(Undo), world.app.db.write() as tx:
        clean = {violation.check for violation in doctor.violations(tx, GRACE)}
        assert clean <= LOOSENED
        for statement in PLANTS[name]:
            world.plant(tx, statement)
        found = {violation.check: violation for violation in doctor.violations(tx, GRACE)}
        assert name in found
        assert found[name].ids
        if name == doctor.MISSING_INDEX:
            assert "ix_penstock_ready_claim" in found[name].ids
        raise Undo


LOOSENED = {doctor.MISSING_INDEX}
"""Found in the world itself: its unique indexes were dropped so that the plants get in."""


def test_every_check_has_a_plant_and_every_plant_a_check() -> None:
    assert set(PLANTS) == set(NAMES)
    assert len(NAMES) == len(set(NAMES))


def test_every_promise_is_looked_after() -> None:
    promises = {check.promise for check in CHECKS} | {"P12", "P13"}  # an index check, and a warning
    assert promises == {f"P{number}" for number in range(1, 14)}
