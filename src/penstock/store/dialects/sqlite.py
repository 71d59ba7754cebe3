"""SQLite: one writer at a time by BEGIN IMMEDIATE, so what PostgreSQL needs locks for needs none here. Batches
travel as one JSON argument, because a statement per row costs five times as much, and come back as one JSON text: for
every row that the driver hands out it gives up the interpreter and waits to have it back."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from uuid import UUID

from sqlalchemy import Connection, Engine, event, func, literal, select
from sqlalchemy.engine import URL
from sqlalchemy.sql import ColumnElement, Executable, cast, type_coerce
from sqlalchemy.types import BigInteger

from penstock.core.clock import wall_time
from penstock.core.decide import Resolution
from penstock.core.ids import id_from
from penstock.core.nouns import Claim
from penstock.core.payload import dumps
from penstock.core.position import place, step
from penstock.store import failpoints
from penstock.store.dialects import sqlite_file
from penstock.store.dialects.base import Bare, pool_beside
from penstock.store.dialects.lease_clock import LeaseClock
from penstock.store.hot import (
    NOTHING_TAKEN,
    RETRY_MODES,
    WAIT,
    Alike,
    ClaimRequest,
    Closed,
    Closing,
    Gate,
    NewJob,
    Rehearsed,
    Success,
    Taken,
    Written,
    bucket,
    counted_as,
    minute_of,
    told_once,
)
from penstock.store.types import UtcTime, from_micros, json_object, to_micros


def is_prepared(engine: Engine) -> bool:
    """Whether the engine's connections are as we need them, because we made it."""
    return bool(event.contains(engine, "begin", _begin))


def _listened(engine: Engine) -> Engine:
    event.listen(engine, "connect", _prepare_connection)
    event.listen(engine, "begin", _begin)
    return engine


