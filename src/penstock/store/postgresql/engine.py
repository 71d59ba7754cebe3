"""How connections to PostgreSQL are opened and kept."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from sqlalchemy import Engine, event, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DisconnectionError

from penstock.core.errors import InvalidInput
from penstock.store.dialect import Adopted, pool_beside
from penstock.store.postgresql import link

CONNECT_ARGS = {
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    "application_name": "penstock",
    "prepare_threshold": 1,  # none behind a pooler: see `link.settle`
}


class PostgresEngine:
    """Engines, and what is asked of a connection of theirs."""

    unwrapped_errors: ClassVar[tuple[type[Exception], ...]] = ()
    bare_url: ClassVar[str] = "postgresql+psycopg://"
    guest_options: ClassVar[Mapping[str, Any]] = {"use_native_hstore": False}

    migrates_itself: ClassVar[bool] = False

    def check_place(self, url: URL) -> None:
        """Do nothing: the files are the server's."""

    def create_engine(self, url: URL, factory: Callable[..., Engine], pool_size: int, busy_timeout: float) -> Engine:
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")
        url, settling = _settings_in(url)
        connect_args = {key: value for key, value in CONNECT_ARGS.items() if key not in url.query}
        if settling.threshold is not None:
            connect_args["prepare_threshold"] = settling.threshold
        engine = factory(
            url,
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=busy_timeout,
            pool_recycle=1800,
            pool_use_lifo=True,  # the connection that has the statements prepared, not each in turn
            pool_reset_on_return=None,  # `_reset` does, where there is something to undo
            use_native_hstore=False,
            connect_args=connect_args,
        )
        return _watched(engine, settling)

    def engine_beside(
        self, engine: Engine, factory: Callable[..., Engine], pool_size: int, busy_timeout: float
    ) -> Engine:
        """Connections are opened as the given engine opens them; what is done with them is our own."""
        if not _by_psycopg(engine):
            return factory(engine.url, pool=pool_beside(engine, pool_size, busy_timeout))
        pool = pool_beside(engine, pool_size, busy_timeout, recycle=1800, use_lifo=True, reset_on_return=None)
        return _watched(factory(engine.url, pool=pool, use_native_hstore=False), _Settling())

    def adopt(self, engine: Engine, factory: Callable[..., Engine], pool_size: int, busy_timeout: float) -> Adopted:
        return Adopted(engine, False)

    def prepare_place(self, url: URL) -> None:
        """Do nothing: the files are the server's."""

    def file_of(self, url: URL) -> str | None:
        return None

    @contextmanager
    def scratch(self, url: URL, connect: Callable[[], Any]) -> Iterator[str]:
        """A schema on the same server."""
        name = f"penstock_bench_{uuid.uuid4().hex[:8]}"
        db = connect()
        try:
            with db.write() as tx:
                if link.is_pooled(tx.conn.connection.dbapi_connection):
                    raise InvalidInput("This needs a direct connection to PostgreSQL, not one through a pooler.")
                tx.run(text(f"CREATE SCHEMA {name}"))
            try:
                yield url.update_query_dict({"options": f"-csearch_path={name}"}).render_as_string(hide_password=False)
            finally:
                with db.write() as tx:
                    tx.run(text(f"DROP SCHEMA {name} CASCADE"))
        finally:
            db.close()

    def is_pooled(self, connection: Any) -> bool:
        return link.is_pooled(connection)

    def unprepared(self, connection: Any) -> AbstractContextManager[None]:
        return link.unprepared(connection)

    def has_short_way(self, engine: Engine) -> bool:
        if not _by_psycopg(engine):
            return False
        from penstock.store.postgresql import wire

        return wire.CAN

    def settle(self, connection: Any) -> None:
        link.settle(connection)

    def room_on_disk(self, engine: Engine) -> AbstractContextManager[None]:
        return nullcontext()  # the server has its own way

    def patience(self, connection: Any, seconds: float | None) -> AbstractContextManager[None]:
        return link.patience(connection, seconds)

    def is_alive(self, connection: Any) -> bool:
        return _is_alive(connection)

    def is_raw_connection(self, given: Any) -> bool:
        kind = type(given)
        return any(base.__module__.startswith("psycopg") and base.__name__ == "Connection" for base in kind.__mro__)


@dataclass(frozen=True, slots=True)
class _Settling:
    """What the operator said in the URL of the connections that it opens."""

    pooler: link.Pooler | None = None
    threshold: int | None = None

    @property
    def prepare(self) -> bool | None:
        return None if self.threshold is None else self.threshold > 0


def _settings_in(url: URL) -> tuple[URL, _Settling]:
    """Take `pooler` and `prepare_threshold` out of a URL: libpq does not know them."""
    pooler, threshold = url.query.get("pooler"), url.query.get("prepare_threshold")
    if pooler not in (None, "session", "transaction"):
        raise InvalidInput(
            f"pooler={pooler} in the database URL is not known. Use pooler=transaction or pooler=session."
        )
    if threshold is not None and not (isinstance(threshold, str) and threshold.isdecimal()):
        raise InvalidInput(
            f"prepare_threshold={threshold} in the database URL is not a number. Use 0 for no prepared statements."
        )
    settling = _Settling(cast("link.Pooler | None", pooler), None if threshold is None else int(threshold))
    return url.difference_update_query(["pooler", "prepare_threshold"]), settling


def _by_psycopg(engine: Engine) -> bool:
    return engine.dialect.driver == "psycopg"


def _watched(engine: Engine, settling: _Settling) -> Engine:
    def settle(connection: Any, _record: Any) -> None:
        link.settle(connection, settling.pooler, settling.prepare)

    event.listen(engine.pool, "connect", settle)
    event.listen(engine.pool, "checkout", _leave_the_dead)
    event.listen(engine.pool, "reset", _reset)
    return engine


def _reset(connection: Any, _record: Any, _state: Any) -> None:
    """Roll back what was left open. Most often nothing was, and the driver takes its time to find that out."""
    if connection.pgconn.transaction_status != 0:
        connection.rollback()


def _leave_the_dead(connection: Any, _record: Any, _proxy: Any) -> None:
    """Whoever takes a connection that the server has ended gets another."""
    if not _is_alive(connection):
        raise DisconnectionError("the server ended this connection")


def _is_alive(connection: Any) -> bool:
    """What the server said is read here, which costs a microsecond where a ping costs a round trip."""
    pgconn = connection.pgconn
    try:
        said = link.Readiness(pgconn.socket)
        while said.readable(0):
            pgconn.consume_input()
    except Exception:
        return False
    return True
