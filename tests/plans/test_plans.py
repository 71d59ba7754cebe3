"""Query plans over 230,000 jobs: the hot verbs, lists and recovery read by index, never the whole table (P12)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from psycopg._queries import PostgresQuery
from psycopg.adapt import Transformer
from psycopg.pq import TransactionStatus
from sqlalchemy import event, text

from penstock import Failed, Penstock, Succeeded
from penstock.core.nouns import Claim
from penstock.queue.claim import claim as claim_next
from penstock.queue.record import finish_many, report_of
from penstock.store import promote, waiting
from penstock.store.database import Database
from penstock.store.dialect import Bare
from penstock.store.postgresql import transaction
from penstock.store.schema import upgrade
from tests.conftest import BACKENDS
from tests.support.seed import seed

GROWN = ("penstock_jobs", "penstock_runs", "penstock_ready", "penstock_waiting")
BIG = ("penstock_jobs", "penstock_runs", "penstock_ready", "penstock_waiting", "penstock_running", "penstock_job_view")
WHOLE_INDEX = r"Scan using (pk_penstock_(jobs|runs|ready|waiting)|ix_penstock_(jobs_list|runs_ended|ready_claim|ready_place)) [^\n]*\n(?!\s*Index Cond)"
"""On PostgreSQL: an index of all rows, or of all that wait, read from its beginning. (Backwards is how a list ends soon.)"""


WHOLE_HISTORY = r"Scan using (pk_penstock_(jobs|runs)|ix_penstock_(jobs_list|runs_ended)) [^\n]*\n(?!\s*Index Cond)"
WHOLE_TABLE = r"Seq Scan on penstock_(jobs|runs|ready|waiting)|SCAN penstock_(jobs|runs|ready|waiting)(?! USING)"


@pytest.fixture(scope="module", params=BACKENDS)
def app(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """200,000 finished jobs, 8,000 ready in two queues, 20,000 due tomorrow."""
    name = None
    if request.param == "sqlite":
        url = f"sqlite:///{Path(tmp_path_factory.mktemp('plans')) / 'jobs.db'}"
        db = Database(url)
        upgrade(db)
        db.close()
    else:
        server = request.getfixturevalue("postgres")
        name = server.create_database(server.template)
        url = server.url(name)
    made = Penstock(url)
    made.define("work", max_attempts=3)
    made.define("rare", queue="other")
    made.enqueue("rare")
    seed(made, "work", 200_000, "succeeded")
    seed(made, "work", 6_000, "queued")
    seed(made, "rare", 2_000, "queued", queue="other")
    seed(made, "work", 20_000, "future")
    yield made
    made.close()
    if name is not None:
        server.drop_database(name)


@pytest.fixture(params=["fresh", "analysed"])
def statistics(request: pytest.FixtureRequest, app: Penstock) -> str:
    """Plans must not depend on statistics: a table that has just grown has none."""
    with app.db.write() as tx:
        if request.param == "analysed":
            for table in GROWN:
                tx.run(text(f"ANALYZE {table}"))
        elif app.db.name == "postgresql":
            tables = ", ".join(f"'{table}'::regclass" for table in GROWN)
            tx.run(text(f"DELETE FROM pg_statistic WHERE starelid IN ({tables})"))
        else:
            tx.run(text("CREATE TABLE IF NOT EXISTS made_up (x)"))
            tx.run(text("ANALYZE made_up"))
            tx.run(text("DELETE FROM sqlite_stat1"))
    return str(request.param)


def plans_of(app: Penstock, work: Callable[[], Any]) -> list[tuple[str, str]]:
    """Every statement that `work` runs on the big tables, with its plan as the database makes it at that moment."""
    found: list[tuple[str, str]] = []
    explain = "EXPLAIN " if app.db.name == "postgresql" else "EXPLAIN QUERY PLAN "
    busy: list[int] = []

    def plan(cursor: Any, statement: str, parameters: Any) -> None:
        if busy or not any(table in statement for table in BIG) or statement.startswith(("EXPLAIN", "PRAGMA")):
            return
        busy.append(1)
        try:
            given = parameters[0] if isinstance(parameters, list) and parameters else parameters
            cursor.execute(explain + statement, given)
            found.append((statement, "\n".join(str(row[-1]) for row in cursor.fetchall())))
        finally:
            busy.pop()

    if app.db.name == "postgresql":

        def before(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
            with cursor.connection.cursor() as other:
                plan(other, statement, parameters)
                if found and found[-1][0] == statement:  # and as a prepared statement will be planned
                    converted = PostgresQuery(Transformer(cursor.connection))
                    converted.convert(statement, parameters[0] if isinstance(parameters, list) else parameters)
                    if other.execute("SHOW plan_cache_mode").fetchone() == ("force_generic_plan",):
                        found.pop()  # then there is no other
                    other.execute(b"EXPLAIN (GENERIC_PLAN) " + converted.query, prepare=False)
                    found.append((statement, "\n".join(str(row[0]) for row in other.fetchall())))

        def ask(conn: Any, statements: Any) -> Any:
            """The hot statements go over the wire, which tells nobody. Each is planned under what those before it set."""
            raw = conn.connection.dbapi_connection
            idle = raw.info.transaction_status == TransactionStatus.IDLE
            with raw.cursor() as cursor:
                for sql, params in ((each.sql, each.params) for each in statements):
                    statement = re.sub(r"(?<!:):([a-z_]+)\b", r"%(\1)s", sql)
                    before(conn, cursor, statement, params, None, False)
                    if isinstance(conn, Bare) or "set_config" in sql:
                        cursor.execute(statement, params)
            if idle:
                raw.rollback()
            return real(conn, statements)

        def by_cursor(conn: Any, statement: str, params: dict[str, Any]) -> Any:
            with conn.connection.cursor() as cursor:
                before(conn, cursor, statement, params, None, False)
            return real_cursor(conn, statement, params)

        real, real_cursor = transaction.ask, transaction.by_cursor
        event.listen(app.db.engine, "before_cursor_execute", before)
        transaction.ask, transaction.by_cursor = ask, by_cursor
        try:
            work()
        finally:
            event.remove(app.db.engine, "before_cursor_execute", before)
            transaction.ask, transaction.by_cursor = real, real_cursor
        return found
    return _sqlite_plans(app, work, plan, found)


def _sqlite_plans(
    app: Penstock, work: Callable[[], Any], plan: Callable[..., None], found: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """On SQLite the hot statements run on the driver's own cursor: the driver tells what it runs."""
    statements: list[str] = []
    engine = app.db.engine
    app.db.close()

    def listen(dbapi: Any, _record: Any) -> None:
        dbapi.set_trace_callback(statements.append)

    event.listen(engine, "connect", listen)
    try:
        work()
    finally:
        event.remove(engine, "connect", listen)
        app.db.close()
    with engine.connect() as conn:
        cursor = conn.connection.cursor()
        for statement in dict.fromkeys(statements):
            if not statement.startswith(("BEGIN", "COMMIT", "ROLLBACK", "--")):
                plan(cursor, statement, ())
        cursor.close()
    return found


