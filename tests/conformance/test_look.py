"""Looking: lists, summaries, why, and the walls between tenants (P10)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Canceled, Failed, ManualClock, NotFound, Penstock, Succeeded
from penstock.core.ids import new_id
from penstock.core.status import JobStatus
from penstock.store import workers
from tests.conformance.helpers import claim, claim_one, nothing_written, numbered


def numbers(found: list[Any]) -> list[int]:
    return [job.params["n"] for job in found]


def test_lists_are_newest_first_and_paged(app: Penstock) -> None:
    numbered(app, range(7))
    assert numbers(app.jobs.list()) == [6, 5, 4, 3, 2, 1, 0]
    assert numbers(app.jobs.list(limit=3)) == [6, 5, 4]
    assert numbers(app.jobs.list(limit=3, offset=3)) == [3, 2, 1]
    page = app.jobs.list(limit=2)
    assert numbers(app.jobs.list(limit=2, before=page[-1].id)) == [4, 3]
    assert app.jobs.list(offset=100) == []


def test_lists_are_narrowed(app: Penstock, clock: ManualClock) -> None:
    app.define("sync-a")
    app.queues.create("side")
    numbered(app, [1], correlation_id="trace-1", source="system")
    start = clock.advance(10)
    numbered(app, [2], key="sync-a", queue="side", dedupe_key="50%_x")
    middle = clock.advance(10)
    group = app.groups.create([("work", {"n": 3})])
    taken = claim(app, 1)
    app.queue.finish(taken[0], Failed("disk FULL", fatal=True))
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"status": "queued"}, [3, 2]),
        ({"status": ["dead_letter", "running"]}, [1]),
        ({"status": []}, []),
        ({"source": "system"}, [1]),
        ({"key": "sync-a"}, [2]),
        ({"key": "sync-*"}, [2]),
        ({"key": "s_nc-*"}, []),
        ({"queue": "side"}, [2]),
        ({"correlation_id": "trace-1"}, [1]),
        ({"group_id": str(group.id)}, [3]),
        ({"root_id": group.jobs[0].id}, [3]),
        ({"created_after": start}, [3, 2]),
        ({"created_before": start}, [1]),
        ({"created_after": start, "created_before": middle}, [2]),
        ({"search": "disk full"}, [1]),
        ({"search": "50%_X"}, [2]),
        ({"search": "%"}, [2]),
        ({"search": "nothing like it"}, []),
        ({"status": "queued", "queue": "side"}, [2]),
    ]
    for narrowed, expected in cases:
        assert numbers(app.jobs.list(**narrowed)) == expected, narrowed


def test_summary(app: Penstock, clock: ManualClock) -> None:
    assert app.jobs.summary().oldest_queued_seconds is None
    numbered(app, range(5))
    app.enqueue("work", {"n": 9}, delay=600)
    first, second = claim(app, 2)
    app.queue.finish(first, Succeeded())
    clock.advance(40)
    found = app.jobs.summary()
    assert (found.queued, found.running, found.counts[JobStatus.SUCCEEDED]) == (4, 1, 1)
    assert found.oldest_queued_seconds == 40
    assert app.jobs.summary(cap=2).queued == 2
    app.queue.finish(second, Succeeded())


def register(app: Penstock, worker: str, queues: list[str], keys: list[str] | None) -> None:
    values = {"hostname": "h", "pid": 1, "queues": queues, "keys": keys, "concurrency": 1, "metadata": {}}
    app.db.transact(lambda tx: workers.register(tx, worker, values))


class TestWhy:
    def reason(self, app: Penstock, id: Any) -> str:
        told = app.jobs.why(id)
        assert str(told) == told.sentence and told.sentence.endswith(".")
        return told.reason

    def test_every_reason_to_wait(self, app: Penstock, clock: ManualClock) -> None:
        (job,) = numbered(app, [1])
        assert self.reason(app, job.id) == "no_worker"
        register(app, "w:1", [], ["other"])
        register(app, "w:2", ["elsewhere"], None)
        assert self.reason(app, job.id) == "no_worker"
        register(app, "w:3", ["default"], ["work"])
        assert self.reason(app, job.id) == "in_line"
        assert app.jobs.why(job.id).facts == {"ahead": 0, "workers": ["w:3"]}
        later = app.enqueue("work", delay=90)
        assert (self.reason(app, later.id), app.jobs.why(later.id).facts["seconds"]) == ("time", 90)
        app.queues.pause("default")
        assert self.reason(app, job.id) == "paused"
        app.queues.resume("default")
        app.pause("work")
        assert self.reason(app, job.id) == "paused"
        app.resume("work")
        with app.reserve():
            assert self.reason(app, job.id) == "reserved"
        clock.advance(3600)
        app.queue.claim("w:3", 0)  # lets through what waited for the resume
        assert self.reason(app, job.id) == "no_worker"  # w:3 was not seen for an hour

    def test_a_groups_turn(self, app: Penstock) -> None:
        group = app.groups.create([("work", {}), ("work", {})])
        told = app.jobs.why(group.jobs[1].id)
        assert (told.reason, told.facts["predecessor"]) == ("group", str(group.jobs[0].id))

    def test_a_limit_and_who_holds_it(self, app: Penstock) -> None:
        app.define("work", max_running=1)
        numbered(app, [1])
        (second,) = numbered(app, [2])
        taken = claim_one(app)
        told = app.jobs.why(second.id)
        assert (told.reason, told.facts["running"]) == ("limit", [str(taken.job_id)])
        assert "at most 1" in told.sentence

    def test_a_tenants_limit(self, app: Penstock) -> None:
        app.tenants.update("default", max_running=1)
        numbered(app, [1])
        (second,) = numbered(app, [2])
        taken = claim_one(app)
        told = app.jobs.why(second.id)
        assert (told.reason, told.facts["running"]) == ("limit", [str(taken.job_id)])

    def test_why_it_ended(self, app: Penstock, clock: ManualClock) -> None:
        app.define("work", retry_mode="chain")
        numbered(app, range(4))
        done, dead, canceled, failed = claim(app, 4)
        assert self.reason(app, done.job_id) == "running"
        app.jobs.cancel(canceled.job_id)
        assert "asked to stop" in app.jobs.why(canceled.job_id).sentence
        app.queue.finish(done, Succeeded())
        app.queue.finish(dead, Failed("broken pipe", fatal=True))
        app.queue.finish(canceled, Canceled("as asked"))
        app.queue.finish(failed, Failed("try again"))
        told = [app.jobs.why(each.job_id) for each in (done, dead, canceled, failed)]
        assert [why.reason for why in told] == ["succeeded", "dead_letter", "canceled", "failed"]
        assert "broken pipe" in told[1].sentence
        assert told[3].facts["retried_by"] == str(app.jobs.chain(failed.job_id)[1].id)


def test_walls_another_tenants_id_is_an_unknown_id(app: Penstock) -> None:
    """P10: the same error, with the same words, whether it is another's or nobody's; and nothing is changed."""
    app.tenants.create("acme")
    acme = app.as_tenant("acme")
    theirs = acme.enqueue("work", {"n": 1})
    group = acme.groups.create([("work", {"n": 2})])
    (ours,) = numbered(app, [3])
    job_verbs: list[Any] = [
        app.jobs.get, app.jobs.runs, app.jobs.chain, app.jobs.why, app.jobs.cancel, app.jobs.retry,
        lambda id: app.jobs.update(id, priority=1), lambda id: app.jobs.move(id, to="top"),
        lambda id: app.jobs.move(ours.id, before=id), lambda id: app.jobs.move(ours.id, after=id),
    ]  # fmt: skip
    with nothing_written(app):
        for verbs, known in ((job_verbs, theirs.id), ([app.groups.get, app.groups.cancel], group.id)):
            for verb in verbs:
                told = []
                for id in (known, new_id()):
                    with pytest.raises(NotFound) as refused:
                        verb(id)
                    told.append(str(refused.value).replace(str(id), "ID"))
                assert told[0] == told[1]
    assert numbers(app.jobs.list()) == [3]
    assert numbers(acme.jobs.list()) == [2, 1]
    assert app.groups.list() == []
    assert app.jobs.list(group_id=group.id) == app.jobs.list(root_id=theirs.id) == app.jobs.list(search="acme") == []
    assert app.jobs.summary().queued == 1
    assert numbers(app.jobs.list(before=theirs.id)) == []


def test_walls_answers_do_not_depend_on_the_neighbour(app: Penstock, clock: ManualClock) -> None:
    """Non-interference: with and without another tenant's traffic, one tenant sees the same."""

    def story(app: Penstock, noise: bool) -> list[Any]:
        slug = "noisy" if noise else "quiet"
        app.tenants.create(slug)
        me = app.as_tenant(slug)
        if noise:
            app.enqueue_many("work", [{"n": n} for n in range(20)])
            app.enqueue("work", {"n": 1}, dedupe_key="k")
        made = [me.enqueue("work", {"n": n}, dedupe_key="k" if n == 1 else None) for n in range(3)]
        me.jobs.cancel(made[0].id)
        me.jobs.move(made[2].id, before=made[1].id)
        return [numbers(me.jobs.list()), me.jobs.summary(), [str(job.status) for job in me.jobs.list()]]

    assert story(app, True) == story(app, False)


def test_the_oldest_waits_since_it_could_run(app: Penstock, clock: ManualClock) -> None:
    """No worker is alive: nothing that is due has been given its place."""

    def oldest(tenant: str = "default") -> float | None:
        return app.as_tenant(tenant).jobs.summary().oldest_queued_seconds

    app.tenants.create("acme")
    app.enqueue("work", delay=60)
    assert oldest() is None
    clock.advance(59)
    assert oldest() is None
    clock.advance(31)
    assert (oldest(), oldest("acme")) == (30, None)
    taken = claim_one(app)
    assert oldest() is None
    app.queue.finish(taken, Failed("no", delay=100))
    clock.advance(100)
    app.enqueue("work", tenant="acme")
    clock.advance(5)
    assert (oldest(), oldest("acme")) == (5, 5)  # the retry counts from when it was due, not from when it was enqueued


def test_a_job_that_was_moved_to_the_top_does_not_hide_the_oldest(app: Penstock, clock: ManualClock) -> None:
    app.enqueue("work")
    app.enqueue("work", priority=500)
    clock.advance(60)
    newest = app.enqueue("work")
    app.jobs.move(newest.id, to="top")
    assert app.jobs.summary().oldest_queued_seconds == 60
