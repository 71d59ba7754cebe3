"""Several statements in one round trip: what comes back, and what is left of the connection when something goes wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import text

from penstock import Context, Penstock
from penstock.core.errors import DatabaseUnavailable
from penstock.core.ids import DEFAULT_TENANT_ID
from penstock.queue.enqueue import DEFAULTS, enqueue_in
from penstock.store.database import Database
from penstock.store.hot import Gate
from penstock.store.postgresql import claim, wire
from penstock.store.postgresql.wire import Statement, ask, rows


@pytest.fixture
def backend() -> str:
    return "postgresql"


@pytest.fixture
def borrowed(url: str) -> Iterator[Any]:
    database = Database(url)
    connection = database.engine.raw_connection()
    yield connection
    connection.close()
    database.close()


def one(borrowed: Any, sql: str, **params: Any) -> Any:
    (answer,) = ask(borrowed, [Statement(sql, params)], begin=False)
    return rows(borrowed, answer)


def test_values_arrive_as_they_were(borrowed: Any) -> None:
    when, made = datetime(2026, 3, 1, 12, 30, 15, 123456, UTC), uuid4()
    texts = ["plain", "", 'a "quoted" \\ one', "a,b", "{}", "NULL", "ünï", "x\ny"]
    ((a, b, c, d, e, f, g),) = one(
        borrowed,
        "SELECT CAST(:a AS integer), CAST(:b AS float8), CAST(:c AS text[]), CAST(:d AS timestamptz), CAST(:e AS uuid),"
        " CAST(:f AS boolean), CAST(:g AS text)",
        a=-7, b=0.1, c=texts, d=when, e=made, f=True, g=None,
    )  # fmt: skip
    assert (a, b, c, d, e, f, g) == (-7, 0.1, texts, when, made, True, None)


def test_a_name_may_be_used_twice_and_a_cast_is_no_name(borrowed: Any) -> None:
    assert one(borrowed, "SELECT :a::text || :a || CAST(:b AS text)", a="x", b="y") == [("xxy",)]


def test_more_than_any_buffer_holds_goes_both_ways(borrowed: Any) -> None:
    text = "0123456789abcdef" * 1_000_000
    statement = Statement("SELECT CAST(:text AS text)", {"text": text})
    answers = ask(borrowed, [statement, statement, statement], begin=True)
    assert [rows(borrowed, answer) for answer in answers] == [[(text,)]] * 3


def test_a_nul_is_refused_and_the_connection_goes_on(borrowed: Any) -> None:
    with pytest.raises(psycopg.DataError, match="NUL"):
        one(borrowed, "SELECT CAST(:a AS text)", a="a\0b")
    assert one(borrowed, "SELECT 1") == [(1,)]


def test_a_transaction_is_committed_as_a_whole_or_not_at_all(borrowed: Any) -> None:
    ask(borrowed, [Statement("CREATE TABLE t (n integer UNIQUE)", {})], begin=False)
    insert = "INSERT INTO t VALUES (CAST(:n AS integer))"
    ask(borrowed, [Statement(insert, {"n": 1}), Statement(insert, {"n": 2})], begin=False)
    with pytest.raises(psycopg.errors.UniqueViolation):
        ask(borrowed, [Statement(insert, {"n": 3}), Statement(insert, {"n": 1})], begin=False)
    borrowed.rollback()
    assert one(borrowed, "SELECT n FROM t ORDER BY n") == [(1,), (2,)]


def test_what_cannot_be_committed_is_an_error_and_is_not_there(borrowed: Any) -> None:
    for sql in (
        "CREATE TABLE t (n integer PRIMARY KEY)",
        "CREATE TABLE u (n integer REFERENCES t DEFERRABLE INITIALLY DEFERRED)",
    ):
        one(borrowed, sql)
    insert = Statement("INSERT INTO u VALUES (CAST(:n AS integer))", {"n": 1})
    for statements in ([insert], [insert, insert]):
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            ask(borrowed, statements, begin=False)
        assert one(borrowed, "SELECT n FROM u") == []


def test_a_connection_at_hand_is_the_same_until_it_is_lost(url: str) -> None:
    database = Database(url)

    def backend_id() -> int:
        found = database.at_once(lambda tx: one(tx.conn.connection, "SELECT pg_backend_pid()"))
        assert found is not None
        return int(found[0][0])

    first = backend_id()
    with database.write() as tx:
        assert tx.scalar(text("SELECT pg_backend_pid()")) != first
    assert backend_id() == first
    with database.write() as tx:
        tx.conn.execute(text("SELECT pg_terminate_backend(:pid)"), {"pid": first})
    gone = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
    until = time.monotonic() + 10
    present = 1
    while present:  # the server takes its time to end it
        assert time.monotonic() < until
        with database.read() as tx:
            present = tx.scalar(gone, {"pid": first})
    assert (second := backend_id()) != first
    assert backend_id() == second
    database.close()
    assert database.engine.pool.checkedin() == 0  # type: ignore[attr-defined]


def test_a_connection_at_hand_is_not_a_childs(url: str) -> None:
    program = """
