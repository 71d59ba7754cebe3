"""Old tables: drain and latency with finished and waiting jobs by the million, and with a transaction left open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy import text
from tests.support.seed import seed

from bench.bench import Bench
from bench.environment import call
from bench.peers import Peer
from bench.peers import penstock as ours
from bench.workers import Workers
from bench.workloads.drain import fill
from bench.workloads.latency import note, probed

DRAIN, LATENCY = "drain, with history", "latency, with history"
DRAIN_OPEN, LATENCY_OPEN = "drain, beside an open transaction", "latency, beside an open transaction"


def history(bench: Bench) -> None:
    bench.each(DRAIN, lambda peer: grown(bench, peer), ours=True, times=1)
    bench.each(DRAIN_OPEN, lambda peer: beside_a_transaction(bench, peer), ours=True, times=1)


def grown(bench: Bench, peer: Peer) -> None:
    """Latency is that of a queue beside a paused one in which all of them wait; what is drained then is their front."""
    with bench.databases.fresh(peer.database) as url:
        call(peer, "setup", url)
        plant(url, bench.scale.finished, bench.scale.waiting)
        note(bench, LATENCY, peer, probed(bench, peer, url))
        with ours.open_app(url) as app:
            app.queues.resume("backlog")
        jobs = min(bench.scale.drained, bench.scale.waiting)
        with Workers(peer, url) as workers:
            bench.note(DRAIN, peer.label, jobs / workers.wait_until_ran(jobs), "jobs/s", jobs)


def plant(url: str, finished: int, waiting: int) -> None:
    with ours.open_app(url) as app:
        app.sync_definitions()
        seed(app, "noop", finished, "succeeded")
        seed(app, "noop", waiting, "queued", queue="backlog")
        app.queues.pause("backlog")
        with app.db.engine.connect() as plain:
            conn = plain.execution_options(isolation_level="AUTOCOMMIT")
            conn.execute(
                text(
                    "ANALYZE"
                    if app.db.name == "sqlite"
                    else "VACUUM ANALYZE penstock_jobs, penstock_ready, penstock_runs"
                )
            )


def beside_a_transaction(bench: Bench, peer: Peer) -> None:
    """Somebody's forgotten transaction keeps every dead row from being cleaned away while the queue drains."""
    with bench.databases.fresh(peer.database) as url:
        jobs = fill(bench, peer, url)
        with forgotten(url), Workers(peer, url) as workers:
            bench.note(DRAIN_OPEN, peer.label, jobs / workers.wait_for(jobs), "jobs/s", jobs)
        with forgotten(url):
            note(bench, LATENCY_OPEN, peer, probed(bench, peer, url))


@contextmanager
def forgotten(url: str) -> Iterator[None]:
    """A read transaction with a snapshot of its own, open until the block ends."""
    if url.startswith("sqlite"):
        with ours.open_app(url) as app, app.db.read() as tx:
            tx.run(text("SELECT count(*) FROM penstock_queues"))
            yield
        return
    with psycopg.connect(url) as conn:
        conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        conn.execute("SELECT count(*) FROM penstock_queues")
        yield
        conn.rollback()
