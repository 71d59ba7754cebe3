"""No request holds a transaction, and on SQLite the write lock, while Python computes something long."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from penstock import InvalidInput, Penstock
from penstock.core import payload
from penstock.core.clock import ManualClock
from penstock.core.redact import Redactor
from penstock.store import failpoints
from tests.server.support import World
from tests.server.table import ROUTES, STREAMS

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
LARGE = {"n": 1, "words": [f"word {i}" for i in range(2000)]}


class Watch:
    """Notes each long computation, and whether this thread had a transaction of the engine open then."""

    def __init__(self) -> None:
        self.open: Counter[int] = Counter()
        self.computed: list[tuple[str, bool]] = []

    def began(self, _conn: Any) -> None:
        self.open[threading.get_ident()] += 1

    def ended(self, _conn: Any) -> None:
        self.open[threading.get_ident()] -= 1

    def note(self, what: str) -> None:
        self.computed.append((what, self.open[threading.get_ident()] > 0))

    def take(self) -> set[str]:
        """What was computed since it was last asked, all of it outside."""
        computed, self.computed = self.computed, []
        inside = [what for what, within in computed if within]
        assert not inside, f"computed while a transaction was open: {inside}"
        return {what for what, _ in computed}


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch()
    payload._compiled.clear()
    size_of, compile_, redact = payload.size_of, payload._compile, Redactor._redact_json
    monkeypatch.setattr(payload, "size_of", lambda value: (made.note("validate"), size_of(value))[1])
    monkeypatch.setattr(payload, "_compile", lambda text: (made.note("compile"), compile_(text))[1])

    def redacted(self: Redactor, value: Any) -> Any:
        if isinstance(value, dict) and len(value.get("words") or ()) == len(LARGE["words"]):  # type: ignore[arg-type]
            made.note("redact")
        return redact(self, value)

    monkeypatch.setattr(Redactor, "_redact_json", redacted)
    return made


@contextmanager
def watching(watch: Watch, engine: sa.Engine) -> Iterator[None]:
    told = {"begin": watch.began, "commit": watch.ended, "rollback": watch.ended}
    for name, heard in told.items():
        sa.event.listen(engine, name, heard)
    try:
        yield
    finally:
        for name, heard in told.items():
            sa.event.remove(engine, name, heard)


def test_no_door_of_the_service_computes_in_a_transaction(world: World, watch: Watch) -> None:
    admin, operator = world.client("tenant_admin"), world.client("operator")
    root = world.client(X_Tenant="acme")
    make = {"key": "sized", "runner": "command", "arg_schema": SCHEMA}

    def ask(method: str, path: str, body: Any, status: int, client: Any = operator, key: str | None = None) -> Any:
        headers = {} if key is None else {"idempotency-key": key}
        answer = client.request(method, f"/api/v1{path}", json=body, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    with watching(watch, world.penstock.db.engine):
        made = ask("POST", "/admin/jobs/definitions", make, 201, root)
        assert "compile" in watch.take()
        changed = {"arg_schema": {**SCHEMA, "title": "t"}}
        ask("PATCH", f"/admin/jobs/definitions/{made['id']}", changed, 200, root)
        assert "compile" in watch.take()
        ask(
            "POST",
            "/admin/jobs/definitions/apply",
            {"definitions": [{**make, "key": f"a{i}", "arg_schema": {**SCHEMA, "title": f"a{i}"}} for i in range(12)]},
            200,
            root,
        )
        assert "compile" in watch.take()

        job = ask("POST", "/jobs", {"definition_key": "sized", "payload": LARGE}, 201)
        assert {"validate", "redact"} <= watch.take()
        keyed = {"definition_key": "sized", "payload": {"n": 2}}
        first = ask("POST", "/jobs", keyed, 201, key="k1")
        assert ask("POST", "/jobs", keyed, 201, key="k1") == first
        ask("POST", "/jobs", {"definition_key": "sized", "payload": {}}, 422)
        ask("POST", "/jobs", {"definition_key": "sized", "payload": {}}, 422, key="k2")
        assert "validate" in watch.take()
        ask("PATCH", f"/jobs/{job['id']}", {"payload": {**LARGE, "n": 3}}, 200)
        assert {"validate", "redact"} <= watch.take()
        ask("PATCH", f"/jobs/{job['id']}", {"payload": {"n": "three"}}, 422)
        assert "validate" in watch.take()
        for verb in ("move", "cancel", "retry"):
            ask("POST", f"/jobs/{job['id']}/{verb}", {"to": "top"} if verb == "move" else None, 200)
            assert watch.take() == {"redact"}
        members = [{"definition_key": "sized", "payload": {**LARGE, "n": i}} for i in range(12)]
        ask("POST", "/groups", {"jobs": members}, 201)
        assert {"validate", "redact"} <= watch.take()

        template = {"n": 1, "at": "{{tick.at}}", "who": "{{trigger.id}}"}
        nightly = {"label": "nightly", "trigger_type": "schedule", "cron_expr": "0 2 * * *", "definition_key": "sized"}
        trigger = ask("POST", "/jobs/triggers", {**nightly, "payload_template": template}, 201, admin)
        assert "validate" in watch.take()
        ask("PATCH", f"/jobs/triggers/{trigger['id']}", {"payload_template": {**template, "n": 2}}, 200, admin)
        assert "validate" in watch.take()
        ask("POST", f"/jobs/triggers/{trigger['id']}/fire", {"payload": {"n": 5}}, 201)
        assert "validate" in watch.take()
        for number in range(12):
            answering = {
                "label": f"on {number}",
                "trigger_type": "event",
                "event_name": "a.b",
                "definition_key": "sized",
            }
            template = {"n": "{{event.n}}", "id": "{{emitted.id}}", "at": "{{emitted.at}}"}
            ask("POST", "/jobs/triggers", {**answering, "payload_template": template}, 201, admin)
        watch.take()
        event = ask("POST", "/events", {"name": "a.b", "context": {"n": 1}}, 201)
        assert "validate" in watch.take()
        assert [each["outcome"] for each in event["outcomes"]] == ["fired"] * 12
        event = ask("POST", "/events", {"name": "a.b", "context": {"n": "one"}}, 201)
        assert [each["outcome"] for each in event["outcomes"]] == ["error"] * 12

        for (method, path), route in ROUTES.items():
            if method in ("POST", "PATCH") and (method, path) not in STREAMS:
                filled = path
                for name, value in {**route.names, "job_id": job["id"], "trigger_id": trigger["id"]}.items():
                    filled = filled.replace("{" + name + "}", value)
                if "{" not in filled:
                    root.request(method, filled, json=route.body)
        watch.take()


def test_no_verb_of_the_program_computes_in_a_transaction(url: str, watch: Watch, clock: ManualClock) -> None:
    with Penstock(url, clock=clock) as app, watching(watch, app.db.engine):
        app.define("sized", arg_schema=SCHEMA, default_params={"defaults": LARGE["words"]})
        assert "compile" in watch.take()
        app.ground.forget_definitions()
        job = app.enqueue("sized", {"n": 1}, dedupe_key="d")
        assert "validate" in watch.take()
        with pytest.raises(InvalidInput):
            app.enqueue("sized", {"n": "one"})
        app.enqueue_many("sized", [{"n": i} for i in range(10)])
        app.groups.create([("sized", {"n": i}) for i in range(10)])
        app.jobs.update(job.id, {"n": 2})
        trigger = app.triggers.schedule("nightly", "0 2 * * *", "sized", {"n": 1, "at": "{{tick.at}}"})
        app.triggers.fire(trigger.id, {"n": 3})
        for number in range(12):
            app.triggers.on_event(f"on {number}", "a.b", "sized", {"n": "{{event.n}}", "at": "{{emitted.at}}"})
            app.triggers.schedule(
                f"hourly {number}", "0 * * * *", "sized", {"n": number, "at": "{{tick.at}}"}, catch_up="all"
            )
        assert "validate" in watch.take()
        assert [each["outcome"] for each in app.emit("a.b", {"n": 1}).outcomes] == ["fired"] * 12
        assert "validate" in watch.take()
        clock.advance(13 * 3600)
        assert app.scheduler().step() == 1 + 12 * 13
        assert "validate" in watch.take()


@pytest.mark.parametrize("many", [False, True], ids=["one", "many"])
def test_a_definition_that_changes_midway_is_validated_again_outside(
    url: str, watch: Watch, clock: ManualClock, many: bool
) -> None:
    """Between the check of the params and the statement that writes the job."""
    with Penstock(url, clock=clock) as app, Penstock(url, clock=clock) as other:
        app.define("sized", arg_schema=SCHEMA)
        app.enqueue("sized", {"n": 1}, dedupe_key="warm")
        with watching(watch, app.db.engine), failpoints.armed("enqueue.before", lambda: _redefine(other)):
            ask: Callable[[], Any] = (
                (lambda: app.enqueue_many("sized", [{"n": 2}, {"n": 3}]))
                if many
                else (lambda: app.enqueue("sized", {"n": 2}))
            )
            if (
                app.db.name == "sqlite"
            ):  # the other one waits for the write lock; the definition is changed before instead
                failpoints.disarm()
                _redefine(other)
            found = ask()
        written = [app.jobs.get(each) for each in (found if many else [found.id])]
        assert {job.priority for job in written} == {7}
        assert "validate" in watch.take()


def _redefine(app: Penstock) -> None:
    """As another process would: not on this thread, which is in a transaction."""
    another = threading.Thread(target=_redefined, args=(app,))
    another.start()
    another.join()


def _redefined(app: Penstock) -> None:
    app.define("sized", arg_schema={**SCHEMA, "title": "another"}, priority=7)


@pytest.mark.parametrize("backend", ["sqlite"])  # on PostgreSQL joining takes no lock
def test_a_joined_connection_is_not_begun_before_the_params_are_checked(
    url: str, watch: Watch, clock: ManualClock
) -> None:
    """On SQLite joining takes the write lock if the caller has no transaction yet."""
    engine = sa.create_engine(url)
    with Penstock(url, clock=clock) as app, engine.connect() as caller:
        app.define("sized", arg_schema=SCHEMA)
        statements: list[str] = []
        sa.event.listen(
            engine, "before_cursor_execute", lambda *given: (statements.append(given[2]), watch.began(None))
        )
        calls: list[Callable[[dict[str, Any]], Any]] = [
            lambda params: app.enqueue("sized", params, connection=caller),
            lambda params: app.enqueue_many("sized", [params], connection=caller),
            lambda params: app.groups.create([("sized", params)], connection=caller),
        ]
        for call in calls:
            app.ground.forget_definitions()
            for params in ({"n": 1}, {"n": "one"}):
                watch.open.clear()
                try:
                    call(params)
                except InvalidInput:
                    pass
                caller.rollback()
                assert "validate" in watch.take()
        assert any("BEGIN IMMEDIATE" in each for each in statements)
