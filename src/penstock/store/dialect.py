"""What must differ between the databases: each of the sibling packages has it in its own way. Everything else is shared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar, Protocol, TypeAlias
from uuid import UUID

from sqlalchemy import Connection, Engine, Select, Table
from sqlalchemy.engine import URL
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql import ColumnElement, Executable

from penstock.core.errors import DatabaseUnavailable, InvalidInput
from penstock.store.hot import (
    Alike,
    ClaimRequest,
    Closing,
    Closures,
    Gate,
    HotStatement,
    NewJob,
    Rehearsed,
    Taken,
    Written,
)


class Bare:
    """As much of a SQLAlchemy connection as the hot statements need: the driver's own, as the pool lends it."""

    __slots__ = ("connection",)

    def __init__(self, connection: Any) -> None:
        self.connection = connection


HotConnection: TypeAlias = Connection | Bare
"""What a hot statement runs on: a connection of SQLAlchemy's, or no more than the driver's own."""


class FileLost(DatabaseUnavailable):
    """The file at the path is not the one that was opened."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """The engine that our own transactions use, whether it is ours, and what could not be had."""

    engine: Engine
    is_ours: bool
    missing: tuple[str, ...] = ()


def pool_beside(engine: Engine, pool_size: int, busy_timeout: float, **options: Any) -> QueuePool:
    """A pool whose connections are opened as those of `engine`: by the same creator, and heard by the same listeners."""
    theirs = engine.pool
    return QueuePool(
        theirs._creator, pool_size=pool_size, max_overflow=pool_size, timeout=busy_timeout, _dispatch=theirs.dispatch, **options
    )  # fmt: skip


class Ear(Protocol):
    """Listens for work on a connection of its own. Used by one thread."""

    def wait(self, timeout: float) -> bool:
        """Whether there may be work; waits at most `timeout` seconds. Raises what the driver raises."""

    driver_error: type[Exception]
    """What the driver raises."""

    def heard(self) -> set[str] | None:
        """The queues that were named since this was last asked; None if it may be any."""

    def close(self) -> None: ...


class Lock(Enum):
    """What only one transaction may do at a time. Where one writes at a time, each of them is held by whoever writes."""

    GATE = "reserve, while nobody claims"
    UPGRADE = "change the tables"
    SCHEDULER = "go through the schedules"
    ADMIT = "let jobs through that wait for a limit"
    DECLARE = "declare tables of a pipeline"


class UserTables(Protocol):
    """What pipelines ask of a database about tables that are their users'."""

    reads_alone: ClassVar[bool]
    """Whether a read needs no transaction to see what is committed at that moment."""
    takes_arrays: ClassVar[bool]
    """Whether a parameter may be an array, so that a statement is the same for any number of values."""
    returns_subqueries: ClassVar[bool]
    """Whether RETURNING may look into other tables."""
    largest_integer: ClassVar[int]

    def address(self, schema: str, name: str) -> tuple[str, str | None]:
        """Return the table's name and schema as the database knows them."""
        ...

    def create_schema(self, conn: Connection, schema: str) -> None: ...

    def drop_schema(self, conn: Connection, schema: str) -> None: ...

    def schemas_with(self, conn: Connection, name: str) -> list[str]:
        """Return the schemas that have a table of this name."""
        ...

    def names_in(self, conn: Connection, schema: str) -> list[str]:
        """Return the tables of a schema."""
        ...

    def relations_in(self, conn: Connection, schema: str) -> list[str]:
        """Return all that must be gone before a schema can be dropped."""
        ...

    def one_of(self, columns: Sequence[ColumnElement[Any]], rows: Sequence[Sequence[Any]]) -> ColumnElement[bool]:
        """Return whether the columns hold one of the rows of values, of which there may be very many."""
        ...

    def literal_now(self, kind: str) -> str:
        """Return what a column that is added has as its time in rows that are there."""
        ...

    def literal_bool(self, value: bool) -> str: ...

    def literal_decimal(self, text: str, scale: int) -> str | None:
        """Return the literal of a decimal; None if its own text is one."""
        ...

    def rows_of_arrays(self, table: Table) -> Any:
        """Return a SELECT of the rows that travel as one array per column, named `ALL_…`; None if they cannot."""
        ...

    def asker(self, user: Any) -> tuple[Any, Any]:
        """Return who asks, as the database knows it or else as given, and in which session."""
        ...

    def shifted(self, moment: ColumnElement[Any], seconds: float) -> ColumnElement[Any]:
        """Return a time of a user's table plus so many seconds."""
        ...

    def decimal_as_real(self, value: ColumnElement[Any], scale: int) -> ColumnElement[Any]: ...

    def with_nan(
        self, value: ColumnElement[Any], made: ColumnElement[Any], nan: ColumnElement[Any]
    ) -> ColumnElement[Any]:
        """Return what was made of many values, or NaN if one of them is NaN and the database would not say so."""
        ...


