"""A driver's errors, told apart and told plainly. No traceback soup for what an operator can mend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc
from sqlalchemy.engine import URL, make_url

from penstock.core.errors import (
    DatabaseCorrupt,
    DatabaseError,
    DatabaseFull,
    DatabaseLocked,
    DatabaseReadOnly,
    DatabaseUnavailable,
    PenstockError,
    SchemaOutdated,
)
from penstock.store.failpoints import InjectedDisconnect

RETRYABLE_SQLSTATES = {"40001", "40P01", "55P03"}
READ_ONLY = "25006"
LEAVE_SQLSTATES = {READ_ONLY, "57P01", "57P02", "57P03"}
"""Read-only, although it was not when we connected; shut down by its operator; by a crash; not yet, or no longer, open."""
ACTIVE_DEDUPE = "penstock_dedupe"
"""What both databases name when a dedupe key is taken: its table, or the key of that."""
PASSING = (DatabaseUnavailable, DatabaseLocked, DatabaseFull, DatabaseReadOnly)
_NOWHERE = make_url("sqlite://")
MISSING_TABLE = "Penstock's tables are not there. Run: penstock db upgrade"


def sqlstate(error: BaseException) -> str | None:
    original = getattr(error, "orig", None) or error
    return getattr(original, "sqlstate", None)


def is_transient(error: BaseException) -> bool:
    """The whole transaction may be tried again: it changed nothing, and nothing was wrong with it."""
    if not isinstance(error, exc.DBAPIError):
        return False
    if sqlstate(error) in RETRYABLE_SQLSTATES:
        return True
    text = str(error.orig)
    if isinstance(error, exc.IntegrityError) and ACTIVE_DEDUPE in text:
        return True  # a job of that dedupe key came between our look and our write: the next look sees it
    return "database is locked" in text or "database table is locked" in text


def is_left(error: BaseException) -> bool:
    """The server was demoted, or goes down: this connection is to be given up at once, so that the next finds the server that
    took over."""
    return sqlstate(error) in LEAVE_SQLSTATES


def is_read_only(error: BaseException) -> bool:
    """A PostgreSQL server takes no writes: nothing was done, and another connection may reach one that does."""
    return sqlstate(error) == READ_ONLY


def is_disconnect(error: BaseException) -> bool:
    """The connection went away: what it was doing may or may not have happened."""
    if isinstance(error, InjectedDisconnect):
        return True
    if not isinstance(error, exc.DBAPIError):
        return isinstance(error, exc.TimeoutError)
    if error.connection_invalidated:
        return True
    state = sqlstate(error)
    if state is not None:
        return state[:2] in {"08", "57"} and state != "57014"
    return isinstance(error, exc.OperationalError) and hasattr(error.orig, "sqlstate")


def translate(error: exc.DBAPIError, url: URL) -> DatabaseError | None:
    text = str(error.orig)
    shown = url.render_as_string(hide_password=True)
    lowered = text.lower()
    if "readonly database" in lowered or "read-only transaction" in lowered:
        return DatabaseReadOnly(
            f"{shown} cannot be written: {text.strip()}. Check the file's owner and mode, or use the primary server."
        )
    if "database is locked" in lowered:
        return DatabaseLocked(
            f"Another process held the write lock of {shown} for longer than we wait. Look for a long transaction on it."
        )
    if "disk is full" in lowered or sqlstate(error) == "53100":
        return DatabaseFull(f"The disk under {shown} is full. Nothing was acknowledged; free some space and try again.")
    if "malformed" in lowered or "not a database" in lowered:
        return DatabaseCorrupt(
            f"{shown} is not a healthy SQLite database ({text.strip()}). Restore a backup; we do not write over it."
        )
    if "unable to open database file" in lowered:
        return DatabaseUnavailable(
            f"{shown} cannot be opened: does its directory exist, and may this user write there?"
        )
    if "no such table: penstock_" in lowered or (sqlstate(error) == "42P01" and "penstock_" in lowered):
        return SchemaOutdated(MISSING_TABLE)
    if "invalid connection option" in lowered:
        return DatabaseUnavailable(f"{shown} has a setting that PostgreSQL's driver does not know: {text.strip()}.")
    if "no such column" in lowered or sqlstate(error) == "42703":
        return None
    if sqlstate(error) == "57014":
        return DatabaseUnavailable(
            f"{shown} took longer than Penstock waits ({text.strip()}). Nothing was done. Look for a long transaction on it."
        )
    if is_disconnect(error):
        first = text.strip().splitlines()[0] if text.strip() else type(error.orig).__name__
        return DatabaseUnavailable(f"{shown} does not answer: {first}")
    return None


@contextmanager
def translated(url: URL, unwrapped: tuple[type[Exception], ...]) -> Iterator[None]:
    """Raise what the driver says in the block as an error of ours. `unwrapped` are those that come past SQLAlchemy."""
    try:
        yield
    except exc.DBAPIError as error:
        known = translate(error, url)
        if known is None:
            raise
        raise known from error
    except unwrapped as error:
        # From a cursor of the driver's own, which the hot path uses; SQLAlchemy would have wrapped it like this.
        wrapped = exc.OperationalError(None, None, error)
        known = translate(wrapped, url)
        if known is None:
            raise
        raise known from wrapped
    except exc.TimeoutError as error:
        raise DatabaseUnavailable(
            f"No connection to {url.render_as_string(hide_password=True)} became free in time."
        ) from error


def is_refused(error: BaseException) -> bool:
    """Whether the fault lies in what was to be written, so that writing the same again is of no use. Everything else may pass: an
    outage, a lock, a full disk."""
    if isinstance(error, PenstockError):
        return not isinstance(error, DatabaseError)
    if isinstance(error, exc.DBAPIError):
        return isinstance(error, exc.DataError | exc.IntegrityError | exc.ProgrammingError) and not is_disconnect(error)
    return isinstance(error, exc.StatementError | TypeError | ValueError | ArithmeticError | RecursionError)


def is_outage(error: BaseException) -> bool:
    """Whether the database was away, locked, full or only out of luck: no fault of what was asked of it."""
    if isinstance(error, DatabaseError):
        return isinstance(error, PASSING)
    if not isinstance(error, exc.DBAPIError):
        return is_disconnect(error)
    return is_disconnect(error) or is_transient(error) or isinstance(translate(error, _NOWHERE), PASSING)
