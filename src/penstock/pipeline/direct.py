"""Direct mode: keys straight from the key source, no job table, no coordination."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import func

from penstock.pipeline.ahead import Ahead
from penstock.pipeline.attempt import commit, run_make
from penstock.pipeline.config import config
from penstock.pipeline.errors import DuplicateError
from penstock.pipeline.jobs import encode_key
from penstock.pipeline.keysource import missing_keys
from penstock.pipeline.options import Budget, Key, Options, Outcome
from penstock.pipeline.outbox import Finished, Outbox
from penstock.pipeline.signals import stop_was_asked
from penstock.store.pipeline import physical
from penstock.store.pipeline.lookup import lookup_many

if TYPE_CHECKING:
    from penstock.pipeline.auto import AutoPopulate

AT_ONCE = 500
"""Keys that one statement looks for: their values are parameters, and SQLite takes some thousands of those."""


def list_keys(table: AutoPopulate, options: Options, tried: set[tuple[Any, ...]], room: int | None) -> list[Key]:
    """The missing keys that this call has not tried yet, in the order asked for; up to `room` of them, if it is given."""
    names = [attribute.name for attribute in type(table).declared_shape().job_key]
    source = missing_keys(table, *options.restrictions)
    columns = [source.columns[name] for name in names]
    order: dict[str, list[Any]] = {"reverse": [column.desc() for column in columns], "random": [func.random()]}
    statement = source.select().order_by(*order.get(options.order, columns))
    if room is not None:
        statement = statement.limit(room + len(tried))
    rows = table.connection.read(lambda conn: conn.execute(statement).all())
    return [dict(zip(names, row, strict=True)) for row in rows if tuple(row) not in tried][:room]


def run(table: AutoPopulate, options: Options, budget: Budget, step: Callable[[], None]) -> Outcome:
    """Make what is missing, look again for keys that came meanwhile, and end when none is left."""
    tried: set[tuple[Any, ...]] = set()
    maker, ahead = Maker(table, options), Ahead(table.connection)
    try:
        while keys := list_keys(table, options, tried, budget.room()):
            missing = _Missing(table, keys)
            with table.connection.steady_reads(), table.connection.reading_ahead(ahead):
                for at, key in enumerate(ahead.over(keys)):
                    budget.take(1)
                    tried.add(tuple(key.values()))
                    if not missing.still(at):
                        budget.give_back(1, keys=False)
                    else:
                        maker.make(key)
                    step()
                maker.flush()
    finally:
        maker.close()
    return maker.result()


class _Missing:
    """Which of the listed keys nobody has made since: asked for as many at once as will be made while the answer is fresh."""

    def __init__(self, table: AutoPopulate, keys: list[Key]) -> None:
        self.table, self.keys = table, keys
        self._names = tuple(attribute.name for attribute in table.base.job_key)
        self._made: set[tuple[Any, ...]] = set()
        self._fresh: float = config["jobs.recheck_seconds"]
        self._asked, self._first, self._end = time.monotonic(), 0, len(keys)

    def still(self, at: int) -> bool:
        now = time.monotonic()
        if at >= self._end or now - self._asked > self._fresh:
            end = at + 2 * (at - self._first) + 1
            self._made = self._found([self._encoded(key) for key in self.keys[at:end]])
            self._asked, self._first, self._end = now, at, end
        return not self._made or self._encoded(self.keys[at]) not in self._made

    def _encoded(self, key: Key) -> tuple[Any, ...]:
        return tuple(encode_key(self.table.base, key, self.table.connection.backend).values())

    def _found(self, keys: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
        connection = self.table.connection
        found: set[tuple[Any, ...]] = set()
        table = physical.table(connection.backend, self.table.base)
        many = lookup_many(table, self._names, ())
        for chunk in (keys[at : at + AT_ONCE] for at in range(0, len(keys), AT_ONCE)):
            found.update(connection.read(partial(many.rows, keys=chunk)))
        return found


class Maker:
    """Makes keys without a job table, and keeps the count."""

    def __init__(self, table: AutoPopulate, options: Options) -> None:
        self.table, self.options = table, options
        self.outcome = Outcome()
        self.outbox = Outbox(table.connection, lambda tx, items: None)

    def make(self, key: Key) -> None:
        """Make one key, again after a transient error. A key that another process made meanwhile is nobody's error."""
        attempts = 0
        while True:
            attempts += 1
            started = time.monotonic()
            try:
                scope = run_make(self.table, key, self.options.make_kwargs, self.outbox)
                if scope.may_wait:
                    self.outbox.add(Finished(key, scope, time.monotonic() - started))
                else:
                    self.outbox.flush()
                    commit(self.table, key, scope, lambda tx: None)
                    self.outcome.success_count += 1
            except BaseException as error:
                if stop_was_asked():
                    raise
                self.flush()
                delay = type(self.table).retry_policy.delay_after(error, attempts)
                if delay is not None:
                    time.sleep(delay)
                    continue
                self._failed(key, error)
            self._heed_failures()
            return

    def flush(self) -> None:
        self.outbox.flush()
        self._heed_failures()

    def close(self) -> None:
        self.outbox.close()

    def result(self) -> Outcome:
        self._heed_failures()
        self.outcome.success_count += self.outbox.done
        self.outbox.done = 0
        return self.outcome

    def _heed_failures(self) -> None:
        while self.outbox.failed:
            finished, error = self.outbox.failed.pop(0)
            self._failed(finished.key, error)

    def _failed(self, key: Key, error: BaseException) -> None:
        if isinstance(error, DuplicateError) and key in self.table:
            return
        if not self.options.suppress_errors:
            raise error
        self.outcome.error_list.append((key, error if self.options.return_exception_objects else describe(error)))


def describe(error: BaseException) -> str:
    """
    >>> describe(ValueError("no signal"))
    'ValueError: no signal'
    """
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
