"""Definitions, tenants and queues: merged, checked, archived."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from penstock import (
    Conflict,
    DefinitionArchived,
    InvalidInput,
    InvalidPayload,
    ManualClock,
    NotFound,
    Penstock,
    Succeeded,
    UnknownDefinition,
    UnknownTenant,
)  # fmt: skip
from penstock.core.ids import new_id
from penstock.store.tables import triggers
from tests.conformance.helpers import claim_one, claimed_numbers, everything, execute, fetch, nothing_written, numbered


def test_what_is_not_given_has_its_default(app: Penstock) -> None:
    made = app.define("sync")
    assert (made.runner, made.queue, made.timeout_seconds, made.max_attempts) == ("python", "default", 3600, 3)
    assert (made.retry_mode, made.priority, made.max_running, made.version) == ("requeue", 100, None, 1)
    assert (made.is_active, made.paused, made.tenant_id) == (True, False, None)
    assert made == app.definitions.get("sync")


def test_what_is_not_given_again_keeps_its_value(app: Penstock, clock: ManualClock) -> None:
    first = app.define("sync", priority=7, queue="slow", description="Sync it", max_attempts=9)
    clock.advance(1)
    second = app.define("sync", priority=8)
    assert (second.id, second.priority, second.queue, second.max_attempts) == (first.id, 8, "slow", 9)
    assert (second.version, second.updated_at) == (2, clock.now())
    before = everything(app)
    assert app.define("sync", priority=8, queue="slow") == second
    assert everything(app) == before


def test_a_tenants_own_definition_goes_before_the_common_one(app: Penstock) -> None:
    app.tenants.create("acme")
    acme = app.as_tenant("acme")
    acme.define("work", priority=3)
    assert (acme.enqueue("work").priority, app.enqueue("work").priority) == (3, 100)
    assert acme.definitions.get("work").tenant_id is not None
    acme.define("secret")
    with pytest.raises(UnknownDefinition):
        app.enqueue("secret")
    with pytest.raises(UnknownDefinition):
        app.definitions.get("secret")
    assert "secret" not in [each.key for each in app.definitions.list()]


def plant_trigger(app: Penstock, label: str, key: str = "work") -> None:
    now = app.db.moment()
    execute(
        app,
        sa.insert(triggers).values(
            id=new_id(), tenant_id=app.ground.tenant_id("default"), label=label, is_enabled=True, cron_expr="0 2 * * *",
            trigger_type="schedule", timezone="UTC", definition_id=app.definitions.get(key).id, definition_key=key,
            payload_template={}, created_at=now, updated_at=now,
        ),
    )  # fmt: skip


def test_archiving_disables_the_schedules_and_says_which(app: Penstock) -> None:
    app.define("other")
    for label, key in (("nightly", "work"), ("hourly", "work"), ("theirs", "other")):
        plant_trigger(app, label, key)
    (job,) = numbered(app, [1])
    done = app.archive("work")
    assert (done.definition.is_active, done.disabled_triggers) == (False, ("hourly", "nightly"))
    rows = fetch(app, sa.select(triggers.c.label, triggers.c.is_enabled, triggers.c.disabled_reason))
    state = {row.label: (row.is_enabled, bool(row.disabled_reason)) for row in rows}
    assert state == {"nightly": (False, True), "hourly": (False, True), "theirs": (True, False)}
    assert app.archive("work").disabled_triggers == ()
    with nothing_written(app), pytest.raises(DefinitionArchived, match="work"):
        app.enqueue("work")
    app.queue.finish(claim_one(app), Succeeded())
    assert app.jobs.get(job.id).status == "succeeded"  # jobs already there are unaffected


def test_an_archived_definition_comes_back_when_defined_again(app: Penstock) -> None:
    app.archive("work")
    assert [each.key for each in app.definitions.list()] == []
    assert [each.key for each in app.definitions.list(archived=True)] == ["work"]
    assert app.define("work").is_active
    numbered(app, [1])


def test_another_process_archives_it(app: Penstock, url: str, clock: ManualClock) -> None:
    numbered(app, [1])
    with Penstock(url, clock=clock) as other:
        other.archive("work")
    with nothing_written(app):
        with pytest.raises(DefinitionArchived):
            app.enqueue("work")
        with pytest.raises(DefinitionArchived):
            app.enqueue_many("work", [{}])
        with pytest.raises(DefinitionArchived):
            app.groups.create([("work", {})])


BAD: list[dict[str, Any]] = [
    {"timeout_seconds": 0}, {"timeout_seconds": 1.5}, {"max_attempts": 0}, {"max_attempts": True}, {"queue": ""},
    {"queue": "a\nb"}, {"runner": 5}, {"priority": 2**31}, {"max_running": -1}, {"retry_mode": "never"},
    {"retry_policy": {"base": "soon"}}, {"retry_policy": {"speed": 1}}, {"retry_policy": {"factor": 0.5}},
    {"retry_policy": {"factor": 1e9}}, {"retry_policy": {"jitter": float("nan")}}, {"arg_schema": []},
    {"arg_schema": {"type": "no such type"}}, {"arg_schema": {"$ref": "http://localhost/x"}},
    {"arg_schema": {"$ref": "file:///etc/passwd"}}, {"arg_schema": {"x": "y" * 70_000}},
    {"arg_schema": {"enum": list(range(3_000))}}, {"default_params": []}, {"default_params": {"x": float("inf")}},
    {"default_params": {"x": object()}}, {"colour": "red"}, {"description": "nul \0"}, {"paused": True},
]  # fmt: skip


def test_bad_definitions_write_nothing(app: Penstock) -> None:
    with nothing_written(app):
        for given in BAD:
            with pytest.raises(InvalidInput):
                app.define("fresh", **given)
            with pytest.raises(InvalidInput):
                app.define("work", **given)
        for key in ("", " ", "x" * 300, "a\0b", 5, None):
            with pytest.raises(InvalidInput):
                app.define(key)  # type: ignore[arg-type]
        for verb in (app.archive, app.pause, app.resume, app.definitions.get):
            with pytest.raises(UnknownDefinition, match="work"):  # it names those there are
                verb("unheard-of")


def test_many_define_the_same_at_once(app: Penstock, url: str, clock: ManualClock) -> None:
    """As the workers of a fleet do when they start."""

    def start(number: int) -> str:
        with Penstock(url, clock=clock) as other:
            return str(other.define("fleet", priority=1, queue="fleet").id)

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(start, range(6)))) == 1


def test_schemas_check_formats_and_name_every_fault(app: Penstock) -> None:
    app.define("typed", arg_schema={
        "type": "object", "required": ["id"], "additionalProperties": False,
        "properties": {"id": {"type": "string", "format": "uuid"}, "tags": {"type": "array", "items": {"type": "string"}}},
    })  # fmt: skip
    with nothing_written(app), pytest.raises(InvalidPayload) as refused:
        app.enqueue("typed", {"id": "no uuid", "tags": ["ok", 5]})
    assert {fault.path for fault in refused.value.faults} == {"$.id", "$.tags[1]"}
    with pytest.raises(InvalidPayload, match="id"):
        app.enqueue("typed", {})
    with pytest.raises(InvalidPayload):
        app.enqueue("typed", {"id": str(new_id()), "extra": 1})
    app.enqueue("typed", {"id": str(new_id())})


class TestTenants:
    def test_created_listed_changed(self, app: Penstock, clock: ManualClock) -> None:
        acme = app.tenants.create("acme", name="Acme", timezone="Europe/Paris", weight=2, max_running=5)
        assert (acme.slug, acme.name, acme.timezone, acme.weight, acme.max_running) == (
            "acme", "Acme", "Europe/Paris", 2, 5,
        )  # fmt: skip
        assert [each.slug for each in app.tenants.list()] == ["acme", "default"]
        assert app.tenants.update("acme", weight=3, name="ACME").weight == 3
        assert app.tenants.get("acme").name == "ACME"
        with pytest.raises(Conflict, match="acme"):
            app.tenants.create("acme")

    def test_bad_tenants_write_nothing(self, app: Penstock) -> None:
        with nothing_written(app):
            for given in ({"timezone": "Mars"}, {"weight": 0}, {"weight": 101}, {"max_running": -1}, {"name": " "}):
                with pytest.raises(InvalidInput):
                    app.tenants.create("acme", **given)  # type: ignore[arg-type]
                with pytest.raises(InvalidInput):
                    app.tenants.update("default", **given)
            with pytest.raises(InvalidInput):
                app.tenants.update("default", colour="red")
            for verb in (app.as_tenant, lambda slug: app.enqueue("work", tenant=slug), app.tenants.update):
                with pytest.raises(UnknownTenant, match="nobody"):
                    verb("nobody")
            with pytest.raises(NotFound):
                app.tenants.get("nobody")

    def test_an_inactive_tenant_takes_no_jobs(self, app: Penstock) -> None:
        app.tenants.create("acme")
        app.enqueue("work", {"n": 1}, tenant="acme")
        app.tenants.update("acme", is_active=False)
        with nothing_written(app):
            with pytest.raises(UnknownTenant):
                app.enqueue("work", tenant="acme")
            with pytest.raises(UnknownTenant):
                app.enqueue_many("work", [{}], tenant="acme")
        app.tenants.update("acme", is_active=True)
        app.enqueue("work", {"n": 2}, tenant="acme")
        assert sorted(claimed_numbers(app)) == [1, 2]


def test_a_function_is_registered_by_a_bare_decorator(app: Penstock) -> None:
    @app.job
    def bare_job(n: int = 1) -> int:
        """Count."""
        return n

    job = bare_job.enqueue(n=3)
    assert (job.definition_key, dict(job.params)) == ("bare-job", {"n": 3})
    assert app.definitions.get("bare-job").description == "Count."
