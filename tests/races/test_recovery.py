"""Recovery from many processes at once, once or ten times: the same rows (P11), every planted wreck mended."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from penstock import Claim, Failed, Penstock, Succeeded
from penstock.queue.identity import process_identity
from penstock.store import states
from penstock.store.tables import dedupe, jobs, ready, running, runs
from tests.support.children import start, together
from tests.support.plant import rows_of
from tests.support.states import lose_state, remove

WRECKS = 6


def recover(url: str, number: int) -> int:
    with Penstock(url) as app:
        return app.recover().total


def who(url: str) -> str:
    """The identity of a process that will be gone."""
    return process_identity()


def wreck(app: Penstock, url: str) -> int:
    """Plant every state that seed 004 §4 names; returns how many rows recovery should mend."""
    app.define("work", max_attempts=5)
    app.define("chained", max_attempts=5, retry_mode="chain")
    dead = start(who, url).result()
    app.enqueue_many("work", [{}] * (WRECKS * 5 + 1))
    expired = app.queue.claim("gone:1", WRECKS, lease_seconds=0.001)
    vanished = app.queue.claim(dead, WRECKS, lease_seconds=3600)
    finishing = app.queue.claim("host:9", WRECKS, lease_seconds=3600)
    twice = app.queue.claim("host:9", WRECKS, lease_seconds=3600)
    lost = app.queue.claim("host:9", WRECKS, lease_seconds=3600)
    [stray] = app.queue.claim("host:9", 1, lease_seconds=3600)
    keyed = [app.enqueue("work", dedupe_key=f"key {n}", delay=3600) for n in range(WRECKS)]
    app.enqueue_many("chained", [{}] * WRECKS)
    for claim in app.queue.claim("host:9", WRECKS):
        app.queue.finish(claim, Failed("no", delay=3600))
    groups = [app.groups.create([("work", {}), ("work", {})], scheduled_for=None) for _ in range(WRECKS)]
    with app.db.read() as tx:
        retries = [row.id for row in tx.rows(sa.select(jobs.c.id).where(jobs.c.retry_of.is_not(None)))]
    remove(app, *retries)
    lose_state(app, *(claim.job_id for claim in lost))
    with app.db.write() as tx:
        for claim in finishing:
            tx.run(sa.insert(runs).values(closed(claim, "succeeded")))
        for claim in twice:  # it runs, and could be claimed
            row = tx.run(sa.select(running).where(running.c.job_id == claim.job_id)).mappings().one()
            tx.run(sa.insert(ready).values({**{column.name: row[column.name] for column in ready.c}, "attempt_no": 0}))
        # Keys that active jobs have lost, and as many of nobody.
        tx.run(sa.update(dedupe).values(dedupe_key=sa.literal("no ") + dedupe.c.dedupe_key, job_id=stray.job_id))
        for group in groups:  # the first member ended and nobody let the second go
            states.cancel_queued(tx, group.jobs[0], "by a crash of older code")
        tx.run(sa.text("UPDATE penstock_groups SET on_failure = 'continue'"))
        # Canceled by hand, its run left open.
        tx.run(sa.insert(runs).values({**closed(stray, "canceled"), "job_status": "canceled"}))
    return (
        len(expired)
        + len(vanished)
        + len(finishing)
        + len(twice)
        + len(lost)
        + 2 * len(keyed)
        + WRECKS
        + len(groups)
        + 1
    )


def closed(claim: Claim, status: str) -> dict[str, Any]:
    """The row of a run that has ended as soon as it began."""
    names = ("job_id", "tenant_id", "attempt_no", "max_attempts", "worker_id", "started_at")
    row = {name: getattr(claim, name) for name in names}
    return {**row, "id": claim.run_id, "finished_at": claim.started_at, "status": status}


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_recoveries_at_once_mend_everything_exactly_once(url: str, processes: int) -> None:
    with Penstock(url) as app:
        expected = wreck(app, url)
        assert not app.doctor().clean
        mended = together(processes, recover, url)
        assert sum(mended) == expected
        after = rows_of(app.db)
        assert app.doctor().violations == ()
        with app.db.read() as tx:
            retries = sa.text("SELECT count(*) FROM penstock_jobs WHERE retry_of IS NOT NULL")
            assert tx.scalar(retries) == WRECKS
        for _ in range(3):
            together(2, recover, url)
        assert rows_of(app.db) == after


def test_recovery_finds_a_dead_worker_behind_more_than_a_batch_of_live_ones(url: str) -> None:
    with Penstock(url) as app:
        app.define("work")
        app.enqueue_many("work", [{}] * 700)
        alive = app.queue.claim("host:1", 600, lease_seconds=3600)
        app.queue.claim(start(who, url).result(), 100, lease_seconds=3600)
        assert app.recover().abandoned == 100
        assert app.queue.finish_many([(claim, Succeeded()) for claim in alive]) == set()
        assert app.doctor().violations == ()


def test_recovery_leaves_live_workers_alone(url: str) -> None:
    with Penstock(url) as app:
        app.define("work")
        app.enqueue_many("work", [{}] * 3)
        claims = app.queue.claim(process_identity(), 3)
        before = rows_of(app.db)
        assert together(3, recover, url) == [0, 0, 0]
        assert rows_of(app.db) == before
        assert app.queue.finish_many([(claim, Succeeded()) for claim in claims]) == set()
