"""Asking for work, on both databases."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import MappingProxyType
from uuid import uuid4

import pytest

from penstock import Conflict, InvalidInput, ManualClock, Penstock
from penstock.core.status import JobStatus, WaitsFor
from tests.conformance.helpers import claim, claim_one, claimed_numbers, numbered


def test_what_enqueue_returns_is_what_is_stored(app: Penstock, clock: ManualClock) -> None:
    due = clock.now() + timedelta(hours=1)
    app.queues.create("fast")
    made = app.enqueue(
        "work", {"n": 1, "text": "é \U0001f600"}, priority=7, scheduled_for=due, dedupe_key="k", correlation_id="c",
        source="system", source_ref="ref", created_by="me", max_attempts=9, queue="fast",
    )  # fmt: skip
    stored = app.jobs.get(made.id)
    assert stored == made
    assert (stored.status, stored.waits_for, stored.claimable) == (JobStatus.QUEUED, WaitsFor.TIME, False)
    assert stored.params == {"n": 1, "text": "é \U0001f600"}
    assert (stored.priority, stored.queue, stored.max_attempts) == (7, "fast", 9)
    assert (stored.dedupe_key, stored.correlation_id, stored.created_by) == ("k", "c", "me")
    assert (stored.source, stored.source_ref, stored.scheduled_for) == ("system", "ref", due)
    assert (stored.created_at, stored.queued_at) == (clock.now(), clock.now())
    assert (stored.root_id, stored.retry_of, stored.attempt_no) == (stored.id, None, 0)


def test_defaults_come_from_the_definition(app: Penstock) -> None:
    app.define("sized", priority=3, queue="slow", max_attempts=5, retry_mode="chain", default_params={"a": 1, "b": 2})
    job = app.enqueue("sized", {"b": 3})
    assert (job.priority, job.queue, job.max_attempts, job.retry_mode) == (3, "slow", 5, "chain")
    assert job.params == {"a": 1, "b": 3} == app.jobs.get(job.id).params


def test_an_aware_time_of_any_zone_is_the_same_moment(app: Penstock, clock: ManualClock) -> None:
    from zoneinfo import ZoneInfo

    due = clock.now() + timedelta(hours=2)
    job = app.enqueue("work", scheduled_for=due.astimezone(ZoneInfo("Asia/Kathmandu")))
    assert app.jobs.get(job.id).scheduled_for == due


def test_delay_is_counted_from_now(app: Penstock, clock: ManualClock) -> None:
    job = app.enqueue("work", delay=90.5)
    assert job.scheduled_for == clock.now() + timedelta(seconds=90.5)
    assert claim(app) == []
    clock.advance(90.5)
    assert claim_one(app).job_id == job.id


def test_what_is_due_in_the_past_is_claimable_at_once(app: Penstock, clock: ManualClock) -> None:
    job = app.enqueue("work", scheduled_for=clock.now() - timedelta(days=1))
    assert job.claimable
    assert claim_one(app).job_id == job.id


def test_many_are_written_in_order(app: Penstock) -> None:
    ids = app.enqueue_many("work", ({"n": n} for n in range(250)))
    assert len(set(ids)) == 250
    assert claimed_numbers(app, 1000) == list(range(250))


def test_many_of_nothing_is_nothing(app: Penstock) -> None:
    assert app.enqueue_many("work", []) == []


def test_many_are_all_or_none(app: Penstock) -> None:
    app.define("strict", arg_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    with pytest.raises(Exception, match=r"\$\.n"):
        app.enqueue_many("strict", [{"n": 1}, {"n": "two"}])
    assert app.jobs.list() == []


def test_many_take_no_dedupe_key(app: Penstock) -> None:
    for number in (1, 2):
        with pytest.raises(Conflict, match="dedupe_key"):
            app.enqueue_many("work", [{}] * number, dedupe_key="k")
    assert app.jobs.list() == []


def test_more_than_one_bulk_statement(app: Penstock) -> None:
    ids = app.enqueue_many("work", [{}] * 5_001)
    assert app.jobs.summary().counts[JobStatus.QUEUED] == len(ids) == 5_001


def test_an_ad_hoc_job_needs_no_definition(app: Penstock) -> None:
    job = app.enqueue("anything", {"n": 1}, adhoc=True)
    stored = app.jobs.get(job.id)
    assert (stored.definition_id, stored.definition_key, stored.params) == (None, "anything", {"n": 1})
    assert claim_one(app).key == "anything"


@pytest.mark.parametrize("adhoc", [False, True])
def test_params_may_be_any_mapping(app: Penstock, adhoc: bool) -> None:
    job = app.enqueue("work", MappingProxyType({"deep": MappingProxyType({"n": [1, (2, 3)]})}), adhoc=adhoc)
    assert app.jobs.get(job.id).params == {"deep": {"n": [1, [2, 3]]}}


def test_params_come_back_as_they_were(app: Penstock) -> None:
    params = {
        "int": 2**63 - 1, "negative": -(2**63) + 1, "float": 0.1, "tiny": 5e-324, "none": None, "bool": True,
        "nested": {"list": [1, "two", None, {"x": []}]}, "text": "naïve \n\t\"quoted\" \u2028 😀", "": "empty key",
    }  # fmt: skip
    job = app.enqueue("work", params)
    assert app.jobs.get(job.id).params == params
    assert claim_one(app).params == params


class TestDedupe:
    def test_a_second_enqueue_answers_with_the_first(self, app: Penstock) -> None:
        first = app.enqueue("work", {"n": 1}, dedupe_key="k")
        assert app.enqueue("work", {"n": 2}, dedupe_key="k") == first
        taken = claim_one(app)
        assert app.enqueue("work", {"n": 3}, dedupe_key="k").id == first.id == taken.job_id
        assert len(app.jobs.list()) == 1

    def test_the_key_is_free_again_when_the_job_has_ended(self, app: Penstock) -> None:
        first = app.enqueue("work", dedupe_key="k")
        app.jobs.cancel(first.id)
        assert app.enqueue("work", dedupe_key="k").id != first.id

    def test_keys_of_two_tenants_do_not_meet(self, app: Penstock) -> None:
        app.tenants.create("acme")
        ours = app.enqueue("work", dedupe_key="k")
        theirs = app.enqueue("work", tenant="acme", dedupe_key="k")
        assert ours.id != theirs.id

    def test_one_key_across_definitions_is_one_key(self, app: Penstock) -> None:
        app.define("other")
        assert app.enqueue("other", dedupe_key="k").id == app.enqueue("work", dedupe_key="k").id


def test_a_job_made_by_a_function_has_its_schema(app: Penstock) -> None:
    @app.job(key="resize", max_attempts=4, timeout=60)
    def resize(image_id: int, width: int = 800) -> dict[str, int]:
        return {"image_id": image_id, "width": width}

    job = resize.enqueue(image_id=7)
    assert (job.definition_key, job.max_attempts, dict(job.params)) == ("resize", 4, {"image_id": 7})
    assert app.definitions.get("resize").timeout_seconds == 60
    with pytest.raises(Exception, match="image_id"):
        resize.enqueue(image_id="seven")
    assert resize.using(priority=1)(image_id=8).priority == 1
    assert resize(9) == {"image_id": 9, "width": 800}
    assert len(app.jobs.list()) == 2


def test_a_changed_definition_is_seen_by_another_process(app: Penstock, url: str, clock: ManualClock) -> None:
    """What an app remembers of a definition may be old, but a job is never written by it."""
    numbered(app, [1])
    with Penstock(url, clock=clock) as other:
        other.define("work", default_params={"added": True}, max_attempts=8)
    (job,) = numbered(app, [2])
    assert (job.params, job.max_attempts) == ({"added": True, "n": 2}, 8)
    with Penstock(url, clock=clock) as other:
        other.define("work", default_params={"added": "again"})
    (id,) = app.enqueue_many("work", [{"n": 3}])
    assert app.jobs.get(id).params == {"added": "again", "n": 3}


def test_an_unknown_id_is_not_found_anywhere(app: Penstock) -> None:
    from penstock import NotFound

    for verb in (app.jobs.get, app.jobs.runs, app.jobs.chain, app.jobs.why, app.jobs.cancel, app.jobs.retry):
        with pytest.raises(NotFound):
            verb(uuid4())


def test_a_queue_that_does_not_exist_is_refused(app: Penstock) -> None:
    """As over HTTP: jobs in a queue whose name was mistyped would wait forever."""
    verbs: list[Callable[[], object]] = [
        lambda: app.enqueue("work", queue="side"),
        lambda: app.enqueue("free", queue="side", adhoc=True),
        lambda: app.enqueue_many("work", [{}], queue="side"),
        lambda: app.groups.create([("work", {})], queue="side"),
    ]
    for verb in verbs:
        with pytest.raises(InvalidInput, match="There is no queue 'side'"):
            verb()
    assert app.queues.list() == {"default": False}
    app.queues.create("side")
    for verb in verbs:
        verb()
    assert {job.queue for job in app.jobs.list()} == {"side"}


def test_a_queue_exists_once_a_definition_or_a_worker_names_it(app: Penstock) -> None:
    app.define("work", queue="named")
    app.worker(queues=["served"])
    for queue in ("named", "served"):
        assert app.enqueue("work", queue=queue).queue == queue
