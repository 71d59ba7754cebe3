"""PostgreSQL: many writers, so claims skip what others hold, and one round trip does a whole batch. A batch travels
as one JSON argument. No session state: everything here is safe behind a transaction pooler."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, cast
from uuid import UUID

from sqlalchemy import Connection, Engine, TextClause, event, func, select, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.sql import ColumnElement, Executable

from penstock.core.decide import Resolution
from penstock.core.errors import InvalidInput
from penstock.core.nouns import Claim
from penstock.core.payload import dumps
from penstock.store.dialects import link
from penstock.store.dialects.base import NAMED, Bare, pool_beside
from penstock.store.hot import (
    RETRY_MODES,
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
    counted_as,
    told_once,
)
from penstock.store.types import UtcTime

if TYPE_CHECKING:  # the driver is an extra
    from penstock.store.dialects import wire

CHANNEL = "penstock"
GATE_LOCK = 5_068_337_001
"""Claims share this transaction-scoped lock, reserving takes it alone: no claim is half done when a reservation begins."""

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


class PostgresDialect:
    name: ClassVar[str] = "postgresql"
    driver_name: ClassVar[str] = "psycopg"
    bare_url: ClassVar[str] = "postgresql+psycopg://"
    guest_options: ClassVar[Mapping[str, Any]] = {"use_native_hstore": False}
    many_writers: ClassVar[bool] = True
    skip_locked: ClassVar[Mapping[str, Any]] = {"skip_locked": True}

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

    def has_short_way(self, engine: Engine) -> bool:
        if not _by_psycopg(engine):
            return False
        from penstock.store.dialects import wire

        return wire.CAN

    def settle(self, connection: Any) -> None:
        link.settle(connection)

    def patience(self, connection: Any, seconds: float | None) -> AbstractContextManager[None]:
        return link.patience(connection, seconds)

    def is_alive(self, connection: Any) -> bool:
        return _is_alive(connection)

    def is_raw_connection(self, given: Any) -> bool:
        kind = type(given)
        return any(base.__module__.startswith("psycopg") and base.__name__ == "Connection" for base in kind.__mro__)

    @contextmanager
    def plain(self, given: Any) -> Iterator[Any]:
        from penstock.store.dialects.plain import Plain

        yield Plain(given)

    @contextmanager
    def in_transaction(self, conn: Connection) -> Iterator[None]:
        driver: Any = conn.connection.dbapi_connection
        if not getattr(driver, "autocommit", False) or not _is_idle(driver):
            yield
            return
        conn.exec_driver_sql("BEGIN")
        try:
            yield
        except BaseException:
            if not driver.closed:
                conn.exec_driver_sql("ROLLBACK")
            raise
        conn.exec_driver_sql("COMMIT")

    def machine_time(self) -> datetime | None:
        return None

    def lease_time(self, conn: Connection, moment: datetime | None) -> datetime | None:
        return moment

    def check_file(self, connection: Any) -> None:
        """Do nothing: the files are the server's."""

    def check_known_file(self) -> None:
        """Do nothing: the files are the server's."""

    def forget_file(self) -> None:
        """Do nothing: the files are the server's."""

    def settle_clock(self, conn: Connection) -> None:
        """Do nothing: the server's clock is the only one."""

    def now(self) -> ColumnElement[datetime]:
        # Not now(): in a transaction of several statements it would be older than rows that a later one sees.
        return func.statement_timestamp(type_=UtcTime())

    def select_now(self) -> Executable:
        return select(self.now())

    def add_seconds(self, moment: ColumnElement[datetime], seconds: Any) -> ColumnElement[datetime]:
        interval = func.make_interval(0, 0, 0, 0, 0, 0, seconds)
        return func.coalesce(moment.op("+")(interval), type_=UtcTime())

    def greatest(self, *values: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.greatest(*values, type_=values[0].type)

    def insert_jobs(self, conn: Connection, moment: datetime | None, new: Sequence[NewJob]) -> Sequence[Written]:
        """Write the jobs whose tenant and definition are as the caller saw them; answer those written."""
        if len(new) == 1:
            found = _insert_one(conn, moment, new[0])
        else:
            rows = dumps([_new_row(job, number) for number, job in enumerate(new)])
            found = _run(conn, _INSERT, moment, {"rows": rows})
        return [Written(_id(row[0]), row[1], row[2], _moment(row[3]), _moment(row[4])) for row in found]

    def insert_alike(self, conn: Connection, moment: datetime | None, many: Alike) -> int:
        # The params are JSON already: together they are an array as they stand.
        params = {**many.first._asdict(), "ids": _array(many.ids), "many": f"[{','.join(many.params)}]"}
        ((written,),) = _run(conn, _INSERT_ALIKE, moment, params)
        return int(written)

    def gate(self, conn: Connection, moment: datetime | None) -> Gate:
        (row,) = _run(conn, _GATE, moment, {"lock": GATE_LOCK})
        return _gate(row)

    def claim(self, conn: Connection, moment: datetime | None, request: ClaimRequest) -> Taken:
        sql, values = _claim_for(request, guarded=False), _claim_values(request)
        rows = _run(conn, sql, moment, values)
        return Taken(len(rows), lambda: [_claimed(row, request.worker) for row in rows])

    def rehearse(self, moment: datetime | None, request: ClaimRequest, expected: Gate) -> Rehearsed:
        from penstock.store.dialects import wire

        values = {**_claim_values(request), "open": list(expected.queues), "lock": GATE_LOCK, "moment": moment}
        injected = moment is not None
        gate = wire.Statement(_timed(_GATE, injected), values)
        claim = wire.Statement(_timed(_claim_for(request, guarded=True), injected), values, binary=True)
        for each in (gate, claim):
            each.ready()
        return Rehearsed(expected, request, [gate, claim])

    def enter_and_claim(self, conn: Connection, moment: datetime | None, rehearsed: Rehearsed) -> tuple[Gate, Taken]:
        """Gate, claim and COMMIT in one round trip. The claim takes nothing unless it finds the gate as expected."""
        from penstock.store.dialects import wire

        gate, claims = _ask(conn, rehearsed.statements)
        (entered,) = wire.rows(conn.connection, gate)
        return _gate(entered), Taken(claims.ntuples, lambda: _claims_in(claims, rehearsed.request))

    def heartbeat(
        self,
        conn: Connection,
        moment: datetime | None,
        pairs: Sequence[tuple[UUID, UUID]],
        lease_seconds: float,
        begun: Sequence[bool],
    ) -> Sequence[tuple[UUID, bool]]:
        params = {
            "lease": lease_seconds, "begun": "{" + ",".join(["t" if each else "f" for each in begun]) + "}",
            "job_ids": _array(job_id for job_id, _ in pairs), "run_ids": _array(run_id for _, run_id in pairs),
        }  # fmt: skip
        return [(row[0], row[1]) for row in _run(conn, _HEARTBEAT, moment, params, by_key=True)]

    def close(
        self, conn: Connection, moment: datetime | None, closings: Sequence[Closing], shard: int
    ) -> Sequence[Closed]:
        texts = [
            f'{{"j":"{closing.job_id.hex}","r":"{closing.run_id.hex}",{told}}}'
            for closing, told in told_once(closings, _resolution_row)
        ]
        given = {"closings": f"[{','.join(texts)}]", "shard": shard, "moment": moment}
        if not _begins(conn):
            return [Closed(*row) for row in _run(conn, _CLOSE, moment, given)]
        from penstock.store.dialects import wire

        close = wire.Statement(_timed(_CLOSE, moment is not None), given, binary=True)
        _, answer = _ask(conn, [wire.Statement(_BY_KEY, {}), close])
        ids = wire.Ids({each.bytes: each for closing in closings for each in (closing.job_id, closing.run_id)})
        return [Closed(*row) for row in wire.decoded(answer, (ids, ids, ids, ids, wire.Booleans()))]

    def close_successes(
        self, conn: Connection, moment: datetime | None, successes: Sequence[Success], shard: int
    ) -> set[UUID] | None:
        given: dict[str, Any] = {
            "job_ids": _array(each.job_id for each in successes), "run_ids": _array(each.run_id for each in successes),
            "number": len(successes), "shard": shard,
        }  # fmt: skip
        with_results = any(each.result is not None for each in successes)
        if with_results:
            given["results"] = dumps([each.result for each in successes])
        ((closed,),) = _run(conn, _close_successes_sql(with_results), moment, given, by_key=True)
        return None if closed is None else set(closed)

    def wake(self, conn: Connection, queues: Sequence[str]) -> None:
        for queue in sorted(set(queues)):
            conn.execute(_WAKE, {"queue": queue[:1000]})


def _id(value: Any) -> UUID:
    """A guest's connection may have other loaders than ours, and hand out text."""
    return value if isinstance(value, UUID) else UUID(str(value))


def _moment(value: Any) -> datetime:
    moment: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.astimezone(UTC)


def _is_idle(driver: Any) -> bool:
    """Whether psycopg's connection is outside a transaction. Another driver's is taken to be inside one."""
    status = getattr(getattr(driver, "info", None), "transaction_status", None)
    return status is not None and int(status) == 0


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


def _gate(row: Sequence[Any]) -> Gate:
    """The claim itself looks for reservations: the gate's snapshot is older than the lock that it waits for, so the very
    reservation it waited for would be missed in it."""
    *_, due, limited, queues = row
    return Gate(due, limited, True, tuple(queues or ()))


def _claim_values(request: ClaimRequest) -> dict[str, Any]:
    values: dict[str, Any] = {
        "worker": request.worker, "pid": request.pid, "lease": request.lease_seconds, "limit": request.limit,
        "run_ids": _array(request.run_ids),
    }  # fmt: skip
    if len(request.open) > 1:
        values["queues"] = list(request.open)
    else:
        values["queue"] = request.open[0]
    if request.keys is not None:
        values["keys"] = list(request.keys)
    if request.tenant_id is not None:
        values["tenant_id"] = request.tenant_id
    if request.starting is not None:
        values |= {"starting": request.starting, "apart": int(request.alone)}
    return values


def _insert_one(conn: Connection | Bare, moment: datetime | None, job: NewJob) -> Sequence[Any]:
    """A job without anything rare takes a statement without it, which costs both sides less."""
    sql = _INSERT_PLAIN if job[_FIRST_RARE:] == _ORDINARY else _INSERT_ONE
    return _run(conn, sql, moment, job._asdict())


def _new_row(job: NewJob, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "n": number, "id": str(job.id), "tenant_id": str(job.tenant_id), "definition_key": job.definition_key,
        "queue": job.queue, "priority": job.priority, "params": job.params, "max_attempts": job.max_attempts,
        "retry_mode": job.retry_mode, "source": job.source,
    }  # fmt: skip
    optional = {
        "definition_id": str(job.definition_id) if job.definition_id else None, "definition_version": job.definition_version,
        "source_ref": job.source_ref, "dedupe_key": job.dedupe_key, "correlation_id": job.correlation_id,
        "scheduled_for": job.scheduled_for.isoformat() if job.scheduled_for else None, "delay": job.delay,
        "group_id": str(job.group_id) if job.group_id else None, "group_position": job.group_position,
        "waits_for_group": job.waits_for_group or None, "trigger_id": str(job.trigger_id) if job.trigger_id else None,
        "tick_at": job.tick_at.isoformat() if job.tick_at else None, "created_by": job.created_by, "trace": job.trace,
    }  # fmt: skip
    row.update({key: value for key, value in optional.items() if value is not None})
    return row


def _resolution_row(r: Resolution) -> dict[str, Any]:
    evidence = r.evidence
    row: dict[str, Any] = {"rs": r.run_status, "js": r.job_status}
    optional = {
        "m": counted_as(r), "e": r.error, "d": r.delay, "res": r.result, "x": evidence.exit_code, "so": evidence.stdout_tail,
        "se": evidence.stderr_tail, "lp": evidence.log_path, "p": evidence.pid, "xa": r.extra_attempts or None, "c": r.crashed or None,
        "i": r.interrupted or None, "s": r.suspect or None,
        "a": [dict(artifact) for artifact in evidence.artifacts] or None,
    }  # fmt: skip
    row.update({key: value for key, value in optional.items() if value is not None})
    return row


def _array(ids: Iterable[UUID]) -> str:
    """An array as PostgreSQL writes it: the driver takes several times as long to make one of a list."""
    return "{" + ",".join([each.hex for each in ids]) + "}"


def _claims_in(answer: Any, request: ClaimRequest) -> list[Claim]:
    """The claims of an answer in binary form."""
    from penstock.store.dialects import wire

    ids = wire.Ids({run_id.int.to_bytes(16, "big"): run_id for run_id in request.run_ids})
    texts, numbers, moments = wire.Texts(), wire.Integers(), wire.Moments()
    columns = (
        ids, ids, ids, texts, ids, texts, texts, texts, numbers, numbers, texts, ids,
        ids, texts, texts, moments, moments, numbers, numbers,
    )  # fmt: skip
    return [_claimed(row, request.worker) for row in wire.decoded(answer, columns)]


def _claimed(row: Any, worker: str) -> Claim:
    (
        job_id, run_id, tenant_id, slug, definition_id, key, queue, params, attempt_no, max_attempts, retry_mode, root_id,
        group_id, trace, correlation_id, lease_expires_at, started_at, timeout_seconds, suspicion,
    ) = row  # fmt: skip
    return Claim(
        job_id, run_id, tenant_id, slug, definition_id, key, queue, {} if params == "{}" else json.loads(params),
        attempt_no, max_attempts, RETRY_MODES[retry_mode], root_id, group_id, worker, started_at, lease_expires_at,
        json.loads(trace) if trace else None, correlation_id, timeout_seconds, suspicion,
    )  # fmt: skip


def _run(
    conn: Connection | Bare, sql: str, moment: datetime | None, params: dict[str, Any], by_key: bool = False
) -> Sequence[Any]:
    """A hot statement: on the wire where it begins a transaction of ours; on the driver's own cursor within one, because
    the driver knows what has become of its prepared statements since. A guest may have brought any driver."""
    params["moment"] = moment
    if _begins(conn):
        from penstock.store.dialects import wire

        before = [wire.Statement(_BY_KEY, {})] if by_key else []
        *_, answer = _ask(conn, [*before, wire.Statement(_timed(sql, moment is not None), params)])
        return wire.rows(conn.connection, answer)
    conn = cast(Connection, conn)
    if "penstock_own" not in conn.get_execution_options():
        return conn.execute(_for_guests(sql, moment is not None), params).all()
    return _by_cursor(conn, _for_the_driver(sql, moment is not None), params)


def _by_cursor(conn: Connection, statement: str, params: dict[str, Any]) -> Sequence[Any]:
    """SQLAlchemy's share would be a third of a batch's time in Python. What goes wrong is told in its way."""
    cursor = conn.connection.cursor()
    try:
        cursor.execute(statement, params)
        return cursor.fetchall()
    except Exception as error:
        conn._handle_dbapi_exception(error, statement, params, cursor, None)
    finally:
        cursor.close()


def _begins(conn: Connection | Bare) -> bool:
    """Whether the connection is ours, and nothing has been said on it in this transaction yet."""
    if isinstance(conn, Bare):
        return True
    if "penstock_own" not in conn.get_execution_options():
        return False
    connection: Any = conn.connection.dbapi_connection
    return bool(connection.pgconn.transaction_status == 0)


def _ask(conn: Connection | Bare, statements: Sequence[wire.Statement]) -> list[Any]:
    from penstock.store.dialects import wire

    if isinstance(conn, Bare):
        return wire.ask(conn.connection, statements, begin=False)
    try:
        return wire.ask(conn.connection, statements, begin=True)
    except Exception as error:
        conn._handle_dbapi_exception(error, statements[0].sql, dict(statements[0].params), None, None)


@lru_cache(maxsize=256)
def _timed(sql: str, injected: bool) -> str:
    """`{now}` is the statement's own moment, `{began}` the transaction's: the same for the gate and for the claim."""
    if injected:
        return sql.replace("{now}", "CAST(:moment AS timestamptz)").replace("{began}", "CAST(:moment AS timestamptz)")
    return sql.replace("{now}", "statement_timestamp()").replace("{began}", "now()")


@lru_cache(maxsize=256)
def _for_the_driver(sql: str, injected: bool) -> str:
    return NAMED.sub(r"%(\1)s", _timed(sql, injected))


@lru_cache(maxsize=256)
def _for_guests(sql: str, injected: bool) -> TextClause:
    return text(_timed(sql, injected))


def _claim_for(request: ClaimRequest, *, guarded: bool) -> str:
    keys, tenant = request.keys is not None, request.tenant_id is not None
    by_worker = request.starting is not None
    return _claim_sql(len(request.open) > 1, keys, tenant, request.heed_reservations, guarded, by_worker)


@lru_cache(maxsize=2)
def _close_successes_sql(with_results: bool) -> str:
    ids = "unnest(CAST(:job_ids AS uuid[])), unnest(CAST(:run_ids AS uuid[]))"
    given, result = f"ROWS FROM ({ids}) AS f(j, r)", "NULL"
    if with_results:
        given, result = (
            f"ROWS FROM ({ids}, jsonb_array_elements(CAST(:results AS jsonb))) AS f(j, r, res)",
            "NULLIF(f.res, 'null')",
        )
    return _CLOSE_SUCCESSES.replace("{given}", given).replace("{result}", result)


@lru_cache(maxsize=64)
def _claim_sql(
    many_queues: bool, keys: bool, tenant: bool, heed_reservations: bool, guarded: bool = False, by_worker: bool = False
) -> str:
    extra = ""
    if keys:
        extra += " AND definition_key = ANY(CAST(:keys AS text[]))"
    if tenant:
        extra += " AND tenant_id = CAST(:tenant_id AS uuid)"
    if heed_reservations:
        extra += " AND tenant_id NOT IN (SELECT tenant_id FROM penstock_reservations WHERE status = 'active' AND expires_at > {now})"
    order = "ORDER BY priority, position, queued_at, id"
    if many_queues:
        # One ordered probe per queue, merged: a plain `queue = ANY` would sort everything that waits.
        source = (
            "id IN (SELECT x.id FROM unnest(CAST(:queues AS text[])) AS q(name) CROSS JOIN LATERAL ("
            f"SELECT id FROM penstock_jobs WHERE claimable AND queue = q.name{extra} {order} LIMIT :limit + 500) AS x) AND claimable"
        )
    else:
        source = f"claimable AND queue = :queue{extra}"
    if guarded:
        source = f"(SELECT NOT {_DUE} AND NOT {_LIMITED} AND {_OPEN} = CAST(:open AS text[])) AND {source}"
    # MATERIALIZED, and the status checked again: the planner may otherwise run the subquery more than once.
    begun, until = (_BEGUN_BY_WORKER, _UNTIL_A_SUSPECT) if by_worker else ("true", "")
    return (
        _CLAIM.replace("{source}", source)
        .replace("{order}", order)
        .replace("{begun}", begun)
        .replace("{until_a_suspect}", until)
    )


# A worker's batch ends with the first suspect: that runs when what came before it has ended.
_BEGUN_BY_WORKER = "n.number <= CASE WHEN j.suspect THEN CAST(:apart AS integer) ELSE CAST(:starting AS integer) END"
_UNTIL_A_SUSPECT = " AND n.number <= coalesce((SELECT min(s.number) FROM n s WHERE s.suspect), n.number)"
_CLAIM = """
WITH c AS MATERIALIZED (
  SELECT id, suspect FROM penstock_jobs WHERE {source} {order} LIMIT :limit FOR UPDATE SKIP LOCKED
), n AS (
  SELECT id, suspect, row_number() OVER () AS number FROM c
), u AS (
  UPDATE penstock_jobs j SET status = 'running', claimable = false,
    started_at = coalesce(j.started_at, greatest({now}, j.queued_at)),
    lease_expires_at = {now} + make_interval(secs => :lease), claimed_by = :worker,
    attempt_no = j.attempt_no + 1, run_id = (CAST(:run_ids AS uuid[]))[n.number], begun = {begun}
  FROM n WHERE j.id = n.id AND j.status = 'queued'{until_a_suspect}
  RETURNING j.id, j.run_id, j.tenant_id, j.definition_id, j.definition_key, j.queue, j.params, j.attempt_no, j.max_attempts,
    j.retry_mode, j.root_id, j.group_id, j.trace, j.correlation_id, j.lease_expires_at, j.priority, j.position, j.queued_at,
    CASE WHEN j.suspect THEN j.crashes + 1 ELSE 0 END AS suspicion
), o AS (
  INSERT INTO penstock_runs (job_id, attempt_no, id, tenant_id, status, worker_id, pid, definition_id, started_at)
  SELECT id, attempt_no, run_id, tenant_id, 'running', :worker, CAST(:pid AS integer), definition_id, greatest({now}, queued_at)
  FROM u
)
SELECT u.id AS job_id, u.run_id, u.tenant_id, t.slug AS tenant_slug, u.definition_id, u.definition_key AS key, u.queue,
  CAST(u.params AS text), u.attempt_no, u.max_attempts, u.retry_mode, u.root_id, u.group_id, CAST(u.trace AS text), u.correlation_id,
  u.lease_expires_at,
  greatest({now}, u.queued_at) AS started_at, d.timeout_seconds, u.suspicion
FROM u JOIN penstock_tenants t ON t.id = u.tenant_id LEFT JOIN penstock_definitions d ON d.id = u.definition_id
ORDER BY u.priority, u.position, u.queued_at, u.id
"""

_FIRST_RARE = NewJob._fields.index("source_ref")
_RARE = NewJob._fields[_FIRST_RARE:]
_ORDINARY = tuple(NewJob._field_defaults[name] for name in _RARE)
"""What most jobs are without."""

# The place of a job at the end of its tenant's, but not before the clock: core.position says the same.
_BASE = """greatest(
    coalesce((SELECT max(position) FROM penstock_jobs WHERE claimable AND tenant_id = {tenant_id} AND priority = {priority}), 0),
    coalesce((SELECT coalesce(min(q.first) FILTER (WHERE NOT q.paused),
                              (SELECT max(position) FROM penstock_floors WHERE priority = {priority}), min(q.first))
              FROM (SELECT paused, (SELECT min(position) FROM penstock_jobs
                                    WHERE claimable AND queue = name AND priority = {priority} AND position >= coalesce(
                                      (SELECT f.position FROM penstock_floors f WHERE f.queue = name AND f.priority = {priority}),
                                      -9223372036854775807)) AS first
                    FROM penstock_queues OFFSET 0) AS q), 0) - 100)"""

_COLUMNS = """id, tenant_id, definition_id, definition_key, queue, status, claimable, waits_for, priority,
    position, params, source, source_ref, dedupe_key, correlation_id, scheduled_for, created_at, queued_at, max_attempts,
    retry_mode, root_id, group_id, group_position, trigger_id, tick_at, created_by, trace"""

# The tenant and the definition as the caller saw them, when the job is due and what it waits for: no row if they changed.
_AS_SEEN = """FROM penstock_tenants t LEFT JOIN penstock_definitions d ON d.id = CAST(:definition_id AS uuid)
CROSS JOIN LATERAL (
  SELECT due_at, CASE WHEN CAST(:waits_for_group AS boolean) THEN 'group' WHEN due_at > {now} THEN 'time'
    WHEN t.max_running IS NOT NULL OR d.max_running IS NOT NULL OR d.paused THEN 'limit' END AS waits_for
  FROM (SELECT coalesce(CAST(:scheduled_for AS timestamptz),
                        {now} + make_interval(secs => coalesce(CAST(:delay AS float8), 0))) AS due_at OFFSET 0) AS x OFFSET 0
) AS w
WHERE t.id = CAST(:tenant_id AS uuid) AND t.is_active
  AND (CAST(:definition_id AS uuid) IS NULL OR (d.is_active AND d.version = CAST(:definition_version AS integer)))
"""

# One job, without what a batch needs: no JSON to take apart, nothing to number, nothing to sort.
_INSERT_ONE = f"""
INSERT INTO penstock_jobs ({_COLUMNS})
SELECT CAST(:id AS uuid), t.id, CAST(:definition_id AS uuid), :definition_key, :queue, 'queued', w.waits_for IS NULL, w.waits_for,
  CAST(:priority AS integer), CASE WHEN w.waits_for IS NULL
    THEN {_BASE.format(tenant_id="t.id", priority="CAST(:priority AS integer)")} + greatest(1, 100 / t.weight) ELSE 0 END,
  CAST(:params AS jsonb), :source, CAST(:source_ref AS text), CAST(:dedupe_key AS text), CAST(:correlation_id AS text), w.due_at,
  {{now}}, {{now}}, CAST(:max_attempts AS integer), :retry_mode, CAST(:id AS uuid), CAST(:group_id AS uuid),
  CAST(:group_position AS integer), CAST(:trigger_id AS uuid), CAST(:tick_at AS timestamptz), CAST(:created_by AS text),
  CAST(:trace AS jsonb)
{_AS_SEEN}ON CONFLICT DO NOTHING
RETURNING id, position, waits_for, scheduled_for, queued_at, CASE WHEN claimable THEN CAST(pg_notify('penstock', queue) AS text) END
"""

_INSERT_PLAIN = re.sub(rf":({'|'.join(_RARE)})\b", "NULL", _INSERT_ONE)

# Many jobs that differ in nothing but their ids and params. The ids are new and none has a dedupe key, so nothing can be in
# their way; ON CONFLICT would look into every unique index for each of them first, a fifth of the time.
_INSERT_ALIKE = f"""
WITH b AS MATERIALIZED (
  SELECT t.id AS tenant_id, w.waits_for, w.due_at, greatest(1, 100 / t.weight) AS stride,
    {_BASE.format(tenant_id="t.id", priority="CAST(:priority AS integer)")} AS base
  {_AS_SEEN}
), written AS (
  INSERT INTO penstock_jobs ({_COLUMNS})
  SELECT g.id, b.tenant_id, CAST(:definition_id AS uuid), :definition_key, :queue, 'queued', b.waits_for IS NULL, b.waits_for,
    CAST(:priority AS integer), CASE WHEN b.waits_for IS NULL THEN b.base + b.stride * g.n ELSE 0 END, g.params, :source,
    CAST(:source_ref AS text), CAST(:dedupe_key AS text), CAST(:correlation_id AS text), b.due_at, {{now}}, {{now}},
    CAST(:max_attempts AS integer), :retry_mode, g.id, CAST(:group_id AS uuid), CAST(:group_position AS integer),
    CAST(:trigger_id AS uuid), CAST(:tick_at AS timestamptz), CAST(:created_by AS text), CAST(:trace AS jsonb)
  FROM b CROSS JOIN ROWS FROM (unnest(CAST(:ids AS uuid[])), jsonb_array_elements(CAST(:many AS jsonb)))
    WITH ORDINALITY AS g(id, params, n)
  RETURNING queue, claimable
), woken AS (
  SELECT count(pg_notify('penstock', queue)) FROM (SELECT DISTINCT queue FROM written WHERE claimable) AS w
)
SELECT count(*) FROM written CROSS JOIN woken
"""

_INSERT = f"""
WITH given AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS g(
    n integer, id uuid, tenant_id uuid, definition_id uuid, definition_version integer, definition_key text, queue text,
    priority integer, params text, max_attempts integer, retry_mode text, source text, source_ref text, dedupe_key text,
    correlation_id text, scheduled_for timestamptz, delay float8, group_id uuid, group_position integer,
    waits_for_group boolean, trigger_id uuid, tick_at timestamptz, created_by text, trace text)
), place AS MATERIALIZED (
  SELECT p.tenant_id, p.priority, {_BASE.format(tenant_id="p.tenant_id", priority="p.priority")} AS base
  FROM (SELECT DISTINCT tenant_id, priority FROM given) AS p
), ready AS (
  SELECT g.*, greatest(1, 100 / t.weight) AS stride, p.base,
    coalesce(g.scheduled_for, {{now}} + make_interval(secs => coalesce(g.delay, 0))) AS due_at,
    CASE WHEN g.waits_for_group THEN 'group'
         WHEN coalesce(g.scheduled_for, {{now}} + make_interval(secs => coalesce(g.delay, 0))) > {{now}} THEN 'time'
         WHEN t.max_running IS NOT NULL OR d.max_running IS NOT NULL OR d.paused THEN 'limit' END AS waits_for
  FROM given g JOIN place p ON p.tenant_id = g.tenant_id AND p.priority = g.priority
  JOIN penstock_tenants t ON t.id = g.tenant_id AND t.is_active
  LEFT JOIN penstock_definitions d ON d.id = g.definition_id
  WHERE g.definition_id IS NULL OR (d.is_active AND d.version = g.definition_version)
), written AS (
  INSERT INTO penstock_jobs ({_COLUMNS})
  SELECT id, tenant_id, definition_id, definition_key, queue, 'queued', waits_for IS NULL, waits_for, priority,
    CASE WHEN waits_for IS NULL THEN base + stride * row_number() OVER (PARTITION BY tenant_id, priority, waits_for ORDER BY n)
         ELSE 0 END,
    CAST(params AS jsonb), source, source_ref, dedupe_key, correlation_id, due_at, {{now}}, {{now}}, max_attempts,
    retry_mode, id, group_id, group_position, trigger_id, tick_at, created_by, CAST(trace AS jsonb)
  FROM ready ORDER BY n
  ON CONFLICT DO NOTHING
  RETURNING id, position, waits_for, scheduled_for, queued_at, queue, claimable
), woken AS (
  SELECT count(pg_notify('penstock', queue)) FROM (SELECT DISTINCT queue FROM written WHERE claimable) AS w
)
SELECT id, position, waits_for, scheduled_for, queued_at FROM written CROSS JOIN woken
"""

_DUE = "coalesce((SELECT scheduled_for FROM penstock_jobs WHERE waits_for = 'time' ORDER BY scheduled_for LIMIT 1) <= {began}, false)"
_LIMITED = "EXISTS (SELECT 1 FROM penstock_jobs WHERE waits_for = 'limit')"
_OPEN = "coalesce((SELECT array_agg(name ORDER BY name) FROM penstock_queues WHERE NOT paused), '{}')"

# The settings hold for this transaction alone. What follows are point reads by index whatever the statistics say: on a
# table that grew since it was last analysed the planner would read and sort everything that waits, and a generic plan, which
# does not know how few are asked for, would join with the whole table. The sort of what was claimed is so dear to a planner
# that may not sort that it would also have the statement compiled, which takes longer than to run it.
_OFF = ("enable_bitmapscan", "enable_sort", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit")
_GATE = f"""
SELECT pg_advisory_xact_lock_shared(:lock), {", ".join(f"set_config('{name}', 'off', true)" for name in _OFF)},
  set_config('plan_cache_mode', 'force_generic_plan', true), {_DUE}, {_LIMITED}, {_OPEN}
"""

# What is held is found by its key, whatever the statistics say, and by a plan that is made once. What runs is told by its lease,
# which a CHECK constraint holds to be the same, and by an expression that the planner knows nothing of. Had it said "running",
# the planner would go through the partial indexes of what is running, whose dead entries grow with every run since the
# last vacuum. And statistics that were made while nothing ran say that nothing has a lease: the planner would read the whole
# table for the one row that it expects, and find hundreds. A statement under these settings must have no need of what is
# off: a cost so high makes all plans equal.
_BY_KEY_OFF = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
_BY_KEY = f"""
SELECT {", ".join(f"set_config('{name}', 'off', true)" for name in _BY_KEY_OFF)},
  set_config('plan_cache_mode', 'force_generic_plan', true)
"""
_HELD = "coalesce(j.lease_expires_at > '-infinity', false)"

_HEARTBEAT = f"""
WITH h AS MATERIALIZED (
  SELECT j.id, p.begun FROM unnest(CAST(:job_ids AS uuid[]), CAST(:run_ids AS uuid[]), CAST(:begun AS boolean[]))
    AS p(job_id, run_id, begun)
  JOIN penstock_jobs j ON j.id = p.job_id AND j.run_id = p.run_id AND {_HELD}
  ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
)
UPDATE penstock_jobs j SET lease_expires_at = {{now}} + make_interval(secs => :lease), begun = j.begun OR h.begun
FROM h WHERE j.id = h.id
RETURNING j.run_id, j.cancel_requested_at IS NOT NULL
"""

# What both ways of closing do once they know which jobs: close the runs, and count. Nothing follows a success.
_CLOSE_RUNS = """c AS (
  UPDATE penstock_runs r SET finished_at = greatest({now}, r.started_at), {ending}
  FROM u WHERE r.job_id = u.id AND r.attempt_no = u.attempt_no AND r.id = u.run_id AND r.finished_at IS NULL
  RETURNING u.tenant_id, u.definition_key, u.queue, u.finished_at, u.ready_at{follows}, r.started_at, r.status AS rs
), m AS (
  SELECT tenant_id, definition_key, queue, rs AS measure, CAST(extract(epoch FROM {now} - started_at) AS float8) AS seconds FROM c
  UNION ALL
  SELECT tenant_id, definition_key, queue, 'wait', CAST(extract(epoch FROM started_at - ready_at) AS float8) FROM c
  WHERE finished_at IS NOT NULL{more}
), t AS (
  INSERT INTO penstock_tallies (minute, tenant_id, definition_key, queue, measure, bucket, shard, n)
  SELECT date_trunc('minute', {now} AT TIME ZONE 'UTC') AT TIME ZONE 'UTC', tenant_id, definition_key, queue, measure,
    CAST(floor(2 * ln(greatest(0, seconds) * 1000 + 1) / ln(CAST(2 AS float8))) AS integer) AS b, :shard, count(*)
  FROM m GROUP BY tenant_id, definition_key, queue, measure, b
  ORDER BY tenant_id, definition_key, queue, measure, b -- in one order, so that two workers of a shard wait, not deadlock
  ON CONFLICT (minute, tenant_id, definition_key, queue, measure, bucket, shard)
  DO UPDATE SET n = penstock_tallies.n + excluded.n
)"""
_FOLLOWS = "\n  UNION ALL SELECT tenant_id, definition_key, queue, m, 0 FROM c WHERE m IS NOT NULL"
_AS_TOLD = """status = u.rs, error = u.e, exit_code = u.x,
    stdout_tail = coalesce(u.so, r.stdout_tail), stderr_tail = coalesce(u.se, r.stderr_tail),
    artifacts = coalesce(u.a, r.artifacts), log_path = coalesce(u.lp, r.log_path), pid = coalesce(u.p, r.pid)"""
_HOOKED = "tenant_id IN (SELECT tenant_id FROM penstock_webhooks WHERE is_enabled)"

_CLOSE = f"""
WITH f AS MATERIALIZED (
  SELECT * FROM jsonb_to_recordset(CAST(:closings AS jsonb)) AS f(
    j uuid, r uuid, rs text, js text, m text, e text, d float8, res jsonb, x integer, so text, se text, lp text, xa integer, c boolean,
    i boolean, s boolean, a jsonb, p integer)
), u AS (
  UPDATE penstock_jobs j SET status = f.js, waits_for = CASE f.js WHEN 'queued' THEN 'time' END, slot = false,
    scheduled_for = CASE f.js WHEN 'queued' THEN {{now}} + make_interval(secs => coalesce(f.d, 0)) ELSE j.scheduled_for END,
    finished_at = CASE f.js WHEN 'queued' THEN NULL ELSE greatest({{now}}, j.started_at) END, lease_expires_at = NULL,
    cancel_requested_at = CASE f.js WHEN 'queued' THEN NULL ELSE j.cancel_requested_at END,
    last_error = f.e, result = f.res, max_attempts = j.max_attempts + coalesce(f.xa, 0),
    crashes = CASE WHEN f.c THEN j.crashes + 1 WHEN f.i THEN j.crashes ELSE 0 END,
    suspect = f.s IS TRUE OR (f.i IS TRUE AND j.suspect), interruptions = j.interruptions + CASE WHEN f.i THEN 1 ELSE 0 END
  FROM f WHERE j.id = f.j AND j.run_id = f.r AND {_HELD}
  RETURNING j.id, j.run_id, j.tenant_id, j.definition_key, j.queue, j.group_id, j.attempt_no, j.finished_at,
    greatest(j.queued_at, j.scheduled_for) AS ready_at, f.m, f.rs, f.e, f.x, f.so, f.se, f.a, f.lp, f.p
), {_CLOSE_RUNS.replace("{ending}", _AS_TOLD).replace("{follows}", ", u.m").replace("{more}", _FOLLOWS)}
SELECT u.id, u.run_id, u.tenant_id, u.group_id, u.{_HOOKED} FROM u
"""

# Nothing follows from these but that they are over: no retry, no group, no webhook. The answer is NULL if that is true of all
# that were given, else the runs of which it is.
_CLOSE_SUCCESSES = f"""
WITH u AS (
  UPDATE penstock_jobs j SET status = 'succeeded', waits_for = NULL, slot = false, finished_at = greatest({{now}}, j.started_at),
    lease_expires_at = NULL, last_error = NULL, result = {{result}}, crashes = 0,
    suspect = false
  FROM {{given}} WHERE j.id = f.j AND j.run_id = f.r AND {_HELD} AND j.group_id IS NULL AND NOT j.{_HOOKED}
  RETURNING j.id, j.run_id, j.tenant_id, j.definition_key, j.queue, j.attempt_no, j.finished_at,
    greatest(j.queued_at, j.scheduled_for) AS ready_at
), {_CLOSE_RUNS.replace("{ending}", "status = 'succeeded'").replace("{follows}", "").replace("{more}", "")}
SELECT CASE WHEN count(*) < :number THEN coalesce(array_agg(run_id), '{{}}') END FROM u
"""

_WAKE = text("SELECT pg_notify('penstock', :queue)")
