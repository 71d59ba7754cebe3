"""How finished runs are reported: with the next claim in one commit, or, where many finish at once and the database takes
many writers, beside it, so that neither waits for the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any
from uuid import UUID

from penstock.core.errors import DatabaseError, PenstockError
from penstock.core.outcomes import NOTHING, Failed, Outcome, Succeeded
from penstock.queue.ground import Ground
from penstock.queue.record import Report, finish_many
from penstock.store import failpoints
from penstock.worker.control import RunControl
from penstock.worker.flight import Flight
from penstock.worker.reporter import Reporter
from penstock.worker.service import Service

MANY = 64
"""From so many on, finished runs are worth a commit of their own."""

MOST = 500


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
        """Whether these are better handed over. One writer at a time gains nothing by a second."""
        return self._takes and len(finished) >= MANY and not self.stopping.is_set()

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
        while len(finished) < MOST:
            try:
                finished = finished + self._handed.get_nowait()
            except Empty:
                break
        try:
            self.landed(finished, self._write(finished))
        except BaseException:
            for control in finished:  # the pump has them back, and tries again
                self._flight.inbox.put(control)
            raise
        finally:
            self._dealt_with += len(finished)

    def wait(self, until: float) -> None:
        """Until everything that was handed over is dealt with."""
        while self.pending and time.monotonic() < until:
            time.sleep(0.005)

    def _write(self, finished: list[RunControl]) -> set[UUID]:
        reports = self.reports_of(finished)
        try:
            return finish_many(self._ground, reports, self._worker_id)
        except DatabaseError:
            raise
        except Exception as error:
            return self.one_by_one(finished, error)

    def reports_of(self, finished: list[RunControl]) -> list[Report]:
        """What is to be written of them, after what they said last."""
        failpoints.reach("worker.before_report")
        self._reporter.write([control for control in finished if control.progress is not None])
        return [
            (control.claim.job_id, control.claim.run_id, control.outcome)
            for control in finished
            if control.outcome is not None and not control.lost
        ]

    def landed(self, finished: Sequence[RunControl], lost: set[UUID]) -> None:
        for control in finished:
            self._flight.land(control)
            if control.lost or (lost and control.claim.run_id in lost):
                control.lost = True
                self.log.warning("lease_lost", outcome=type(control.outcome).__name__, **control.labels)

    def one_by_one(self, finished: list[RunControl], cause: Exception) -> set[UUID]:
        """A batch that cannot be written must not take the others down with it, nor be tried for ever."""
        lost: set[UUID] = set()
        for control in finished:
            if control.outcome is None or control.lost:
                continue
            key = (control.claim.job_id, control.claim.run_id)
            try:
                lost |= finish_many(self._ground, [(*key, control.outcome)], self._worker_id)
            except DatabaseError:
                raise
            except Exception as error:
                self.log.error("unreportable", error=str(error), **control.labels)
                instead = without_the_unwritable(control.outcome, error)
                lost |= finish_many(self._ground, [(*key, instead)], self._worker_id)
        if not any(control.outcome for control in finished):
            raise cause
        return lost


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
