"""One database: its engine, its clock, and transactions on it.

`read()` and `write()` open our own transactions; `joined()` works inside the caller's. A `Tx` is what every
store verb takes: a connection, the time, and the dialect's own statements.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, CursorResult, Engine, Table, create_engine, literal
from sqlalchemy import exc as sa_exc
from sqlalchemy.engine import URL
from sqlalchemy.sql import ColumnElement, Executable

from penstock.core.chance import chance
from penstock.core.cipher import KeyRing
from penstock.core.clock import Clock
from penstock.core.errors import DatabaseUnavailable
from penstock.core.outside import transacting
from penstock.store import failpoints, urls
from penstock.store.dialect import Bare, Dialect, FileLost, HotConnection, Lock, dialect_for
from penstock.store.faults import is_disconnect, is_left, is_read_only, is_transient, translated
from penstock.store.guest import guest_connection
from penstock.store.sealing import PLAIN, Codec
from penstock.store.types import UtcTime

T = TypeVar("T")

MAX_TRIES = 10
STATEMENT_SECONDS = 20.0
LEAVE_SECONDS = 1.0
"""Threads that find out together that their connections are lost replace the pool once."""
WRONG_CLOCK_SECONDS = 60.0
"""What is stamped further in the future than this was stamped while the clock was wrong."""
AT_HAND_SECONDS = 600.0
"""How long a connection is kept at hand before the pool has it back, which knows how old it may become."""


@dataclass(frozen=True, slots=True)
class HotTx:
    """A transaction as the hot verbs take it: insert, claim and close, each a statement of the dialect's own. On the short way there is
    no more than this, so that a verb which asks for a `Tx` cannot run there."""

    conn: HotConnection
    dialect: Dialect
    moment: datetime | None
    codec: Codec = PLAIN
    """What seals the values that are encrypted at rest, and opens them."""


@dataclass(frozen=True, slots=True)
class Tx(HotTx):
    """A transaction under way. `now` is one moment for all of it where we hold the clock, else the database's own."""

    conn: Connection

    @property
    def now(self) -> ColumnElement[datetime]:
        return self.dialect.now() if self.moment is None else literal(self.moment, UtcTime)

    def later(self, seconds: float | ColumnElement[float]) -> ColumnElement[datetime]:
        """`seconds` from now, on the clock that rules."""
        return self.dialect.add_seconds(self.now, seconds)

    @property
    def lease_now(self) -> ColumnElement[datetime]:
        """The time on the clock that leases are counted by: not `now` on SQLite, where the machine's time may jump."""
        moment = self.lease_time()
        return self.dialect.now() if moment is None else literal(moment, UtcTime)

    def lease_time(self) -> datetime | None:
        return self.dialect.lease_time(self.conn, self.moment)

    def lease_until(self, seconds: float) -> ColumnElement[datetime]:
        """When a lease of `seconds` that is given now is over."""
        return self.dialect.add_seconds(self.lease_now, seconds)

    def lock(self, lock: Lock) -> None:
        """Wait for the lock, and hold it until the transaction ends."""
        self.dialect.lock(self.conn, lock)

    def try_lock(self, lock: Lock) -> bool:
        """Take the lock until the transaction ends. Returns False if somebody else holds it."""
        return self.dialect.try_lock(self.conn, lock)

    def insert(self, table: Table) -> Any:
        """An INSERT that can say what to do on a conflict, which SQL's own cannot. SQLAlchemy has one for each database, without a
        type in common."""
        return self.dialect.insert(table)

    def run(self, statement: Executable, params: Any = None) -> CursorResult[Any]:
        return self.conn.execute(statement, params)

    def rows(self, statement: Executable, params: Any = None) -> Sequence[Any]:
        return self.conn.execute(statement, params).all()

    def first(self, statement: Executable, params: Any = None) -> Any:
        return self.conn.execute(statement, params).first()

    def scalar(self, statement: Executable, params: Any = None) -> Any:
        return self.conn.execute(statement, params).scalar()

    def count(self, statement: Executable, params: Any = None) -> int:
        """Rows that the statement changed."""
        return self.conn.execute(statement, params).rowcount

    def time(self) -> datetime:
        """The time as a value: ours if we hold the clock, else asked of the database."""
        if self.moment is not None:
            return self.moment
        value: datetime = self.scalar(self.dialect.select_now())
        return value


