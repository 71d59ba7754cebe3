"""P13: what no worker serves does not hold the queue's clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import func, select

from penstock import Penstock, Succeeded
from penstock.queue.recover import keep_house
from penstock.store import workers
from penstock.store.tables import floors


@pytest.fixture
def app(url: str) -> Iterator[Penstock]:
    made = Penstock(url)
    made.define("work")
    made.define("gpu")
    made.define("elsewhere", queue="aside")
    for slug in ("large", "middle", "small"):
        made.tenants.create(slug)
    yield made
    made.close()


def worker_appears(app: Penstock, id: str, queues: list[str], keys: list[str] | None) -> None:
    row: dict[str, Any] = {
        "hostname": "host", "pid": 1, "version": "", "queues": queues, "keys": keys, "concurrency": 1, "metadata": {},
    }  # fmt: skip
    app.db.transact(lambda tx: workers.register(tx, id, row))
    keep_house(app.ground)


def serve(app: Penstock, number: int, **what: Any) -> Counter[str]:
    """Claim one by one, as a busy worker does; returns whose turn it was."""
    served: Counter[str] = Counter()
    for _ in range(number):
        [claim] = app.queue.claim("w:1", 1, **what)
        app.queue.finish(claim, Succeeded())
        served[claim.tenant_slug] += 1
    return served


def number_of_floors(app: Penstock) -> int:
    with app.db.read() as tx:
        return int(tx.scalar(select(func.count()).select_from(floors)))


@pytest.mark.parametrize(("key", "queue"), [("gpu", "default"), ("work", "aside")])
def test_an_old_job_that_nobody_serves_does_not_hold_the_clock(app: Penstock, key: str, queue: str) -> None:
    mine = {"queues": ["default"], "keys": ["work"]}
    worker_appears(app, "w:1", **mine)
    old = [app.enqueue(key, queue=queue, tenant="small") for _ in range(3)]
    app.enqueue_many("work", [{}] * 300, tenant="large")
    assert set(serve(app, 100, **mine)) == {"large"}
    keep_house(app.ground)
    app.enqueue_many("work", [{}] * 100, tenant="middle")  # a newcomer begins where the others are
    served = serve(app, 60, **mine)
    assert abs(served["large"] - served["middle"]) <= 2
    worker_appears(app, "w:2", [], None)
    assert number_of_floors(app) == 0
    served = serve(app, 9)  # and what waited so long comes in its turn, not before all the others
    assert all(1 <= served[slug] <= 5 for slug in ("large", "middle", "small"))
    assert [app.as_tenant("small").jobs.get(job.id).status for job in old].count("succeeded") == served["small"]
    assert app.doctor().clean


def test_a_first_job_is_not_delayed_by_a_backlog_that_came_after_all_was_done(app: Penstock) -> None:
    """The floor is where the clock was when the last served job was taken; who comes next does not begin below it."""
    worker_appears(app, "w:1", [], ["work"])
    app.enqueue("gpu", tenant="small")
    app.enqueue_many("work", [{}] * 50, tenant="large")
    serve(app, 40, keys=["work"])
    keep_house(app.ground)
    assert number_of_floors(app) == 1
    serve(app, 10, keys=["work"])
    app.enqueue_many("work", [{}] * 300, tenant="large")
    app.enqueue("work", tenant="middle")
    assert serve(app, 2, keys=["work"])["middle"] == 1
    keep_house(app.ground)
    app.enqueue("work", tenant="small")
    assert serve(app, 3, keys=["work"])["small"] == 1


def test_one_tenant_takes_the_places_of_seed_004_whatever_is_served(url: str) -> None:
    with Penstock(url) as app:
        app.define("work")
        app.define("gpu")
        worker_appears(app, "w:1", [], ["work"])
        assert app.enqueue("gpu").position == 100
        ids = app.enqueue_many("work", [{}] * 20)
        serve(app, 15, keys=["work"])
        keep_house(app.ground)
        assert number_of_floors(app) == 0
        assert app.enqueue("work").position == app.jobs.get(ids[-1]).position + 100
        serve(app, 6, keys=["work"])
        assert app.enqueue("work").position == 200


def test_while_all_is_served_there_are_no_floors(app: Penstock) -> None:
    worker_appears(app, "w:1", [], None)
    for slug in ("large", "middle"):
        app.enqueue_many("work", [{}] * 10, tenant=slug)
        app.enqueue("work", tenant=slug, priority=5)
    keep_house(app.ground)
    assert number_of_floors(app) == 0
