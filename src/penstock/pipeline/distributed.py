"""Distributed mode: any number of processes share the keys through the job table.

A worker claims a batch in one statement that skips what others are taking, sized so that a batch lasts about
`jobs.batch_seconds`. Each key's rows and the completion of its job commit in one transaction, which is refused if the
reservation passed on. What is still held when populate() ends, well or not, goes back untried.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.pipeline.attempt import commit, run_make
from penstock.pipeline.blob import pack
from penstock.pipeline.config import config
from penstock.pipeline.direct import describe
from penstock.pipeline.errors import DuplicateError, ReservationLost
from penstock.pipeline.jobs import JobsTable, identity
from penstock.pipeline.keysource import keys_to_make
from penstock.pipeline.lease import heart
from penstock.pipeline.options import Budget, Key, Options, Outcome
from penstock.pipeline.outbox import Finished, Outbox
from penstock.store.database import Tx
from penstock.store.pipeline.jobs import Picking

if TYPE_CHECKING:
    from penstock.pipeline.auto import AutoPopulate

GROWTH = 4
OVERHEADS = 4
PATIENCE = 30.0
"""How long populate() waits for the retry of a key that it failed itself."""


def run(table: AutoPopulate, options: Options, budget: Budget, step: Callable[[], None]) -> Outcome:
    """Work until nothing is left to claim."""
    return _Worker(table, options, budget, step).run()


class _Worker:
    def __init__(self, table: AutoPopulate, options: Options, budget: Budget, step: Callable[[], None]) -> None:
        self.table, self.options, self.budget, self.step = table, options, budget, step
        self.jobs: JobsTable = table.jobs
        self.store = self.jobs.store
        self.connection = table.connection
        self.refreshes = config["jobs.auto_refresh"] if options.refresh is None else options.refresh
        self.outcome = Outcome()
        self.size = 1
        self.working = 0.0
        self.retry_at: float | None = None

    def run(self) -> Outcome:
        # Reads keep one connection and writes another: each has its own statements prepared, and neither the other's.
        with self.connection.steady_reads():
            return self._until_nothing_is_left()

    def _until_nothing_is_left(self) -> Outcome:
        looked_again = False
        while (room := self.budget.room()) is None or room > 0:
            if self._batch():
                looked_again = False
            elif not looked_again:
                self._look_again()
                looked_again = True
            elif not self._wait_for_retry():
                break
        return self.outcome

    def _look_again(self) -> None:
        if self.refreshes:
            self.jobs.refresh(*self.options.restrictions)
        else:
            self.connection.apart(lambda tx: self.store.return_orphans(tx, config["jobs.max_crashes"]))

    def _wait_for_retry(self) -> bool:
        if self.retry_at is None:
            return False
        wait, self.retry_at = self.retry_at - time.monotonic(), None
        if wait > PATIENCE:
            return False
        time.sleep(max(0.0, wait) + 0.01)
        return True

    def _batch(self) -> bool:
        """Claim some keys and make them; False if there were none."""
        token = str(uuid4())
        started = time.monotonic()
        wanted = self.budget.take(self.size)
        keys: list[tuple[Key, bool, bool]] = []
        try:
            keys = self._claim(token, wanted)
            self.budget.give_back(wanted - len(keys), keys=True)
            if not keys:
                return False
            outbox = Outbox(self.connection, partial(self._settle, token))
            self.working = 0.0
            with heart.holding(token, self.connection, self.store), self.connection.steady_reads():
                try:
                    for key, done, live in keys:
                        self._handle(token, outbox, key, done, live)
                        self.step()
                finally:
                    outbox.close()
                    self.outcome.success_count += outbox.done
                self._heed_failures(token, outbox)
        except BaseException:
            # Whatever is still held goes back untried, wherever the interruption struck.
            self.connection.apart(lambda tx: self.store.release(tx, token))
            raise
        self._resize(len(keys), time.monotonic() - started)
        return True

    def _resize(self, made: int, elapsed: float) -> None:
        """The next batch should last `jobs.batch_seconds`, or longer where claiming and writing would outweigh the work."""
        overhead = max(0.0, elapsed - self.working)
        lasting = max(config["jobs.batch_seconds"], OVERHEADS * overhead)
        best = int(lasting * made / max(1e-6, self.working))
        self.size = max(1, min(best, self.size * GROWTH, config["jobs.batch_limit"]))

    def _claim(self, token: str, wanted: int) -> list[tuple[Key, bool, bool]]:
        restricted = self.options.restrictions
        among = keys_to_make(self.table, *restricted) if restricted else None
        picking = Picking(wanted, self.options.priority, self.options.order, among)
        who, lease = identity(), config["jobs.lease_seconds"]
        target, source = self.jobs.target_source(), keys_to_make(self.table)

        def claim(tx: Tx) -> list[tuple[Key, bool, bool]]:
            keys = self.store.claim(tx, token, who, lease, picking)
            if not keys:
                return []
            seen = {self._id(key): (done, live) for key, done, live in self.store.look_over(tx, token, target, source)}
            return [(key, *seen.get(self._id(key), (False, True))) for key in keys]

        return self.connection.apart(claim)

    def _id(self, key: Key) -> tuple[Any, ...]:
        return tuple(key[name] for name in self.store.keys)

    def _handle(self, token: str, outbox: Outbox, key: Key, done: bool, live: bool) -> None:
        if done or not live:
            self.budget.give_back(1, keys=False)
            self.connection.apart(lambda tx: self.store.discard(tx, key, token))
            return
        started = time.monotonic()
        try:
            scope = run_make(self.table, key, self.options.make_kwargs, outbox)
            finished = Finished(key, scope, time.monotonic() - started)
            self.working += finished.duration
            if scope.may_wait:
                outbox.add(finished)
            else:
                outbox.flush()
                commit(self.table, key, scope, lambda tx: self._settle(token, tx, [finished]))
                self.outcome.success_count += 1
        except Exception as error:
            outbox.flush()
            self._failed(token, key, error, time.monotonic() - started)
        self._heed_failures(token, outbox)

    def _heed_failures(self, token: str, outbox: Outbox) -> None:
        while outbox.failed:
            finished, error = outbox.failed.pop(0)
            self._failed(token, finished.key, error, finished.duration)

    def _settle(self, token: str, tx: Tx, items: Sequence[Finished]) -> None:
        """Complete the jobs in the transaction of their results. A job that was deleted meanwhile is no obstacle; one
        that passed on is."""
        keep = config["jobs.keep_completed"]
        if not keep and self.store.complete_all(tx, [item.key for item in items], token) == len(items):
            return
        for item in items:
            held = self.store.complete(tx, item.key, token, item.duration, keep=True) if keep else False
            if not held and self.store.status(tx, item.key) is not None:
                raise ReservationLost(
                    f"The job {item.key} passed on while it was being made; its result was not written."
                )

    def _failed(self, token: str, key: Key, error: Exception, duration: float) -> None:
        if isinstance(error, ReservationLost):
            return
        if isinstance(error, DuplicateError) and key in self.table:
            self.connection.apart(lambda tx: self.store.discard(tx, key, token))
            return
        message, stack = describe(error), pack("".join(traceback.format_exception(error)))
        row = self.connection.look(lambda tx: self.store.row(tx, key))
        attempts = row.attempts if row is not None else 1
        delay = type(self.table).retry_policy.delay_after(error, attempts)
        if delay is not None:
            self.connection.apart(lambda tx: self.store.retry(tx, key, token, message, stack, delay))
            due = time.monotonic() + delay
            self.retry_at = due if self.retry_at is None else min(self.retry_at, due)
            return
        self.connection.apart(lambda tx: self.store.fail(tx, key, token, message, stack, duration))
        if not self.options.suppress_errors:
            raise error
        self.outcome.error_list.append((key, error if self.options.return_exception_objects else message))