class Dialect(Protocol):
    user_tables: ClassVar[UserTables]
    name: ClassVar[str]
    driver_name: ClassVar[str]
    bare_url: ClassVar[str]
    unwrapped_errors: ClassVar[tuple[type[Exception], ...]]
    """What the driver raises from a cursor of its own, which the hot path uses, and SQLAlchemy has not seen."""
    guest_options: ClassVar[Mapping[str, Any]]
    commits_with_the_statement: ClassVar[bool]
    """Whether a small write is one trip that commits itself, and not BEGIN, the write and COMMIT."""
    many_writers: ClassVar[bool]
    """Whether transactions that write go on side by side."""
    skip_locked: ClassVar[Mapping[str, Any]]
    """Arguments of `with_for_update` that take only rows nobody else holds (empty where one writer rules)."""

    migrates_itself: ClassVar[bool]
    """Whether the tables are brought up to date by whoever opens them, and not by an operator."""

    def check_place(self, url: URL) -> None:
        """Raise if the database is where its locks do not hold."""
        ...

    def limit_locks(self, conn: Connection, seconds: float) -> None:
        """For this transaction, wait at most so long for each lock on a table, and as long as it takes for all else."""
        ...

    def lock(self, conn: Connection, lock: Lock) -> None:
        """Wait for the lock, and hold it until the transaction ends."""
        ...

    def try_lock(self, conn: Connection, lock: Lock) -> bool:
        """Take the lock until the transaction ends. Returns False if somebody else holds it."""
        ...

    def lead(self, conn: Connection, holder: str, until: Any, now: Any, seconds: float) -> bool:
        """Whether this transaction may go through the schedules, by a lock or by a lease until then."""
        ...

    def create_engine(
        self, url: URL, factory: Callable[..., Engine], pool_size: int, busy_timeout: float
    ) -> Engine: ...

    def engine_beside(
        self, engine: Engine, factory: Callable[..., Engine], pool_size: int, busy_timeout: float
    ) -> Engine:
        """An engine with connections of its own, which are opened as those of an engine that somebody else made."""
        ...

    def adopt(self, engine: Engine, factory: Callable[..., Engine], pool_size: int, busy_timeout: float) -> Adopted:
        """Take over an engine that somebody else made: as it is, or with connections of our own beside its."""
        ...

    def prepare_place(self, url: URL) -> None:
        """Have the place ready where the database is to be, if that is ours to do."""
        ...

    def file_of(self, url: URL) -> str | None:
        """Return the path of the file that holds the database; None where it is not a file of ours."""
        ...

    def scratch(self, url: URL, connect: Callable[[], Any]) -> AbstractContextManager[str]:
        """Lend the URL of an empty place beside the database, on the same disk or server. It is gone after the block. `connect`
        returns a `Database`, for whoever needs one."""
        ...

    def is_pooled(self, connection: Any) -> bool:
        """Whether each transaction on this connection of the driver may be in another session of the server."""
        ...

    def unprepared(self, connection: Any) -> AbstractContextManager[None]:
        """Prepare no statement in the block, on a connection that is the caller's and may be behind a pooler."""
        ...

    def has_short_way(self, engine: Engine) -> bool:
        """Whether the engine's driver can what `Database.at_once` needs."""
        ...

    def settle(self, connection: Any) -> None:
        """Prepare a driver's connection for our use; once for each."""
        ...

    def room_on_disk(self, engine: Engine) -> AbstractContextManager[None]:
        """Let connections of this engine keep on disk what a large transaction sorts and may have to undo."""
        ...

    def patience(self, connection: Any, seconds: float | None) -> AbstractContextManager[None]:
        """How long the driver's connection waits for each answer inside the block."""
        ...

    def is_alive(self, connection: Any) -> bool:
        """Whether the server has not ended this connection of the driver, as far as can be told without asking."""
        ...

    def is_raw_connection(self, given: Any) -> bool: ...

    def plain(self, given: Any) -> AbstractContextManager[Any]:
        """The caller's raw connection, lent with cursors that give plain values, whatever the caller had it set to."""
        ...

    def begin_to_write(self, connection: Any) -> None:
        """Begin a transaction that writes, on a connection as the pool lends it."""
        ...

    def in_transaction(self, conn: Connection) -> AbstractContextManager[None]:
        """The caller's connection, inside a transaction: its own, or, if it is in autocommit mode and has none, one for the
        block, committed at its end."""
        ...

    def machine_time(self) -> datetime | None: ...

    def lease_time(self, conn: HotConnection, moment: datetime | None) -> datetime | None:
        """Return the time that leases are counted by, where it is ours to tell."""
        ...

    def check_file(self, connection: Any) -> None:
        """Raise if the connection has a file open that does not lie at its path any more."""
        ...

    def check_known_file(self) -> None:
        """Likewise, of the file that was last checked."""
        ...

    def forget_file(self) -> None:
        """Forget what was read of a file that is lost."""
        ...

    def settle_clock(self, conn: Connection) -> None:
        """Believe the machine's clock again, whatever it said before."""
        ...

    def now(self) -> ColumnElement[datetime]: ...

    def select_now(self) -> Executable: ...

    def add_seconds(self, moment: ColumnElement[datetime], seconds: Any) -> ColumnElement[datetime]: ...

    def insert(self, table: Table) -> Any:
        """An INSERT that can say what to do on a conflict."""
        ...

    def position(self, text: ColumnElement[str], part: str) -> ColumnElement[int]:
        """Where the part begins in a text, counted from 1; 0 if it is not there."""
        ...

    def greatest(self, *values: ColumnElement[Any]) -> ColumnElement[Any]: ...

    def among(self, column: ColumnElement[Any], few: Select[Any]) -> ColumnElement[bool]:
        """Whether the column is one of the few values of a query: those are found first, then looked up by the column's index,
        whatever the planner thinks of their number."""
        ...

    # The hot path: one round trip each, whatever the size of the batch.

    def insert_jobs(self, conn: HotConnection, moment: datetime | None, new: Sequence[NewJob]) -> Sequence[Written]: ...

    def insert_alike(self, conn: HotConnection, moment: datetime | None, many: Alike) -> int: ...

    def gate(self, conn: HotConnection, moment: datetime | None) -> Gate: ...

    def claim(self, conn: HotConnection, moment: datetime | None, request: ClaimRequest) -> Taken: ...

    def rehearse(self, moment: datetime | None, request: ClaimRequest, expected: Gate) -> Rehearsed:
        """What `enter_and_claim` would have to do anyway, done before."""
        ...

    def enter_and_claim(self, conn: HotConnection, moment: datetime | None, rehearsed: Rehearsed) -> tuple[Gate, Taken]:
        """The gate as it is now, and what was claimed if it was as expected."""
        ...

    def heartbeat(
        self,
        conn: HotConnection,
        moment: datetime | None,
        pairs: Sequence[tuple[UUID, UUID]],
        lease_seconds: float,
        begun: Sequence[bool],
    ) -> Sequence[tuple[UUID, bool]]:
        """Extend the leases, and note which of these runs have begun."""
        ...

    def close(
        self, conn: HotConnection, moment: datetime | None, closings: Sequence[Closing], shard: int, *, alone: bool
    ) -> Closures:
        """Close runs that are still open, as decided; with `alone` only those from which nothing follows for a group or a webhook."""
        ...

    def hot_statements(self) -> Mapping[str, Sequence[HotStatement]]:
        """Return the statements of each verb of the hot path, in the order in which they run."""
        ...

    def plan(self, conn: Connection, statement: HotStatement) -> tuple[str, str]:
        """Return the statement as it is sent, and how the database would go about it. Nothing is run."""
        ...

    def wake(self, conn: Connection, queues: Sequence[str]) -> None: ...

    def ear(self, engine: Engine, queues: Collection[str] | None) -> Ear:
        """Return an ear for these queues, or for all."""
        ...


PACKAGES = {"sqlite": "penstock.store.sqlite", "postgresql": "penstock.store.postgresql"}
"""The siblings by the name of their database: the one place where a name decides."""


def package_of(name: str) -> str:
    """Return the package of the database of this name. A statement that is shown without a database is shown as PostgreSQL's."""
    return PACKAGES.get(name, PACKAGES["postgresql"])


@lru_cache(maxsize=8)
def user_tables_of(name: str) -> UserTables:
    """Return what pipelines ask of the database of this name."""
    return dialect_for(name).user_tables


def dialect_for(name: str, *, injected_clock: bool = False) -> Dialect:
    """Return what is the own of the database of this name. Its package is loaded only where it is used."""
    if name not in PACKAGES:
        raise InvalidInput(f"Penstock lives on sqlite or postgresql, not on {name!r}.")
    made: Dialect = import_module(PACKAGES[name]).dialect(injected_clock=injected_clock)
    return made
