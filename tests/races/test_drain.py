"""Eight claimer processes drain 5,000 jobs: each exactly once, within the limits, on each database."""

from __future__ import annotations

import time
from collections import Counter

from sqlalchemy import text

from penstock import Penstock, Succeeded
from penstock.store.database import Database
from tests.support.children import start, together

JOBS = 5_000
CLAIMERS = 8


def drain(url: str, batch: int, patience: float, number: int) -> list[str]:
    """Claim and finish until nothing has come for a while; answers the ids of the jobs done here."""
    app = Penstock(url)
    done: list[str] = []
    idle_since = time.monotonic()
    while time.monotonic() - idle_since < patience:
        claims = app.queue.claim(f"claimer:{number}", batch)
        if claims:
            assert app.queue.finish_many([(claim, Succeeded(number)) for claim in claims]) == set()
            done += [str(claim.job_id) for claim in claims]
            idle_since = time.monotonic()
        else:
            time.sleep(0.01)
    app.close()
    return done


def watch(url: str, queries: dict[str, str], seconds: float) -> dict[str, int]:
    """The largest value each query ever answered."""
    db = Database(url)
    most: Counter[str] = Counter()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with db.read() as tx:
            for name, query in queries.items():
                most[name] = max(most[name], int(tx.scalar(text(query)) or 0))
    db.close()
    return dict(most)


def assert_each_ran_once(app: Penstock, expected: set[str], done: list[str]) -> None:
    assert Counter(done) == Counter(expected)  # none twice, none missing
    with app.db.read() as tx:
        runs = tx.rows(text("SELECT job_id, count(*) FROM penstock_runs GROUP BY job_id"))
        assert {str(row[0]) for row in runs} == expected
        assert {row[1] for row in runs} == {1}
        assert tx.scalar(text("SELECT count(*) FROM penstock_job_view WHERE status <> 'succeeded'")) == 0
    assert app.doctor().violations == ()


def test_eight_claimers_drain_five_thousand_jobs_each_exactly_once(url: str) -> None:
    app = Penstock(url)
    app.define("work")
    expected = {str(i) for i in app.enqueue_many("work", [{"n": n} for n in range(JOBS)])}
    answers = together(CLAIMERS, drain, url, 50, 1.0)
    assert_each_ran_once(app, expected, [job for answer in answers for job in answer])
    app.close()


def test_limits_hold_at_every_moment_while_eight_claim(url: str) -> None:
    app = Penstock(url)
    app.define("one-at-a-time", max_running=1)
    app.define("three", max_running=3)
    app.define("free")
    app.tenants.create("acme", max_running=2)
    expected = set()
    for key, tenant, number in (
        ("one-at-a-time", "default", 15),
        ("three", "default", 60),
        ("free", "acme", 40),
        ("free", "default", 60),
    ):
        expected |= {str(i) for i in app.enqueue_many(key, [{}] * number, tenant=tenant)}
    acme = app.tenants.get("acme").id
    shown = str(acme)
    running = "SELECT count(*) FROM penstock_running"
    watcher = start(
        watch,
        url,
        {
            "one-at-a-time": f"{running} WHERE definition_key = 'one-at-a-time'",
            "three": f"{running} WHERE definition_key = 'three'",
            "acme": f"{running} WHERE tenant_id = '{shown}'",
        },
        3.0,
    )
    answers = together(CLAIMERS, drain, url, 4, 1.0)
    most = watcher.result()
    assert_each_ran_once(app, expected, [job for answer in answers for job in answer])
    assert most["one-at-a-time"] <= 1
    assert most["three"] <= 3
    assert most["acme"] <= 2
    assert sum(most.values()) >= 2, "the watcher saw nothing run: it proved nothing"
    app.close()
