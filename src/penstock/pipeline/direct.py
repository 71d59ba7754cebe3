"""Direct mode: keys straight from the key source, no job table, no coordination."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.pipeline.attempt import attempt
from penstock.pipeline.errors import DuplicateError
from penstock.pipeline.keysource import missing_keys
from penstock.pipeline.options import Budget, Key, Options, Outcome

if TYPE_CHECKING:
    from penstock.pipeline.auto import AutoPopulate

FRESH = 1.0
"""Seconds for which a listed key is taken to be still missing."""


def list_keys(table: AutoPopulate, options: Options, tried: set[tuple[Any, ...]]) -> list[Key]:
    """The missing keys that this call has not tried yet, in the order asked for."""
    names = [attribute.name for attribute in type(table).declared_shape().job_key]
    source = missing_keys(table, *options.restrictions)
    statement = source.select().order_by(*(source.columns[name] for name in names))
    rows = table.connection.read(lambda conn: conn.execute(statement).all())
    keys = [dict(zip(names, row, strict=True)) for row in rows if tuple(row) not in tried]
    if options.order == "reverse":
        keys.reverse()
    elif options.order == "random":
        random.shuffle(keys)
    return keys


def run(table: AutoPopulate, options: Options, budget: Budget, step: Callable[[], None]) -> Outcome:
    """Make what is missing, look again for keys that came meanwhile, and end when none is left."""
    outcome = Outcome()
    tried: set[tuple[Any, ...]] = set()
    while keys := list_keys(table, options, tried)[: budget.room()]:
        listed = time.monotonic()
        for key in keys:
            budget.take(1)
            tried.add(tuple(key.values()))
            made_elsewhere = time.monotonic() - listed > FRESH and key in table
            if made_elsewhere:
                budget.give_back(1, keys=False)
            else:
                make_one(table, key, options, outcome)
            step()
    return outcome


def make_one(table: AutoPopulate, key: Key, options: Options, outcome: Outcome) -> None:
    """Make one key, again after a transient error. A key that another process made meanwhile is nobody's error."""
    attempts = 0
    while True:
        attempts += 1
        try:
            attempt(table, key, options.make_kwargs, lambda tx: None)
        except Exception as error:
            if isinstance(error, DuplicateError) and key in table:
                return
            delay = type(table).retry_policy.delay_after(error, attempts)
            if delay is not None:
                time.sleep(delay)
                continue
            if not options.suppress_errors:
                raise
            outcome.error_list.append((key, error if options.return_exception_objects else describe(error)))
        else:
            outcome.success_count += 1
        return


def describe(error: BaseException) -> str:
    """
    >>> describe(ValueError("no signal"))
    'ValueError: no signal'
    """
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