import os, sys
from penstock import Penstock
app = Penstock(sys.argv[1])
app.define("noop", runner="command")
for n in range(3):
    app.enqueue("noop", {})
parents = app.db._at_hand[0][1].dbapi_connection.pgconn.backend_pid
child = os.fork()
if child == 0:
    app.db.engine.dispose(close=False)
    app.enqueue("noop", {})
    os._exit(int(app.db._at_hand[0][1].dbapi_connection.pgconn.backend_pid == parents))
_, status = os.waitpid(child, 0)
app.enqueue("noop", {})
assert app.db._at_hand[0][1].dbapi_connection.pgconn.backend_pid == parents
assert len(app.jobs.list()) == 5
sys.exit(os.waitstatus_to_exitcode(status))
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program, url], check=True, timeout=60)


def test_a_statement_is_prepared_once(borrowed: Any) -> None:
    for _ in range(3):
        one(borrowed, "SELECT CAST(:n AS integer)", n=1)
    ((count,),) = one(
        borrowed, "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT CAST($1 AS int%'"
    )
    assert count == 1


def test_where_statements_cannot_be_prepared_none_is(url: str) -> None:
    database = Database(f"{url}?prepare_threshold=0")
    connection = database.engine.raw_connection()
    assert one(connection, "SELECT CAST(:n AS integer)", n=1) == [(1,)]
    assert one(connection, "SELECT count(*) FROM pg_prepared_statements") == [(0,)]
    connection.close()
    database.close()


@pytest.mark.parametrize("begin", [True, False])
def test_a_statement_that_the_server_forgot_is_prepared_again(borrowed: Any, begin: bool) -> None:
    statement = Statement("SELECT CAST(:n AS integer)", {"n": 1})
    ask(borrowed, [statement], begin=False)
    with borrowed.cursor() as cursor:  # as the driver does by itself whenever it rolls back
        cursor.execute("DEALLOCATE ALL")
    borrowed.commit()
    (answer,) = ask(borrowed, [statement], begin=begin)
    assert rows(borrowed, answer) == [(1,)]


def test_some_forgotten_and_some_not_is_no_trouble(borrowed: Any) -> None:
    first, second = Statement("SELECT CAST(:n AS integer)", {"n": 1}), Statement("SELECT CAST(:n AS text)", {"n": 2})
    ask(borrowed, [first], begin=False)
    with borrowed.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    borrowed.commit()
    ask(borrowed, [second], begin=False)
    assert [rows(borrowed, answer) for answer in ask(borrowed, [first], begin=False)] == [[(1,)]]
    assert [rows(borrowed, answer) for answer in ask(borrowed, [second, first], begin=True)] == [[("2",)], [(1,)]]


