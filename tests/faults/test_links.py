"""The way to the server: links that hang, servers that are demoted, URLs with several hosts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
import structlog
from sqlalchemy import text

from penstock import Config, Context, InvalidInput, Penstock
from penstock.core.errors import DatabaseUnavailable
from penstock.core.status import JobStatus
from penstock.store.database import Database
from penstock.store.schema import upgrade
from tests.faults.conftest import eventually
from tests.support.postgres import Server
from tests.support.proxy import Proxy, proxied
from tests.worker.conftest import ended, working

LIMIT = 200.0
"""How long anything here may take before it counts as hung: many times its deadline, for the sake of a busy machine."""


@pytest.fixture
def backend() -> str:
    return "postgresql"


@pytest.fixture
def link(url: str) -> Iterator[tuple[str, Proxy]]:
    with proxied(url) as (through, proxy):
        yield f"{through}?connect_timeout=2", proxy


def within(work: Callable[[], Any]) -> Any:
    """What the work returns or raises; a failure if it does neither."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append((work(), None))
        except Exception as error:
            found.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(LIMIT)
    assert found, f"no end within {LIMIT:g} s"
    value, error = found[0]
    if error is not None:
        raise error
    return value


def adding(app: Penstock) -> Any:
    @app.job(key="add")
    def add(a: int) -> int:
        return a + 1

    return add


def test_enqueue_goes_on_by_another_connection_when_its_own_hangs(link: tuple[str, Proxy]) -> None:
    through, proxy = link
    app = Penstock(through, config=Config(statement_seconds=2.0))
    add = adding(app)
    for a in range(3):
        add.enqueue(a=a)
    proxy.hang()
    job = within(lambda: add.enqueue(a=3))
    assert app.jobs.get(job.id).params == {"a": 3}
    assert app.jobs.summary().queued == 4
    proxy.hang()
    within(lambda: app.enqueue_many("add", [{"a": n} for n in range(4, 10)]))
    assert app.jobs.summary().queued == 10
    app.close()


def test_enqueue_says_so_when_every_link_hangs(link: tuple[str, Proxy]) -> None:
    through, proxy = link
    app = Penstock(through, config=Config(statement_seconds=2.0))
    add = adding(app)
    add.enqueue(a=1)
    proxy.hangs = True
    proxy.hang()
    with pytest.raises(DatabaseUnavailable, match=r"no answer within 2 s|timeout"):
        within(lambda: add.enqueue(a=2))
    with pytest.raises(DatabaseUnavailable):
        within(lambda: app.jobs.list(limit=1))
    proxy.hangs = False
    proxy.hang()
    assert within(lambda: add.enqueue(a=3)).params == {"a": 3}
    app.close()


def test_a_worker_goes_on_when_its_links_hang(link: tuple[str, Proxy], url: str) -> None:
    through, proxy = link
    direct = Penstock(url)
    app = Penstock(through, config=Config(lease_seconds=9.0, poll_seconds=0.5, statement_seconds=3.0))
    add = adding(app)
    go = threading.Event()

    @app.job(key="long", max_attempts=1)
    def long() -> str:
        go.wait(LIMIT)
        return "done"

    with working(app):
        assert ended(app, add.enqueue(a=1), LIMIT).result == 2
        held = long.enqueue()
        eventually(lambda: direct.jobs.get(held.id).status is JobStatus.RUNNING, what="the start")
        proxy.hang()
        job = direct.enqueue("add", {"a": 5})
        assert ended(direct, job, LIMIT).result == 6
        eventually(
            lambda: direct.jobs.get(held.id).status is not JobStatus.RUNNING or _lease_of(url) > 6.0,
            LIMIT, "a renewed lease",
        )  # fmt: skip
        go.set()
        found = ended(direct, held, LIMIT)
        assert (found.status, found.result) == (JobStatus.SUCCEEDED, "done")
    assert direct.doctor().clean
    app.close()
    direct.close()


def _lease_of(url: str) -> float:
    """How many seconds the lease of the one running job has left."""
    with psycopg.connect(url) as conn:
        left = "SELECT extract(epoch FROM max(lease_expires_at) - clock_timestamp()) FROM penstock_running"
        ((seconds,),) = conn.execute(left).fetchall()
    return float(seconds or 0)


def test_what_is_given_up_does_not_happen_later(url: str) -> None:
    """A server that is only slow is told to stop: nothing waits there for a lock on behalf of somebody who has gone."""
    app = Penstock(url, config=Config(statement_seconds=0.5))
    add = adding(app)
    add.enqueue(a=1)
    with psycopg.connect(url) as other:
        other.execute("LOCK TABLE penstock_jobs IN EXCLUSIVE MODE")
        with pytest.raises(DatabaseUnavailable, match="took longer than Penstock waits"):
            within(lambda: add.enqueue(a=2))
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        eventually(lambda: other.execute(waiting).fetchall() == [(0,)], LIMIT, "the end of what waited")
    assert app.jobs.summary().queued == 1
    app.close()


