"""What a Django project does with Penstock. Runs in a process of its own, because Django's settings are the process's: prints
one line of JSON for each scenario, with the traceback if it failed."""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.management import call_command
from django.db import IntegrityError, connection, connections, transaction
from django.test import Client

import django
from penstock import Config, InvalidInput, InvalidPayload, Penstock
from penstock.app import Task
from penstock.core.status import JobStatus

SCENARIOS: dict[str, Callable[[Penstock], None]] = {}
TABLES = ("jobs", "groups", "events", "trigger_fires", "triggers", "runs", "definitions")


def scenario(check: Callable[[Penstock], None]) -> Callable[[Penstock], None]:
    SCENARIOS[check.__name__] = check
    return check


@contextmanager
def refused(kind: type[Exception], part: str) -> Iterator[None]:
    try:
        yield
    except kind as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"expected {kind.__name__}")


def orders() -> Any:
    from shop.models import Order

    return Order.objects


def fresh_process() -> Penstock:
    """An app that remembers nothing, as in a process that has just started, on a connection that Django has not opened yet."""
    from django.conf import settings

    made = Penstock(settings.PENSTOCK_DATABASE_URL, config=Config(enqueue_batch=5))

    @made.job(key="work")
    def work(n: int = 0, text: str = "") -> None: ...

    connection.close()
    assert connection.connection is None
    return made


VERBS: dict[str, Callable[[Penstock, Any], int]] = {
    "enqueue": lambda app, c: len([app.enqueue("work", {"n": 1}, connection=c)]),
    "enqueue_many": lambda app, c: len(app.enqueue_many("work", [{"n": n} for n in range(12)], connection=c)),
    "emit": lambda app, c: len(app.emit("paid", {"n": 5}, connection=c).outcomes),
    "groups.create": lambda app, c: len(app.groups.create([("work", {}), ("work", {})], connection=c).jobs),
    "using": lambda app, c: _used(app, c),
}


def _used(app: Penstock, given: Any) -> int:
    function = app.functions["work"]
    Task(app, function, function.call).using(connection=given, priority=3)(n=1)
    return 1


def each_verb() -> Iterator[tuple[str, Penstock, Callable[[Penstock, Any], int]]]:
    """Every verb as the first of its process. Chunks are small, so that many jobs are more than one statement."""
    for name, verb in VERBS.items():
        wipe()
        app = fresh_process()
        if name == "emit":
            app.triggers.on_event("a", "paid", "work", {"n": "{{ event.n }}"}, dedupe_window_seconds=300)
            app.close()
            app = fresh_process()
        yield name, app, verb
        app.close()


@scenario
def a_block_that_commits_leaves_all(app: Penstock) -> None:
    for name, process, verb in each_verb():
        with transaction.atomic():
            orders().create(item=name)
            number = verb(process, connection)
            assert app.jobs.list() == [], name
        assert len(app.jobs.list()) == number > 0, name
        assert orders().count() == 1, name


@scenario
def a_block_whose_first_query_is_the_enqueue_commits_it(app: Penstock) -> None:
    for name, process, verb in each_verb():
        with transaction.atomic():
            number = verb(process, connection)
        assert len(app.jobs.list()) == number, name


@scenario
def a_block_that_fails_leaves_nothing(app: Penstock) -> None:
    for name, process, verb in each_verb():
        with refused(ZeroDivisionError, "division"), transaction.atomic():
            orders().create(item=name)
            verb(process, connection)
            raise ZeroDivisionError("division")
        assert app.jobs.list() == app.groups.list() == app.events.list() == [], name
        assert orders().count() == 0, name
        with transaction.atomic():
            number = verb(process, connection)
        assert len(app.jobs.list()) == number, name


@scenario
def an_inner_block_that_fails_takes_exactly_its_own(app: Penstock) -> None:
    for name, process, verb in each_verb():
        with transaction.atomic():
            kept = verb(process, connection)
            with refused(ZeroDivisionError, "division"), transaction.atomic():
                orders().create(item="inner")
                process.enqueue("work", {"n": 100}, connection=connection)
                raise ZeroDivisionError("division")
            with transaction.atomic():
                last = process.enqueue("work", {"n": 200}, connection=connection)
        found = app.jobs.list()
        assert len(found) == kept + 1, name
        assert last.id in {job.id for job in found}, name
        assert orders().count() == 0, name


@scenario
def outside_a_block_each_call_is_committed(app: Penstock) -> None:
    for name, process, verb in each_verb():
        number = verb(process, connection)
        assert not connection.in_atomic_block
        assert len(app.jobs.list()) == number, name
        orders().create(item=name)
        connection.close()
        assert orders().count() == 1, name


@scenario
def outside_a_block_a_call_that_fails_leaves_nothing(app: Penstock) -> None:
    process = fresh_process()
    with refused(InvalidPayload, "n"):
        process.enqueue_many("work", [{"n": n} for n in range(12)] + [{"n": "wrong"}], connection=connection)
    with refused(InvalidInput, "pair"):
        process.groups.create([("work", {}), ("work",)], connection=connection)  # type: ignore[list-item]
    assert app.jobs.list() == []
    process.enqueue("work", connection=connection)
    assert len(app.jobs.list()) == 1
    process.close()


