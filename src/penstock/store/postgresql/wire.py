"""The hot statements of PostgreSQL on libpq itself: several in one round trip, prepared once for each connection.

A driver's cursor takes a round trip for BEGIN, one for each statement and one for COMMIT, and a third of a batch's time in
Python. Here they are sent together, in the protocol's pipeline, and answered together. What goes wrong is raised as the
driver raises it, after which the transaction is to be rolled back, as ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import zip_longest
from typing import Any
from uuid import UUID

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from penstock.core.ids import id_of
from penstock.store.postgresql.link import Deadline, Readiness
from penstock.store.postgresql.transaction import NAMED

CAN = psycopg.capabilities.has_pipeline()
"""Whether this libpq can: from version 14 on."""

_OK = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
_MILLENNIUM = datetime(2000, 1, 1, tzinfo=UTC)
"""From when the server counts microseconds."""
_WANTED = b"the answer to a statement"


Ready = tuple[bytes, bytes, list[bytes | None], int]
"""As it is sent: the text, its name once prepared, the values, and in which form the answer is to come."""


class Statement:
    """A statement with its parameters by name, as `:name`. Its answer may be asked for in the server's own binary form."""

    __slots__ = ("_ready", "binary", "params", "sql")

    def __init__(self, sql: str, params: Mapping[str, Any], binary: bool = False) -> None:
        self.sql, self.params, self.binary = sql, params, binary
        self._ready: Ready | None = None

    def ready(self) -> Ready:
        """Put into bytes, once: who has time before it is needed asks for it then."""
        if self._ready is None:
            text, name, order = _numbered(self.sql)
            params = self.params
            self._ready = text, name, [_encoded(params[each]) for each in order], int(self.binary)
        return self._ready


def ask(borrowed: Any, statements: Sequence[Statement], *, begin: bool) -> list[Any]:
    """Send all of them at once, on a connection that is in no transaction; answer the result of each. They begin a
    transaction, or are one: what is sent together without BEGIN the server commits together, before it answers."""
    connection = borrowed.dbapi_connection
    try:
        return _ask(borrowed, statements, begin)
    except psycopg.errors.InvalidSqlStatementName:
        # The driver has the server forget what is prepared when a transaction is rolled back. Nothing was done yet.
        connection.rollback()
        _prepared(borrowed).forget()
        return _ask(borrowed, statements, begin)
    except psycopg.errors.FeatureNotSupported:
        connection.close()  # a plan for tables that have changed since: another connection makes another
        raise


def _ask(borrowed: Any, statements: Sequence[Statement], begin: bool) -> list[Any]:
    connection = borrowed.dbapi_connection
    pgconn = connection.pgconn
    # A pooler that cannot carry prepared statements has none.
    known = None if connection.prepare_threshold is None else _prepared(borrowed)
    ready = [statement.ready() for statement in statements]
    asked: list[bytes] = []
    pgconn.enter_pipeline_mode()
    try:
        if begin:
            pgconn.send_query_params(b"BEGIN", None)
            asked.append(b"")
        for text, plain_name, values, form in ready:
            if known is None:
                pgconn.send_query_params(text, values, None, None, form)
            else:
                name = plain_name + known.generation
                if name not in known and name not in asked:
                    pgconn.send_prepare(name, text)
                    asked.append(name)
                pgconn.send_query_prepared(name, values, None, form)
            asked.append(_WANTED)
        pgconn.pipeline_sync()
        answers = _answers(connection)
        pgconn.exit_pipeline_mode()
    except BaseException:
        connection.close()  # half a conversation: nobody can go on with it
        raise
    wanted = []
    # There is one answer more than was asked for if what was done could not be committed.
    for what, answer in zip_longest(asked, answers):
        if answer.status not in _OK:
            raise error_from_result(answer)
        if what is _WANTED:
            wanted.append(answer)
        elif what and known is not None:
            known.add(what)
    return wanted


class _Prepared(set[bytes]):
    """What is prepared on a connection, by name. Names of what was forgotten are not used again: some may still be there."""

    generation = b"_0"

    def forget(self) -> None:
        self.clear()
        self.generation = b"_%d" % (int(self.generation[1:]) + 1)


def _prepared(borrowed: Any) -> _Prepared:
    found: _Prepared | None = borrowed.info.get("penstock_prepared")
    if found is None:
        found = borrowed.info["penstock_prepared"] = _Prepared()
    return found


