"""The pump moves work: finished runs out, the next batch in, both in one commit. One thread, one transaction at a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from uuid import UUID

from penstock.core.chance import chance
from penstock.queue.claim import Ready, claim_ready, make_ready, release
from penstock.queue.ground import Ground
from penstock.queue.record import Report
from penstock.store.hot import NOTHING_TAKEN, Taken
from penstock.store.wake import seconds_to_next_due
from penstock.worker.apart import Apart
from penstock.worker.boarding import Boarding
from penstock.worker.completer import OUTAGE, Completer
from penstock.worker.control import RunControl
from penstock.worker.flight import Flight
from penstock.worker.pace import Pace
from penstock.worker.service import Service, full_jitter
from penstock.worker.waker import Hearing

LOOK_AHEAD_SECONDS = 0.2
"""How often at most we ask when the next job is due."""

FULL_SECONDS = 0.25
"""How long a full worker waits for a run to end before it looks after its buffer."""

YIELD_SECONDS = 0.00005
"""Executors that have just been given something to do run first; we have nothing urgent left."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Who claims, and what it takes."""

    worker_id: str
    concurrency: int
    lease_seconds: float
    keys: tuple[str, ...]
    queues: tuple[str, ...] | None = None


class Pump(Service):
    """Claims batches for the executors and reports what they finished."""

    name = "pump"

    def __init__(
        self,
        ground: Ground,
        offer: Offer,
        flight: Flight,
        boarding: Boarding,
        completer: Completer,
        hearing: Hearing,
    ) -> None:
        super().__init__()
        self.pace = Pace(offer.concurrency, ground.config)
        self.resting = threading.Event()
        """Set while there was nothing left to claim the last time we looked."""
        self._ground = ground
        self._offer = offer
        self._flight = flight
        self._boarding = boarding
        self._completer = completer
        self._hearing = hearing
        self._finished: list[RunControl] = []
        """Ended runs that are not reported. One leaves this list only by landing, or into the completer's hands."""
        self._closed = False
        self._hungry = True
        self._asking = offer.concurrency
        """How many to ask for: few where few came, so that a claim costs what it brings."""
        self._look_at = 0.0
        self._looked_ahead_at = 0.0
        self._pid = os.getpid()
        self._ready: Ready | None = None
        self._apart = Apart(ground, flight, offer.lease_seconds)
        self._busy = 0
        """How many runs were in our hands that had not ended, when room was last looked for."""

    def close_intake(self) -> None:
        """Claim nothing more, and give back what was not started; go on reporting."""
        self._closed = True
        self._flight.wake()

    def stop(self) -> None:
        super().stop()
        self._flight.wake()

    def pause(self) -> float:
        return 0.0  # the step itself waits, in the inbox

    def step(self) -> None:
        self._gather()
        room = self._room()
        if self._finished or (room and self._hungry):
            self._exchange(room)
        if self._closed:
            self.give_back()
            return
        self._release_stale()
        waiting = len(self._flight.suspects)
        if waiting:
            self._apart.step(self._flight.held - waiting - len(self._finished) - self._completer.pending)

    def _gather(self) -> None:
        """Wait for something to happen, then take everything that has."""
        inbox = self._flight.inbox
        try:
            self._take(self._wait_for(inbox))
        except Empty:
            if time.monotonic() >= self._look_at:
                self._hungry = True
            return
        if not self._flight.held:
            return  # nothing can end that would be company
        until = time.monotonic() + (self.pace.least_linger if self._flight.ready.empty() else self.pace.linger)
        enough = max(1, self.pace.capacity // 2)
        take = self._take
        while True:
            while not inbox.empty():
                take(inbox.get_nowait())
            waiting = len(self._flight.runs) - len(self._finished) - self._completer.pending
            left = until - time.monotonic()
            if left <= 0 or waiting <= 0 or not 0 < len(self._finished) < enough:
                return
            try:
                message = inbox.get(timeout=left)
            except Empty:
                return
            take(message)
            if message is None:
                return

    def _wait_for(self, inbox: SimpleQueue[RunControl | None]) -> RunControl | None:
        wait = self._patience()
        if not wait or not inbox.empty():
            return inbox.get_nowait()
        if not self.resting.is_set():
            return inbox.get(timeout=wait)
        if not self._flight.held:
            if self._ground.db.clock is None:  # else it must know when it claims
                self._be_ready(self._room())
            heard = self._hearing.by_pump(wait)
            if heard is not None:
                return None if heard else inbox.get_nowait()
        self._hearing.wanted.set()
        try:
            return inbox.get(timeout=wait)
        finally:
            self._hearing.wanted.clear()

    def _patience(self) -> float:
        """How long there is nothing to do but to listen."""
        if self._finished:
            return 0.0
        if not self._room():
            return FULL_SECONDS
        return 0.0 if self._hungry else max(0.0, self._look_at - time.monotonic())

    def _take(self, message: RunControl | None) -> None:
        if message is None:
            self._hungry = True
            self.resting.clear()
        else:
            self._finished.append(message)

    def _room(self) -> int:
        self._busy = self._flight.held - len(self._finished) - self._completer.pending
        if self._closed or self._apart.closed:
            return 0
        room = self.pace.capacity - self._busy
        if room < self.pace.ahead // 2:
            return 0  # a buffer that is more than half full is not worth a claim
        return max(0, min(room, self._asking))

    def _exchange(self, room: int) -> None:
        finished = self._finished
        seconds = [control.seconds for control in finished]
        if room and self._completer.takes(finished):
            self._finished = []
            self._completer.hand_over(finished)
            finished = []
        asked_at = time.monotonic()
        try:
            taken = self._report_and_claim(room, finished)
        finally:
            if finished:
                self._finished = self._flight.still_held(finished)
        self._boarding.take(taken, asked_at)
        if 0 < taken.number <= self._offer.concurrency:
            time.sleep(YIELD_SECONDS)
        self.pace.ran(seconds)
        self._rest(room, taken.number)

    def _report_and_claim(self, room: int, finished: list[RunControl]) -> Taken:
        """Both in one commit. Whatever this raises, nothing was claimed, and what is not reported has not landed."""
        if not room:
            self._completer.report(finished)
            return NOTHING_TAKEN
        lost: set[UUID] = set()
        try:
            taken = self._claim(room, self._completer.reports_of(finished) if finished else [], lost)
        except OUTAGE:
            raise
        except Exception as error:
            if not finished:
                raise
            self._completer.one_by_one(finished, error)
            return NOTHING_TAKEN
        self._completer.landed(finished, lost)
        return taken

    def _claim(self, room: int, reports: Sequence[Report], lost: set[UUID]) -> Taken:
        ready, self._ready = self._be_ready(room), None
        taken = claim_ready(self._ground, ready, reports, lost)
        self._apart.claimed(ready.request.alone and taken.number == 1)
        return taken

    def _be_ready(self, room: int) -> Ready:
        """The next claim, made ready while there is time for it."""
        ready, offer = self._ready, self._offer
        starting, alone = max(0, offer.concurrency - self._busy), not self._busy
        wanted = (room, starting, alone)
        if ready is None or (ready.request.limit, ready.request.starting, ready.request.alone) != wanted:
            ready = self._ready = make_ready(
                self._ground,
                offer.worker_id,
                room,
                queues=offer.queues,
                keys=offer.keys,
                lease_seconds=offer.lease_seconds,
                pid=self._pid,
                starting=starting,
                alone=alone,
            )
        return ready

    def _rest(self, room: int, taken: int) -> None:
        """After a claim: is there more at once, or when is it worth looking again?"""
        self._hungry = room == 0 or taken >= room
        if self._hungry:
            self._asking = min(self._ground.config.claim_limit, max(self._asking, 2 * taken))
            self.resting.clear()
            return
        self._asking = max(self._offer.concurrency, 2 * taken)
        self.resting.set()
        now = time.monotonic()
        wait = self._ground.config.poll_seconds * (0.75 + chance.random() / 2)
        if now - self._looked_ahead_at < LOOK_AHEAD_SECONDS:
            wait = min(wait, LOOK_AHEAD_SECONDS)
        else:
            self._looked_ahead_at = now
            with self._ground.db.read() as tx:
                due = seconds_to_next_due(tx)
            wait = wait if due is None else min(wait, max(0.001, due))
        self._look_at = now + wait

    def _release_stale(self) -> None:
        oldest = next((c for c in self._flight.every() if c.started_at is None), None)
        if oldest is None or time.monotonic() - oldest.claimed_at < self._ground.config.buffer_seconds:
            return
        if self._flight.coming:
            return  # what is given back before the next batch has boarded would come after it
        if len(self._flight.under_way()) >= self._offer.concurrency:
            self.pace.stalled()
            self.give_back()

    def give_back(self) -> None:
        """Give back what no executor has taken yet, untouched and in its place. Where that fails, it stays in the buffer."""
        returned = self._flight.unstarted()
        if not returned:
            return
        try:
            release(self._ground, [control.claim for control in returned])
        except BaseException:
            self._flight.return_to_buffer(returned)
            raise
        for control in returned:
            self._flight.land(control)

    def drain(self, until: float) -> None:
        """Report or give back everything that is left, as long as there is time. For the end of the worker's life."""
        self._completer.wait(until)
        while not self._let_go_of_all() and time.monotonic() < until:
            time.sleep(min(full_jitter(self.failures), max(0.0, until - time.monotonic())))

    def _let_go_of_all(self) -> bool:
        """Whether nothing is left to report or to give back."""
        while not self._flight.inbox.empty():
            self._take(self._flight.inbox.get_nowait())
        try:
            if self._finished:
                self._exchange(0)
            self.give_back()
        except Exception as error:
            self.failed(error)
            return False
        return True