class SqliteDialect:
    name: ClassVar[str] = "sqlite"
    driver_name: ClassVar[str] = "sqlite3"
    bare_url: ClassVar[str] = "sqlite://"
    guest_options: ClassVar[Mapping[str, Any]] = {"json_deserializer": json_object}
    many_writers: ClassVar[bool] = False
    skip_locked: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, injected_clock: bool = False) -> None:
        self._lease_clock = None if injected_clock else LeaseClock()
        self._file: sqlite_file.Identity | None = None
        self._path: str | None = None

    def create_engine(self, url: URL, factory: Callable[..., Engine], pool_size: int, busy_timeout: float) -> Engine:
        engine = factory(
            url,
            connect_args={"timeout": busy_timeout, "check_same_thread": False},
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_timeout=busy_timeout,
        )
        there = Path(url.database or "").is_file()
        event.listen(engine, "do_connect", sqlite_file.refuse_to_create if there else sqlite_file.note_before_connect)
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

    def has_short_way(self, engine: Engine) -> bool:
        return engine.dialect.driver == "pysqlite"

    def settle(self, connection: Any) -> None:
        """Nothing to do: a file has nobody at its other end."""

    def patience(self, connection: Any, seconds: float | None) -> AbstractContextManager[None]:
        return nullcontext()

    def is_alive(self, connection: Any) -> bool:
        return True  # a file does not hang up

    def is_raw_connection(self, given: Any) -> bool:
        return isinstance(given, sqlite3.Connection)

    @contextmanager
    def plain(self, given: Any) -> Iterator[Any]:
        before = given.text_factory
        given.text_factory = str  # there is none of a cursor's own
        try:
            yield _Plain(given)
        finally:
            given.text_factory = before

    @contextmanager
    def in_transaction(self, conn: Connection) -> Iterator[None]:
        driver: Any = conn.connection.driver_connection
        if driver.in_transaction:
            yield
            return
        autocommit = driver.isolation_level is None or getattr(driver, "autocommit", None) is True
        # The driver would begin at the first INSERT, too late for what is read before; and a savepoint that nothing
        # surrounds is a transaction of its own, which ends with it.
        conn.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if autocommit and driver.in_transaction:
                conn.exec_driver_sql("ROLLBACK")
            raise
        if autocommit:
            conn.exec_driver_sql("COMMIT")

    def machine_time(self) -> datetime | None:
        return wall_time()

    def lease_time(self, conn: Connection, moment: datetime | None) -> datetime | None:
        if self._lease_clock is None:
            return moment
        writing = isinstance(conn, Bare) or bool(conn.get_execution_options().get("penstock_write"))
        return self._lease_clock.now(conn.connection, writing=writing)

    def check_file(self, connection: Any) -> None:
        self._file = sqlite_file.check(connection)
        if self._file is not None:
            self._path = self._file.path

    def check_known_file(self) -> None:
        if self._file is not None:
            sqlite_file.compare(self._file)
        elif self._path is not None:
            sqlite_file.require(self._path)

    def forget_file(self) -> None:
        self._file = None
        if self._lease_clock is not None:
            self._lease_clock.forget()

    def settle_clock(self, conn: Connection) -> None:
        if self._lease_clock is not None:
            self._lease_clock.settle(conn.connection)

    def now(self) -> ColumnElement[datetime]:
        return literal(wall_time(), UtcTime)

    def select_now(self) -> Executable:
        return select(self.now())

    def add_seconds(self, moment: ColumnElement[datetime], seconds: Any) -> ColumnElement[datetime]:
        micros = cast(func.round(seconds * 1_000_000), BigInteger)
        return type_coerce(cast(moment, BigInteger) + micros, UtcTime())

    def greatest(self, *values: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.max(*values, type_=values[0].type)

    def insert_jobs(self, conn: Connection, moment: datetime | None, new: Sequence[NewJob]) -> Sequence[Written]:
        """Write the jobs whose tenant and definition are as the caller saw them; answer those written."""
        now = to_micros(moment or wall_time())
        if len(new) == 1:
            return _insert_one(conn, now, new[0])
        tenants = _tenants(conn, {job.tenant_id for job in new})
        definitions = _definitions(conn, {job.definition_id for job in new if job.definition_id})
        places: dict[tuple[UUID, int], int] = {}
        rows: list[tuple[Any, ...]] = []
        written: list[Written] = []
        for job in new:
            tenant = tenants.get(job.tenant_id)
            definition = definitions.get(job.definition_id) if job.definition_id else (None, False)
            if tenant is None or definition is None or definition[0] != job.definition_version:
                continue
            weight, tenant_limited = tenant
            due_at, waits = _when(job, now, definition[1] or tenant_limited)
            position = 0
            if waits is None:
                at = (job.tenant_id, job.priority)
                if at not in places:
                    places[at] = _place(conn, *at, weight)
                position = places[at]
                places[at] += step(weight)
            rows.append(_insert_row(job, now, due_at, waits, position))
            written.append(Written(job.id, position, waits, from_micros(due_at), from_micros(now)))
        cursor = conn.connection.cursor()
        try:
            if not any(job.dedupe_key or job.tick_at for job in new):
                cursor.executemany(_INSERT, rows)
                return written
            kept = []
            for row, made in zip(rows, written, strict=True):
                cursor.execute(_INSERT + " RETURNING id", row)
                if cursor.fetchall():
                    kept.append(made)
            return kept
        finally:
            cursor.close()

    def insert_alike(self, conn: Connection, moment: datetime | None, many: Alike) -> int:
        now = to_micros(moment or wall_time())
        job = many.first
        tenant = _tenants(conn, {job.tenant_id}).get(job.tenant_id)
        definition = (
            _definitions(conn, {job.definition_id}).get(job.definition_id) if job.definition_id else (None, False)
        )
        if tenant is None or definition is None or definition[0] != job.definition_version:
            return 0
        due_at, waits = _when(job, now, definition[1] or tenant[1])
        place_, stride = (
            (_place(conn, job.tenant_id, job.priority, tenant[0]), step(tenant[0])) if waits is None else (0, 0)
        )
        like = _insert_row(job, now, due_at, waits, 0)
        before, between, after = like[1:_POSITION], like[_POSITION + 2 : _ROOT], like[_ROOT + 1 :]
        rows = [
            (id_, *before, place_ + stride * number, params, *between, id_, *after)
            for number, (id_, params) in enumerate(zip(map(str, many.ids), many.params, strict=True))
        ]
        cursor = conn.connection.cursor()
        try:
            cursor.executemany(_INSERT, rows)
        finally:
            cursor.close()
        return len(many.ids)

    def gate(self, conn: Connection, moment: datetime | None) -> Gate:
        [(due, limited, reserved, queues)] = _run(conn, _GATE, {"now": to_micros(moment or wall_time())})
        return Gate(bool(due), bool(limited), bool(reserved), tuple(queues.split("\n")) if queues else ())

    def claim(self, conn: Connection, moment: datetime | None, request: ClaimRequest) -> Taken:
        now = to_micros(moment or wall_time())
        find = _find(
            len(request.open), request.keys is not None, request.tenant_id is not None, request.heed_reservations
        )
        params: dict[str, Any] = {f"queue{i}": queue for i, queue in enumerate(request.open)}
        params |= {"limit": request.limit, "now": now}
        if request.keys is not None:
            params["keys"] = dumps(list(request.keys))
        if request.tenant_id is not None:
            params["tenant_id"] = str(request.tenant_id)
        [(numbers, rows, long, suspects)] = _run(conn, find, params)
        found = json.loads(numbers)
        if not found:
            return NOTHING_TAKEN
        starting, apart = (
            (request.limit, request.limit) if request.starting is None else (request.starting, request.alone)
        )
        if suspects and request.starting is not None:
            found, numbers, rows = _until_a_suspect(found, rows)
        pairs = ",".join([f'[{number},"{run_id}"]' for number, run_id in zip(found, request.run_ids, strict=False)])
        lease = self._lease(conn, moment, request.lease_seconds)
        begun = {"starting": starting, "apart": int(apart)}
        _run(conn, _TAKE, {"pairs": f"[{pairs}]", "now": now, "lease": lease, "worker": request.worker, **begun})
        failpoints.reach("claim.after_update")
        _run(conn, _OPEN_RUNS, {"numbers": numbers, "now": now, "worker": request.worker, "pid": request.pid})
        failpoints.reach("claim.after_runs")
        told_apart = dict(_run(conn, _LONG_PARAMS, {"numbers": numbers})) if long else {}
        return Taken(len(found), lambda: _claims_in(rows, told_apart, request, from_micros(lease)))

    def _lease(self, conn: Connection, moment: datetime | None, seconds: float) -> int:
        return to_micros(self.lease_time(conn, moment) or wall_time()) + round(seconds * 1_000_000)

    def rehearse(self, moment: datetime | None, request: ClaimRequest, expected: Gate) -> Rehearsed:
        return Rehearsed(expected, request, None)

    def enter_and_claim(self, conn: Connection, moment: datetime | None, rehearsed: Rehearsed) -> tuple[Gate, Taken]:
        entered = self.gate(conn, moment)
        if not entered.lets_through(rehearsed.expected):
            return entered, NOTHING_TAKEN
        return entered, self.claim(conn, moment, replace(rehearsed.request, heed_reservations=entered.reserved))

    def heartbeat(
        self,
        conn: Connection,
        moment: datetime | None,
        pairs: Sequence[tuple[UUID, UUID]],
        lease_seconds: float,
        begun: Sequence[bool],
    ) -> Sequence[tuple[UUID, bool]]:
        given = dumps([[str(job), str(run), int(each)] for (job, run), each in zip(pairs, begun, strict=True)])
        lease = self._lease(conn, moment, lease_seconds)
        # The column itself, because SQLite 3.40 answers `IS NOT NULL` wrongly in the RETURNING of an UPDATE … FROM.
        return [(UUID(row[0]), bool(row[1])) for row in _run(conn, _HEARTBEAT, {"pairs": given, "lease": lease})]

    def close(
        self, conn: Connection, moment: datetime | None, closings: Sequence[Closing], shard: int
    ) -> Sequence[Closed]:
        now = to_micros(moment or wall_time())
        by_run: dict[str, Closing] = {}
        texts = []
        for closing, told in told_once(closings, _resolution_row):
            run_id = str(closing.run_id)
            by_run[run_id] = closing
            texts.append(f'{{"j":"{closing.job_id}","r":"{run_id}",{told}}}')
        given = f"[{','.join(texts)}]"
        found = [_ClosedRow(*row) for row in _run(conn, _CLOSE_JOBS, {"closings": given, "now": now})]
        failpoints.reach("finish.after_jobs")
        if not found:
            return []
        _run(conn, _CLOSE_RUNS, {"closings": given, "now": now})
        failpoints.reach("finish.after_runs")
        ended = [
            (
                row.tenant_id, row.definition_key, row.queue, by_run[row.run_id].resolution.run_status.value,
                row.run_started, None if row.finished_at is None else row.ready_at,
            )
            for row in found
        ]  # fmt: skip
        follows = Counter(
            (row.tenant_id, row.definition_key, row.queue, counted_as(by_run[row.run_id].resolution)) for row in found
        )
        _tally(conn, ended, now, shard, follows)
        tenants = {tenant_id: UUID(tenant_id) for tenant_id in {row.tenant_id for row in found}}
        closed = []
        for row in found:
            closing = by_run[row.run_id]
            group_id = UUID(row.group_id) if row.group_id else None
            closed.append(Closed(closing.job_id, closing.run_id, tenants[row.tenant_id], group_id, bool(row.hooked)))
        return closed

    def close_successes(
        self, conn: Connection, moment: datetime | None, successes: Sequence[Success], shard: int
    ) -> set[UUID] | None:
        now = to_micros(moment or wall_time())
        given = ",".join(dict.fromkeys([f'["{each.job_id}","{each.run_id}"]' for each in successes]))
        [(number, jobs, runs, run_ids, facts)] = _run(conn, _SUCCESSES, {"given": f"[{given}]"})
        if not number:
            return set()
        results = {str(each.run_id): dumps(each.result) for each in successes if each.result is not None}
        if results:
            pairs = zip(json.loads(jobs), json.loads(run_ids), strict=True)
            told = dumps([(job, results.get(run_id)) for job, run_id in pairs])
            _run(conn, _CLOSE_WITH_RESULTS, {"given": told, "now": now})
        else:
            _run(conn, _CLOSE_SUCCESSES, {"numbers": jobs, "now": now})
        failpoints.reach("finish.after_jobs")
        _run(conn, _CLOSE_THEIR_RUNS, {"numbers": runs, "now": now})
        failpoints.reach("finish.after_runs")
        _tally(conn, map(tuple, json.loads(facts)), now, shard)
        return None if number == len(successes) else {id_from(each) for each in json.loads(run_ids)}

    def wake(self, conn: Connection, queues: Sequence[str]) -> None:
        """Nothing to do: workers watch `PRAGMA data_version`."""


class _Plain:
    """A caller's connection whose cursors give plain tuples."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def cursor(self, *_args: Any) -> sqlite3.Cursor:
        cursor = sqlite3.Cursor(self._connection)
        cursor.row_factory = None
        return cursor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _run(conn: Connection, sql: str, params: Mapping[str, Any]) -> Sequence[Any]:
    """The statement on the driver's own cursor: on a local file SQLAlchemy's share would be most of the time."""
    cursor = conn.connection.cursor()
    try:
        cursor.execute(sql, params)
        return cursor.fetchall()
    finally:
        cursor.close()


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
    (record.info[_MODE],) = cursor.execute("PRAGMA journal_mode").fetchone()
    (record.info[_PATIENCE],) = cursor.execute("PRAGMA busy_timeout").fetchone()
    cursor.close()


_MODE, _PATIENCE, _IMPATIENT = "penstock_journal_mode", "penstock_patience", "penstock_impatient"
"""What is known of a connection: its journal's mode, how long it waits for locks in milliseconds, and whether it was told not to,
because whoever writes waits for it."""


def _begin(conn: Connection) -> None:
    if conn.get_execution_options().get("penstock_write"):
        begin_to_write(conn.connection)
    else:
        be_patient(conn.connection)
        conn.exec_driver_sql("BEGIN")


def begin_to_write(connection: Any) -> None:
    """A deferred transaction that turns writer fails at once with BUSY_SNAPSHOT, whatever the timeout; so it is IMMEDIATE. And
    we wait ourselves: SQLite's way is to sleep the longer the longer it has waited, which leaves the file to nobody. The
    connection stays told so: each word to it gives the interpreter up, and who has it may keep it for milliseconds."""
    info = connection.info
    cursor = connection.cursor()
    try:
        if not info.get(_IMPATIENT):
            cursor.execute("PRAGMA busy_timeout = 0")
            info[_IMPATIENT] = True
        asked_at = time.monotonic()
        while True:
            try:
                cursor.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError as error:
                waited = time.monotonic() - asked_at
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or waited * 1000 >= info[_PATIENCE]:
                    raise
            time.sleep(min(0.01, 0.0005 + waited / 20))
    finally:
        cursor.close()
        if info[_MODE] != "wal":
            be_patient(connection)  # there a COMMIT too waits for others


def be_patient(connection: Any) -> None:
    """Have the connection wait for locks itself, as whoever reads expects."""
    info = connection.info
    if info.get(_IMPATIENT):
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {info[_PATIENCE]}")
        cursor.close()
        info[_IMPATIENT] = False


def _tenants(conn: Connection, ids: set[UUID]) -> dict[UUID, tuple[int, bool]]:
    rows = _run(conn, _TENANTS, {"ids": dumps([str(i) for i in ids])})
    return {UUID(tenant_id): (weight, max_running is not None) for tenant_id, weight, max_running in rows}


def _definitions(conn: Connection, ids: set[UUID]) -> dict[UUID | None, tuple[int, bool]]:
    rows = _run(conn, _DEFINITIONS, {"ids": dumps([str(i) for i in ids])})
    return {UUID(row[0]): (row[1], row[2] is not None or bool(row[3])) for row in rows}


def _place(conn: Connection, tenant_id: UUID, priority: int, weight: int) -> int:
    [(largest, smallest)] = _run(conn, _PLACE, {"tenant_id": str(tenant_id), "priority": priority})
    return place(largest, smallest, weight)


def _insert_one(conn: Connection, now: int, job: NewJob) -> Sequence[Written]:
    """One job: everything that it depends on is read by one statement."""
    seen = {
        "tenant_id": str(job.tenant_id),
        "definition_id": job.definition_id and str(job.definition_id),
        "priority": job.priority,
    }
    cursor = conn.connection.cursor()
    try:
        cursor.execute(_SEEN, seen)
        found = cursor.fetchone()
        if found is None or found[2] != job.definition_version:
            return []
        weight, tenant_limit, _, limit, paused, largest, smallest = found
        due_at, waits = _when(job, now, tenant_limit is not None or limit is not None or bool(paused))
        position = place(largest, smallest, weight) if waits is None else 0
        cursor.execute(_INSERT, _insert_row(job, now, due_at, waits, position))
        if not cursor.rowcount:
            return []
    finally:
        cursor.close()
    return [Written(job.id, position, waits, from_micros(due_at), from_micros(now))]


def _when(job: NewJob, now: int, limited: bool) -> tuple[int, str | None]:
    """When it is due, and what it waits for."""
    due_at = to_micros(job.scheduled_for) if job.scheduled_for else now + round((job.delay or 0) * 1_000_000)
    return due_at, "group" if job.waits_for_group else "time" if due_at > now else "limit" if limited else None


_POSITION, _ROOT = 8, 19
"""Where a row of `_insert_row` has its position, its params after that, and its root."""


def _insert_row(job: NewJob, now: int, due_at: int, waits: str | None, position: int) -> tuple[Any, ...]:
    return (
        str(job.id), str(job.tenant_id), str(job.definition_id) if job.definition_id else None, job.definition_key,
        job.queue, waits is None, waits, job.priority, position, job.params, job.source, job.source_ref, job.dedupe_key,
        job.correlation_id, due_at, now, now, job.max_attempts, job.retry_mode, str(job.id),
        str(job.group_id) if job.group_id else None, job.group_position, str(job.trigger_id) if job.trigger_id else None,
        to_micros(job.tick_at) if job.tick_at else None, job.created_by, job.trace,
    )  # fmt: skip


def _resolution_row(r: Resolution) -> dict[str, Any]:
    row: dict[str, Any] = {"rs": r.run_status, "js": r.job_status}
    evidence = r.evidence
    for key, value in (
        ("e", r.error), ("x", evidence.exit_code), ("so", evidence.stdout_tail), ("se", evidence.stderr_tail),
        ("lp", evidence.log_path), ("p", evidence.pid), ("d", r.delay),
    ):  # fmt: skip
        if value is not None:
            row[key] = value
    if r.result is not None:
        row["res"] = dumps(r.result)
    if evidence.artifacts:
        row["a"] = dumps([dict(artifact) for artifact in evidence.artifacts])
    if r.extra_attempts:
        row["xa"] = r.extra_attempts
    if r.crashed:
        row["c"] = 1
    if r.suspect:
        row["s"] = 1
    if r.interrupted:
        row["i"] = 1
    return row


class _ClosedRow(NamedTuple):
    job_id: str
    run_id: str
    tenant_id: str
    definition_key: str
    queue: str
    group_id: str | None
    finished_at: int | None
    hooked: int
    run_started: int
    ready_at: int


def _tally(
    conn: Connection,
    ended: Iterable[tuple[str, str, str, str, int, int | None]],
    now: int,
    shard: int,
    follows: Mapping[tuple[str, str, str, str | None], int] | None = None,
) -> None:
    """Count runs: of which tenant, key and queue, how they ended, when they began, since when a job that is over was ready;
    and what follows from their end."""
    counts: Counter[tuple[str, str, str, str, int]] = Counter()
    for (tenant_id, key, queue, status, began, ready_at), number in Counter(ended).items():
        counts[tenant_id, key, queue, status, bucket((now - began) / 1000)] += number
        if ready_at is not None:
            counts[tenant_id, key, queue, WAIT, bucket((began - ready_at) / 1000)] += number
    for (tenant_id, key, queue, measure), number in (follows or {}).items():
        if measure is not None:
            counts[tenant_id, key, queue, measure, 0] += number
    minute = to_micros(minute_of(from_micros(now)))
    cursor = conn.connection.cursor()
    cursor.executemany(_TALLY, [(minute, *key, shard, n) for key, n in counts.items()])
    cursor.close()


def _until_a_suspect(found: list[int], rows: str) -> tuple[list[int], str, str]:
    """A worker's batch ends with the first suspect: that runs when what came before it has ended."""
    told = json.loads(rows)
    number = next(index for index, row in enumerate(told, 1) if row[-1])
    return found[:number], dumps(found[:number]), dumps(told[:number])


def _claims_in(rows: str, long: Mapping[str, str], request: ClaimRequest, lease_expires_at: datetime) -> list[Claim]:
    return [
        _claimed(row, run_id, long, lease_expires_at, request.worker)
        for row, run_id in zip(json.loads(rows), request.run_ids, strict=False)
    ]


def _claimed(row: Any, run_id: UUID, long: Mapping[str, str], lease_expires_at: datetime, worker: str) -> Claim:
    (
        id_, tenant_id, slug, definition_id, key, queue, params, attempt_no, max_attempts, retry_mode, root_id, group_id, trace,
        correlation_id, started, timeout_seconds, suspicion,
    ) = row  # fmt: skip
    job_id = id_from(id_)
    return Claim(
        job_id, run_id, _uuid(tenant_id), slug, _uuid(definition_id) if definition_id else None, key, queue,
        {} if params == "{}" else json.loads(params or long[id_]), attempt_no, max_attempts, RETRY_MODES[retry_mode],
        job_id if root_id == id_ else id_from(root_id), UUID(group_id) if group_id else None, worker, _moment(started),
        lease_expires_at, json.loads(trace) if trace else None, correlation_id, timeout_seconds, suspicion,
    )  # fmt: skip


_uuid = lru_cache(maxsize=1024)(UUID)
_moment = lru_cache(maxsize=64)(from_micros)
"""The claims of a batch share theirs."""


@lru_cache(maxsize=256)
def _find(queues: int, keys: bool, tenant: bool, heed_reservations: bool) -> str:
    extra = ""
    if keys:
        extra += " AND definition_key IN (SELECT value FROM json_each(:keys))"
    if tenant:
        extra += " AND tenant_id = :tenant_id"
    if heed_reservations:
        extra += " AND tenant_id NOT IN (SELECT tenant_id FROM penstock_reservations WHERE status = 'active' AND expires_at > :now)"
    lanes = [
        "SELECT number, id, priority, position, queued_at FROM"
        " (SELECT rowid AS number, id, priority, position, queued_at FROM penstock_jobs"
        f" WHERE claimable AND queue = :queue{i}{extra} ORDER BY priority, position, queued_at, id LIMIT :limit)"
        for i in range(queues)
    ]
    first = " UNION ALL ".join(lanes) + " ORDER BY priority, position, queued_at, id LIMIT :limit"
    return (
        f"SELECT json_group_array(f.number), json_group_array(json_array({_CLAIMED})), sum(NOT {_SHORT}), sum(j.suspect) FROM ({first}) AS f"
        " CROSS JOIN penstock_jobs j ON j.rowid = f.number CROSS JOIN penstock_tenants t ON t.id = j.tenant_id"
        " LEFT JOIN penstock_definitions d ON d.id = j.definition_id"
    )


# Long params are told apart: a JSON text of a batch of them would be longer than SQLite allows.
_SHORT = "(length(j.params) <= 4096)"
_LONG_PARAMS = (
    "SELECT j.id, j.params FROM json_each(:numbers) f CROSS JOIN penstock_jobs j ON j.rowid = f.value"
    f" WHERE NOT {_SHORT}"
)
_CLAIMED = (
    f"j.id, j.tenant_id, t.slug, j.definition_id, j.definition_key, j.queue, CASE WHEN {_SHORT} THEN j.params END,"
    " j.attempt_no + 1, j.max_attempts, j.retry_mode, j.root_id, j.group_id, j.trace, j.correlation_id, max(:now, j.queued_at),"
    " d.timeout_seconds, CASE WHEN j.suspect THEN j.crashes + 1 ELSE 0 END"
)
_COLUMNS = (
    "id, tenant_id, definition_id, definition_key, queue, claimable, waits_for, priority, position, params, source,"
    " source_ref, dedupe_key, correlation_id, scheduled_for, created_at, queued_at, max_attempts, retry_mode, root_id,"
    " group_id, group_position, trigger_id, tick_at, created_by, trace"
)
_INSERT = (
    f"INSERT INTO penstock_jobs ({_COLUMNS}, status, slot, attempt_no, crashes)"
    f" VALUES ({', '.join('?' * 26)}, 'queued', 0, 0, 0) ON CONFLICT DO NOTHING"
)
_TENANTS = (
    "SELECT id, weight, max_running FROM penstock_tenants WHERE is_active AND id IN (SELECT value FROM json_each(:ids))"
)
_DEFINITIONS = (
    "SELECT id, version, max_running, paused FROM penstock_definitions"
    " WHERE is_active AND id IN (SELECT value FROM json_each(:ids))"
)
_PLACES = (
    "(SELECT max(position) FROM penstock_jobs WHERE claimable AND tenant_id = :tenant_id AND priority = :priority),"
    " (SELECT coalesce(min(CASE WHEN NOT q.paused THEN q.first END), (SELECT max(position) FROM penstock_floors"
    "  WHERE priority = :priority), min(q.first)) FROM (SELECT paused, (SELECT min(position) FROM penstock_jobs"
    "  WHERE claimable AND queue = name AND priority = :priority AND position >= coalesce((SELECT f.position FROM penstock_floors f"
    "  WHERE f.queue = name AND f.priority = :priority), -9223372036854775807)) AS first FROM penstock_queues) AS q)"
)
_PLACE = f"SELECT {_PLACES}"
_SEEN = (
    f"SELECT t.weight, t.max_running, d.version, d.max_running, d.paused, {_PLACES} FROM penstock_tenants t"
    " LEFT JOIN penstock_definitions d ON d.id = :definition_id AND d.is_active WHERE t.id = :tenant_id AND t.is_active"
)
_GATE = (
    "SELECT (SELECT scheduled_for FROM penstock_jobs WHERE waits_for = 'time' ORDER BY scheduled_for LIMIT 1) <= :now,"
    " EXISTS (SELECT 1 FROM penstock_jobs WHERE waits_for = 'limit'),"
    " EXISTS (SELECT 1 FROM penstock_reservations WHERE status = 'active'),"
    " (SELECT group_concat(name, char(10)) FROM penstock_queues WHERE NOT paused)"
)
# Found and taken under the write lock: what was read of a job a moment ago still holds, and its row number too.
_TAKE = (
    "UPDATE penstock_jobs SET status = 'running', claimable = 0, started_at = coalesce(started_at, max(:now, queued_at)),"
    " lease_expires_at = :lease, claimed_by = :worker, attempt_no = attempt_no + 1, run_id = f.run_id,"
    " begun = f.place < CASE WHEN suspect THEN :apart ELSE :starting END"
    " FROM (SELECT key AS place, json_extract(value, '$[0]') AS number, json_extract(value, '$[1]') AS run_id FROM json_each(:pairs)) AS f"
    " WHERE penstock_jobs.rowid = f.number"
)
_OPEN_RUNS = (
    "INSERT INTO penstock_runs (job_id, attempt_no, id, tenant_id, status, worker_id, pid, definition_id, started_at)"
    " SELECT j.id, j.attempt_no, j.run_id, j.tenant_id, 'running', :worker, :pid, j.definition_id, max(:now, j.queued_at)"
    " FROM json_each(:numbers) f CROSS JOIN penstock_jobs j ON j.rowid = f.value"
)
_HEARTBEAT = (
    "UPDATE penstock_jobs SET lease_expires_at = :lease, begun = max(penstock_jobs.begun, pair.begun)"
    " FROM (SELECT json_extract(value, '$[0]') AS id, json_extract(value, '$[1]') AS run, json_extract(value, '$[2]') AS begun"
    "  FROM json_each(:pairs)) AS pair"
    " WHERE penstock_jobs.id = pair.id AND penstock_jobs.run_id = pair.run AND penstock_jobs.status = 'running'"
    " RETURNING penstock_jobs.run_id, cancel_requested_at"
)
# Likewise: once seen to be ours, they are closed by their row numbers.
_SUCCESSES = (
    "SELECT count(*), json_group_array(j.rowid), json_group_array(r.rowid), json_group_array(r.id), json_group_array("
    "json_array(j.tenant_id, j.definition_key, j.queue, 'succeeded', r.started_at, max(j.queued_at, j.scheduled_for)))"
    " FROM json_each(:given) f"
    " CROSS JOIN penstock_jobs j ON j.id = json_extract(f.value, '$[0]')"
    " CROSS JOIN penstock_runs r ON r.job_id = j.id AND r.attempt_no = j.attempt_no"
    " WHERE j.status = 'running' AND j.run_id = json_extract(f.value, '$[1]') AND r.id = j.run_id AND j.group_id IS NULL"
    " AND j.tenant_id NOT IN (SELECT tenant_id FROM penstock_webhooks WHERE is_enabled)"
)
_SUCCEEDED = (
    "UPDATE penstock_jobs SET status = 'succeeded', slot = 0, finished_at = max(:now, started_at), lease_expires_at = NULL,"
    " last_error = NULL, crashes = 0, suspect = 0, result = "
)
_CLOSE_SUCCESSES = f"{_SUCCEEDED}NULL WHERE rowid IN (SELECT value FROM json_each(:numbers))"
_CLOSE_WITH_RESULTS = (
    f"{_SUCCEEDED}f.result FROM (SELECT json_extract(value, '$[0]') AS number, json_extract(value, '$[1]') AS result"
    " FROM json_each(:given)) AS f WHERE penstock_jobs.rowid = f.number"
)
_CLOSE_THEIR_RUNS = (
    "UPDATE penstock_runs SET status = 'succeeded', finished_at = max(:now, started_at)"
    " WHERE rowid IN (SELECT value FROM json_each(:numbers))"
)
_CLOSE_JOBS = (
    "UPDATE penstock_jobs SET status = f.js, waits_for = CASE f.js WHEN 'queued' THEN 'time' END, slot = 0,"
    " scheduled_for = CASE f.js WHEN 'queued' THEN :now + CAST(round(f.d * 1000000) AS INTEGER) ELSE scheduled_for END,"
    " finished_at = CASE f.js WHEN 'queued' THEN NULL ELSE max(:now, started_at) END, lease_expires_at = NULL,"
    " cancel_requested_at = CASE f.js WHEN 'queued' THEN NULL ELSE cancel_requested_at END,"
    " last_error = f.e, result = f.res, max_attempts = max_attempts + f.xa,"
    " crashes = CASE WHEN f.c THEN crashes + 1 WHEN f.i THEN crashes ELSE 0 END, suspect = f.s OR (f.i AND suspect),"
    " interruptions = interruptions + f.i"
    " FROM (SELECT json_extract(value, '$.j') AS j, json_extract(value, '$.r') AS r, json_extract(value, '$.js') AS js,"
    "  json_extract(value, '$.e') AS e, json_extract(value, '$.res') AS res, json_extract(value, '$.d') AS d,"
    "  coalesce(json_extract(value, '$.xa'), 0) AS xa, coalesce(json_extract(value, '$.c'), 0) AS c,"
    "  coalesce(json_extract(value, '$.i'), 0) AS i, coalesce(json_extract(value, '$.s'), 0) AS s FROM json_each(:closings)) AS f"
    " WHERE penstock_jobs.id = f.j AND penstock_jobs.run_id = f.r AND penstock_jobs.status = 'running'"
    " RETURNING penstock_jobs.id, run_id, tenant_id, definition_key, queue, group_id, finished_at,"
    " tenant_id IN (SELECT tenant_id FROM penstock_webhooks WHERE is_enabled) AS hooked,"
    " (SELECT started_at FROM penstock_runs r WHERE r.job_id = penstock_jobs.id AND r.attempt_no = penstock_jobs.attempt_no)"
    "  AS run_started, max(queued_at, scheduled_for) AS ready_at"
)
_CLOSE_RUNS = (
    "UPDATE penstock_runs SET status = f.rs, finished_at = max(:now, started_at), error = f.e, exit_code = f.x,"
    " stdout_tail = coalesce(f.so, stdout_tail), stderr_tail = coalesce(f.se, stderr_tail),"
    " artifacts = coalesce(f.a, artifacts), log_path = coalesce(f.lp, log_path), pid = coalesce(f.p, pid)"
    " FROM (SELECT json_extract(value, '$.j') AS j, json_extract(value, '$.r') AS r, json_extract(value, '$.rs') AS rs,"
    "  json_extract(value, '$.e') AS e, json_extract(value, '$.x') AS x, json_extract(value, '$.so') AS so,"
    "  json_extract(value, '$.se') AS se, json_extract(value, '$.a') AS a, json_extract(value, '$.lp') AS lp,"
    "  json_extract(value, '$.p') AS p"
    "  FROM json_each(:closings)) AS f"
    " WHERE penstock_runs.job_id = f.j AND penstock_runs.id = f.r AND penstock_runs.status = 'running'"
)
_TALLY = (
    "INSERT INTO penstock_tallies (minute, tenant_id, definition_key, queue, measure, bucket, shard, n) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET n = n + excluded.n"
)