def rows(borrowed: Any, result: Any) -> Sequence[Any]:
    """The rows of an answer in text form, as a cursor of the driver would give them."""
    transformer = borrowed.info.get("penstock_transformer")
    if transformer is None:
        transformer = borrowed.info["penstock_transformer"] = Transformer(borrowed.dbapi_connection)
    transformer.set_pgresult(result, format=pq.Format.TEXT)
    loaded: Sequence[Any] = transformer.load_rows(0, result.ntuples, tuple)
    return loaded


class _Reader(dict[bytes | None, Any]):
    """Values by their bytes, each made once: the rows of a batch share most of theirs. NULL is None."""

    def __init__(self, known: Mapping[bytes | None, Any] | None = None) -> None:
        super().__init__()
        self.update(known or {})
        self[None] = None


class Ids(_Reader):
    def __missing__(self, key: bytes) -> UUID:
        made = self[key] = id_of(int.from_bytes(key, "big"))
        return made


class Moments(_Reader):
    def __missing__(self, key: bytes) -> datetime:
        made = self[key] = _MILLENNIUM + timedelta(microseconds=int.from_bytes(key, "big", signed=True))
        return made


class Texts(_Reader):
    def __missing__(self, key: bytes) -> str:
        made = self[key] = key.decode()
        return made


class Integers(_Reader):
    def __missing__(self, key: bytes) -> int:
        made = self[key] = int.from_bytes(key, "big", signed=True)
        return made


class Booleans(_Reader):
    def __missing__(self, key: bytes) -> bool:
        made = self[key] = key != b"\0"
        return made


def decoded(result: Any, columns: Sequence[_Reader]) -> Iterator[tuple[Any, ...]]:
    """The rows of an answer in binary form, each column read as is said here."""
    value, rows = result.get_value, range(result.ntuples)
    return zip(*[map(read.__getitem__, [value(row, n) for row in rows]) for n, read in enumerate(columns)], strict=True)


def _answers(connection: Any) -> list[Any]:
    """Send what is left to send, and read until the server is in step with us. Waits without holding the interpreter, and no
    longer than the connection's patience."""
    pgconn = connection.pgconn
    deadline = Deadline(connection, getattr(connection, "penstock_patience", None))
    waiting = Readiness(pgconn.socket)
    while pgconn.flush():
        readable, writable = waiting.writable(deadline.left())
        if readable:
            pgconn.consume_input()
        elif not writable:
            deadline.check()
    answers: list[Any] = []
    between = False
    while True:
        while pgconn.is_busy():
            if waiting.readable(deadline.left()):
                pgconn.consume_input()
            else:
                deadline.check()
        result = pgconn.get_result()
        if result is None:
            if between or pgconn.status != pq.ConnStatus.OK:
                raise _ended(pgconn, answers)
            between = True
        elif result.status == pq.ExecStatus.PIPELINE_SYNC:
            return answers
        else:
            answers.append(result)
            between = False


def _ended(pgconn: Any, answers: Sequence[Any]) -> psycopg.Error:
    """Why the server talks to us no more: what it said last, if it said so."""
    for answer in answers:
        if answer.status == pq.ExecStatus.FATAL_ERROR:
            return error_from_result(answer)
    return psycopg.OperationalError(f"the connection is lost: {pgconn.get_error_message()}")


@lru_cache(maxsize=256)
def _numbered(sql: str) -> tuple[bytes, bytes, tuple[str, ...]]:
    """The statement with `$1` for the first name, and so on; what it is called once it is prepared; the names in order."""
    order: dict[str, int] = {}
    text = NAMED.sub(lambda found: f"${order.setdefault(found[1], len(order) + 1)}", sql).encode()
    return text, b"penstock_" + blake2b(text, digest_size=12).hexdigest().encode(), tuple(order)


def _encoded(value: Any) -> bytes | None:
    """As PostgreSQL reads it from text; the statement says what it is to become."""
    if value is None:
        return None
    if type(value) is str:
        text = value
    elif isinstance(value, datetime):
        text = value.isoformat()
    elif isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, list):
        text = "{" + ",".join('"' + each.replace("\\", "\\\\").replace('"', '\\"') + '"' for each in value) + "}"
    else:
        text = str(value)
    if "\0" in text:
        raise psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
    return text.encode()