def assert_by_index(app: Penstock, work: Callable[[], Any], statements: int = 1) -> None:
    plans = plans_of(app, work)
    assert len(plans) >= statements, "nothing was planned: the test proves nothing"
    for statement, plan in plans:
        if statement.lstrip().upper().startswith("INSERT INTO PENSTOCK_RUNS") and "SELECT" not in statement:
            continue
        if app.db.name == "postgresql":
            bad = re.search(r"Seq Scan on penstock_(jobs|runs|ready|waiting)", plan) or re.search(WHOLE_INDEX, plan)
        else:
            bad = re.search(r"SCAN (penstock_(jobs|runs|ready|waiting)|[jrwel])\b(?! USING)", plan) or (
                # Only the tenant is known: that would read all of its history.
                re.search(r"ix_penstock_runs_ended \(tenant_id=\?\)", plan)
            )
        assert not bad, f"{statement}\n\n{plan}"


def claim_and_give_back(app: Penstock, **how: Any) -> Callable[[], None]:
    def work() -> None:
        claims = app.queue.claim("w:1", 5, **how)
        assert len(claims) == 5
        app.queue.release(claims)

    return work


@pytest.mark.parametrize(
    "how", [{"queues": ["default"]}, {"queues": ["default", "other"]}, {}, {"keys": ["rare"]}], ids=str
)
def test_claim(app: Penstock, statistics: str, how: dict[str, Any]) -> None:
    assert_by_index(app, claim_and_give_back(app, **how), 2)


def test_claim_beside_a_reservation(app: Penstock, statistics: str) -> None:
    try:
        app.tenants.create("held")
    except Exception:
        assert app.tenants.get("held")
    with app.as_tenant("held").reserve():
        assert_by_index(app, claim_and_give_back(app), 2)


def test_heartbeat_and_finish(app: Penstock, statistics: str) -> None:
    claims = app.queue.claim("w:1", 3)
    assert_by_index(app, lambda: app.queue.heartbeat(claims))
    ok, bad, _ = claims
    assert_by_index(app, lambda: app.queue.finish(ok, Succeeded()))
    assert_by_index(app, lambda: app.queue.finish(bad, Failed("no", delay=0)))
    assert_by_index(app, lambda: app.queue.claim("w:1", 1), 3)  # with the retry that is due
    app.queue.finish_many([(claims[2], Succeeded())])


def test_heartbeat_and_finish_of_many_of_which_the_statistics_know_nothing(app: Penstock, statistics: str) -> None:
    """They were made while nothing ran: that anything has a lease comes as a surprise to the planner."""
    held = app.queue.claim("w:1", 500)
    assert_by_index(app, lambda: app.queue.heartbeat(held))
    for outcome, some in ((Succeeded(), held[:200]), (Succeeded({"n": 1}), held[200:400]), (Failed("no"), held[400:])):
        reports = [report_of(claim, outcome) for claim in some]
        assert_by_index(app, lambda reports=reports: finish_many(app.ground, reports, "w:1"))


