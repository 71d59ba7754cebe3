"""Every relationship of seed 003, by its number there."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from penstock import DefinitionArchived, Failed, ManualClock, Penstock, Succeeded
from penstock.store.tables import definitions, groups, jobs, ready, running, triggers
from tests.conformance.helpers import claim, claim_one, execute, fetch, numbered
from tests.conformance.test_definitions import plant_trigger


def test_seed_003_1_one_template_creates_many_jobs(app: Penstock) -> None:
    made = numbered(app, range(3))
    assert {job.definition_id for job in made} == {app.definitions.get("work").id}


def test_seed_003_1_a_job_may_have_no_template(app: Penstock) -> None:
    assert app.enqueue("free", adhoc=True).definition_id is None


def test_seed_003_1_jobs_persist_when_the_template_is_archived(app: Penstock) -> None:
    (job,) = numbered(app, [1])
    app.archive("work")
    with pytest.raises(DefinitionArchived):
        numbered(app, [2])
    app.queue.finish(claim_one(app), Succeeded())
    assert app.jobs.get(job.id).status == "succeeded"


def test_seed_003_2_a_schedule_must_name_a_template(app: Penstock) -> None:
    plant_trigger(app, "nightly")
    with pytest.raises(sa.exc.IntegrityError):
        execute(app, sa.update(triggers).values(definition_id=None))
    with pytest.raises(sa.exc.IntegrityError):
        execute(app, sa.update(triggers).values(definition_id=app.ground.tenant_id("default")))
    with pytest.raises(sa.exc.IntegrityError):
        execute(app, sa.delete(definitions))


def test_seed_003_2_many_schedules_use_one_template(app: Penstock) -> None:
    for label in ("morning-run", "evening-run", "weekend-deep"):
        plant_trigger(app, label)
    assert len(fetch(app, sa.select(triggers.c.definition_id))) == 3
    assert app.archive("work").disabled_triggers == ("evening-run", "morning-run", "weekend-deep")
    assert len(fetch(app, sa.select(triggers.c.id))) == 3  # invalid, not deleted


def test_seed_003_3_a_job_outlives_the_schedule_that_made_it(app: Penstock) -> None:
    plant_trigger(app, "nightly")
    ((trigger_id,),) = fetch(app, sa.select(triggers.c.id))
    job = app.enqueue("work", trigger_id=trigger_id, source="schedule")
    assert (app.jobs.get(job.id).trigger_id, numbered(app, [1])[0].trigger_id) == (trigger_id, None)
    execute(app, sa.delete(triggers))
    assert app.jobs.get(job.id).trigger_id == trigger_id


def test_seed_003_4_in_chain_mode_one_job_one_run(app: Penstock, clock: ManualClock) -> None:
    app.define("work", retry_mode="chain")
    (job,) = numbered(app, [1])
    for outcome in (Failed("1"), Failed("2"), Succeeded()):
        app.queue.finish(claim_one(app), outcome)
        clock.advance(3600)
    chain = app.jobs.chain(job.id)
    assert [each.retry_of for each in chain] == [None, chain[0].id, chain[1].id]
    assert [[run.status for run in app.jobs.runs(each.id)] for each in chain] == [["failed"], ["failed"], ["succeeded"]]


def test_seed_003_4_the_run_is_a_snapshot(app: Penstock, clock: ManualClock) -> None:
    (job,) = numbered(app, [1])
    app.queue.finish(claim_one(app), Failed("no"))
    app.jobs.update(job.id, params={"n": 2})
    (run,) = app.jobs.runs(job.id)
    assert (run.params, run.definition_id) == ({"n": 1}, job.definition_id)


def test_seed_003_4_a_run_needs_its_job(app: Penstock) -> None:
    numbered(app, [1])
    claim_one(app)
    with pytest.raises(sa.exc.IntegrityError):
        execute(app, sa.update(running).values(job_id=None))


def test_seed_003_5_a_group_contains_jobs_and_does_not_own_them(app: Penstock) -> None:
    group = app.groups.create([("work", {}), ("work", {})], mode="parallel")
    ungrouped = numbered(app, [1])[0]
    assert {job.group_id for job in group.jobs} == {group.id}
    assert ungrouped.group_id is None
    execute(app, sa.update(jobs).where(jobs.c.group_id == group.id).values(group_id=None, group_position=None))
    execute(app, sa.update(ready).where(ready.c.group_id == group.id).values(group_id=None))
    execute(app, sa.delete(groups))
    assert len(app.jobs.list()) == 3


def test_seed_003_5_sequential_by_position_parallel_at_once(app: Penstock) -> None:
    app.groups.create([("work", {"n": 1}), ("work", {"n": 2})], mode="sequential")
    app.groups.create([("work", {"n": 3}), ("work", {"n": 4})], mode="parallel")
    assert sorted(taken.params["n"] for taken in claim(app, 9)) == [1, 3, 4]


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        ([], "queued"),
        (["running"], "running"),
        (["succeeded"], "running"),
        (["succeeded", "succeeded"], "completed"),
        (["succeeded", "failed"], "partial"),
        (["failed", "failed"], "partial"),
    ],
)
def test_seed_003_5_the_status_is_derived(app: Penstock, ends: list[str], status: str) -> None:
    group = app.groups.create([("work", {}), ("work", {})], mode="parallel")
    for end in ends:
        taken = claim_one(app)
        if end != "running":
            app.queue.finish(taken, Succeeded() if end == "succeeded" else Failed("no", fatal=True))
    assert app.groups.get(group.id).status == status


def test_seed_003_5_all_canceled_is_canceled(app: Penstock) -> None:
    group = app.groups.create([("work", {}), ("work", {})], mode="parallel")
    for job in group.jobs:
        app.jobs.cancel(job.id)
    assert app.groups.get(group.id).status == "canceled"