@scenario
def on_commit_runs_once_the_jobs_are_there(app: Penstock) -> None:
    process = fresh_process()
    seen: list[int] = []
    with transaction.atomic():
        transaction.on_commit(lambda: seen.append(len(app.jobs.list())))
        process.enqueue("work", connection=connection)
        transaction.on_commit(lambda: seen.append(len([process.enqueue("work")])))
        assert seen == []
    assert seen == [1, 1]
    assert len(app.jobs.list()) == 2
    process.close()


@scenario
def another_alias_and_the_drivers_connection_are_taken_too(app: Penstock) -> None:
    process = fresh_process()
    with transaction.atomic(using="second"):
        process.enqueue("work", connection=connections["second"])
        assert app.jobs.list() == []
    with transaction.atomic():
        orders().count()
        process.enqueue("work", connection=connection.connection)
        assert len(app.jobs.list()) == 1
    assert len(app.jobs.list()) == 2
    process.close()


@scenario
def a_connection_that_is_not_open_is_not_taken_for_none(app: Penstock) -> None:
    process = fresh_process()
    with transaction.atomic():
        given = connection.connection if connection.connection is None else None
        with refused(InvalidInput, "django.db.connection"):
            process.enqueue("work", connection=given)
    assert app.jobs.list() == []
    process.close()


@scenario
def what_is_returned_is_what_is_stored(app: Penstock) -> None:
    process = fresh_process()
    now = datetime.now(UTC)
    with transaction.atomic():
        job = process.enqueue("work", {"n": 7, "text": "é 😀"}, dedupe_key="k", connection=connection)
        again = process.enqueue("work", {"n": 8}, dedupe_key="k", connection=connection)
        later = process.enqueue("work", scheduled_for=now + timedelta(days=1), connection=connection)
        group = process.groups.create([("work", {"n": 9})], connection=connection)
        event = process.emit("paid", {"text": "é"}, connection=connection)
    assert again.id == job.id and again.params == {"n": 7, "text": "é 😀"}
    for made in (job, again, later, *group.jobs):
        assert app.jobs.get(made.id) == made
        assert abs(made.queued_at - now) < timedelta(minutes=10)
    assert app.groups.get(group.id) == group
    assert app.events.get(event.id) == event
    assert event.context == {"text": "é"}
    process.close()


@scenario
def djangos_own_queries_are_as_they_were(app: Penstock) -> None:
    process = fresh_process()
    with transaction.atomic():
        order = orders().create(item="x", details={"deep": [1, {"two": "é"}]})
        process.enqueue_many("work", [{}] * 3, connection=connection)
        found = orders().get(pk=order.pk)
        assert (found.details, found.placed_at) == (order.details, order.placed_at)
    found = orders().get(pk=order.pk)
    assert (found.details, found.placed_at) == (order.details, order.placed_at)
    process.close()


@scenario
def a_block_that_is_broken_is_refused_as_django_does(app: Penstock) -> None:
    process = fresh_process()
    orders().create(item="x")
    with refused(transaction.TransactionManagementError, "atomic"), transaction.atomic():
        with refused(IntegrityError, ""), transaction.atomic(savepoint=False):
            orders().create(item="x")
        process.enqueue("work", connection=connection)
    assert app.jobs.list() == []
    process.close()


@scenario
def another_kind_of_database_is_refused(app: Penstock) -> None:
    process = fresh_process()
    with refused(InvalidInput, "its own database"):
        process.enqueue("work", connection=connections["elsewhere"])
    process.close()


@scenario
def the_recipe_works(app: Penstock) -> None:
    from shop.worker import app as shop

    connection.close()
    answer = Client().post("/orders", {"item": "tea"})
    assert answer.status_code == 201, answer.content
    job = app.jobs.get(answer.json()["job"])
    assert job.params == {"order_id": answer.json()["order"]}
    with refused(IntegrityError, ""):
        Client().post("/orders", {"item": "tea"})
    assert len(app.jobs.list()) == 1
    worker = shop.worker(concurrency=1)
    worker.start()
    try:
        while shop.jobs.get(job.id).status not in (JobStatus.SUCCEEDED, JobStatus.DEAD_LETTER):
            time.sleep(0.05)
    finally:
        worker.stop()
    assert shop.jobs.get(job.id).status is JobStatus.SUCCEEDED, shop.jobs.get(job.id).last_error
    assert orders().get().receipt_sent


def wipe() -> None:
    orders().all().delete()
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"DELETE FROM penstock_{table}")


def main() -> None:
    django.setup()
    from django.conf import settings

    call_command("migrate", run_syncdb=True, verbosity=0)
    app = Penstock(settings.PENSTOCK_DATABASE_URL)
    for name, check in SCENARIOS.items():
        wipe()
        failed = None
        try:
            check(app)
        except BaseException:
            failed = traceback.format_exc()
        sys.stdout.write(json.dumps({"scenario": name, "failed": failed}) + "\n")
        sys.stdout.flush()
    app.close()


if __name__ == "__main__":
    main()
