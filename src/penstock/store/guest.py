"""A SQLAlchemy Connection over the caller's own connection, that never ends the caller's transaction.

The caller may have configured its connection as it likes: row factories, type loaders, cursor classes, text factories. Over a
raw driver connection we use cursors of our own, which know nothing of that. A SQLAlchemy Connection is used as it is.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool

from penstock.core.errors import InvalidInput
from penstock.store.dialect import Dialect

_current = threading.local()
_engines: dict[str, Engine] = {}
_lock = threading.Lock()


@contextmanager
def guest_connection(given: Any, dialect: Dialect) -> Iterator[Connection]:
    """Lend the caller's connection, in its transaction. If it is in autocommit mode and outside a transaction, what is done in
    the block is one transaction, committed at its end."""
    with _lent(given, dialect) as conn:
        if conn.dialect.name != dialect.name:
            raise InvalidInput(
                f"The connection given is to {conn.dialect.name}, but Penstock lives on {dialect.name}: "
                "a job can only join a transaction on its own database."
            )
        with dialect.in_transaction(conn):
            yield conn


def _lent(given: Any, dialect: Dialect) -> AbstractContextManager[Connection]:
    if isinstance(given, Connection):
        if not given.in_transaction():
            given.begin()  # what any statement of the caller's would have done
        return nullcontext(given)
    if _is_session(given):
        return nullcontext(given.connection())
    raw = _opened(given, dialect) if _is_django(given) else given
    if dialect.is_raw_connection(raw):
        return _over(raw, dialect)
    raise InvalidInput(
        f"connection is a {type(raw).__module__}.{type(raw).__name__}; expected a SQLAlchemy Connection or Session "
        f"(async: call through run_sync), Django's connection, or a raw {dialect.driver_name} connection."
    )


@contextmanager
def _over(raw: Any, dialect: Dialect) -> Iterator[Connection]:
    with dialect.plain(raw) as lent:
        _current.connection = lent
        try:
            with _guest_engine(dialect).connect() as conn:
                yield conn
        finally:
            _current.connection = None


def _is_session(given: Any) -> bool:
    """Whoever brings one has loaded the ORM; we ourselves do without, and without its share of memory and start-up."""
    orm = sys.modules.get("sqlalchemy.orm")
    return orm is not None and isinstance(given, orm.Session)


def _is_django(given: Any) -> bool:
    """`django.db.connection` or one of `django.db.connections`, told by what it can do: we do not import Django."""
    return all(hasattr(given, name) for name in ("ensure_connection", "in_atomic_block", "vendor", "settings_dict"))


def _opened(wrapper: Any, dialect: Dialect) -> Any:
    """The driver's connection that Django's wrapper holds, opened if it is not, refused where Django would refuse a query."""
    if wrapper.vendor != dialect.name:
        raise InvalidInput(
            f"Django's connection {wrapper.alias!r} is to {wrapper.vendor}, but Penstock lives on {dialect.name}: "
            "a job can only join a transaction on its own database."
        )
    wrapper.validate_thread_sharing()
    wrapper.ensure_connection()
    wrapper.validate_no_broken_transaction()
    return wrapper.connection


def _guest_engine(dialect: Dialect) -> Engine:
    """An engine whose connections are borrowed: begin, commit, rollback and close do nothing."""
    with _lock:
        if dialect.name not in _engines:
            engine = create_engine(
                dialect.bare_url, creator=lambda: _current.connection, poolclass=NullPool, **dialect.guest_options
            )
            borrowed: Any = engine.dialect
            for step in ("do_begin", "do_commit", "do_rollback", "do_close", "do_terminate"):
                setattr(borrowed, step, _nothing)
            borrowed.on_connect = lambda: None
            _engines[dialect.name] = engine
        return _engines[dialect.name]


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None
