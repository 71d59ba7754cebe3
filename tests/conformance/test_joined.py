"""Enqueue in the caller's own transaction: the job exists exactly if that transaction commits (P1)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import dict_row, namedtuple_row
from psycopg.types.string import TextLoader
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from penstock import InvalidInput, Penstock
from penstock.core.status import JobStatus
from penstock.store import failpoints
from tests.conformance.helpers import claim_one

Enqueue = Callable[[Any], Any]
"""Given the caller's open connection or session, enqueue on it."""


def sqlalchemy_url(app: Penstock) -> str:
    return app.db.url.render_as_string(hide_password=False)


@pytest.fixture
def engine(app: Penstock) -> Iterator[sa.Engine]:
    """The caller's own engine, with none of our settings, and a table of the caller's."""
    engine = sa.create_engine(sqlalchemy_url(app))
    with engine.begin() as conn:
        conn.execute(sa.text("CREATE TABLE orders (id integer)"))
    yield engine
    engine.dispose()


def orders(engine: sa.Engine) -> int:
    with engine.connect() as conn:
        return int(conn.execute(sa.text("SELECT count(*) FROM orders")).scalar_one())


ORDER = sa.text("INSERT INTO orders VALUES (1)")


@pytest.mark.parametrize("kind", ["connection", "session", "autobegin"])
@pytest.mark.parametrize("commit", [True, False])
def test_sqlalchemy(app: Penstock, engine: sa.Engine, kind: str, commit: bool) -> None:
    maker: Any = Session if kind == "session" else sa.Engine.connect
    with maker(engine) as caller:
        if kind == "connection":
            caller.begin()
        if kind != "autobegin":
            caller.execute(ORDER)
        job = app.enqueue("work", {"n": 1}, connection=caller)
        many = app.enqueue_many("work", [{"n": 2}, {"n": 3}], connection=caller)
        group = app.groups.create([("work", {"n": 4})], connection=caller)
        if kind == "autobegin":
            caller.execute(ORDER)
        assert app.jobs.list() == []
        caller.commit() if commit else caller.rollback()
    found = {each.id for each in app.jobs.list()}
    assert found == ({job.id, *many, group.jobs[0].id} if commit else set())
    assert orders(engine) == (1 if commit else 0)


def test_a_failed_enqueue_leaves_the_callers_transaction_usable(app: Penstock, engine: sa.Engine) -> None:
    with engine.begin() as caller:
        caller.execute(ORDER)
        with pytest.raises(InvalidInput):
            app.enqueue("no-such-key", connection=caller)
        app.enqueue("work", {"n": 1}, connection=caller)
    assert orders(engine) == len(app.jobs.list()) == 1


def test_a_savepoint_that_is_rolled_back_takes_the_job_with_it(app: Penstock, engine: sa.Engine) -> None:
    with engine.begin() as caller:
        caller.execute(ORDER)
        kept = app.enqueue("work", connection=caller)
        inner = caller.begin_nested()
        app.enqueue("work", connection=caller)
        inner.rollback()
    assert [job.id for job in app.jobs.list()] == [kept.id]


def test_dedupe_answers_within_the_callers_transaction(app: Penstock, engine: sa.Engine) -> None:
    with engine.begin() as caller:
        first = app.enqueue("work", dedupe_key="k", connection=caller)
        assert app.enqueue("work", dedupe_key="k", connection=caller).id == first.id


def test_a_registered_function_needs_no_definition_before(app: Penstock, engine: sa.Engine) -> None:
    @app.job(key="fresh")
    def fresh() -> None: ...

    with engine.connect() as caller:
        app.enqueue("fresh", connection=caller)
        caller.rollback()
    assert app.jobs.list() == []
    for _ in range(2):
        with engine.begin() as caller:
            app.enqueue("fresh", connection=caller)
    assert [job.definition_key for job in app.jobs.list()] == ["fresh"] * 2


def test_a_group_of_registered_functions_needs_no_definition_before(app: Penstock, engine: sa.Engine) -> None:
    @app.job(key="fresh")
    def fresh() -> None: ...

    with engine.begin() as caller:
        app.groups.create([("fresh", {}), ("work", {})], connection=caller)
    assert sorted(job.definition_key for job in app.jobs.list()) == ["fresh", "work"]


