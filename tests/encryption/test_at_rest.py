"""With keys, nothing of what jobs are given, say or return is in the database in clear; and everything else is as without."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from penstock import Failed, KeyMissing, KeyRing, ManualClock, Penstock, Succeeded
from penstock.core.cipher import is_sealed
from penstock.core.errors import CiphertextInvalid, InvalidInput
from penstock.core.outcomes import Evidence
from penstock.store import claims, idempotency, webhooks
from penstock.store.copy import copy_database
from penstock.store.database import Database
from penstock.store.schema import upgrade
from penstock.store.tables import jobs, runs
from tests.conformance.helpers import claim_one
from tests.encryption.support import K1, K2, dump, stored

SECRET = "xyzzy-Plugh"


def live(app: Penstock) -> Any:
    """Have the secret go wherever a value can go. Returns the id of a job with all of it."""
    app.define("keyed", default_params={"token": f"{SECRET}-default"}, max_attempts=3)
    job = app.enqueue("keyed", {"password": f"{SECRET}-params"})
    app.enqueue_many("work", [{"n": f"{SECRET}-many"}] * 3)
    app.groups.create([("work", {"n": f"{SECRET}-group"})] * 2)
    held = claim_one(app)
    assert held.params == {"token": f"{SECRET}-default", "password": f"{SECRET}-params"}
    said = Evidence(stdout_tail=f"{SECRET}-out", stderr_tail=f"{SECRET}-err")
    with app.db.write() as tx:
        assert claims.report_progress(tx, held.job_id, held.run_id, {"message": f"{SECRET}-progress"})
        assert claims.report_tails(tx, held.job_id, held.run_id, f"{SECRET}-early", None)
    app.queue.finish(held, Failed(f"{SECRET}-error", delay=0, evidence=said))
    app.jobs.update(job.id, params={"password": f"{SECRET}-changed"})  # its first run keeps what it ran with
    by_id = {each.job_id: each for each in app.queue.claim("host:1", 10)}
    with app.db.write() as tx:
        assert claims.report_progress(tx, job.id, by_id[job.id].run_id, {"message": f"{SECRET}-progress"})
    reports: list[Any] = [(each, Succeeded({"answer": f"{SECRET}-result"})) for each in by_id.values()]
    assert app.queue.finish_many(reports) == set()
    app.triggers.schedule("nightly", "0 2 * * *", "work", params={"n": f"{SECRET}-template"})
    app.emit("image.uploaded", {"id": f"{SECRET}-event"})
    hook = app.webhooks.create("https://example.org/hook")
    app.webhooks.rotate_secret(hook.webhook.id)
    with app.db.write() as tx:
        tenant_id = app.ground.tenant_id("default")
        assert idempotency.take(tx, tenant_id, "k", "hash") is None
        idempotency.remember(tx, tenant_id, "k", 200, {"payload": f"{SECRET}-response"})
    return job.id, hook.secret.removeprefix("whsec_")


def check_views(app: Penstock, job_id: Any, signing: str) -> None:
    job = app.jobs.get(job_id)
    assert job.params == {"token": f"{SECRET}-default", "password": f"{SECRET}-changed"}
    assert job.result == {"answer": f"{SECRET}-result"}
    assert job.progress == {"message": f"{SECRET}-progress"}
    first, second = app.jobs.runs(job_id)
    assert first.params["password"] == f"{SECRET}-params"
    assert second.params["password"] == f"{SECRET}-changed"
    assert (first.error, first.stdout_tail, first.stderr_tail) == (f"{SECRET}-error", f"{SECRET}-out", f"{SECRET}-err")
    assert {str(each.params) for each in app.jobs.list(key="work")} == {
        str({"n": f"{SECRET}-{n}"}) for n in ("many", "group")
    }
    assert app.definitions.get("keyed").default_params == {"token": f"{SECRET}-default"}
    assert app.triggers.list()[0].payload_template == {"n": f"{SECRET}-template"}
    assert app.events.list()[0].context == {"id": f"{SECRET}-event"}
    tenant_id = app.ground.tenant_id("default")
    with app.db.write() as tx:
        endpoint = webhooks.endpoint(tx, tenant_id, app.webhooks.list()[0].id)
        assert endpoint is not None
        assert len(endpoint.secrets) == 2
        assert endpoint.secrets[1] == f"whsec_{signing}"
        remembered = idempotency.take(tx, tenant_id, "k", "hash")
        assert remembered is not None
        assert remembered.body == {"payload": f"{SECRET}-response"}


def test_nothing_is_in_clear_and_everything_is_shown(app: Penstock, url: str) -> None:
    job_id, signing = live(app)
    found = dump(url)
    assert SECRET.encode() not in found
    assert signing.encode() not in found
    check_views(app, job_id, signing)
    report = app.keys.list()
    assert not report.in_clear
    assert [(key.id, key.role) for key in report.keys] == [("k1", "writes")]
    assert not [warning for warning in app.doctor().warnings if "clear" in warning.check]


def test_a_job_in_the_callers_own_transaction(app: Penstock, url: str) -> None:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as conn:
            job = app.enqueue("work", {"n": SECRET}, connection=conn)
    else:
        with psycopg.connect(url.replace("+psycopg", "")) as conn:
            job = app.enqueue("work", {"n": SECRET}, connection=conn)
    with app.db.engine.begin() as conn:
        app.enqueue_many("work", [{"n": SECRET}], connection=conn)
    assert SECRET.encode() not in dump(url)
    assert app.jobs.get(job.id).params == {"n": SECRET}
    assert [each.params for each in app.queue.claim("host:1", 5)] == [{"n": SECRET}] * 2


def test_a_retry_in_chain_mode_copies_its_params(app: Penstock) -> None:
    app.define("chained", retry_mode="chain", max_attempts=3)
    first = app.enqueue("chained", {"n": SECRET})
    app.queue.finish(claim_one(app), Failed("no", delay=0))
    second = claim_one(app)
    assert second.params == {"n": SECRET}
    assert second.root_id == first.id
    app.queue.finish(second, Succeeded(SECRET))
    assert [each.params for each in app.jobs.chain(first.id)] == [{"n": SECRET}] * 2


def test_long_params_and_large_results(app: Penstock) -> None:
    job = app.enqueue("work", {"n": "x" * 200_000})
    held = claim_one(app)
    assert held.params == {"n": "x" * 200_000}
    app.queue.finish(held, Succeeded(["y" * 200_000]))
    assert app.jobs.get(job.id).result == ["y" * 200_000]


def test_dedupe_and_search_work_on_what_is_not_encrypted(app: Penstock) -> None:
    first = app.enqueue("work", {"n": 1}, dedupe_key="one")
    assert app.enqueue("work", {"n": 2}, dedupe_key="one").id == first.id
    app.queue.finish(claim_one(app), Failed("the disk is full", fatal=True))
    assert [job.id for job in app.jobs.list(search="one")] == [first.id]
    sealed = stored(app, "runs", "error")[0]
    assert app.jobs.list(search=sealed[20:24]) == []  # not in the letters of what is encrypted, either
    assert app.jobs.list(search="disk") == []


def test_a_copy_of_the_database_can_be_read_with_the_same_keys(
    app: Penstock, clock: ManualClock, tmp_path: Any
) -> None:
    job_id, signing = live(app)
    target = f"sqlite:///{tmp_path / 'copy.db'}"
    with_tables = Database(target)
    upgrade(with_tables)
    source = Database(app.db.engine.url.render_as_string(hide_password=False))
    copy_database(source, with_tables)
    source.close()
    with_tables.close()
    with Penstock(target, clock=clock, keys=KeyRing.parse(K1)) as copied:
        check_views(copied, job_id, signing)


def test_a_process_without_the_key_sees_why_and_costs_the_job_nothing(
    app: Penstock, url: str, clock: ManualClock
) -> None:
    job_id, _ = live(app)
    waiting = app.enqueue("work", {"n": SECRET}, max_attempts=1)
    with Penstock(url, clock=clock) as blind:
        shown = blind.jobs.get(job_id)
        assert shown.params == {"$unreadable": "encrypted with key k1, which this process does not have"}
        assert blind.jobs.runs(job_id)[0].error == "(encrypted with key k1, which this process does not have)"
        assert len(blind.jobs.list()) == len(app.jobs.list())
        assert blind.queue.claim("blind:1", 10) == []
        warned = [warning.message for warning in blind.doctor().warnings]
        assert any("encrypted with key k1, which this process does not have" in message for message in warned)
        with pytest.raises(KeyMissing):
            blind.enqueue("keyed", {})
        with pytest.raises(KeyMissing):
            blind.define("keyed", default_params={"token": "in clear"})
        assert blind.jobs.cancel(app.enqueue("work", {"n": 1}, scheduled_for=clock.now() + timedelta(days=1)).id)
    found = app.jobs.get(waiting.id)
    assert found.status == "queued"
    assert "KeyMissing" in (found.last_error or "")
    clock.advance(20)
    held = [each for each in app.queue.claim("host:1", 10) if each.job_id == waiting.id]
    assert [each.params for each in held] == [{"n": SECRET}]
    app.queue.finish(held[0], Succeeded())
    assert app.jobs.get(waiting.id).status == "succeeded"


def test_a_schedule_waits_for_a_scheduler_that_has_the_key(app: Penstock, url: str, clock: ManualClock) -> None:
    app.triggers.schedule("often", "*/5 * * * *", "work", params={"n": SECRET})
    app.triggers.schedule("plain", "*/5 * * * *", "work")
    clock.advance(301)
    with Penstock(url, clock=clock) as blind:
        blind.scheduler().step()
    assert [job.params for job in app.jobs.list()] == [{}]
    clock.advance(60)  # until the other is no longer the leader
    app.scheduler().step()
    assert sorted(str(job.params) for job in app.jobs.list()) == ["{'n': 'xyzzy-Plugh'}", "{}"]


def test_what_was_tampered_with_or_moved_is_a_dead_letter(app: Penstock) -> None:
    one, two = app.enqueue("work", {"n": 1}), app.enqueue("work", {"n": 2})
    with app.db.write() as tx:
        other = tx.scalar(sa.select(jobs.c.params).where(jobs.c.id == two.id))
        tx.run(sa.update(jobs).where(jobs.c.id == one.id).values(params=other))
    assert [each.job_id for each in app.queue.claim("host:1", 5)] == [two.id]
    found = app.jobs.get(one.id)
    assert found.status == "dead_letter"
    assert "CiphertextInvalid" in (found.last_error or "")
    app.queue.finish_many([])


def test_a_job_that_is_moved_to_another_tenant_shows_nothing_there(app: Penstock) -> None:
    app.tenants.create("other")
    job = app.enqueue("work", {"n": SECRET})
    app.queue.finish(claim_one(app), Succeeded(SECRET, Evidence(stdout_tail=SECRET)))
    other = app.ground.tenant_id("other")
    with app.db.write() as tx:
        tx.run(sa.update(jobs).values(tenant_id=other))
        tx.run(sa.update(runs).values(tenant_id=other))
    moved = app.as_tenant("other")
    assert SECRET not in repr(moved.jobs.get(job.id))
    assert SECRET not in repr(moved.jobs.runs(job.id))


def test_params_that_look_encrypted_are_refused_without_keys(url: str, clock: ManualClock) -> None:
    with Penstock(url, clock=clock) as plain:
        plain.define("work")
        with pytest.raises(InvalidInput, match="kept for encrypted values"):
            plain.enqueue("work", {"$enc": "v1:k1:AAAA"})
        with pytest.raises(InvalidInput):
            plain.enqueue_many("work", [{"$enc": "v1:k1:AAAA"}])
        assert plain.enqueue("work", {"$enc": "x", "more": 1}).params == {"$enc": "x", "more": 1}
        assert plain.doctor().notes == ("Encryption at rest is off: no keys are configured.",)


def test_a_webhooks_secret_that_cannot_be_read_raises(app: Penstock, url: str, clock: ManualClock) -> None:
    made = app.webhooks.create("https://example.org/hook")
    tenant_id = app.ground.tenant_id("default")
    other = Penstock(url, clock=clock, keys=KeyRing.parse(K2))
    with other, other.db.read() as tx, pytest.raises(KeyMissing):
        webhooks.endpoint(tx, tenant_id, made.webhook.id)
    with app.db.write() as tx:
        other_letter = "CASE substr(secret, 41, 1) WHEN 'A' THEN 'B' ELSE 'A' END"
        tx.run(
            sa.text(
                f"UPDATE penstock_webhooks SET secret = substr(secret, 1, 40) || {other_letter} || substr(secret, 42)"
            )
        )
    with app.db.read() as tx, pytest.raises(CiphertextInvalid):
        webhooks.endpoint(tx, tenant_id, made.webhook.id)


def test_rows_in_clear_and_encrypted_ones_live_side_by_side(url: str, clock: ManualClock) -> None:
    with Penstock(url, clock=clock) as plain:
        plain.define("work")
        old = plain.enqueue("work", {"n": "old"})
    with Penstock(url, clock=clock, keys=KeyRing.parse(K1)) as app:
        new = app.enqueue("work", {"n": "new"})
        assert [is_sealed(each) for each in stored(app, "jobs", "params")].count(True) == 1
        assert [each.params["n"] for each in app.queue.claim("host:1", 5)] == ["old", "new"]
        assert [job.id for job in app.jobs.list()] == [new.id, old.id]
        [warning] = [each for each in app.doctor().warnings if each.check == "stored in clear"]
        assert "jobs.params 1" in warning.message
