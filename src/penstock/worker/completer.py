"""How finished runs are reported: with the next claim in one commit, or, where many finish at once and the database takes
many writers, beside it, so that neither waits for the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any
from uuid import UUID

from penstock.core.errors import DatabaseError, PenstockError
from penstock.core.outcomes import NOTHING, Failed, Outcome, Succeeded
from penstock.queue.ground import Ground
from penstock.queue.record import Report, finish_many, report_of
from penstock.store import failpoints
from penstock.store.faults import is_refused
from penstock.worker.control import RunControl
from penstock.worker.flight import Flight
from penstock.worker.reporter import Reporter
from penstock.worker.service import Service

MANY = 64
"""From so many on, finished runs are worth a commit of their own."""

MOST = 500

OUTAGE = (DatabaseError, OSError)
"""What passes, and has nothing to do with what was to be written: everything is kept and reported later."""


class Completer(Service):
    """Reports finished runs. Its thread takes what the pump hands over; the rest the pump reports with its claims."""

    name = "completer"

    def __init__(self, ground: Ground, worker_id: str, flight: Flight, reporter: Reporter) -> None:
        super().__init__()
        self._ground = ground
        self._worker_id = worker_id
        self._flight = flight
        self._reporter = reporter
        self._handed: SimpleQueue[list[RunControl]] = SimpleQueue()
        self._handed_over = 0
        self._dealt_with = 0
        self._takes = ground.db.dialect.many_writers

    @property
    def pending(self) -> int:
        """Runs that were handed over and are not reported yet."""
        return self._handed_over - self._dealt_with

    def takes(self, finished: Sequence[RunControl]) -> bool:
        """Whether these are better handed over. One writer at a time gains nothing by a second, and after a failure the
        pump reports: where that fails too, it claims nothing more."""
        return self._takes and len(finished) >= MANY and not self.failures and not self.stopping.is_set()

    def hand_over(self, finished: list[RunControl]) -> None:
        self._handed_over += len(finished)
        self._handed.put(finished)

    def pause(self) -> float:
        return 0.0  # the step itself waits

    def step(self) -> None:
        try:
            finished = self._handed.get(timeout=0.25)
        except Empty:
            return
        try:
            while len(finished) < MOST and not self._handed.empty():
                finished = finished + self._handed.get_nowait()
            self.report(finished)
        finally:
            for control in self._flight.still_held(finished):  # the pump has them back, and tries again
                self._flight.inbox.put(control)
            self._dealt_with += len(finished)

    def wait(self, until: float) -> None:
        """Until everything that was handed over is dealt with."""
        while self.pending and time.monotonic() < until:
            time.sleep(0.005)

    def report(self, finished: list[RunControl]) -> None:
        """Write how these runs ended. A run leaves our hands exactly when that is done, so whatever this raises, the
        rest is still to be reported."""
        try:
            lost = finish_many(self._ground, self.reports_of(finished), self._worker_id)
        except OUTAGE:
            raise
        except Exception as error:
            self.one_by_one(finished, error)
        else:
            self.landed(finished, lost)

    def reports_of(self, finished: list[RunControl]) -> list[Report]:
        """What is to be written of them, after what they said last."""
        failpoints.reach("worker.before_report")
        self._reporter.write([control for control in finished if control.progress is not None])
        return [
            report_of(control.claim, control.outcome)
            for control in finished
            if control.outcome is not None and not control.lost
        ]

    def landed(self, finished: Sequence[RunControl], lost: set[UUID]) -> None:
        """These are reported: let them go."""
        for control in finished:
            self._flight.land(control)
            if control.lost or (lost and control.claim.run_id in lost):
                control.lost = True
                self._tell("warning", "lease_lost", control, outcome=type(control.outcome).__name__)

    def one_by_one(self, finished: Sequence[RunControl], trouble: Exception) -> None:
        """Report each alone: a run that cannot be reported takes no other down with it, and is not tried for ever."""
        kept = False
        for control in finished:
            try:
                self.landed([control], self._finish_alone(control))
            except OUTAGE:
                raise
            except Exception as error:
                trouble, kept = error, True
                if control.abandoned:  # it was tried for the whole length of a lease: recovery closes it
                    self._flight.land(control)
        if kept:
            raise trouble

    def _finish_alone(self, control: RunControl) -> set[UUID]:
        if control.outcome is None or control.lost:
            return set()
        try:
            return self._finish(control, control.outcome)
        except Exception as error:
            if not is_refused(error):
                raise
            self._tell("error", "unreportable", control, error=str(error))
            return self._finish(control, without_the_unwritable(control.outcome, error))

    def _finish(self, control: RunControl, outcome: Outcome) -> set[UUID]:
        return finish_many(self._ground, [report_of(control.claim, outcome)], self._worker_id)

    def _tell(self, level: str, event: str, control: RunControl, **facts: object) -> None:
        with suppress(Exception):  # whoever reads the log may be gone: no reason to forget a run
            getattr(self.log, level)(event, **facts, **control.labels)


def without_the_unwritable(outcome: Outcome, error: Exception) -> Outcome:
    why = str(error) if isinstance(error, PenstockError) else type(error).__name__
    if isinstance(outcome, Succeeded):
        return Failed(f"Its outcome could not be written: {clean(why)}", fatal=True)
    fields: dict[str, Any] = {
        name: clean(text) for name in ("error", "reason") if isinstance(text := getattr(outcome, name, None), str)
    }
    return replace(outcome, evidence=NOTHING, **fields)


def clean(text: str) -> str:
    """Text that both databases can hold."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
