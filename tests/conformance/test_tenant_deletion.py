"""A tenant is deleted: nothing of it is left in any table, nothing of others is touched, and a certificate says so."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import select, text

from penstock import Busy, Conflict, InvalidInput, LeaseLost, ManualClock, NotFound, Penstock, Succeeded
from penstock.core.errors import UnknownTenant
from penstock.core.tenancy import Certificate
from penstock.queue import erase as deleting
from penstock.queue.recover import keep_house
from penstock.store import audit_chain, erase, failpoints
from penstock.store.tables import metadata
from tests.support.tenant import counts, fill, ids_of, left_of, rows

UNNAMED = erase.OF_NOBODY | {"penstock_erasures"}


def test_every_table_is_erased_or_known_to_have_no_tenants(app: Penstock) -> None:
    """A table that is added later must have a tenant_id, or be named in store/erase.py."""
    covered = {table.name for table in erase.tables()} | erase.LAST | erase.WITH_JOBS | erase.OF_NOBODY
    assert covered == set(metadata.tables)
    for table in metadata.sorted_tables:
        if table.name not in erase.OF_NOBODY:
            erase.rows_of(table, app.tenants.get("default").id)


def test_nothing_of_the_tenant_is_left_and_nothing_of_others_is_touched(
    app: Penstock, clock: ManualClock, tmp_path: Path
) -> None:
    fill(app, "bolt", tmp_path)
    logs = set(tmp_path.glob("*.log"))
    tenant_id = fill(app, "acme", tmp_path)
    app.queue.claim("host:1", 100, lease_seconds=1)
    app.enqueue_many("work", [{"of": "acme"}] * 3, tenant="acme")
    clock.advance(2)  # nothing of it may go on
    assert len(set(tmp_path.glob("*.log")) - logs) == 1
    head = app.as_tenant("acme").audit.head()
    for table in metadata.sorted_tables:
        if table.name not in UNNAMED:
            with app.db.read() as tx:
                assert tx.rows(select(table).where(erase.rows_of(table, tenant_id))), f"{table.name} is not tested"
    words = ids_of(app, tenant_id) | {"acme"}
    before = {
        name: [row for row in found if not any(word in row for word in words)] for name, found in rows(app).items()
    }
    certificate = app.tenants.delete("acme", requested_by="ann")
    assert left_of(app, words) == []
    after = rows(app)
    assert len(set(after.pop("penstock_audit")) - set(before.pop("penstock_audit"))) == 1, "the certificate"
    assert set(before.pop("penstock_audit_heads")) < set(after.pop("penstock_audit_heads"))
    assert after == before
    assert set(tmp_path.glob("*.log")) == logs
    assert certificate.slug == "acme" and certificate.requested_by == "ann" and certificate.log_files == 1
    assert (certificate.audit_seq, certificate.erased["jobs"]) >= (head.seq, 10)
    with pytest.raises(UnknownTenant):
        app.as_tenant("acme")
    with pytest.raises(NotFound):
        app.tenants.delete("acme")


def test_the_certificate_is_in_the_operators_audit(app: Penstock) -> None:
    tenant_id = fill(app, "acme")
    kept = app.audit.heads()
    certificate = app.tenants.delete("acme")
    (entry,) = app.audit.list(action="tenant.delete")
    assert entry.tenant_id is None and entry.seq is not None
    assert Certificate.read(entry.after) == certificate == deleting.status(app.ground, tenant_id)
    assert certificate.erased["principals"] == 1 and certificate.erased["sessions"] == 1
    verified = app.audit.verify(list(kept))
    assert verified.clean
    assert [note.kind for note in verified.notes] == ["deleted"]


def test_the_slug_may_be_used_again(app: Penstock) -> None:
    fill(app, "acme")
    bound = app.as_tenant("acme")
    app.tenants.delete("acme")
    again = app.tenants.create("acme")
    assert app.enqueue("work", tenant="acme").tenant_id == again.id
    assert bound.enqueue("work").tenant_id == again.id
    assert len(bound.jobs.list()) == 2


def test_another_process_that_knew_the_tenant_finds_the_new_one(app: Penstock, url: str) -> None:
    fill(app, "acme")
    with Penstock(url, clock=app.db.clock) as other:
        other.enqueue("work", tenant="acme")
        app.tenants.delete("acme")
        with pytest.raises(UnknownTenant):
            other.enqueue("work", tenant="acme")
        again = app.tenants.create("acme")
        assert other.enqueue("work", tenant="acme").tenant_id == again.id
        assert len(other.enqueue_many("work", ({} for _ in range(3)), tenant="acme")) == 3


def test_closed_at_once(app: Penstock) -> None:
    fill(app, "acme")
    deleting.close(app.ground, "acme", "ann")
    assert app.queue.claim("host:1", 100) == []
    with pytest.raises(UnknownTenant):
        app.enqueue("work", tenant="acme")
    with pytest.raises(Conflict):
        app.tenants.update("acme", is_active=True)
    with pytest.raises(Conflict):
        app.tenants.create("acme")
    assert app.doctor().clean
    app.tenants.delete("acme")


def test_the_default_tenant_stays(app: Penstock) -> None:
    with pytest.raises(InvalidInput):
        app.tenants.delete("default")


def test_runs_under_way_are_asked_to_stop_and_have_as_long_as_their_lease(app: Penstock, clock: ManualClock) -> None:
    fill(app, "acme")
    held = app.queue.claim("host:2", 3, lease_seconds=60)
    with pytest.raises(Busy):
        app.tenants.delete("acme", timeout=0)
    assert {claim.run_id for claim in app.queue.heartbeat(held)} == {claim.run_id for claim in held}
    app.queue.finish(held[0], Succeeded())
    with pytest.raises(Busy):
        app.tenants.delete("acme", timeout=0)
    clock.advance(61)
    app.tenants.delete("acme")
    with pytest.raises(LeaseLost):
        app.queue.heartbeat(held[1:])
    with pytest.raises(LeaseLost):
        app.queue.finish(held[1], Succeeded())


def test_housekeeping_goes_on_where_a_process_was_killed(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erase, "PAGE", 2)
    tenant_id = fill(app, "acme")
    whole = counts(app)
    killed = 0
    while True:
        with failpoints.armed("erase.before_commit", "error", skip=killed % 3):
            try:
                app.tenants.delete("acme")
            except failpoints.InjectedError:
                killed += 1
                continue
        break
    assert killed > 3
    certificate = deleting.status(app.ground, tenant_id)
    assert isinstance(certificate, Certificate)
    assert left_of(app, {str(tenant_id), "acme"}) == []
    assert certificate.erased["jobs"] == whole["penstock_jobs"]
    assert certificate.erased["runs"] == whole["penstock_runs"]


def test_keep_house_finishes_a_deletion(app: Penstock) -> None:
    tenant_id = fill(app, "acme")
    deleting.close(app.ground, "acme", "ann")
    for _ in range(3):
        keep_house(app.ground)
    assert isinstance(deleting.status(app.ground, tenant_id), Certificate)


def test_an_open_transaction_of_a_caller_is_waited_for(app: Penstock, url: str) -> None:
    """On PostgreSQL a caller may have enqueued for the tenant and commit much later. That job must not outlive the tenant."""
    if not url.startswith("postgresql"):
        return
    fill(app, "acme")
    for isolation in (psycopg.IsolationLevel.READ_COMMITTED, psycopg.IsolationLevel.REPEATABLE_READ):
        with psycopg.connect(url) as conn:
            conn.isolation_level = isolation
            app.enqueue("work", tenant="acme", connection=conn)
            with pytest.raises(Busy):
                app.tenants.delete("acme", timeout=0)
            with pytest.raises(Busy):
                app.tenants.delete("acme", timeout=0)
            conn.commit()
        certificate = app.tenants.delete("acme")
        assert left_of(app, {str(certificate.tenant_id), "acme"}) == []
        app.tenants.create("acme")
    with psycopg.connect(url) as conn:
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("SELECT count(*) FROM penstock_tenants")  # its snapshot is from before the closing
        for _ in range(3):
            with pytest.raises(Busy):
                app.tenants.delete("acme", timeout=0)
        app.enqueue("work", tenant="acme", connection=conn)
        conn.commit()
    certificate = app.tenants.delete("acme")
    assert left_of(app, {str(certificate.tenant_id), "acme"}) == []


def test_two_processes_delete_one_tenant(app: Penstock) -> None:
    fill(app, "acme")
    fill(app, "bolt")
    done: list[Any] = []

    def work() -> None:
        try:
            done.append(app.tenants.delete("acme"))
        except NotFound as error:
            done.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    certificates = {each for each in map(str, done) if each.startswith("Certificate")}
    assert len(done) == 3 and len(certificates) == 1
    assert len(app.audit.list(action="tenant.delete")) == 1
    assert app.as_tenant("bolt").jobs.list()


def test_the_chain_of_a_tenant_that_is_being_deleted_is_not_verified(app: Penstock) -> None:
    fill(app, "acme")
    deleting.close(app.ground, "acme", "ann")
    with app.db.write() as tx:
        tx.run(text("DELETE FROM penstock_audit WHERE seq = 1 AND tenant_id IS NOT NULL"))
    with app.db.read() as tx:
        assert audit_chain.verify(tx).clean
    app.tenants.delete("acme")
