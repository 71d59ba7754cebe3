"""How the file is opened."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import Engine, event
from sqlalchemy.engine import URL

from penstock.store.dialect import Adopted, pool_beside
from penstock.store.sqlite import file
from penstock.store.sqlite.adopted import adopt
from penstock.store.sqlite.transaction import MODE, PATIENCE, begin
from penstock.store.types import json_object


def is_prepared(engine: Engine) -> bool:
    """Whether the engine's connections are as we need them, because we made it."""
    return bool(event.contains(engine, "begin", begin))


def _listened(engine: Engine) -> Engine:
    event.listen(engine, "connect", _prepare_connection)
    event.listen(engine, "begin", begin)
    return engine


class SqliteEngine:
    """Engines, and what is asked of a connection of theirs."""

    unwrapped_errors: ClassVar[tuple[type[Exception], ...]] = (sqlite3.Error,)
    bare_url: ClassVar[str] = "sqlite://"
    guest_options: ClassVar[Mapping[str, Any]] = {"json_deserializer": json_object}

    migrates_itself: ClassVar[bool] = True

    def check_place(self, url: URL) -> None:
        file.refuse_network_file_system(url.database)

    def create_engine(self, url: URL, factory: Callable[..., Engine], pool_size: int, busy_timeout: float) -> Engine:
        engine = factory(
            url,
            connect_args={"timeout": busy_timeout, "check_same_thread": False},
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=busy_timeout,
        )
        there = Path(url.database or "").is_file()
        event.listen(engine, "do_connect", file.refuse_to_create if there else file.note_before_connect)
        return _listened(engine)

    def engine_beside(
        self, engine: Engine, factory: Callable[..., Engine], pool_size: int, busy_timeout: float
    ) -> Engine:
        if engine.pool._creator.__module__.startswith("sqlalchemy."):  # nobody's own: the file is all there is to know
            return self.create_engine(engine.url, factory, pool_size, busy_timeout)
        beside = factory(engine.url, pool=pool_beside(engine, pool_size, busy_timeout))
        event.listen(
            beside, "connect", lambda dbapi, _: dbapi.execute(f"PRAGMA busy_timeout={busy_timeout * 1000:.0f}")
        )
        return _listened(beside)

    def adopt(self, engine: Engine, factory: Callable[..., Engine], pool_size: int, busy_timeout: float) -> Adopted:
        if is_prepared(engine):
            return Adopted(engine, False)
        return adopt(engine, lambda given: self.engine_beside(given, factory, pool_size, busy_timeout))

    def prepare_place(self, url: URL) -> None:
        file.prepare(url)

    def file_of(self, url: URL) -> str | None:
        return url.database or None

    @contextmanager
    def scratch(self, url: URL, connect: Callable[[], Any]) -> Iterator[str]:
        """A file in the same directory."""
        beside = Path(url.database or ".").resolve().parent
        with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=beside) as directory:
            yield f"sqlite:///{directory}/bench.db"

    def is_pooled(self, connection: Any) -> bool:
        return False

    def unprepared(self, connection: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def has_short_way(self, engine: Engine) -> bool:
        return engine.dialect.driver == "pysqlite"

    def settle(self, connection: Any) -> None:
        """Nothing to do: a file has nobody at its other end."""

    @contextmanager
    def room_on_disk(self, engine: Engine) -> Iterator[None]:
        """Otherwise it is kept in memory on our connections, and of a migration it is as large as the tables. It can be said between
        transactions only."""

        def taken(connection: Any, _record: Any, _proxy: Any) -> None:
            connection.execute("PRAGMA temp_store = FILE").close()

        def returned(connection: Any, _record: Any) -> None:
            if connection is not None:
                connection.execute("PRAGMA temp_store = MEMORY").close()

        event.listen(engine, "checkout", taken)
        event.listen(engine, "checkin", returned)
        try:
            yield
        finally:
            event.remove(engine, "checkout", taken)
            event.remove(engine, "checkin", returned)

    def patience(self, connection: Any, seconds: float | None) -> AbstractContextManager[None]:
        return nullcontext()

    def is_alive(self, connection: Any) -> bool:
        return True  # a file does not hang up

    def is_raw_connection(self, given: Any) -> bool:
        return isinstance(given, sqlite3.Connection)


def _prepare_connection(dbapi: Any, record: Any) -> None:
    dbapi.isolation_level = None  # we say BEGIN ourselves
    cursor = dbapi.cursor()
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",  # NORMAL loses acknowledged jobs at a power cut
        "foreign_keys=ON",
        "journal_size_limit=67108864",
        "cache_size=-16000",
        "temp_store=MEMORY",
    ):
        try:
            cursor.execute(f"PRAGMA {pragma}")
        except sqlite3.OperationalError as error:
            # A file we may read but not write keeps its journal mode; writing will say so plainly.
            if "readonly" not in str(error) and "locked" not in str(error):
                raise
    (record.info[MODE],) = cursor.execute("PRAGMA journal_mode").fetchone()
    (record.info[PATIENCE],) = cursor.execute("PRAGMA busy_timeout").fetchone()
    cursor.close()