def test_finish_with_the_next_claim(app: Penstock, statistics: str) -> None:
    """Planned under what the gate has set for the claim."""
    held = app.queue.claim("w:1", 3)
    for outcome in (Succeeded(), Succeeded({"n": 1}), Failed("no", delay=3600)):
        claim = held.pop()
        report = [report_of(claim, outcome)]
        taken: list[Claim] = []
        assert_by_index(
            app, lambda report=report, taken=taken: taken.extend(claim_next(app.ground, "w:1", 1, reports=report)), 3
        )
        app.queue.release(taken)


def test_enqueue(app: Penstock, statistics: str) -> None:
    app.enqueue("work")
    assert_by_index(app, lambda: app.enqueue("work"))
    assert_by_index(app, lambda: app.enqueue("work", dedupe_key=f"k-{statistics}"))
    assert_by_index(app, lambda: app.enqueue("work", dedupe_key=f"k-{statistics}"))


def test_looking(app: Penstock, statistics: str) -> None:
    job = app.enqueue("work")
    for look in (
        lambda: app.jobs.get(job.id),
        lambda: app.jobs.list(limit=20),
        lambda: app.jobs.list(status="succeeded", limit=20),
        lambda: app.jobs.list(status="succeeded", limit=20, before=job.id),
        lambda: app.jobs.runs(job.id),
        lambda: app.jobs.why(job.id),
    ):
        assert_by_index(app, look)


def test_summary(app: Penstock, statistics: str) -> None:
    for statement, plan in plans_of(app, lambda: app.jobs.summary(cap=1000)):
        assert not re.search(WHOLE_TABLE, plan), f"{statement}\n\n{plan}"


def test_how_long_and_how_much_waits(app: Penstock, statistics: str) -> None:
    tenant_id = app.jobs.tenant_id

    def look() -> None:
        with app.db.read() as tx:
            waiting.oldest_ready_at(tx, tenant_id)
            waiting.depths(tx, [tenant_id])
            waiting.running(tx)

    plans = plans_of(app, look)
    assert len(plans) >= 5
    for statement, plan in plans:
        assert not re.search(r"(Seq Scan on|SCAN) penstock_(jobs|runs)(?! USING)", plan), f"{statement}\n\n{plan}"


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_the_end_of_a_groups_member(app: Penstock, statistics: str, mode: str) -> None:
    app.define("member", queue=f"members-{mode}")
    group = app.groups.create([("member", {})] * 300, mode=mode)
    (first,) = app.queue.claim("w:1", 1, queues=[f"members-{mode}"])
    plans = plans_of(app, lambda: app.queue.finish(first, Succeeded()))
    assert plans
    for statement, plan in plans:
        assert not re.search(r"ix_penstock_jobs_group\b", plan), f"reads the whole group: {statement}\n\n{plan}"
        if "penstock_runs.group_position <" in statement:
            by_place = r"ix_penstock_runs_died_in_group \(group_id=\? AND group_position<\?\)|Index Cond: \(\(group_id = .*group_position < "
            assert re.search(by_place, plan), f"reads all that were canceled: {statement}\n\n{plan}"
    if mode == "sequential":
        assert any("penstock_runs.group_position <" in statement for statement, _ in plans)
    app.groups.cancel(group.id)


def test_steering(app: Penstock, statistics: str) -> None:
    a, b, c = app.enqueue_many("work", [{}] * 3)
    for steer in (
        lambda: app.jobs.move(a, after=b),
        lambda: app.jobs.move(a, to="top"),
        lambda: app.jobs.update(b, priority=7),
        lambda: app.jobs.cancel(c),
        lambda: app.jobs.retry(c),
    ):
        assert_by_index(app, steer)


def test_time_and_giving_back(app: Penstock, statistics: str) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    a, b = app.enqueue_many("work", [{}] * 2)
    for steer in (
        lambda: app.jobs.update(a, scheduled_for=later),
        lambda: app.jobs.update(a, priority=9),
        lambda: app.jobs.run_now(a),
        lambda: app.jobs.update(b, params={"n": 1}),
    ):
        assert_by_index(app, steer)
    taken = app.queue.claim("w:1", 3)
    assert_by_index(app, lambda: app.queue.release(taken))


def test_what_has_become_due(app: Penstock, statistics: str) -> None:
    ids = app.enqueue_many("work", [{}] * 3, scheduled_for=datetime.now(UTC) + timedelta(days=1))
    with app.db.write() as tx:
        for job_id in ids:
            given = {"id": str(job_id) if app.db.name == "sqlite" else job_id}
            tx.run(text("UPDATE penstock_waiting SET until = queued_at WHERE job_id = :id"), given)

    def promote_due() -> None:
        with app.db.write() as tx:
            assert promote.due(tx) >= 3

    assert_by_index(app, promote_due, 3)


def test_recovery(app: Penstock, statistics: str) -> None:
    """An operator's recovery goes through all that waits, but not through history for each page of it."""
    plans = plans_of(app, app.recover)
    assert len(plans) >= 4
    for statement, plan in plans:
        bad = re.search(r"(Seq Scan on|SCAN) penstock_(jobs|runs)\b(?! USING)", plan) or re.search(WHOLE_HISTORY, plan)
        assert not bad, f"{statement}\n\n{plan}"
