"""The worker: wires claim → run → record, and knows how to start and how to end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

from penstock.core import check
from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.leases import renew_after
from penstock.core.outcomes import Canceled
from penstock.core.utc_logs import worker_log
from penstock.queue.begun import begun_file, sweep
from penstock.queue.ground import Ground
from penstock.queue.identity import process_identity
from penstock.queue.recover import recover
from penstock.run.context import Runner
from penstock.store.wake import ear
from penstock.worker.boarding import Boarding
from penstock.worker.completer import Completer
from penstock.worker.executors import Executors
from penstock.worker.flight import Flight
from penstock.worker.heartbeat import Guard, Heartbeater
from penstock.worker.house import Presence, Watchdog
from penstock.worker.pump import Offer, Pump
from penstock.worker.reporter import Reporter
from penstock.worker.service import Service, patiently
from penstock.worker.waker import Hearing, Waker

SHUTDOWN = "the worker was shut down"
OWN_CONNECTIONS = 3
"""One each for the thread that claims, the one that reports and the heartbeats; the others take turns."""
LEAST_PATIENCE = 1.0
"""How long the worker waits for an answer of the database at least; else a third of the lease, so that a hung connection is given
up while there is time to renew the lease on another."""


class Worker:
    """Claims jobs of the keys that its runners offer, runs them and reports.

    ```python
    app.worker(concurrency=8).run()          # until SIGTERM or SIGINT

    worker = app.worker().start()            # or beside other things
    ...
    worker.stop()
    ```
    """

    def __init__(
        self,
        ground: Ground,
        runners: Iterable[Runner],
        *,
        concurrency: int = 8,
        queues: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        grace: float = 30.0,
        lease: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        check.integer("concurrency", concurrency, 1, 1000)
        if grace < 0:
            raise InvalidInput(f"grace is {grace:g}; expected no less than 0 seconds.")
        if lease is not None and lease <= 0:
            raise InvalidInput(f"lease is {lease:g}; expected more than 0 seconds.")
        self._runners = list(runners)
        self._by_key = by_key(self._runners, keys)
        self.grace = grace
        self.offer = Offer(
            worker_id=process_identity(),
            concurrency=concurrency,
            lease_seconds=lease or ground.config.lease_seconds,
            keys=tuple(sorted(self._by_key)),
            queues=None if queues is None else tuple(dict.fromkeys(queues)),
        )
        self._ground = ground
        self._metadata = dict(metadata or {})
        self._stop_asked = threading.Event()
        self._hurry = threading.Event()
        self._over = threading.Event()
        self._started = False
        self.flight = Flight()

    @property
    def id(self) -> str:
        """`host:pid:boot-uuid`."""
        return self.offer.worker_id

    def start(self) -> Worker:
        """Begin to work, on threads of our own; returns at once."""
        if self._started:
            raise InvalidInput("This worker was started before. Make a new one with app.worker().")
        self._started = True
        # Connections of our own: jobs that hold all of the application's must not keep us from extending leases.
        patience = max(LEAST_PATIENCE, renew_after(self.offer.lease_seconds))
        self._db = self._ground.db.beside(OWN_CONNECTIONS, statement_seconds=patience)
        ground = replace(self._ground, db=self._db)
        self._wire(ground)
        patiently(lambda: recover(ground), ground.config.startup_seconds)
        sweep()
        patiently(self.presence.step, ground.config.startup_seconds)
        self._executors.start()
        for service in self._services:
            service.start()
        self._log("worker_started", keys=len(self.offer.keys), concurrency=self.offer.concurrency, pid=os.getpid())
        return self

    def _wire(self, ground: Ground) -> None:
        offer, flight = self.offer, self.flight
        self._heartbeater = Heartbeater(ground, offer.worker_id, flight, offer.lease_seconds)
        self._reporter = Reporter(ground)
        completer = Completer(ground, offer.worker_id, flight, self._reporter)
        self._hearing = Hearing(ear(ground.db, offer.queues))
        boarding = Boarding(ground, self._ground, flight, self._reporter, self._heartbeater, offer.concurrency)
        self.pump = Pump(ground, offer, flight, boarding, completer, self._hearing)
        self.presence = Presence(ground, offer, flight, os.getpid(), self._metadata)
        begun = begun_file(offer.worker_id)
        self._executors = Executors(flight, self._by_key, offer.concurrency, begun, offer.lease_seconds)
        self._services: list[Service] = [
            self._heartbeater,
            Guard(flight, offer.lease_seconds, one_writer=not ground.db.dialect.many_writers),
            self._reporter,
            self.presence,
            Watchdog(ground, flight, offer.lease_seconds),
            self.pump,
            boarding,
            completer,
            Waker(self._hearing, flight.wake),
        ]

    def run(self, *, until_idle: bool = False, handle_signals: bool = True) -> None:
        """Work until asked to stop: by SIGTERM or SIGINT when called on the main thread, or by `stop()`. A second
        signal does not wait for what is running. With `until_idle` it also ends when nothing is left that can run now.

        A signal for which the program has a handler of its own stays the program's, and so do all with `handle_signals=False`: let the
        handler call `ask_to_stop()`. When this returns, the handlers are as they were."""
        restore = self._handle_signals() if handle_signals else _nothing
        try:
            self._until_asked(until_idle)
        finally:
            restore()

    def _until_asked(self, until_idle: bool) -> None:
        self.start()
        while not self._stop_asked.wait(0.02 if until_idle else 0.5):
            if until_idle and self.pump.resting.is_set() and not self.flight.held:
                break
        self._stop_asked.set()
        self._finish()

    def stop(self, grace: float | None = None) -> None:
        """Stop claiming, give back what was not started, let running work end within `grace` seconds, stop the rest.
        Returns when it is done: about a second after the grace at most, four if the database does not answer. What was
        stopped costs the job no attempt."""
        if grace is not None:
            self.grace = grace
        self.ask_to_stop()
        self._finish()

    def ask_to_stop(self) -> None:
        """As a signal does: the first asks to stop, the second not to wait."""
        if self._stop_asked.is_set():
            self._hurry.set()
        self._stop_asked.set()

    def _finish(self) -> None:
        if not self._started or self._over.is_set():
            return
        self._log("worker_stopping", running=len(self.flight.under_way()), grace=self.grace)
        config = self._ground.config
        self.pump.close_intake()
        self._executors.stop()
        notice = min(config.stop_notice_seconds, self.grace / 4)
        self._wait_for_runs(self.grace - notice)
        for control in self.flight.under_way():
            control.cancel(SHUTDOWN, by_shutdown=True)
        self._wait_for_runs(notice)
        self._wait_for_runs(config.stop_seconds, hurry=False)
        self._abandon()
        self._end_services(time.monotonic() + config.report_seconds)
        self._over.set()
        self._log("worker_stopped")

    def _wait_for_runs(self, seconds: float, hurry: bool = True) -> None:
        until = time.monotonic() + seconds
        while self.flight.held and time.monotonic() < until:
            if hurry and self._hurry.wait(0.02):
                return
            if not hurry:
                time.sleep(0.02)

    def _abandon(self) -> None:
        """A thread that does not stop when told is left behind: the process ends soon, and its run ends now."""
        for control in self.flight.under_way():
            if control.end(Canceled(SHUTDOWN, by_shutdown=True)):
                self._log("run_abandoned", **control.labels)
                self.flight.inbox.put(control)

    def _end_services(self, until: float) -> None:
        self.pump.stop()
        self.pump.join(until - time.monotonic())
        self.pump.drain(until)
        for service in self._services:
            service.stop()
        for service in self._services:
            service.join(max(0.05, until - time.monotonic()))
        self._hearing.close()
        for runner in self._runners:
            runner.close()
        try:
            self.presence.leave()
        except PenstockError:
            pass  # the others will see that we are gone
        self._db.close()

    def _handle_signals(self) -> Callable[[], None]:
        if threading.current_thread() is not threading.main_thread():
            return _nothing

        def heard(number: int, _frame: FrameType | None) -> None:
            self.ask_to_stop()

        nobodys = (signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler)
        before = {
            number: signal.signal(number, heard)
            for number in (signal.SIGTERM, signal.SIGINT)
            if signal.getsignal(number) in nobodys
        }

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        return restore

    def _log(self, event: str, **facts: Any) -> None:
        worker_log.info(event, **{"worker_id": self.id, **facts})


def _nothing() -> None:
    return None


def by_key(runners: Sequence[Runner], keys: Sequence[str] | None) -> dict[str, Runner]:
    """Which runner runs which key, narrowed to `keys`; no key may be offered twice."""
    offered: dict[str, Runner] = {}
    for runner in runners:
        for key in runner.keys:
            if key in offered:
                raise InvalidInput(f"Both a function and a command are registered as {key!r}; rename one of them.")
            offered[key] = runner
    if keys is None:
        return offered
    unknown = sorted(set(keys) - set(offered))
    if unknown:
        known = ", ".join(sorted(offered)) or "none"
        raise InvalidInput(f"This worker cannot run {', '.join(unknown)}. It has: {known}.")
    return {key: offered[key] for key in keys}