def test_what_may_take_its_time_is_not_cut(url: str) -> None:
    app = Penstock(url, config=Config(statement_seconds=0.3, lease_seconds=5.0))

    @app.job(key="slow", max_attempts=1)
    def slow(ctx: Context) -> None:
        with ctx.transaction() as conn:
            conn.execute(text("SELECT pg_sleep(1)"))

    with working(app):
        assert ended(app, slow.enqueue(), LIMIT).status is JobStatus.SUCCEEDED
    with app.db.engine.connect() as own:
        own.execute(text("SELECT pg_sleep(0.6)"))
        app.enqueue("slow", connection=own)
        own.execute(text("SELECT pg_sleep(0.6)"))
        own.commit()
    assert app.jobs.summary().queued == 1
    app.close()


@pytest.fixture
def pair() -> Iterator[tuple[Server, Server]]:
    """Two servers of this test's own, each with the tables."""
    servers = Server().start(), Server().start()
    for server in servers:
        db = Database(server.url())
        upgrade(db)
        db.close()
    yield servers
    for server in servers:
        server.remove()


def test_a_demoted_server_is_left_at_once(pair: tuple[Server, Server]) -> None:
    old, new = pair
    with proxied(old.url()) as (through, proxy):
        app = Penstock(through, config=Config(lease_seconds=5.0, poll_seconds=0.5))
        add = adding(app)
        with working(app):
            assert ended(app, add.enqueue(a=1), LIMIT).result == 2
            proxy.target = new.port  # where the name leads from now on
            old.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            old.execute("SELECT pg_reload_conf()")
            there = Penstock(new.url())
            adding(there)
            there.sync_definitions()
            job = there.enqueue("add", {"a": 5})
            assert ended(there, job, LIMIT).result == 6, "the worker went on to the new server"
            eventually(lambda: _enqueued(add, there), LIMIT, "an enqueue on the new server")
        assert there.doctor().clean
        there.close()
        app.close()


def test_a_worker_that_starts_under_a_read_only_server_waits_for_it(pair: tuple[Server, Server]) -> None:
    server, _ = pair
    app = Penstock(server.url(), config=Config(lease_seconds=5.0, poll_seconds=0.5))
    job = adding(app).enqueue(a=1)
    server.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    server.execute("SELECT pg_reload_conf()")
    with psycopg.connect(server.url(), autocommit=True) as looking:
        eventually(
            lambda: looking.execute("SHOW default_transaction_read_only").fetchone() == ("on",), LIMIT, "read-only"
        )
    app.close()
    app = Penstock(server.url(), config=Config(lease_seconds=5.0, poll_seconds=0.5))
    adding(app)
    with structlog.testing.capture_logs() as logged:
        starting = threading.Thread(target=app.worker().start, daemon=True)
        starting.start()
        eventually(
            lambda: any(each["event"] == "waiting_for_database" for each in logged), LIMIT, "the worker's waiting"
        )
        server.execute("ALTER SYSTEM RESET default_transaction_read_only")
        server.execute("SELECT pg_reload_conf()")
        assert ended(app, job, LIMIT).result == 2
    app.close()


def _enqueued(add: Any, there: Penstock) -> bool:
    job = within(lambda: add.enqueue(a=7))
    return any(each.id == job.id for each in there.jobs.list(limit=50))


def test_a_url_may_name_several_hosts(url: str) -> None:
    """As libpq takes it: the first does not answer, the second takes writes."""
    head, _, database = url.rpartition("/")
    address = head.rpartition("@")[2]
    several = f"postgresql://postgres@127.0.0.1:1,{address}/{database}?target_session_attrs=read-write"
    app = Penstock(several, config=Config(lease_seconds=5.0))
    add = adding(app)
    with working(app):
        assert ended(app, add.enqueue(a=1), LIMIT).result == 2
    app.close()


@pytest.mark.parametrize(
    "bad",
    ["postgresql://u:secret@h:port/db", "postgresql://h1:1,h2:x/db", "postgresql+asyncpg://h/db", "mysql://h/db", "jobs.db",
     "postgresql://h/db?prepare_threshold=soon", "postgresql://h/db?pooler=yes"],
)  # fmt: skip
def test_a_malformed_url_is_refused_in_words(bad: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Penstock(bad)
    assert "secret" not in str(refused.value)


def test_an_unknown_option_in_a_url_is_named(url: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="nonsense"):
        Penstock(f"{url}?nonsense=1")
