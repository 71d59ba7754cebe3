"""A SQLAlchemy Connection over the caller's own connection, that never ends the caller's transaction."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.pool import NullPool

from penstock.core.errors import InvalidInput
from penstock.store.dialects import Dialect

_current = threading.local()
_engines: dict[str, Engine] = {}
_lock = threading.Lock()


@contextmanager
def guest_connection(given: Any, dialect: Dialect) -> Iterator[Connection]:
    if isinstance(given, Connection):
        if not given.in_transaction():
            given.begin()  # what any statement of the caller's would have done
        yield given
    elif _is_session(given):
        yield given.connection()
    elif dialect.is_raw_connection(given):
        with dialect.plain_rows(given):
            _current.connection = given
            try:
                with _guest_engine(dialect).connect() as conn:
                    yield conn
            finally:
                _current.connection = None
    else:
        raise InvalidInput(
            f"connection is a {type(given).__module__}.{type(given).__name__}; expected a SQLAlchemy Connection or Session "
            f"(async: call through run_sync), or a raw {dialect.driver_name} connection."
        )


def _is_session(given: Any) -> bool:
    """Whoever brings one has loaded the ORM; we ourselves do without, and without its share of memory and start-up."""
    orm = sys.modules.get("sqlalchemy.orm")
    return orm is not None and isinstance(given, orm.Session)


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
