"""A database of any earlier edition or revision, with data in it, becomes today's; one that cannot is refused."""

from __future__ import annotations

import threading

import psycopg
import pytest
import sqlalchemy as sa

from penstock import ManualClock, Penstock, Succeeded
from penstock.core.errors import DatabaseLocked, SchemaMismatch, SchemaOutdated
from penstock.store import schema
from penstock.store.database import Database
from tests.migrations.support import (
    EDITIONS,
    ROWS_END,
    add_rows,
    backend_of,
    counts,
    create_edition,
    create_revision,
    execute,
)


def upgraded(url: str) -> tuple[str | None, str]:
    db = Database(url)
    try:
        return schema.upgrade(db)
    finally:
        db.close()


def works(url: str) -> None:
    """The schema is today's, every promise holds over the old rows, and their jobs run."""
    db = Database(url)
    assert schema.compare(db) == []
    db.close()
    app = Penstock(url, clock=ManualClock(ROWS_END))
    assert app.doctor().violations == ()
    app.define("work")
    new = app.enqueue("work", {"new": True}, priority=0)
    claims = app.queue.claim("w:2", 50)
    assert claims[0].job_id == new.id and len(claims) > 3
    for claim in claims:
        app.queue.finish(claim, Succeeded({"done": True}))
    assert app.jobs.get(new.id).status == "succeeded"
    assert app.doctor().violations == ()
    app.close()


@pytest.mark.parametrize("edition", EDITIONS)
def test_every_edition_of_the_first_schema_becomes_todays(empty_url: str, edition: str) -> None:
    create_edition(empty_url, edition)
    add_rows(empty_url)
    db = Database(empty_url)
    with pytest.raises(SchemaOutdated, match=r"schema 0001.*penstock db upgrade"):
        schema.check(db)
    db.close()
    before = counts(empty_url)
    assert all(before.values()), "every table has rows"
    assert upgraded(empty_url) == ("0001", schema.HEAD)
    assert counts(empty_url) == before
    works(empty_url)


@pytest.mark.parametrize("revision", schema.REVISIONS)
def test_every_revision_with_data_becomes_todays(empty_url: str, revision: str) -> None:
    create_revision(empty_url, revision)
    before = counts(empty_url)
    assert upgraded(empty_url) == (revision, schema.HEAD)
    assert counts(empty_url) == before
    works(empty_url)


def test_an_old_database_is_upgraded_or_refused_when_it_is_opened(backend: str, empty_url: str) -> None:
    create_edition(empty_url, "1")
    add_rows(empty_url)
    if backend == "postgresql":
        with pytest.raises(SchemaOutdated, match="penstock db upgrade"):
            Penstock(empty_url)
        assert upgraded(empty_url) == ("0001", schema.HEAD)
    Penstock(empty_url, clock=ManualClock(ROWS_END)).close()
    works(empty_url)


@pytest.mark.parametrize("lost", ["penstock_webhooks", "penstock_clock"])
def test_a_database_without_what_a_migration_changes_is_refused(empty_url: str, lost: str) -> None:
    create_edition(empty_url, "6")
    cascade = "CASCADE" if backend_of(empty_url) == "postgresql" else ""
    execute(empty_url, f"DROP TABLE {lost} {cascade}")
    with pytest.raises(SchemaMismatch, match=rf"lacks .*{lost}.*Nothing was changed"):
        upgraded(empty_url)


def test_a_database_that_cannot_be_upgraded_is_refused_and_left_as_it_was(empty_url: str) -> None:
    """Its version says 0001, but no edition of 0001 was like this."""
    create_edition(empty_url, "6")
    execute(empty_url, "ALTER TABLE penstock_workers DROP COLUMN running_count; DROP TABLE penstock_trigger_fires")
    with pytest.raises(
        SchemaMismatch, match=r"table penstock_trigger_fires.*workers\.running_count.*Nothing was changed"
    ):
        upgraded(empty_url)
    db = Database(empty_url)
    assert schema.current(db) == "0001"
    db.close()