class Database:
    """A handle on one database. Safe to share between threads; not across a fork."""

    def __init__(
        self,
        url: str | URL | Engine,
        clock: Clock | None = None,
        *,
        pool_size: int = 10,
        busy_timeout: float = 30.0,
        statement_seconds: float = STATEMENT_SECONDS,
        beside: bool = False,
        keys: KeyRing | None = None,
    ) -> None:
        """With `beside`, an engine is only the example for connections of our own; else its own connections are used. With `keys`,
        what `sealing` names is encrypted at rest."""
        self.codec = PLAIN if keys is None else Codec(keys)
        self._given = url
        self.owns_engine = beside or not isinstance(url, Engine)
        if not isinstance(url, Engine):
            self.engine = make_engine(url, pool_size=pool_size, busy_timeout=busy_timeout)
        elif beside:
            self.engine = dialect_for(url.dialect.name).engine_beside(url, create_engine, pool_size, busy_timeout)
        else:
            self.engine = url
        self.dialect = dialect_for(self.engine.dialect.name, injected_clock=clock is not None)
        self.missing: tuple[str, ...] = ()
        """What an engine of the caller's could not give, in sentences."""
        if not self.owns_engine:
            adopted = self.dialect.adopt(self.engine, create_engine, pool_size, busy_timeout)
            self.engine, self.owns_engine, self.missing = adopted.engine, adopted.is_ours, adopted.missing
        self.clock = clock
        self.busy_timeout = busy_timeout
        self.statement_seconds = statement_seconds
        """How long one of our own short statements may take on PostgreSQL before its connection is given up as hung."""
        self.has_short_way = self.owns_engine and self.dialect.has_short_way(self.engine)
        """Whether `at_once` may be used: on an engine of our own making, whose driver and settings we know."""
        self._marks = {"penstock_own": True} if self.has_short_way else {}
        self._at_hand: list[tuple[int, Any]] = []
        """The connection of the last short write, with the process that it belongs to: two visits to the pool would take as
        long as a statement."""
        self._left_at = float("-inf")
        self._pooled = False
        """Whether one of our connections goes through a pooler; then we take the caller's for such, too."""
        self.verify: Callable[[Database], None] | None = None
        """Raises unless the tables are those of this program: asked again when another file was put in place of ours."""
        self._unverified = False
        self._renewing = threading.Lock()
        self._renewed_by: int | None = None
        self._writing = threading.Lock()
        self.before_close: list[Callable[[], None]] = []
        """What must stop using this database before its connections go."""

    def beside(self, pool_size: int, statement_seconds: float) -> Database:
        """Another handle on the same database, with connections of its own. They are opened as ours are: nothing that a URL or
        an engine says of them is lost on the way."""
        self._still_there()
        other = Database(
            self._given, self.clock, pool_size=pool_size, busy_timeout=self.busy_timeout,
            statement_seconds=min(statement_seconds, self.statement_seconds), beside=isinstance(self._given, Engine),
            keys=self.codec.ring,
        )  # fmt: skip
        other.verify = self.verify
        return other

    @property
    def url(self) -> URL:
        return self.engine.url

    @property
    def name(self) -> str:
        """`sqlite` or `postgresql`."""
        return self.dialect.name

    def moment(self) -> datetime | None:
        """The time, where it is ours to tell: an injected clock, or SQLite's, which is the machine's."""
        if self.clock is not None:
            return self.clock.now()
        return self.dialect.machine_time()

    @contextmanager
    def read(self, *, patient: bool = False) -> Iterator[Tx]:
        """A read transaction: one snapshot on SQLite, one statement after another on PostgreSQL. With `patient`, its statements
        may take as long as they like."""
        with self._connected(patient) as conn, conn.begin():
            yield Tx(conn, self.dialect, self.moment(), self.codec)

    @contextmanager
    def write(self, *, patient: bool = False) -> Iterator[Tx]:
        """A write transaction, committed when the block ends well. On SQLite it holds the one write lock from its start."""
        with self._connected(patient) as plain:
            conn = plain.execution_options(penstock_write=True, **self._marks)
            with self._turn(), conn.begin():
                yield Tx(conn, self.dialect, self.moment(), self.codec)
                failpoints.reach("commit.before")
            self.dialect.check_file(plain.connection)
            failpoints.reach("commit.after")

    @contextmanager
    def _connected(self, patient: bool) -> Iterator[Connection]:
        self._renew()
        if not self.owns_engine:
            self._still_there()  # an engine that is not ours would create a file that is gone
        with translated(self.url, self.dialect.unwrapped_errors), self.engine.connect() as conn:
            driver = conn.connection.dbapi_connection
            if not self.owns_engine:
                self.dialect.settle(driver)
            self._pooled = self._pooled or self.dialect.is_pooled(driver)
            with self.dialect.patience(driver, None if patient else self.statement_seconds):
                try:
                    self.dialect.check_file(conn.connection)
                    yield conn
                except FileLost:
                    conn.invalidate()
                    self._lose_file()
                    raise
                except sa_exc.DBAPIError as error:
                    if is_left(error):
                        conn.invalidate(error)
                        self._leave()
                    elif error.connection_invalidated:
                        self._leave()
                    raise

    def _leave(self) -> None:
        """The server, or the way to it, is no longer what it was: every connection is opened anew."""
        while self._at_hand:
            with suppress(IndexError):
                self._at_hand.pop()[1].invalidate()
        if self.owns_engine and time.monotonic() - self._left_at > LEAVE_SECONDS:
            self._left_at = time.monotonic()
            self.engine.dispose()

    def _lose_file(self) -> None:
        """Another file, or none, lies where ours did: no connection is of use any more, whoever made it."""
        self._unverified = True
        self.dialect.forget_file()
        self._leave()
        self.engine.dispose()

    def _still_there(self) -> None:
        try:
            self.dialect.check_known_file()
        except FileLost:
            self._lose_file()
            raise

    def _renew(self) -> None:
        """Before a file that was put in place of ours is used: is it one of this program's?"""
        if not self._unverified or self.verify is None or self._renewed_by == threading.get_ident():
            return
        with self._renewing:
            if self._unverified:
                self._renewed_by = threading.get_ident()
                try:
                    self.verify(self)
                    self._unverified = False
                finally:
                    self._renewed_by = None

    def _turn(self) -> AbstractContextManager[None]:
        return nullcontext() if self.dialect.many_writers else self._one_after_another()

    @contextmanager
    def _one_after_another(self) -> Iterator[None]:
        """Where there is one writer at a time, our own threads wait for each other here, each in its turn, and not by asking
        for the file again and again. Who has waited too long asks for it, and is told that it is locked."""
        held = self._writing.acquire(timeout=self.busy_timeout)
        try:
            yield
        finally:
            if held:
                self._writing.release()

    def at_once(self, work: Callable[[HotTx], T], *, retry_disconnects: bool = False) -> T | None:
        """A small write on the shortest way there is: on PostgreSQL one round trip, so `work` asks one thing. None if only
        luck was missing (with `retry_disconnects` also if the outcome is not known): then take the long way, `transact`."""
        way = self._by_one_trip if self.dialect.commits_with_the_statement else self._by_bare_transaction
        try:
            with translated(self.url, self.dialect.unwrapped_errors):
                return way(work)
        except Exception as error:
            cause = _cause(error)
            if is_transient(cause) or is_read_only(cause) or (retry_disconnects and is_disconnect(cause)):
                return None
            raise

    def _by_one_trip(self, work: Callable[[HotTx], T]) -> T:
        """One statement, or several that are sent together and committed together, on the driver's connection."""
        driver_error = self.engine.dialect.loaded_dbapi.Error
        lost = True
        try:
            borrowed = self._borrowed()
            connection: Any = borrowed.dbapi_connection
            try:
                bare = Bare(borrowed)
                failpoints.reach("commit.before")
                with self.dialect.patience(connection, self.statement_seconds):
                    done = work(HotTx(bare, self.dialect, self.moment(), self.codec))
                failpoints.reach("commit.after")
            except BaseException as error:
                lost = connection.closed or is_left(error)
                if lost:
                    borrowed.invalidate()
                    self._leave()
                else:
                    borrowed.close()
                raise
            self._keep(borrowed)
            return done
        except driver_error as error:
            raise sa_exc.DBAPIError.instance(None, None, error, driver_error, connection_invalidated=lost) from error

    def _borrowed(self) -> Any:
        while self._at_hand:
            try:
                process, kept = self._at_hand.pop()
            except IndexError:  # another thread was quicker
                break
            if process != os.getpid():
                continue
            if time.monotonic() - kept.info["penstock_since"] > AT_HAND_SECONDS:
                kept.close()
            elif self.dialect.is_alive(kept.dbapi_connection):
                return kept
            else:
                kept.invalidate()
        borrowed = self.engine.raw_connection()
        borrowed.info["penstock_since"] = time.monotonic()
        return borrowed

    def _keep(self, borrowed: Any) -> None:
        if self._at_hand:
            borrowed.close()
        else:
            self._at_hand.append((os.getpid(), borrowed))

    def _by_bare_transaction(self, work: Callable[[HotTx], T]) -> T:
        """BEGIN and COMMIT on the driver's connection: on a local file SQLAlchemy's share would be as long as the commit."""
        self._renew()
        borrowed = self._borrowed()
        try:
            self.dialect.check_file(borrowed)
            cursor = borrowed.cursor()
            with self._turn():
                self.dialect.begin_to_write(borrowed)
                try:
                    bare = Bare(borrowed)
                    done = work(HotTx(bare, self.dialect, self.moment(), self.codec))
                    failpoints.reach("commit.before")
                except BaseException:
                    cursor.execute("ROLLBACK")
                    raise
                cursor.execute("COMMIT")
            self.dialect.check_file(borrowed)
            failpoints.reach("commit.after")
            cursor.close()
        except FileLost:
            borrowed.invalidate()
            self._lose_file()
            raise
        except BaseException:
            borrowed.close()
            raise
        self._keep(borrowed)
        return done

    def transact(self, work: Callable[[Tx], T], *, retry_disconnects: bool = False, patient: bool = False) -> T:
        """Run `work` in a write transaction, again when the database says that only luck was missing.

        Serialization failures, deadlocks and SQLite's busy answers are tried again. A lost connection leaves the
        outcome of COMMIT unknown: only work that is idempotent by its ids may ask for `retry_disconnects`.

        `work` is also called again when it needed something that takes long to compute: see `core.outside`.
        """
        return transacting(lambda: self._persistently(lambda: self.write(patient=patient), work, retry_disconnects))

    def look(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in a read transaction, again when its connection was lost: to read twice does no harm."""
        return self._persistently(self.read, work, True)

    def _persistently(
        self, begin: Callable[[], AbstractContextManager[Tx]], work: Callable[[Tx], T], retry_disconnects: bool
    ) -> T:
        began = time.monotonic()
        for attempt in range(MAX_TRIES):
            try:
                with begin() as tx:
                    return work(tx)
            except Exception as error:
                cause = _cause(error)
                if is_transient(cause):
                    patience = self.busy_timeout
                elif retry_disconnects and is_disconnect(cause):
                    # A connection that hung deserves a second try, on a new one, however long the first took.
                    patience = min(self.busy_timeout, self.statement_seconds) if attempt else float("inf")
                else:
                    raise
                if attempt == MAX_TRIES - 1 or time.monotonic() - began > patience:
                    raise
            time.sleep(min(2.0, 0.01 * 2**attempt) * chance.random())
        raise AssertionError("unreachable")

    @contextmanager
    def joined(self, connection: Any) -> Iterator[Tx]:
        """Work inside the caller's transaction: we neither commit nor roll back. Takes a SQLAlchemy Connection or Session,
        Django's connection, or a raw psycopg or sqlite3 connection."""
        self._still_there()
        with guest_connection(connection, self.dialect) as conn:
            driver = conn.connection.dbapi_connection
            with self.dialect.unprepared(driver) if self._pooled else nullcontext():
                yield Tx(conn, self.dialect, self.moment(), self.codec)

    def ping(self) -> None:
        with self.read() as tx:
            tx.conn.exec_driver_sql("SELECT 1")

    @property
    def file(self) -> str | None:
        """The path of the file that holds the database; None where it is not a file of ours."""
        return self.dialect.file_of(self.engine.url)

    def close(self) -> None:
        for leave in list(self.before_close):  # some take themselves off the list
            leave()
        while self._at_hand:
            self._at_hand.pop()[1].close()
        if self.owns_engine:
            self.engine.dispose()


def _cause(error: Exception) -> BaseException:
    return error.__cause__ if isinstance(error.__cause__, sa_exc.DBAPIError) else error


def make_engine(url: str | URL, *, pool_size: int = 10, busy_timeout: float = 30.0) -> Engine:
    parsed = urls.parsed(url)
    backend = parsed.get_backend_name()
    dialect = dialect_for(backend)
    dialect.prepare_place(parsed)
    try:
        return dialect.create_engine(parsed, create_engine, pool_size, busy_timeout)
    except ModuleNotFoundError as error:
        raise DatabaseUnavailable(
            f"The driver for {backend} is not installed. Install it with: pip install 'penstock[postgres]'"
        ) from error
