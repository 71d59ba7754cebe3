"""F06, the outcome of COMMIT unknown: what was done is found by its id, what was not is done; no ghost, no double,
no LeaseLost for a run that is ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text

from penstock import Failed, LeaseLost, Penstock, Succeeded
from penstock.core.status import JobStatus
from penstock.queue import claim as claiming
from penstock.queue.record import report_of
from penstock.store import claims, failpoints
from penstock.store.database import Tx
from penstock.store.postgresql import claim, close, insert
from penstock.store.postgresql.transaction import timed
from penstock.store.unit import savepoint
from tests.support.proxy import proxied

Lose = Callable[[], Any]


@contextmanager
def disconnected_once(seam: str) -> Iterator[None]:
    """The next time `seam` is reached, the connection seems to be lost."""
    left = [1]

    def reach(name: str) -> None:
        if name == seam and left:
            left.pop()
            raise failpoints.InjectedDisconnect(name)

    before = failpoints.reach
    failpoints.reach = reach
    try:
        yield
    finally:
        failpoints.reach = before
    assert not left, f"{seam} was never reached"


FAULTS = [
    *((backend, kind) for backend in ("sqlite", "postgresql") for kind in ("done", "not done")),
    ("postgresql", "reply swallowed"),
    ("postgresql", "backend terminated"),
]


@pytest.fixture(params=FAULTS, ids=[f"{backend}-{kind}" for backend, kind in FAULTS])
def fault(request: pytest.FixtureRequest) -> tuple[str, str]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def backend(fault: tuple[str, str]) -> str:
    return fault[0]


@pytest.fixture
def faulty(fault: tuple[str, str], url: str) -> Iterator[tuple[Penstock, Lose]]:
    """An app, and a context in which the next COMMIT loses its reply: done or not done by failpoint, on PostgreSQL also
    on a real connection whose reply is swallowed or whose backend dies."""
    kind = fault[1]
    if kind == "reply swallowed":
        with proxied(url) as (through, proxy), Penstock(through) as app:
            yield app, lambda: swallowed(proxy)
        return
    with Penstock(url) as app:
        if kind == "backend terminated":
            yield app, lambda: terminated(app)
        else:
            yield app, lambda: disconnected_once("commit.after" if kind == "done" else "commit.before")


@contextmanager
def swallowed(proxy: Any) -> Iterator[Any]:
    before = proxy.swallowed
    proxy.swallow_commits = 1
    yield proxy
    assert proxy.swallowed == before + 1


@contextmanager
def terminated(app: Penstock) -> Iterator[None]:
    """The backend is killed between the last statement and the COMMIT."""
    left = [1]

    def reach(name: str) -> None:
        if name == "commit.before" and left:
            left.pop()
            with app.db.engine.connect() as other:
                mine = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND state = 'idle in transaction'"
                other.execute(text(mine))

    before = failpoints.reach
    failpoints.reach = reach
    try:
        yield
    finally:
        failpoints.reach = before
    assert not left


def cut_idle_connections(app: Penstock) -> None:
    """As `terminated`, for a statement that no transaction goes around."""
    with app.db.engine.connect() as other:
        mine = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        other.execute(text(mine))


def named(sql: str) -> bytes:
    """What a statement is called on the wire once it is prepared."""
    from penstock.store.postgresql import wire

    return wire._numbered(sql)[1]


def number_of(app: Penstock, what: str) -> int:
    with app.db.read() as tx:
        return int(tx.scalar(text(f"SELECT count(*) FROM {what}")))


def test_enqueue_is_there_once(faulty: tuple[Penstock, Lose]) -> None:
    app, lose = faulty
    app.define("work")
    with lose():
        job = app.enqueue("work", {"n": 1})
    assert number_of(app, "penstock_jobs") == 1
    assert app.jobs.get(job.id).params == {"n": 1}


def test_enqueue_by_one_statement_is_there_once(faulty: tuple[Penstock, Lose], fault: tuple[str, str]) -> None:
    """The second enqueue knows the definition, and on PostgreSQL is a transaction by itself."""
    app, lose = faulty
    app.define("work")
    app.enqueue("work", {"n": 0})
    with lose() as proxy:
        if fault[1] == "reply swallowed":
            proxy.committing = named(timed(insert._INSERT_PLAIN, False))
        if fault[1] == "backend terminated":
            cut_idle_connections(app)
        job = app.enqueue("work", {"n": 1})
    assert number_of(app, "penstock_jobs") == 2
    assert app.jobs.get(job.id).params == {"n": 1}


def test_a_claim_at_once_is_made_once(faulty: tuple[Penstock, Lose], fault: tuple[str, str]) -> None:
    """The second claim knows the gate, and on PostgreSQL is one round trip with its COMMIT."""
    app, lose = faulty
    app.define("work")
    assert app.queue.claim("w:1") == []
    made = app.enqueue("work", {"n": 1})
    with lose() as proxy:
        if fault[1] == "reply swallowed":
            proxy.committing = named(timed(claim._GATE, False))
        if fault[1] == "backend terminated":
            cut_idle_connections(app)
        taken = app.queue.claim("w:1", limit=5)
    assert [claim.job_id for claim in taken] == [made.id]
    assert number_of(app, "penstock_runs") == 1
    app.queue.finish(taken[0], Succeeded())
    assert not app.doctor().violations


def test_enqueue_with_a_dedupe_key_is_there_once(faulty: tuple[Penstock, Lose]) -> None:
    app, lose = faulty
    app.define("work")
    with lose():
        job = app.enqueue("work", {"n": 1}, dedupe_key="k")
    assert number_of(app, "penstock_jobs") == 1
    assert app.enqueue("work", {"n": 2}, dedupe_key="k").id == job.id


def test_enqueue_many_are_there_once(faulty: tuple[Penstock, Lose]) -> None:
    app, lose = faulty
    app.define("work")
    with lose():
        ids = app.enqueue_many("work", [{"n": n} for n in range(20)])
    assert number_of(app, "penstock_jobs") == 20
    assert [app.jobs.get(job_id).params["n"] for job_id in ids] == list(range(20))


def test_a_group_is_there_once(faulty: tuple[Penstock, Lose]) -> None:
    app, lose = faulty
    app.define("work")
    with lose():
        group = app.groups.create([("work", {}), ("work", {})])
    assert number_of(app, "penstock_groups") == 1
    assert number_of(app, "penstock_jobs") == 2
    assert app.groups.get(group.id).jobs == group.jobs


def test_a_claim_has_exactly_what_runs(faulty: tuple[Penstock, Lose]) -> None:
    app, lose = faulty
    app.define("work")
    app.enqueue_many("work", [{"n": n} for n in range(10)])
    with lose():
        claims = app.queue.claim("host:1", 4)
    assert len(claims) == 4
    assert number_of(app, "penstock_jobs WHERE status = 'running'") == 4
    assert [claim.params["n"] for claim in claims] == [0, 1, 2, 3]
    assert app.queue.finish_many([(claim, Succeeded()) for claim in claims]) == set()
    assert app.doctor().violations == ()


@pytest.mark.parametrize("outcome", [Succeeded({"x": 1}), Failed("no", delay=0)], ids=["succeeded", "failed"])
def test_a_finish_counts_once_and_is_not_said_to_be_lost(
    faulty: tuple[Penstock, Lose], fault: tuple[str, str], outcome: Any
) -> None:
    app, lose = faulty
    app.define("work", max_attempts=2, retry_mode="chain")
    job = app.enqueue("work")
    [claim] = app.queue.claim("host:1", 1)
    at_once = isinstance(outcome, Succeeded)  # on PostgreSQL by one statement, a transaction by itself
    with lose() as proxy:
        if at_once and fault[1] == "reply swallowed":
            proxy.committing = named(timed(close._close_successes_sql(True), False))
        if at_once and fault[1] == "backend terminated":
            cut_idle_connections(app)
        app.queue.finish(claim, outcome)
    [run] = app.jobs.runs(job.id)
    assert run.status.value == ("succeeded" if isinstance(outcome, Succeeded) else "failed")
    assert number_of(app, "penstock_jobs") == (1 if isinstance(outcome, Succeeded) else 2)
    assert app.doctor().violations == ()


def test_finish_and_next_claim_in_one_commit_count_once(faulty: tuple[Penstock, Lose]) -> None:
    app, lose = faulty
    app.define("work")
    app.enqueue_many("work", [{"n": n} for n in range(6)])
    first = app.queue.claim("host:1", 3)
    reports = [report_of(claim, Succeeded()) for claim in first]
    lost: set[Any] = set()
    with lose():
        second = claiming.claim(app.ground, "host:1", 3, reports=reports, lost=lost)
    assert lost == set()
    assert [claim.params["n"] for claim in second] == [3, 4, 5]
    assert number_of(app, "penstock_jobs WHERE status = 'succeeded'") == 3
    assert number_of(app, "penstock_jobs WHERE status = 'running'") == 3
    assert app.doctor().violations == ()


def test_a_heartbeat_is_said_again(faulty: tuple[Penstock, Lose]) -> None:
    app, lose = faulty
    app.define("work")
    app.enqueue("work")
    claims = app.queue.claim("host:1", 1)
    with lose():
        assert app.queue.heartbeat(claims) == []


@pytest.mark.parametrize("fault", [("sqlite", ""), ("postgresql", "")], ids=["sqlite", "postgresql"])
def test_a_run_that_recovery_closed_meanwhile_is_lost(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed run is ours only if it ended as we said."""
    with Penstock(url) as app:
        app.define("work", max_attempts=3)
        job = app.enqueue("work")
        [claim] = app.queue.claim("host:1", 1, lease_seconds=0.001)
        look = claims.ended

        def look_after_recovery(*args: Any) -> Any:
            assert app.recover().abandoned == 1
            return look(*args)

        monkeypatch.setattr(claims, "ended", look_after_recovery)
        with disconnected_once("finish.before"), pytest.raises(LeaseLost):
            app.queue.finish(claim, Succeeded())
        assert app.jobs.get(job.id).status is JobStatus.QUEUED
        assert app.doctor().violations == ()


@pytest.mark.parametrize("fault", [("postgresql", "")], ids=["postgresql"])
def test_a_connection_that_dies_inside_a_savepoint_is_told_as_such(url: str) -> None:
    """So that the whole is tried again. Rolling back to the savepoint fails too, in another way."""
    tries = []

    def work(tx: Tx) -> int:
        with savepoint(tx):
            tries.append(tx.scalar(text("SELECT pg_backend_pid()")))
            if len(tries) == 1:
                with app.db.read() as other:
                    other.run(text("SELECT pg_terminate_backend(:pid)"), {"pid": tries[0]})
            return int(tx.scalar(text("SELECT 7")))

    with Penstock(url) as app:
        assert app.db.transact(work, retry_disconnects=True) == 7
    assert len(tries) == 2
