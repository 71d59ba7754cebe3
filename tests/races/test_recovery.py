"""Recovery from many processes at once, once or ten times: the same rows (P11), every planted wreck mended."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from penstock import Failed, Penstock, Succeeded
from penstock.queue.identity import process_identity
from tests.support.children import start, together
from tests.support.plant import rows_of

WRECKS = 6


def recover(url: str, number: int) -> int:
    with Penstock(url) as app:
        return app.recover().total


def who(url: str) -> str:
    """The identity of a process that will be gone."""
    return process_identity()


def wreck(app: Penstock, url: str) -> int:
    """Plant every state that seed 004 §4 names; answers how many rows recovery should mend."""
    app.define("work", max_attempts=5)
    app.define("chained", max_attempts=5, retry_mode="chain")
    dead = start(who, url).result()
    app.enqueue_many("work", [{}] * (WRECKS * 4 + 1))
    expired = app.queue.claim("gone:1", WRECKS, lease_seconds=0.001)
    vanished = app.queue.claim(dead, WRECKS, lease_seconds=3600)
    finishing = app.queue.claim("host:9", WRECKS, lease_seconds=3600)
    without = app.queue.claim("host:9", WRECKS, lease_seconds=3600)
    [stray] = app.queue.claim("host:9", 1, lease_seconds=3600)
    app.enqueue_many("chained", [{}] * WRECKS)
    for claim in app.queue.claim("host:9", WRECKS):
        app.queue.finish(claim, Failed("no", delay=3600))
    groups = [app.groups.create([("work", {}), ("work", {})], scheduled_for=None) for _ in range(WRECKS)]
    with app.db.write() as tx:
        for claim in finishing:
            ended = "UPDATE penstock_runs SET status = 'succeeded', finished_at = started_at WHERE id = :id"
            tx.run(text(ended), {"id": _id(app, claim.run_id)})
        for claim in without:
            tx.run(text("DELETE FROM penstock_runs WHERE id = :id"), {"id": _id(app, claim.run_id)})
        tx.run(text("DELETE FROM penstock_jobs WHERE retry_of IS NOT NULL"))
        for group in groups:  # the first member ended and nobody let the second go
            first = group.jobs[0].id
            ended = "UPDATE penstock_jobs SET status = 'canceled', claimable = false, finished_at = created_at WHERE id = :id"
            tx.run(text(ended), {"id": _id(app, first)})
        tx.run(text("UPDATE penstock_groups SET on_failure = 'continue'"))
        # Canceled by hand, its run left open.
        ended = "UPDATE penstock_jobs SET status = 'canceled', finished_at = started_at, lease_expires_at = NULL WHERE id = :id"
        tx.run(text(ended), {"id": _id(app, stray.job_id)})
    return len(expired) + len(vanished) + len(finishing) + len(without) + WRECKS + len(groups) + 1


def _id(app: Penstock, value: Any) -> Any:
    return str(value) if app.db.name == "sqlite" else value


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
            retries = text("SELECT count(*) FROM penstock_jobs WHERE retry_of IS NOT NULL")
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