def test_a_database_that_lost_a_column_is_not_used(empty_url: str) -> None:
    upgraded(empty_url)
    execute(empty_url, "ALTER TABLE penstock_workers DROP COLUMN running_count")
    with pytest.raises(SchemaMismatch, match=r"lacks column penstock_workers\.running_count"):
        Penstock(empty_url)


def test_differences_are_named(backend: str, empty_url: str) -> None:
    upgraded(empty_url)
    execute(
        empty_url,
        "DROP INDEX ix_penstock_ready_claim; DROP INDEX ix_penstock_waiting_due;"
        "CREATE INDEX ix_penstock_waiting_due ON penstock_waiting (until, job_id) WHERE reason = 'limit';"
        "CREATE INDEX ix_penstock_jobs_leftover ON penstock_jobs (queue);"
        "CREATE INDEX my_own ON penstock_jobs (created_by);"
        "ALTER TABLE penstock_tenants ADD COLUMN colour TEXT;"
        + (
            "ALTER TABLE penstock_jobs DROP CONSTRAINT ck_penstock_jobs_source_known"
            if backend == "postgresql"
            else "DROP VIEW penstock_job_view; CREATE VIEW penstock_job_view AS SELECT * FROM (SELECT 1);"
            "DROP TABLE penstock_dedupe; CREATE TABLE penstock_dedupe (tenant_id VARCHAR(36) NOT NULL, dedupe_key TEXT NOT NULL,"
            " job_id VARCHAR(36) NOT NULL, CONSTRAINT pk_penstock_dedupe PRIMARY KEY (tenant_id, dedupe_key))"
        ),
    )
    db = Database(empty_url)
    told = "\n".join(schema.compare(db))
    db.close()
    assert "index ix_penstock_ready_claim is missing" in told
    assert "index ix_penstock_waiting_due is defined otherwise" in told
    assert "index ix_penstock_jobs_leftover is not known" in told
    assert "column penstock_tenants.colour is not known" in told
    assert "my_own" not in told, "an index that the operator added for queries of its own is welcome"
    assert ("ck_penstock_jobs_source_known is missing" in told) == (backend == "postgresql")
    assert ("view penstock_job_view is defined otherwise" in told) == (backend == "sqlite")
    assert ("table penstock_dedupe is not kept in the order of its key" in told) == (backend == "sqlite")


def test_a_database_that_lost_the_view_is_not_used(empty_url: str) -> None:
    upgraded(empty_url)
    execute(empty_url, "DROP VIEW penstock_job_view")
    with pytest.raises(SchemaMismatch, match="lacks view penstock_job_view"):
        Penstock(empty_url)


def test_an_upgrade_waits_for_a_transaction_that_ends(empty_url: str) -> None:
    """A fleet may be at work: the upgrade tries again until it gets its tables."""
    create_edition(empty_url, "1")
    add_rows(empty_url)
    holder = sa.create_engine(Database(empty_url).url)
    with holder.connect() as conn, conn.begin():
        conn.execute(sa.text("UPDATE penstock_jobs SET progress = NULL"))
        done: list[object] = []
        thread = threading.Thread(target=lambda: done.append(upgraded(empty_url)))
        thread.start()
        thread.join(0.5)
        assert not done
    thread.join(60)
    holder.dispose()
    assert done == [("0001", schema.HEAD)]
    works(empty_url)


def test_an_upgrade_does_not_block_the_fleet_behind_a_long_transaction(
    postgres: object, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """While somebody holds a table, everyone would queue behind a migration that waits for it: it gives way, and says so."""
    server = request.getfixturevalue("postgres")
    url = server.url(server.create_database())
    create_edition(url, "1")
    monkeypatch.setattr(schema, "LOCK_SECONDS", 0.1)
    monkeypatch.setattr(schema, "PATIENCE_SECONDS", 0.3)
    with psycopg.connect(url) as conn:
        conn.execute("UPDATE penstock_tenants SET name = name; LOCK TABLE penstock_jobs IN ROW EXCLUSIVE MODE")
        with pytest.raises(DatabaseLocked, match=r"in use.*Nothing was changed.*try again"):
            upgraded(url)
    assert backend_of(url) == "postgresql"
    assert upgraded(url) == ("0001", schema.HEAD)
