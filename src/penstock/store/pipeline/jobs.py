"""Job tables: one hidden table `~~name` per auto-populated table, and every statement that changes a job's status.

Its key is the part of the target's key that came through foreign keys. It has no foreign keys itself: `refresh` keeps
it in step. A reservation carries a token; whoever reports must hold it, in the statement that writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Float,
    Index,
    Integer,
    Row,
    String,
    Table,
    and_,
    any_,
    bindparam,
    delete,
    func,
    insert,
    literal,
    literal_column,
    not_,
    or_,
    select,
    true,
    tuple_,
    update,
)
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql import ColumnElement

from penstock.store.database import Tx
from penstock.store.dialect import dialect_for
from penstock.store.pipeline import catalog, history, physical
from penstock.store.pipeline.algebra import Source
from penstock.store.pipeline.shape import Attribute, Shape
from penstock.store.types import UtcTime

STATUSES = ("pending", "reserved", "success", "error", "ignore")
MESSAGE_LENGTH = 2047
SWEEP = 1000

COLUMNS = (
    Attribute("status", "enum", STATUSES),
    Attribute("priority", "int32", comment="lower is more urgent, 0 most"),
    Attribute("created_time", "timestamp"),
    Attribute("scheduled_time", "timestamp", comment="not before"),
    Attribute("reserved_time", "timestamp", nullable=True),
    Attribute("completed_time", "timestamp", nullable=True),
    Attribute("duration", "float64", nullable=True, comment="seconds"),
    Attribute("error_message", "varchar", (MESSAGE_LENGTH,)),
    Attribute("error_stack", "blob", nullable=True),
    Attribute("user", "varchar", (255,)),
    Attribute("host", "varchar", (255,)),
    Attribute("pid", "uint32"),
    Attribute("connection_id", "int64"),
    Attribute("version", "varchar", (255,)),
    Attribute("attempts", "uint32", comment="reservations so far"),
    Attribute("lease_until", "timestamp", nullable=True, comment="a reservation that is not renewed ends here"),
    Attribute("token", "varchar", (36,), nullable=True, comment="who may report"),
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who reserves: what a job row says about its worker."""

    user: Any
    host: Any
    pid: Any
    version: Any


@dataclass(frozen=True, slots=True, eq=False)
class Picking:
    """Which pending jobs to take, and in which order. Its claim is built once, so keep it for as long as it holds."""

    target: Source
    """The rows that are made already."""
    source: Source
    """The keys that there are to make."""
    priority: int | None = None
    order: str = "original"
    among: Source | None = None
    """Only keys that are in here."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A job in hand: its key, whether its result is there already, whether its source still is."""

    key: dict[str, Any]
    done: bool
    live: bool


def job_table_name(target: Shape) -> str:
    """
    >>> job_table_name(Shape("lab", "__analysis", "computed", ()))
    '~~analysis'
    """
    return "~~" + target.name.lstrip("_")


def job_shape(target: Shape) -> Shape:
    """The shape of a target's job table."""
    key = tuple(replace(attribute, nullable=False, default=None) for attribute in target.job_key)
    return Shape(
        target.schema, job_table_name(target), "jobs", (*key, *COLUMNS), comment=f"Jobs of {target.full_name}",
        class_name=f"{target.class_name}.jobs",
    )  # fmt: skip


def drop(tx: Tx, target: Shape) -> None:
    """Drop the job table of a target, if there is one."""
    catalog.drop_table(tx, target.schema, job_table_name(target))


