"""How a statement of the hot path runs: on the wire where it begins a transaction of ours, else on a cursor."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from sqlalchemy import Connection, TextClause, text

from penstock.store.dialect import Bare, HotConnection

if TYPE_CHECKING:  # the driver is an extra
    from penstock.store.postgresql import wire

NAMED = re.compile(r"(?<!:):([a-z_]+)\b")
"""A parameter of a hot statement: `:name`, and not the second colon of a cast."""

# What a batch names is found by its key, whatever the statistics say, and by a plan that is made once: they are made when the
# tables of what is active are empty as often as not. A statement under these settings must have no need of what is off: a cost so
# high makes all plans equal.
_BY_KEY_OFF = ("enable_seqscan", "enable_bitmapscan", "enable_mergejoin")
BY_KEY = f"""
SELECT {", ".join(f"set_config('{name}', 'off', true)" for name in _BY_KEY_OFF)},
  set_config('plan_cache_mode', 'force_generic_plan', true)
"""


class Clock(NamedTuple):
    """How a statement says what time it is: its own moment, and that of its transaction, which the gate and the claim share."""

    now: str
    began: str


_SERVER = Clock("statement_timestamp()", "now()")
_INJECTED = Clock("CAST(:moment AS timestamptz)", "CAST(:moment AS timestamptz)")


class Hot(NamedTuple):
    """A statement of the hot path, whole: by the server's clock, and by one that was injected."""

    by_server: str
    by_moment: str

    def text(self, moment: datetime | None) -> str:
        return self.by_server if moment is None else self.by_moment


def hot(write: Callable[[Clock], str]) -> Hot:
    return Hot(write(_SERVER), write(_INJECTED))


class PostgresTransaction:
    """A caller's transaction, and what runs in it."""

    @contextmanager
    def plain(self, given: Any) -> Iterator[Any]:
        from penstock.store.postgresql.plain import Plain

        yield Plain(given)

    commits_with_the_statement: ClassVar[bool] = True

    def begin_to_write(self, connection: Any) -> None:
        """Do nothing: the driver begins with the first statement."""

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


def _is_idle(driver: Any) -> bool:
    """Whether psycopg's connection is outside a transaction. Another driver's is taken to be inside one."""
    status = getattr(getattr(driver, "info", None), "transaction_status", None)
    return status is not None and int(status) == 0


def run(
    conn: HotConnection, statement: Hot, moment: datetime | None, params: dict[str, Any], by_key: bool = False
) -> Sequence[Any]:
    """A hot statement: on the wire where it begins a transaction of ours; on the driver's own cursor within one, because
    the driver knows what has become of its prepared statements since. A guest may have brought any driver."""
    params["moment"] = moment
    sql = statement.text(moment)
    if begins(conn):
        from penstock.store.postgresql import wire

        before = [wire.Statement(BY_KEY, {})] if by_key else []
        *_, answer = ask(conn, [*before, wire.Statement(sql, params)])
        return wire.rows(conn.connection, answer)
    conn = cast(Connection, conn)
    if "penstock_own" not in conn.get_execution_options():
        return conn.execute(_for_guests(sql), params).all()
    return by_cursor(conn, _for_the_driver(sql), params)


def by_cursor(conn: Connection, statement: str, params: dict[str, Any]) -> Sequence[Any]:
    """SQLAlchemy's share would be a third of a batch's time in Python. What goes wrong is told in its way."""
    cursor = conn.connection.cursor()
    try:
        cursor.execute(statement, params)
        return cursor.fetchall()
    except Exception as error:
        conn._handle_dbapi_exception(error, statement, params, cursor, None)
    finally:
        cursor.close()


def begins(conn: HotConnection) -> bool:
    """Whether the connection is ours, and nothing has been said on it in this transaction yet."""
    if isinstance(conn, Bare):
        return True
    if "penstock_own" not in conn.get_execution_options():
        return False
    connection: Any = conn.connection.dbapi_connection
    return bool(connection.pgconn.transaction_status == 0)


def ask(conn: HotConnection, statements: Sequence[wire.Statement]) -> list[Any]:
    from penstock.store.postgresql import wire

    if isinstance(conn, Bare):
        return wire.ask(conn.connection, statements, begin=False)
    try:
        return wire.ask(conn.connection, statements, begin=True)
    except Exception as error:
        conn._handle_dbapi_exception(error, statements[0].sql, dict(statements[0].params), None, None)


@lru_cache(maxsize=256)
def _for_the_driver(sql: str) -> str:
    return NAMED.sub(r"%(\1)s", sql)


@lru_cache(maxsize=256)
def _for_guests(sql: str) -> TextClause:
    return text(sql)
