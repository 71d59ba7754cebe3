"""What a connection to PostgreSQL needs to know, whoever opened it: what is at its other end, and how long to wait for it.

A pooler in transaction mode gives every transaction another session of the server. What belongs to a session does not last
there: prepared statements, LISTEN. Such a pooler tells its clients a process id of its own invention, so one question finds it.
"""

from __future__ import annotations

import select
import time
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

Pooler = Literal["session", "transaction"]

SETTLE_SECONDS = 10.0
"""How long a new connection may take to say who is at its other end."""
CANCEL_SECONDS = 1.0
"""How long the server may take to stop what we no longer wait for."""


def is_psycopg(connection: Any) -> bool:
    """Another driver's connection has no libpq to be asked; it is used as it is."""
    return hasattr(connection, "pgconn") and hasattr(connection, "prepare_threshold")


def settle(connection: Any, pooler: Pooler | None = None, prepare: bool | None = None) -> None:
    """Prepare a new connection for our use; once for each. `pooler` is what the operator said of it, else it is found out.
    `prepare` is what the operator said of prepared statements; else there are none behind a pooler."""
    if hasattr(connection, "penstock_pooled") or not is_psycopg(connection):
        return
    connection.penstock_patience = None
    connection.wait = _bounded_wait(weakref.ref(connection), type(connection).wait)
    with patience(connection, SETTLE_SECONDS):
        connection.penstock_pooled = _is_pooled(connection) if pooler is None else pooler == "transaction"
    if prepare is False or (prepare is None and connection.penstock_pooled):
        connection.prepare_threshold = None


def is_pooled(connection: Any) -> bool:
    """Whether each transaction may be in another session of the server."""
    return bool(getattr(connection, "penstock_pooled", False))


@contextmanager
def unprepared(connection: Any) -> Iterator[None]:
    """Prepare nothing in the block, on a connection that is the caller's and may be behind a pooler."""
    while not hasattr(type(connection), "prepare_threshold"):
        if not hasattr(connection, "_connection"):  # another driver
            yield
            return
        connection = connection._connection
    before, connection.prepare_threshold = connection.prepare_threshold, None
    try:
        yield
    finally:
        connection.prepare_threshold = before


def _is_pooled(connection: Any) -> bool:
    before = connection.autocommit
    connection.autocommit = True
    try:
        (found,) = connection.execute("SELECT pg_backend_pid()", prepare=False).fetchone()
    finally:
        connection.autocommit = before
    return bool(int(found) != connection.pgconn.backend_pid)


@contextmanager
def patience(connection: Any, seconds: float | None) -> Iterator[None]:
    """Wait at most so many seconds for each answer inside the block."""
    if not hasattr(connection, "penstock_patience"):
        yield
        return
    before, connection.penstock_patience = connection.penstock_patience, seconds
    try:
        yield
    finally:
        connection.penstock_patience = before


def _bounded_wait(connection: Any, plain: Any) -> Any:
    """The driver's own `wait`, which ends at the deadline. It knows its connection weakly: no cycle keeps that alive."""

    def wait(steps: Any, *args: Any, **kwargs: Any) -> Any:
        own = connection()
        if own.penstock_patience is not None:
            steps = _until(steps, own, own.penstock_patience)
        return plain(own, steps, *args, **kwargs)

    return wait


def _until(steps: Any, connection: Any, seconds: float) -> Generator[Any, Any, Any]:
    deadline = Deadline(connection, seconds)
    try:
        wanted = next(steps)
        while True:
            ready = yield wanted
            if not ready:
                deadline.check()
            wanted = steps.send(ready)
    except StopIteration as end:
        return end.value


class Deadline:
    """How long to wait for an answer. When it is over, the server is asked on another connection to stop. One that is only slow,
    or waits for a lock, does so and says so: then it is known that nothing happened. If there is no word even then, the link
    hangs, and the connection is closed."""

    def __init__(self, connection: Any, seconds: float | None) -> None:
        self._connection, self._seconds = connection, seconds
        self._canceled = False
        self._until = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds until `check` has something to do; None if never."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())

    def check(self) -> None:
        if self._until is None or time.monotonic() < self._until:
            return
        if not self._canceled:
            self._canceled = True
            with suppress(Exception):
                self._connection.cancel_safe(timeout=CANCEL_SECONDS)
            self._until = time.monotonic() + CANCEL_SECONDS
            return
        import psycopg

        with suppress(Exception):
            self._connection.close()
        raise psycopg.OperationalError(
            f"there was no answer within {self._seconds:g} s, and the connection was given up"
        )


class Readiness:
    """Waits until a socket can be read, or written too. By `poll` where the system has it, else by `select`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._poll: Any = None
        if hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLIN)
            self._in, self._both = select.POLLIN, select.POLLIN | select.POLLOUT

    def readable(self, seconds: float | None) -> bool:
        """Whether there is something to read, or the end of it, within so many seconds."""
        if self._poll is None:
            return bool(select.select([self._descriptor], [], [], seconds)[0])
        return bool(self._poll.poll(None if seconds is None else max(0, seconds * 1000)))

    def writable(self, seconds: float | None) -> tuple[bool, bool]:
        """Wait until it can be read or written; which of the two."""
        if self._poll is None:
            found = select.select([self._descriptor], [self._descriptor], [], seconds)
            return bool(found[0]), bool(found[1])
        self._poll.modify(self._descriptor, self._both)
        try:
            events = self._poll.poll(None if seconds is None else max(0, seconds * 1000))
        finally:
            self._poll.modify(self._descriptor, self._in)
        return any(what & ~select.POLLOUT for _, what in events), any(what & select.POLLOUT for _, what in events)