class JobStore:
    """The statements on one job table."""

    def __init__(self, backend: str, target: Shape) -> None:
        self.target = target
        self.dialect = dialect_for(backend)
        self.shape = job_shape(target)
        self.keys = [attribute.name for attribute in target.job_key]
        self.table = physical.table(backend, self.shape)
        self._claim = lru_cache(maxsize=16)(self._claim_statements)

    def ensure(self, tx: Tx) -> bool:
        """Create the table unless it is there with this key; answers whether it had to."""
        expected = [attribute.name for attribute in self.shape.attributes]
        if catalog.has_table(tx, self.shape.schema, self.shape.name):
            if catalog.column_names(tx, self.shape.schema, self.shape.name) == expected:
                return False
            catalog.drop_table(tx, self.shape.schema, self.shape.name)
        made = physical.declared(tx.dialect.name, self.shape)
        tx.run(CreateTable(made))
        for index in _indexes(made, self.keys, self.shape):
            tx.run(CreateIndex(index))
        return True

    def is_there(self, tx: Tx) -> bool:
        expected = [attribute.name for attribute in self.shape.attributes]
        return (
            catalog.has_table(tx, self.shape.schema, self.shape.name)
            and catalog.column_names(tx, self.shape.schema, self.shape.name) == expected
        )

    # refresh

    def add(self, tx: Tx, wanted: Source, target: Source, priority: int, at: datetime | None, delay: float) -> int:
        """One INSERT … SELECT for all keys that are wanted, not in the target and not queued in any status."""
        keys, jobs = wanted.embed(), Source.of(self.table)
        scheduled = literal(at, self.table.c.scheduled_time.type) if at is not None else tx.later(delay)
        values: dict[str, Any] = {
            **{name: keys.columns[name] for name in self.keys},
            "status": literal("pending"), "priority": literal(priority), "created_time": tx.now,
            "scheduled_time": scheduled, "error_message": literal(""), "user": literal(""), "host": literal(""),
            "pid": literal(0, BigInteger()), "connection_id": literal(0, BigInteger()), "version": literal(""),
            "attempts": literal(0, BigInteger()),
        }  # fmt: skip
        chosen = (
            select(*(value.label(name) for name, value in values.items()))
            .select_from(keys.frm)
            .where(not_(self._meets(target, keys.columns)), not_(self._meets(jobs, keys.columns)))
        )
        statement = tx.insert(self.table).from_select(list(values), chosen).on_conflict_do_nothing()
        return tx.count(statement.execution_options(preserve_rowcount=True))

    def reprioritise(self, tx: Tx, wanted: Source, priority: int) -> int:
        return tx.count(
            update(self.table)
            .where(self._is("pending"), self.table.c.priority != priority, self._meets(wanted.embed(), self.table.c))
            .values(priority=priority)
        )

    def repend(self, tx: Tx, wanted: Source, target: Source) -> int:
        """A success whose result is gone has work to do again."""
        return tx.count(
            update(self.table)
            .where(
                self._is("success"), self._meets(wanted.embed(), self.table.c), not_(self._meets(target, self.table.c))
            )
            .values(status="pending", completed_time=None, duration=None, scheduled_time=tx.now, attempts=0, **_UNHELD)
        )

    def remove_stale(self, tx: Tx, key_source: Source, target: Source, timeout: float) -> int:
        """Pending jobs without a key in the source, once old enough; and those whose result is there already."""
        old = self.table.c.created_time <= tx.later(-timeout)
        gone = and_(old, not_(self._meets(key_source.embed(), self.table.c)))
        return tx.count(delete(self.table).where(self._is("pending"), or_(gone, self._meets(target, self.table.c))))

    def return_orphans(self, tx: Tx, max_crashes: int, orphan_timeout: float | None = None) -> int:
        """Reservations whose lease ran out, or which are older than `orphan_timeout`, go back to pending; a key that
        took down its worker `max_crashes` times becomes an error. Answers how many reservations ended."""
        lapsed: ColumnElement[bool] = self.table.c.lease_until < tx.lease_now
        if orphan_timeout is not None:
            lapsed = or_(lapsed, self.table.c.reserved_time <= tx.later(-orphan_timeout))
        columns = [*(self.table.c[name] for name in self.keys), self.table.c.attempts, self.table.c.host, self.table.c.pid,
                   self.table.c.user, self.table.c.version]  # fmt: skip
        found = tx.rows(
            select(*columns).where(self._is("reserved"), lapsed).limit(SWEEP).with_for_update(**tx.dialect.skip_locked)
        )
        for row in found:
            fatal = row.attempts >= max_crashes
            message = f"The worker {row.host}:{row.pid} vanished while it held this key ({row.attempts} times so far)."
            key = {name: getattr(row, name) for name in self.keys}
            changed = (
                {"status": "error", "error_message": message, "completed_time": tx.now}
                if fatal
                else {"status": "pending"}
            )
            tx.run(update(self.table).where(self._at(key), self._is("reserved")).values(**changed, **_UNHELD))
            who = Identity(row.user, row.host, row.pid, row.version)
            history.record(tx, self.target, key, message, None, who, row.attempts)
        return len(found)

    # one worker's life with its jobs

    def claim(self, tx: Tx, token: str, who: Identity, lease: float, limit: int, picking: Picking) -> list[Claimed]:
        """Reserve the most urgent due jobs that nobody else is taking; answers them in order."""
        claim, look_over = self._claim(tx.moment is not None, picking)
        values = {"LIMIT": limit, "TOKEN": token, "LEASE": lease, "USER": who.user, "HOST": who.host, "PID": who.pid,
                  "VERSION": who.version, "NOW": tx.moment, "LEASE_NOW": tx.lease_time()}  # fmt: skip
        found = tx.rows(claim, values)
        if look_over is not None:
            taken = {tuple(row) for row in found}
            found = [row for row in tx.rows(look_over, {"TOKEN": token}) if tuple(row[4:]) in taken]
        if picking.order == "original":
            found = sorted(found, key=lambda row: (row.priority, row.scheduled_time, *row[4:]))
        elif picking.order == "reverse":
            found = sorted(found, key=lambda row: (-row.priority, *row[4:]), reverse=True)
        return [
            Claimed(dict(zip(self.keys, row[4:], strict=True)), bool(row.done__), bool(row.live__)) for row in found
        ]

    def _claim_statements(self, timed: bool, picking: Picking) -> tuple[Any, Any]:
        """The claim and, on SQLite, the look at what it took. Built once for a populate(): building takes longer than
        running."""
        jobs, dialect = self.table, self.dialect
        now: ColumnElement[datetime] = bindparam("NOW", type_=UtcTime()) if timed else dialect.now()
        due = self._due(now, picking)
        picked = (
            select(*(jobs.c[name] for name in self.keys)).where(*due).order_by(*self._order(picking.order))
            .limit(bindparam("LIMIT", type_=Integer())).with_for_update(**dialect.skip_locked).cte("picked")
        )  # fmt: skip
        lease_now: ColumnElement[datetime] = bindparam("LEASE_NOW", type_=UtcTime()) if timed else dialect.now()
        until = dialect.add_seconds(lease_now, bindparam("LEASE", type_=Float()))
        who = Identity(bindparam("USER"), bindparam("HOST"), bindparam("PID"), bindparam("VERSION"))
        claim = (
            update(jobs)
            .where(*(jobs.c[name] == picked.c[name] for name in self.keys))
            .values(self._reserved_by(now, until, bindparam("TOKEN"), who))
        )
        seen = [
            jobs.c.priority, jobs.c.scheduled_time, self._meets(picking.target, jobs.c).label("done__"),
            self._meets(picking.source.embed(), jobs.c).label("live__"), *(jobs.c[name] for name in self.keys),
        ]  # fmt: skip
        if dialect.user_tables.returns_subqueries:
            return claim.returning(*seen), None
        # On SQLite RETURNING does not say of which table a column is, which a subquery would have to know.
        return claim.returning(*(jobs.c[name] for name in self.keys)), select(*seen).where(
            self._held(bindparam("TOKEN"))
        )

    def _due(self, now: Any, picking: Picking) -> list[ColumnElement[bool]]:
        due = [self._is("pending"), self.table.c.scheduled_time <= now]
        if picking.priority is not None:
            due.append(self.table.c.priority <= picking.priority)
        if picking.among is not None:
            due.append(self._meets(picking.among.embed(), self.table.c))
        return due

    def claimable(self, tx: Tx, picking: Picking) -> bool:
        """Whether there is a job that `claim` would take, were nobody holding a lock on its row."""
        return tx.first(select(1).select_from(self.table).where(*self._due(tx.now, picking)).limit(1)) is not None

    def reserve(self, tx: Tx, key: Mapping[str, Any], token: str, who: Identity, lease: float) -> bool:
        due = (self._at(key), self._is("pending"), self.table.c.scheduled_time <= tx.now)
        reserved = self._reserved_by(tx.now, tx.lease_until(lease), token, who)
        return tx.count(update(self.table).where(*due).values(reserved)) == 1

    def complete(self, tx: Tx, key: Mapping[str, Any], token: str, duration: float | None, *, keep: bool) -> bool:
        held = (self._at(key), self._held(token))
        if not keep:
            return tx.count(delete(self.table).where(*held)) == 1
        done = {
            "status": "success",
            "completed_time": tx.now,
            "duration": duration,
            "error_message": "",
            "error_stack": None,
        }
        return tx.count(update(self.table).where(*held).values(**done, token=None, lease_until=None)) == 1

    def complete_all(self, tx: Tx, keys: Sequence[Mapping[str, Any]], token: str) -> int:
        """Delete the jobs of several keys that the token holds; answers how many it did hold."""
        if tx.dialect.user_tables.takes_arrays:
            values = {f"ALL_{name}": [key[name] for key in keys] for name in self.keys}
            return tx.count(self._completion, {"TOKEN": token, **values})
        columns = tuple_(*(self.table.c[name] for name in self.keys))
        chosen = columns.in_([tuple(key[name] for name in self.keys) for key in keys])
        return tx.count(delete(self.table).where(chosen, self._held(token)))

    @cached_property
    def _completion(self) -> Any:
        """One statement for any number of keys, so that it is parsed and planned once."""
        columns = [self.table.c[name] for name in self.keys]
        arrays = [bindparam(f"ALL_{column.name}", type_=ARRAY(column.type)) for column in columns]
        chosen: ColumnElement[bool] = (
            columns[0] == any_(arrays[0])
            if len(columns) == 1
            else tuple_(*columns).in_(select(*(func.unnest(array) for array in arrays)))
        )
        return delete(self.table).where(chosen, self._held(bindparam("TOKEN")))

    def fail(
        self, tx: Tx, key: Mapping[str, Any], token: str, message: str, stack: bytes | None, duration: float | None
    ) -> bool:
        """Reserved becomes error, and the history keeps a copy that outlives clearing."""
        values = {"status": "error", "completed_time": tx.now, "duration": duration, "error_message": message[:MESSAGE_LENGTH],
                  "error_stack": stack, "token": None, "lease_until": None}  # fmt: skip
        return self._end_badly(tx, key, token, message, stack, values)

    def retry(
        self, tx: Tx, key: Mapping[str, Any], token: str, message: str, stack: bytes | None, delay: float
    ) -> bool:
        """Reserved becomes pending again, due after `delay`; the history keeps the error."""
        values = {"status": "pending", "scheduled_time": tx.later(delay), "error_message": message[:MESSAGE_LENGTH],
                  "error_stack": stack, **_UNHELD}  # fmt: skip
        return self._end_badly(tx, key, token, message, stack, values)

    def _end_badly(
        self, tx: Tx, key: Mapping[str, Any], token: str, message: str, stack: bytes | None, values: Mapping[str, Any]
    ) -> bool:
        jobs = self.table
        statement = (
            update(jobs).where(self._at(key), self._held(token)).values(dict(values))
            .returning(jobs.c.attempts, jobs.c.user, jobs.c.host, jobs.c.pid, jobs.c.version)
        )  # fmt: skip
        row = tx.first(statement)
        if row is None:
            return False
        who = Identity(row.user, row.host, row.pid, row.version)
        history.record(tx, self.target, key, message[:MESSAGE_LENGTH], stack, who, row.attempts)
        return True

    def release(self, tx: Tx, token: str) -> int:
        """Give back, untried, whatever the token still holds."""
        back = {"status": "pending", "attempts": self.table.c.attempts - 1, **_UNHELD}
        return tx.count(update(self.table).where(self._held(token)).values(back))

    def discard(self, tx: Tx, key: Mapping[str, Any], token: str) -> bool:
        return tx.count(delete(self.table).where(self._at(key), self._held(token))) == 1

    def heartbeat(self, tx: Tx, token: str, lease: float) -> int:
        return tx.count(update(self.table).where(self._held(token)).values(lease_until=tx.lease_until(lease)))

    def ignore(self, tx: Tx, key: Mapping[str, Any], priority: int) -> str | None:
        """Set aside; answers the status that stands in the way, if one does."""
        status = self.status(tx, key)
        if status in ("reserved", "success"):
            return status
        if status is None:
            row = {**key, "status": "ignore", "priority": priority, "created_time": tx.now, "scheduled_time": tx.now,
                   "error_message": "", "user": "", "host": "", "pid": 0, "connection_id": 0, "version": "", "attempts": 0}  # fmt: skip
            tx.run(insert(self.table).values(row))
        else:
            tx.run(update(self.table).where(self._at(key)).values(status="ignore"))
        return None

    def status(self, tx: Tx, key: Mapping[str, Any]) -> str | None:
        found: str | None = tx.scalar(select(self.table.c.status).where(self._at(key)).with_for_update())
        return found

    def row(self, tx: Tx, key: Mapping[str, Any]) -> Row[Any] | None:
        found: Row[Any] | None = tx.first(select(self.table).where(self._at(key)))
        return found

    def ahead(self, tx: Tx, row: Row[Any]) -> int:
        """How many due pending jobs are more urgent than this one."""
        jobs = self.table
        earlier = or_(
            jobs.c.priority < row.priority,
            and_(jobs.c.priority == row.priority, jobs.c.scheduled_time < row.scheduled_time),
        )
        due = (self._is("pending"), jobs.c.scheduled_time <= tx.now)
        return int(tx.scalar(select(func.count()).select_from(jobs).where(*due, earlier)))

    def progress(self, tx: Tx) -> dict[str, int]:
        found = {
            row[0]: row[1] for row in tx.rows(select(self.table.c.status, func.count()).group_by(self.table.c.status))
        }
        counts = {status: int(found.get(status, 0)) for status in STATUSES}
        return {**counts, "total": sum(counts.values())}

    def next_due(self, tx: Tx) -> datetime | None:
        found: datetime | None = tx.scalar(select(func.min(self.table.c.scheduled_time)).where(self._is("pending")))
        return found

    def _reserved_by(
        self, now: ColumnElement[datetime], until: ColumnElement[datetime], token: Any, who: Identity
    ) -> dict[str, Any]:
        user, session = self.dialect.user_tables.asker(who.user)
        return {
            "status": "reserved", "reserved_time": now, "completed_time": None, "duration": None, "error_message": "",
            "error_stack": None, "user": user,
            "host": who.host, "pid": who.pid, "connection_id": session,
            "version": who.version, "attempts": self.table.c.attempts + 1, "token": token, "lease_until": until,
        }  # fmt: skip

    def _order(self, order: str) -> list[Any]:
        jobs = self.table
        keys = [jobs.c[name] for name in self.keys]
        if order == "random":
            return [jobs.c.priority, func.random()]
        if order == "reverse":
            return [jobs.c.priority, *(key.desc() for key in keys)]
        return [jobs.c.priority, jobs.c.scheduled_time, *keys]

    def _at(self, key: Mapping[str, Any]) -> ColumnElement[bool]:
        return and_(true(), *(self.table.c[name] == key[name] for name in self.keys))

    def _is(self, status: str) -> ColumnElement[bool]:
        return self.table.c.status == _constant(status)

    def _held(self, token: Any) -> ColumnElement[bool]:
        return and_(self.table.c.token == token, self._is("reserved"))

    def _meets(self, source: Source, outer: Any) -> ColumnElement[bool]:
        return source.exists([(outer[name], name) for name in self.keys])


_UNHELD: dict[str, Any] = {"token": None, "lease_until": None, "reserved_time": None}


@lru_cache(maxsize=8)
def _constant(status: str) -> ColumnElement[str]:
    """The status written into the statement, so that the planner sees that a partial index fits."""
    return literal_column(f"'{status}'", String())


def _indexes(made: Table, keys: Sequence[str], shape: Shape) -> list[Index]:
    pending, reserved = made.c.status == _constant("pending"), made.c.status == _constant("reserved")
    stem = f"{shape.schema}.{shape.name}"
    columns = [made.c.priority, made.c.scheduled_time, *(made.c[name] for name in keys)]
    return [
        Index(f"{stem}#due"[-63:], *columns, postgresql_where=pending, sqlite_where=pending),
        Index(f"{stem}#held"[-63:], made.c.token, postgresql_where=reserved, sqlite_where=reserved),
    ]


__all__ = ["Claimed", "Identity", "JobStore", "Picking", "drop", "job_shape", "job_table_name"]
