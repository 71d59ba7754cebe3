"""Jobs that kill their worker, among many that do no harm: the culprits end as dead letters, and nobody else does."""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import Any

import sqlalchemy as sa

from penstock import Config, Penstock
from penstock.store.tables import job_view
from tests.support.children import start

CONCURRENCY = 4
CHAOS = int(os.environ.get("PENSTOCK_CHAOS_ROUNDS", "1")) > 1


def open_app(url: str, **settings: Any) -> Penstock:
    app = Penstock(url, config=Config(poll_seconds=0.2, **settings))

    @app.job(key="good", max_attempts=2)
    def good(n: int) -> int:
        return n

    @app.job(key="culprit", max_attempts=5)
    def culprit(n: int) -> None:
        os._exit(1)

    return app


def work(url: str) -> None:
    open_app(url).worker(concurrency=CONCURRENCY).run(until_idle=True)


def live_until_all_is_done(app: Penstock, url: str, most: int) -> int:
    """Start a worker again whenever it has died; how often it did."""
    deaths = 0
    while app.jobs.summary().queued or app.jobs.summary().running:
        if start(work, url).ended_with() == 0:
            time.sleep(0.2)  # what is left waits for its time
            continue
        deaths += 1
        assert deaths <= most, "workers die without end"
    return deaths


def bury_the_culprits_alone(url: str, culprits: int, innocents: int) -> None:
    app = open_app(url)
    every = innocents // culprits
    order = [{"n": n} for n in range(innocents)]
    for start_at in range(0, innocents, every):
        app.enqueue_many("good", order[start_at : start_at + every])
        if start_at // every < culprits:
            app.enqueue("culprit", {"n": start_at})
    deaths = live_until_all_is_done(app, url, most=culprits * 3)
    with app.db.read() as tx:
        found = tx.rows(
            sa.select(job_view.c.definition_key, job_view.c.status, job_view.c.attempt_no, job_view.c.last_error)
        )
    ends = Counter((row.definition_key, row.status) for row in found)
    assert ends == {("good", "succeeded"): innocents, ("culprit", "dead_letter"): culprits}
    assert all("poison" in row.last_error for row in found if row.definition_key == "culprit")
    charged = [row for row in found if row.definition_key == "good" and row.attempt_no > 1]
    assert all(row.attempt_no == 2 for row in charged), "an innocent was charged twice"
    assert deaths > culprits, "there was no crash but the first of each"
    assert app.doctor().clean
    app.close()


def test_a_few_bad_jobs_bury_no_good_one(url: str) -> None:
    """Two crashes of a culprit happen while it runs alone. In the first it has company, which is charged once."""
    bury_the_culprits_alone(url, culprits=10 if CHAOS else 3, innocents=3000 if CHAOS else 300)
