"""What an HTTP worker does beside its runs: extend leases, and stop runs whose lease could not be extended."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar
from uuid import UUID

from penstock.core.chance import chance
from penstock.core.wire import worker as wire
from penstock.worker.heartbeat import ON_REQUEST
from penstock.worker.remote_runs import Holding, RemoteControl
from penstock.worker.service import Service

T = TypeVar("T")
BEAT_SECONDS = 2.0
"""How long a request to stop, a line of output or a step of progress waits at most."""

NEWS_BYTES = 1024 * 1024
"""How much progress and output one heartbeat carries; the rest waits for the next. The service takes 2 MiB."""

NOT_RENEWED = "its lease could not be renewed: the service did not answer in time"
REFUSED = frozenset({400, 413, 422})


class Beats(Protocol):
    def heartbeat_many(self, runs: Sequence[Any], lease_seconds: float | None = None) -> wire.BeatenMany: ...


def within(seconds: float, work: Callable[[], T]) -> T:
    """Return what `work` returns. After `seconds` raise TimeoutError and leave it behind on its thread: neither a name
    server that is silent nor a body that comes byte by byte may hold up the caller."""
    answer: SimpleQueue[tuple[bool, Any]] = SimpleQueue()

    def call() -> None:
        try:
            answer.put((True, work()))
        except BaseException as error:
            answer.put((False, error))

    threading.Thread(target=call, name="penstock-request", daemon=True).start()
    try:
        went_well, value = answer.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"The service did not answer within {seconds:g} s.") from None
    if not went_well:
        raise value
    returned: T = value
    return returned


def is_refused(error: Exception) -> bool:
    """Whether sending the same again would be refused again: the service, or the client before it, found the content
    wrong or too large."""
    if isinstance(error, ValueError | TypeError):
        return True
    status, code = getattr(error, "status", 0), getattr(error, "code", "")
    return status == 413 or (status in REFUSED and code != "not_penstock")


class RemoteHeartbeater(Service):
    """Extends all leases in one request, and tells runs what the service said about them. A request that fails or hangs
    costs the leases one beat; the next is sent in time."""

    name = "heartbeat"

    def __init__(self, desk: Beats, holding: Holding) -> None:
        super().__init__()
        self._desk = desk
        self._holding = holding
        self.missed = 0
        """How many heartbeats in a row did not get through."""

    @property
    def every_seconds(self) -> float:
        return min(self._holding.lease_seconds / 4, BEAT_SECONDS)

    @property
    def timeout(self) -> float:
        """Below the lease, so that more than one heartbeat can fail before a run has to stop."""
        return min(self._holding.lease_seconds / 4, 10.0)

    def pause(self) -> float:
        return self.every_seconds * chance.uniform(0.8, 1.0)

    def step(self) -> None:
        held = self._holding.to_extend()
        for start in range(0, len(held), wire.MAX_RUNS):
            self._beat(held[start : start + wire.MAX_RUNS])

    def _beat(self, held: Sequence[RemoteControl]) -> None:
        news = self._news_of(held)
        try:
            self._send(held, news)
        except Exception as error:
            if not news or not is_refused(error):
                for control, said in news.items():
                    control.put_back(said)
                self._missed(error)
                return
            self.log.warning("progress_refused", error=str(error), runs=len(news))
            try:  # what the runs say must not cost them their leases
                self._send(held, {})
            except Exception as again:
                self._missed(again)
                return
        if self.missed:
            self.log.info("heartbeat_recovered", after_failures=self.missed)
            self.missed = 0

    def _missed(self, error: Exception) -> None:
        if self.missed == 0:
            self.log.warning("heartbeat_failed", error=str(error) or type(error).__name__)
        self.missed += 1

    def _send(self, held: Sequence[RemoteControl], news: dict[RemoteControl, dict[str, Any]]) -> None:
        runs = [
            {"job_id": control.claim.job_id, "run_id": control.claim.run_id, **news.get(control, {})}
            for control in held
        ]
        lease = self._holding.lease_seconds
        asked_at = self._holding.clock()

        def ask() -> None:  # an answer that comes after the timeout counts, too: from when it was asked for
            self._heed(held, self._desk.heartbeat_many(runs, lease).items, asked_at)

        within(self.timeout, ask)

    def _news_of(self, held: Sequence[RemoteControl]) -> dict[RemoteControl, dict[str, Any]]:
        left = NEWS_BYTES
        news: dict[RemoteControl, dict[str, Any]] = {}
        for control in held:
            said = control.take_news()
            if not said:
                continue
            size = len(json.dumps(said, default=str))
            if size > left and news:
                control.put_back(said)
                continue
            news[control] = said
            left -= size
        return news

    def _heed(self, held: Sequence[RemoteControl], states: Sequence[wire.RunState], asked_at: float) -> None:
        told: dict[UUID, wire.RunState] = {state.run_id: state for state in states}
        for control in held:
            state = told.get(control.claim.run_id)
            if state is None:
                continue  # the answer does not speak of it, so it was not extended
            if state.state == "extended":
                control.renewed_at = max(control.renewed_at, asked_at)
            elif state.state == "lost" and not control.lost:
                if control.ended_at is None:
                    self.log.warning("lease_lost", **control.labels)
                control.lose()
            if state.cancel_requested:
                control.cancel(ON_REQUEST)


class RemoteGuard(Service):
    """Stops runs whose lease could not be extended in time, by this machine's monotonic clock: after that another worker
    may run the same job. It sends nothing, so nothing on the network can hold it up."""

    name = "guard"

    def __init__(self, holding: Holding) -> None:
        super().__init__()
        self._holding = holding

    def pause(self) -> float:
        return min(0.25, self._holding.lease_seconds / 20)

    def step(self) -> None:
        for control in self._holding.overdue():
            self.log.error("lease_not_renewed", lease_seconds=self._holding.lease_seconds, **control.labels)
            control.cancel(NOT_RENEWED, by_shutdown=True)