def test_none_is_not_taken_for_a_transaction_of_our_own(app: Penstock) -> None:
    @app.job(key="fresh")
    def fresh() -> None: ...

    acme = app.as_tenant(app.tenants.create("acme").slug)
    verbs: list[Callable[[], object]] = [
        lambda: app.enqueue("work", connection=None),
        lambda: app.enqueue_many("work", [{}], connection=None),
        lambda: app.emit("happened", connection=None),
        lambda: app.events.emit("happened", connection=None),
        lambda: app.groups.create([("work", {})], connection=None),
        lambda: fresh.using(connection=None)(),
        lambda: acme.enqueue("work", connection=None),
        lambda: acme.groups.create([("work", {})], connection=None),
    ]
    for verb in verbs:
        with pytest.raises(InvalidInput, match=r"connection is None.*django\.db\.connection"):
            verb()
    assert app.jobs.list() == acme.jobs.list() == []


def async_url(app: Penstock) -> str:
    return sqlalchemy_url(app).replace("sqlite://", "sqlite+aiosqlite://")


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("kind", ["connection", "session"])
def test_async_sqlalchemy_through_run_sync(app: Penstock, engine: sa.Engine, kind: str, commit: bool) -> None:
    async def work() -> None:
        async_engine = create_async_engine(async_url(app))
        maker: Any = async_engine.connect if kind == "connection" else lambda: AsyncSession(async_engine)
        async with maker() as caller:
            await caller.execute(ORDER)
            await caller.run_sync(lambda sync: app.enqueue("work", {"n": 1}, connection=sync))
            await caller.run_sync(lambda sync: app.enqueue_many("work", [{"n": 2}] * 3, connection=sync))
            await caller.run_sync(lambda sync: app.enqueue("work", {"n": 3}, dedupe_key="k", connection=sync))
            await (caller.commit() if commit else caller.rollback())
        await async_engine.dispose()

    asyncio.run(work())
    assert (orders(engine), len(app.jobs.list())) == ((1, 5) if commit else (0, 0))


