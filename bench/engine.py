"""The engine alone: what history, tenants and batches cost, on SQLite and on a durable PostgreSQL of its own.

python -m bench.engine                       1,000,000 finished and 100,000 waiting jobs
python -m bench.engine --finished 100000     a shorter history
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from sqlalchemy import text
from tests.support.postgres import Server
from tests.support.seed import seed

from penstock import Penstock, Succeeded
from penstock.store.database import Database
from penstock.store.schema import upgrade

BATCHES = (1, 10, 100)


@contextmanager
def databases() -> Iterator[dict[str, Callable[[], str]]]:
    """Fresh databases on each backend, migrated, as their users run them: every commit is synced."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        server = Server(durable=True).start()

        def fresh_sqlite() -> str:
            return f"sqlite:///{Path(directory) / uuid4().hex}.db"

        def fresh_postgres() -> str:
            url = server.url(server.create_database())
            db = Database(url)
            upgrade(db)
            db.close()
            return url

        try:
            yield {"sqlite": fresh_sqlite, "postgresql": fresh_postgres}
        finally:
            server.remove()


def median_of(work: Callable[[], Any], times: int) -> float:
    """Milliseconds."""
    return statistics.median(taken(work) for _ in range(times))


def taken(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def beside(apps: tuple[Penstock, Penstock], rounds: int) -> list[tuple[str, float, float, float]]:
    """Claim and finish batches of each size, in turn on the one and on the other: (what, median ms of each, ratio)."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for batch in BATCHES:
        for number in range(rounds * len(apps)):
            app = apps[number % 2]
            claims: list[Any] = []
            claim = taken(lambda app=app, claims=claims, batch=batch: claims.extend(app.queue.claim("bench:1", batch)))
            assert len(claims) == batch
            finish = taken(
                lambda app=app, claims=claims: app.queue.finish_many([(each, Succeeded()) for each in claims])
            )
            if number >= 20:  # the first meet cold caches and statements that are not prepared yet
                found.setdefault(f"claim {batch}", ([], []))[number % 2].append(claim)
                found.setdefault(f"finish {batch}", ([], []))[number % 2].append(finish)
    medians = {what: (statistics.median(one), statistics.median(two)) for what, (one, two) in found.items()}
    return [(what, one, two, two / one) for what, (one, two) in medians.items()]


def history(
    fresh: Callable[[], str], finished: int, waiting: int, rounds: int
) -> list[tuple[str, float, float, float]]:
    """An empty history, and a long one."""
    with Penstock(fresh()) as empty, Penstock(fresh()) as long:
        for app, past in ((empty, 0), (long, finished)):
            app.define("work")
            if past:
                seed(app, "work", past, "succeeded")
            seed(app, "work", waiting, "queued")
            _settle(app)
        return beside((empty, long), rounds)


def tenants(fresh: Callable[[], str], waiting: int, rounds: int) -> list[tuple[str, float, float, float]]:
    """One tenant, and four with a quarter of the backlog each."""
    with Penstock(fresh()) as single, Penstock(fresh()) as several:
        for app, number in ((single, 1), (several, 4)):
            app.define("work")
            names = ["default", *(f"tenant-{n}" for n in range(1, number))]
            for name in names[1:]:
                app.tenants.create(name)
            for name in names:
                seed(app, "work", waiting // number, "queued", tenant=name)
            _settle(app)
        return [line for line in beside((single, several), rounds) if line[0].startswith("claim")]


def enqueueing(fresh: Callable[[], str]) -> list[tuple[str, float]]:
    """Jobs a second, beside a bare INSERT with a commit of its own."""
    with Penstock(fresh()) as app:
        app.define("work")
        app.enqueue("work", {"n": 1})
        with app.db.write() as tx:
            tx.run(text("CREATE TABLE bare (id integer, payload text)"))

        def bare() -> None:
            with app.db.write() as tx:
                tx.run(text("INSERT INTO bare VALUES (1, :payload)"), {"payload": json.dumps({"n": 1})})

        def joined() -> None:
            with app.db.engine.begin() as conn:
                for _ in range(100):
                    app.enqueue("work", {"n": 1}, connection=conn)

        return [
            ("a bare INSERT and its commit", 1000 / median_of(bare, 200)),
            ("enqueue", 1000 / median_of(lambda: app.enqueue("work", {"n": 1}), 200)),
            ("enqueue, 100 in the caller's transaction", 100_000 / median_of(joined, 10)),
            ("enqueue_many, 1,000", 1_000_000 / median_of(lambda: app.enqueue_many("work", [{"n": 1}] * 1000), 10)),
        ]


def _settle(app: Penstock) -> None:
    with app.db.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as conn:
        conn.exec_driver_sql("VACUUM ANALYZE" if app.db.name == "postgresql" else "ANALYZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--finished", type=int, default=1_000_000)
    parser.add_argument("--waiting", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=100)
    given = parser.parse_args()
    with databases() as made:
        for name, fresh in made.items():
            print(f"\n{name}: {given.finished:,} finished and {given.waiting:,} waiting beside an empty history, ms")
            for what, empty, full, ratio in history(fresh, given.finished, given.waiting, given.rounds):
                print(f"  {what:<12} {empty:9.2f} {full:9.2f}   {ratio:5.2f}×")
            print(f"{name}: four tenants beside one, {given.waiting:,} waiting, ms")
            for what, one, four, ratio in tenants(fresh, given.waiting, given.rounds):
                print(f"  {what:<12} {one:9.2f} {four:9.2f}   {ratio:5.2f}×")
            print(f"{name}: enqueue, jobs a second")
            for what, rate in enqueueing(fresh):
                print(f"  {what:<44} {rate:10,.0f}")


if __name__ == "__main__":
    main()
