"""What must differ between the databases: each of the sibling packages has it in its own way. Everything else is shared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, ClassVar, Protocol
from uuid import UUID

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import URL
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql import ColumnElement, Executable

from penstock.core.errors import InvalidInput
from penstock.store.hot import Alike, ClaimRequest, Closed, Closing, Gate, NewJob, Rehearsed, Success, Taken, Written


class Bare:
    """As much of a SQLAlchemy connection as the hot statements need: the driver's own, as the pool lends it."""

    __slots__ = ("connection",)

    def __init__(self, connection: Any) -> None:
        self.connection = connection


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

    def heard(self) -> set[str] | None:
        """The queues that were named since this was last asked; None if it may be any."""

    def close(self) -> None: ...


class Dialect(Protocol):
    name: ClassVar[str]
    driver_name: ClassVar[str]
    bare_url: ClassVar[str]
    guest_options: ClassVar[Mapping[str, Any]]
    many_writers: ClassVar[bool]
    """Whether transactions that write go on side by side."""
    skip_locked: ClassVar[Mapping[str, Any]]
    """Arguments of `with_for_update` that take only rows nobody else holds (empty where one writer rules)."""

    def create_engine(
        self, url: URL, factory: Callable[..., Engine], pool_size: int, busy_timeout: float
    ) -> Engine: ...

    def engine_beside(
        self, engine: Engine, factory: Callable[..., Engine], pool_size: int, busy_timeout: float
    ) -> Engine:
        """An engine with connections of its own, which are opened as those of an engine that somebody else made."""
        ...

    def has_short_way(self, engine: Engine) -> bool:
        """Whether the engine's driver can what `Database.at_once` needs."""
        ...

    def settle(self, connection: Any) -> None:
        """Prepare a driver's connection for our use; once for each."""
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

    def in_transaction(self, conn: Connection) -> AbstractContextManager[None]:
        """The caller's connection, inside a transaction: its own, or, if it is in autocommit mode and has none, one for the
        block, committed at its end."""
        ...

    def machine_time(self) -> datetime | None: ...

    def lease_time(self, conn: Connection, moment: datetime | None) -> datetime | None:
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

    def greatest(self, *values: ColumnElement[Any]) -> ColumnElement[Any]: ...

    # The hot path: one round trip each, whatever the size of the batch.

    def insert_jobs(self, conn: Connection, moment: datetime | None, new: Sequence[NewJob]) -> Sequence[Written]: ...

    def insert_alike(self, conn: Connection, moment: datetime | None, many: Alike) -> int: ...

    def gate(self, conn: Connection, moment: datetime | None) -> Gate: ...

    def claim(self, conn: Connection, moment: datetime | None, request: ClaimRequest) -> Taken: ...

    def rehearse(self, moment: datetime | None, request: ClaimRequest, expected: Gate) -> Rehearsed:
        """What `enter_and_claim` would have to do anyway, done before."""
        ...

    def enter_and_claim(self, conn: Connection, moment: datetime | None, rehearsed: Rehearsed) -> tuple[Gate, Taken]:
        """The gate as it is now, and what was claimed if it was as expected."""
        ...

    def heartbeat(
        self,
        conn: Connection,
        moment: datetime | None,
        pairs: Sequence[tuple[UUID, UUID]],
        lease_seconds: float,
        begun: Sequence[bool],
    ) -> Sequence[tuple[UUID, bool]]:
        """Extend the leases, and note which of these runs have begun."""
        ...

    def close(
        self, conn: Connection, moment: datetime | None, closings: Sequence[Closing], shard: int
    ) -> Sequence[Closed]: ...

    def close_successes(
        self, conn: Connection, moment: datetime | None, successes: Sequence[Success], shard: int
    ) -> set[UUID] | None:
        """Close what succeeded, belongs to no group and is of no webhook's interest. Answers the runs that it closed, None
        if all."""
        ...

    def wake(self, conn: Connection, queues: Sequence[str]) -> None: ...

    def ear(self, engine: Engine, queues: Collection[str] | None) -> Ear:
        """Return an ear for these queues, or for all."""
        ...


def dialect_for(name: str, *, injected_clock: bool = False) -> Dialect:
    """Return what is the own of the database of this name. Its package is loaded only where it is used."""
    if name == "sqlite":
        from penstock.store.sqlite import SqliteDialect

        return SqliteDialect(injected_clock)
    if name == "postgresql":
        from penstock.store.postgresql import PostgresDialect

        return PostgresDialect()
    raise InvalidInput(f"Penstock lives on sqlite or postgresql, not on {name!r}.")
