"""What doctor says of job tables: each finding has its plant, and a healthy pipeline has none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import update

import penstock.pipeline as dj
from penstock.store.database import Database, Tx
from penstock.store.pipeline import doctor
from tests.pipeline.lab import Lab


@pytest.fixture
def db(schema: dj.Schema) -> Database:
    return schema.connection.db


@pytest.fixture
def done(lab: Lab) -> Iterator[Lab]:
    """Every image filtered, and the jobs kept."""
    lab.fill()
    with dj.config.override({"jobs.keep_completed": True}):
        lab.FilteredImage.populate(reserve_jobs=True)
        yield lab


def told(db: Database) -> tuple[list[str], list[str]]:
    with db.read() as tx:
        return [each.check for each in doctor.violations(tx)], [each.check for each in doctor.warnings(tx)]


def change(lab: Lab, db: Database, **values: object) -> None:
    jobs = lab.FilteredImage().jobs.store.table
    db.transact(lambda tx: tx.run(update(jobs).values(**values)))


def test_a_healthy_pipeline_has_nothing_to_tell(done: Lab, db: Database) -> None:
    assert len(done.FilteredImage().jobs.completed) > 0
    assert told(db) == ([], [])


def test_a_reservation_without_its_token(done: Lab, db: Database) -> None:
    change(done, db, status="reserved")
    assert told(db)[0] == [doctor.HELD]
    with db.read() as tx:
        [violation] = doctor.violations(tx)
    assert violation.ids[0].startswith("lab.__filtered_image ")


def test_a_token_without_its_reservation(done: Lab, db: Database) -> None:
    change(done, db, token="somebody")
    assert told(db)[0] == [doctor.HELD]


def test_results_that_are_gone(done: Lab, db: Database) -> None:
    done.FilteredImage().delete(prompt=False)
    assert told(db) == ([], ["result that is gone"])
    done.FilteredImage().jobs.refresh()
    assert told(db) == ([], [])


def test_pending_keys_that_are_there(done: Lab, db: Database) -> None:
    change(done, db, status="pending")
    assert told(db) == ([], ["pending key that is there"])
    done.FilteredImage().jobs.refresh()
    assert told(db) == ([], [])


def test_reservations_that_ran_out(done: Lab, db: Database) -> None:
    jobs = done.FilteredImage().jobs.store.table
    done.FilteredImage().delete(prompt=False)

    def abandon(tx: Tx) -> None:
        tx.run(update(jobs).values(status="reserved", token="gone", lease_until=tx.later(-5.0)))

    db.transact(abandon)
    assert told(db) == ([], ["reservation that ran out"])


def test_a_table_that_was_never_queued_has_nothing_to_tell(db: Database, lab: Lab) -> None:
    lab.fill()
    assert told(db) == ([], [])