def test_tables_that_changed_cost_the_connection_and_no_more(url: str) -> None:
    app = Penstock(url)
    app.define("noop", runner="command")
    app.enqueue("noop", {})
    other = Database(url)
    with other.write() as tx:
        tx.conn.exec_driver_sql("ALTER TABLE penstock_tenants ALTER COLUMN name TYPE varchar(200)")
    app.enqueue("noop", {})
    assert len(app.jobs.list()) == 2
    other.close()
    app.close()


def test_a_hot_statement_within_a_transaction_survives_a_rollback_before_it(url: str) -> None:
    app = Penstock(url)
    app.define("noop", runner="command")

    def look_and_enqueue() -> None:
        with app.db.write() as tx:
            for _ in range(3):
                tx.rows(text("SELECT 1"))
            enqueue_in(app.ground, tx, DEFAULT_TENANT_ID, "noop", {}, DEFAULTS)

    for _ in range(3):
        look_and_enqueue()
        with pytest.raises(RuntimeError), app.db.write() as tx:
            tx.rows(text("SELECT 1"))
            raise RuntimeError
    assert len(app.jobs.list()) == 3
    app.close()


def test_a_jobs_own_transaction_may_roll_back_to_a_savepoint(url: str) -> None:
    """The driver then forgets what is prepared, in the middle of the transaction that closes the run."""
    app = Penstock(url)

    @app.job(key="careful")
    def careful(ctx: Context) -> None:
        with ctx.transaction() as conn:
            for _ in range(3):
                conn.execute(text("SELECT 1"))
                with conn.begin_nested() as inner:
                    inner.rollback()

    made = [careful.enqueue() for _ in range(5)]
    app.worker(concurrency=2).run(until_idle=True)
    assert [app.jobs.get(job.id).status for job in made] == ["succeeded"] * 5
    assert not app.doctor().violations
    app.close()


def test_a_backend_that_is_ended_in_between_is_a_lost_connection(url: str, postgres: Any) -> None:
    database = Database(url)
    endless = Statement("SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(30)", {})
    with pytest.raises(DatabaseUnavailable):
        database.at_once(lambda tx: ask(tx.conn.connection, [endless], begin=False))
    later = Statement("SELECT 2", {})
    assert database.at_once(lambda tx: rows(tx.conn.connection, ask(tx.conn.connection, [later], begin=False)[0])) == [
        (2,)
    ]
    database.close()


def test_a_claim_takes_nothing_unless_the_gate_is_as_expected(url: str) -> None:
    app = Penstock(url)
    app.define("noop", runner="command")
    made = app.enqueue("noop", {})
    app.queue.claim(worker="w", limit=0)
    ground = app.ground
    ground.gate = Gate(False, False, True, ("default", "elsewhere"))
    assert [claim.job_id for claim in app.queue.claim(worker="w")] == [made.id]
    assert ground.gate == Gate(False, False, True, ("default",))
    app.close()


def test_what_the_claim_took_is_kept_though_the_gate_saw_otherwise(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two statements, two snapshots: what kept the gate shut may be gone when the claim looks."""
    with Penstock(url) as app:
        app.define("noop", runner="command")
        assert app.queue.claim("w:1") == []
        app.enqueue_many("noop", [{}] * 3)
        assert claim._LIMITED in claim._GATE.by_server
        shut = claim._GATE.by_server.replace(claim._LIMITED, "true")
        monkeypatch.setattr(claim, "_GATE", claim._GATE._replace(by_server=shut))
        taken = app.queue.claim("w:1", limit=2)
        assert len(taken) == 2
        assert sorted(run.id for claim in taken for run in app.jobs.runs(claim.job_id)) == sorted(
            c.run_id for c in taken
        )
        assert app.jobs.summary().counts["running"] == 2
        assert not app.doctor().violations


def test_this_libpq_can() -> None:
    assert wire.CAN