def odd_sqlite_row(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> str:
    return "a row? never"


@contextmanager
def raw_connection(app: Penstock, style: str) -> Iterator[Any]:
    if app.db.name == "sqlite":
        conn: Any = sqlite3.connect(app.db.url.database or "")
        conn.row_factory = {"plain": None, "rows": sqlite3.Row, "odd": odd_sqlite_row}[style]
    else:
        url = app.db.url.set(drivername="postgresql").render_as_string(hide_password=False)
        conn = psycopg.connect(url)
        conn.row_factory = {"plain": conn.row_factory, "rows": dict_row, "odd": namedtuple_row}[style]
    try:
        yield conn
    finally:
        conn.close()


@pytest.mark.parametrize("style", ["plain", "rows", "odd"])
@pytest.mark.parametrize("commit", [True, False])
def test_raw_connections(app: Penstock, engine: sa.Engine, style: str, commit: bool) -> None:
    with raw_connection(app, style) as caller:
        factory = caller.row_factory
        caller.execute("INSERT INTO orders VALUES (1)")
        job = app.enqueue("work", {"n": 1, "text": "é"}, dedupe_key="k", connection=caller)
        again = app.enqueue("work", {"n": 2}, dedupe_key="k", connection=caller)
        many = app.enqueue_many("work", [{"n": 3}] * 2, connection=caller)
        assert again.id == job.id
        assert caller.row_factory is factory
        assert app.jobs.list() == []
        caller.commit() if commit else caller.rollback()
        if style != "odd":
            caller.execute("SELECT count(*) FROM orders").fetchone()  # it still works
    assert {each.id for each in app.jobs.list()} == ({job.id, *many} if commit else set())
    assert orders(engine) == (1 if commit else 0)
    if commit:
        assert claim_one(app).params == {"n": 1, "text": "é"}


def test_a_raw_connection_outside_a_transaction(app: Penstock) -> None:
    """Autocommit is the caller's choice: what is written is there at once."""
    if app.db.name == "sqlite":
        caller: Any = sqlite3.connect(app.db.url.database or "", isolation_level=None)
    else:
        caller = psycopg.connect(
            app.db.url.set(drivername="postgresql").render_as_string(hide_password=False), autocommit=True
        )
    app.enqueue("work", connection=caller)
    caller.close()
    assert app.jobs.summary().counts[JobStatus.QUEUED] == 1


def odd_text(data: bytes) -> str:
    return "a text? never"


@contextmanager
def oddly_configured(app: Penstock, style: str) -> Iterator[Any]:
    """Connections as frameworks and their users configure them."""
    if app.db.name == "sqlite":
        path = app.db.url.database or ""
        conn: Any = sqlite3.connect(path, detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES)
        conn.text_factory = {"texts": bytes, "loaders": odd_text, "cursors": str}[style]
    else:
        conn = psycopg.connect(app.db.url.set(drivername="postgresql").render_as_string(hide_password=False))
        if style == "cursors":
            conn.cursor_factory = psycopg.ClientCursor
        for name in ("jsonb", "json", "uuid", "timestamptz", "numeric", "int4", "int8", "bool"):
            if style != "cursors":
                conn.adapters.register_loader(name, TextLoader if style == "texts" else Unloadable)
    try:
        yield conn
    finally:
        conn.close()


class Unloadable(psycopg.adapt.Loader):
    def load(self, data: Any) -> Any:
        raise AssertionError("a loader of the caller's was used")


@pytest.mark.parametrize("style", ["texts", "loaders", "cursors"])
def test_raw_connections_as_others_configure_them(
    app: Penstock, engine: sa.Engine, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sqlite3.converters, "JSON", lambda data: json.loads(data))
    monkeypatch.setitem(sqlite3.converters, "BOOLEAN", lambda data: data == b"1")
    app.triggers.on_event("a", "paid", "work", {"n": "{{ event.n }}"})
    app.ground.forget_definitions()
    with oddly_configured(app, style) as caller:
        factory = getattr(caller, "text_factory", None)
        group = app.groups.create([("work", {"n": 1})], connection=caller)
        app.ground.forget_definitions()
        job = app.enqueue("work", {"n": 2}, dedupe_key="k", connection=caller)
        assert app.enqueue("work", {"n": 3}, dedupe_key="k", connection=caller) == job
        many = app.enqueue_many("work", [{"n": 4}], connection=caller)
        event = app.emit("paid", {"n": 5}, connection=caller)
        assert getattr(caller, "text_factory", None) is factory
        caller.commit()
    assert app.jobs.get(job.id) == job
    assert app.groups.get(group.id) == group
    assert app.events.get(event.id) == event
    assert sorted(each.params["n"] for each in app.jobs.list()) == [1, 2, 4, 5]
    assert app.jobs.get(many[0]).params == {"n": 4}


@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_a_sqlalchemy_connection_with_loaders_of_its_own(app: Penstock, engine: sa.Engine) -> None:
    def configure(connection: Any, _record: Any) -> None:
        for name in ("jsonb", "uuid", "timestamptz"):
            connection.adapters.register_loader(name, TextLoader)

    sa.event.listen(engine, "connect", configure)
    engine.dispose()
    app.triggers.on_event("a", "paid", "work", {"n": "{{ event.n }}"})
    app.ground.forget_definitions()
    with engine.begin() as caller:
        job = app.enqueue("work", {"n": 1}, dedupe_key="k", connection=caller)
        assert app.enqueue("work", {"n": 2}, dedupe_key="k", connection=caller) == job
        group = app.groups.create([("work", {"n": 3})], connection=caller)
        event = app.emit("paid", {"n": 4}, connection=caller)
    assert app.jobs.get(job.id) == job
    assert app.groups.get(group.id) == group
    assert app.events.get(event.id) == event


def test_a_sqlalchemy_connection_in_autocommit(app: Penstock, engine: sa.Engine) -> None:
    """Each call is committed when it returns, or leaves nothing."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as caller:
        app.groups.create([("work", {"n": 1}), ("work", {"n": 2})], connection=caller)
        assert len(app.jobs.list()) == 2
        with failpoints.armed("enqueue.after", "error"), pytest.raises(failpoints.InjectedError):
            app.enqueue("work", connection=caller)
        assert len(app.jobs.list()) == 2
        app.enqueue("work", connection=caller)
    assert len(app.jobs.list()) == 3


def test_what_is_no_connection_is_refused(app: Penstock) -> None:
    for wrong in (object(), "conn", sa.create_engine("sqlite://")):
        with pytest.raises(InvalidInput, match="SQLAlchemy Connection or Session"):
            app.enqueue("work", connection=wrong)


def test_a_connection_to_another_kind_of_database_is_refused(app: Penstock) -> None:
    other = "sqlite://" if app.db.name == "postgresql" else "postgresql+psycopg://127.0.0.1:1/none"
    engine = sa.create_engine(other)
    if app.db.name == "postgresql":
        with engine.connect() as caller, pytest.raises(InvalidInput, match="its own database"):
            app.enqueue("work", connection=caller)
    with pytest.raises(InvalidInput, match="expected a SQLAlchemy Connection"):
        app.enqueue("work", connection=engine)
    engine.dispose()
