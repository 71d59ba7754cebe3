"""Distributed mode: any number of processes share the keys through the job table.

A worker claims a batch in one statement that skips what others are taking, sized so that a batch lasts about
`jobs.batch_seconds`; if it takes twice as long, the rest goes back. Each key's rows and the completion of its job commit
in one transaction, which is refused if the reservation passed on. What is still held when populate() ends, well or not,
goes back untried.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING
from uuid import uuid4

from penstock.pipeline.ahead import Ahead
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
from penstock.pipeline.signals import stop_was_asked
from penstock.pipeline.unhurried import unhurried
from penstock.store.database import Tx
from penstock.store.pipeline.jobs import Claimed, Picking

if TYPE_CHECKING:
    from penstock.pipeline.auto import AutoPopulate

GROWTH = 16
"""How many times larger a batch may be than the one before it, while it is not known how long keys take."""

LOCKED = 0.05
"""How long to wait, in seconds, before asking again for jobs that another transaction holds."""

OVERHEADS = 4
"""A batch lasts at least so many times as long as it takes to claim it."""


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
        self.token = str(uuid4())
        self.outbox = Outbox(self.connection, self._settle)
        self.ahead = Ahead(self.connection)
        self.outcome = Outcome()
        self.size = 1
        self.retries: list[float] = []
        """When the keys that this worker failed may be tried again, by the monotonic clock; the first is the next."""
        self._picking: Picking | None = None

    def run(self) -> Outcome:
        with heart.holding(self.token, self.connection, self.store), unhurried():
            try:
                try:
                    self._until_nothing_is_left()
                finally:
                    self.outbox.close()
                self._heed_failures()
            except BaseException:
                # Whatever is still held goes back untried, wherever the interruption struck.
                self.connection.apart(lambda tx: self.store.release(tx, self.token))
                raise
        self.outcome.success_count += self.outbox.done
        return self.outcome

    def _until_nothing_is_left(self) -> None:
        looked_again = False
        while (room := self.budget.room()) is None or room > 0:
            if self._batch():
                looked_again = False
            elif not looked_again:
                self._look_again()
                looked_again = True
            elif self._others_are_at_it():
                time.sleep(LOCKED)
            elif not self._wait_for_retry():
                break

    def _look_again(self) -> None:
        if self.refreshes:
            self.jobs.add_missing(*self.options.restrictions, priority=self.options.priority)
        else:
            self.connection.apart(lambda tx: self.store.return_orphans(tx, config["jobs.max_crashes"]))

    def _others_are_at_it(self) -> bool:
        """Whether there is a key to claim that a claim passes over: somebody is changing its job at the moment."""
        return self.connection.look(lambda tx: self.store.claimable(tx, self._what_to_pick()))

    def _wait_for_retry(self) -> bool:
        if not self.retries:
            return False
        wait = heappop(self.retries) - time.monotonic()
        if wait > config["jobs.retry_patience"]:
            return False
        time.sleep(max(0.0, wait) + 0.01)
        while self.retries and self.retries[0] <= time.monotonic():
            heappop(self.retries)
        return True

    def _batch(self) -> bool:
        """Claim some keys and make them; False if there were none."""
        wanted = self.budget.take(self.size)
        asked = time.monotonic()
        claimed = self._claim(wanted)
        self.budget.give_back(wanted - len(claimed), keys=True)
        self._heed_failures()
        if not claimed:
            return False
        started = time.monotonic()
        lasting = max(config["jobs.batch_seconds"], OVERHEADS * (started - asked))
        made, elapsed = 0, 0.0
        # Given back before the next claim, so that a worker whose batches are short does with one connection.
        with self.connection.steady_reads(), self.connection.reading_ahead(self.ahead):
            for _ in self.ahead.over([job.key for job in claimed]):
                self._handle(claimed[made])
                self.step()
                made, elapsed = made + 1, time.monotonic() - started
                if elapsed > 2 * lasting:
                    break
        self._give_back(len(claimed) - made)
        best = int(lasting * made / max(1e-6, elapsed))
        self.size = max(1, min(best, self.size * GROWTH, config["jobs.batch_limit"]))
        return True

    def _give_back(self, number: int) -> None:
        """The batch takes longer than it was meant to: leave the rest of it to whoever is free."""
        if number:
            self.outbox.flush()
            self._heed_failures()
            self.connection.apart(lambda tx: self.store.release(tx, self.token))
            self.budget.give_back(number, keys=True)

    def _claim(self, wanted: int) -> list[Claimed]:
        """Claim up to so many keys, in the transaction that writes what the batch before has left to write."""
        picking, who, lease = self._what_to_pick(), identity(), config["jobs.lease_seconds"]
        return self.outbox.flush_and(lambda tx: self.store.claim(tx, self.token, who, lease, wanted, picking))

    def _what_to_pick(self) -> Picking:
        """The same every time, unless key_source is the user's own and may be another each time it is asked for."""
        if self._picking is None or self.table.chooses_keys():
            restricted = self.options.restrictions
            among = keys_to_make(self.table, *restricted) if restricted else None
            target, source = self.jobs.target_source(), keys_to_make(self.table)
            self._picking = Picking(target, source, self.options.priority, self.options.order, among)
        return self._picking

    def _handle(self, job: Claimed) -> None:
        key = job.key
        if job.done or not job.live:
            self.budget.give_back(1, keys=False)
            self.connection.apart(lambda tx: self.store.discard(tx, key, self.token))
            return
        started = time.monotonic()
        try:
            scope = run_make(self.table, key, self.options.make_kwargs, self.outbox)
            finished = Finished(key, scope, time.monotonic() - started)
            if scope.may_wait:
                self.outbox.add(finished)
            else:
                self.outbox.flush()
                commit(self.table, key, scope, lambda tx: self._settle(tx, [finished]))
                self.outcome.success_count += 1
        except BaseException as error:
            if stop_was_asked():
                raise
            self.outbox.flush()
            self._failed(key, error, time.monotonic() - started)
        self._heed_failures()

    def _heed_failures(self) -> None:
        while self.outbox.failed:
            finished, error = self.outbox.failed.pop(0)
            self._failed(finished.key, error, finished.duration)

    def _settle(self, tx: Tx, items: Sequence[Finished]) -> None:
        """Complete the jobs in the transaction of their results. A job that was deleted meanwhile is no obstacle; one
        that passed on is."""
        keep = config["jobs.keep_completed"]
        if not keep and self.store.complete_all(tx, [item.key for item in items], self.token) == len(items):
            return
        for item in items:
            held = self.store.complete(tx, item.key, self.token, item.duration, keep=True) if keep else False
            if not held and self.store.status(tx, item.key) is not None:
                raise ReservationLost(
                    f"The job {item.key} passed on while it was being made; its result was not written."
                )

    def _failed(self, key: Key, error: BaseException, duration: float) -> None:
        if isinstance(error, ReservationLost):
            return
        if isinstance(error, DuplicateError) and key in self.table:
            self.connection.apart(lambda tx: self.store.discard(tx, key, self.token))
            return
        message, stack = describe(error), pack("".join(traceback.format_exception(error)))
        row = self.connection.look(lambda tx: self.store.row(tx, key))
        attempts = row.attempts if row is not None else 1
        delay = type(self.table).retry_policy.delay_after(error, attempts)
        if delay is not None:
            self.connection.apart(lambda tx: self.store.retry(tx, key, self.token, message, stack, delay))
            heappush(self.retries, time.monotonic() + delay)
            return
        self.connection.apart(lambda tx: self.store.fail(tx, key, self.token, message, stack, duration))
        if not self.options.suppress_errors:
            raise error
        self.outcome.error_list.append((key, error if self.options.return_exception_objects else message))
