"""What an HTTP worker knows about its leases, by a clock that the test moves."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client import ApiError
from penstock.core.errors import InvalidInput, LeaseLost
from penstock.core.ids import new_id
from penstock.core.nouns import Claim
from penstock.core.status import RetryMode
from penstock.core.wire import worker as wire
from penstock.worker.remote import RemoteWorker
from penstock.worker.remote_runs import REPORTING_SECONDS, Holding, RemoteControl
from penstock.worker.remote_services import RemoteGuard, RemoteHeartbeater, is_refused, within

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def control(at: float) -> RemoteControl:
    id = new_id()
    claim = Claim(
        job_id=id, run_id=new_id(), tenant_id=id, tenant_slug="t", definition_id=None, key="k", queue="default", params={},
        attempt_no=1, max_attempts=1, retry_mode=RetryMode.REQUEUE, root_id=id, group_id=None, worker_id="w",
        started_at=NOW, lease_expires_at=NOW, trace=None, correlation_id=None,
    )  # fmt: skip
    return RemoteControl(claim, None, at)


class Service:
    """Says what it is told to say about each run; or raises."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seconds = 0.0
        self.says: Exception | str = "extended"
        self.canceled = False
        self.asked: list[list[dict[str, Any]]] = []

    def heartbeat_many(self, runs: Any, lease_seconds: float | None = None) -> wire.BeatenMany:
        self.asked.append(list(runs))
        self.clock.now += self.seconds
        if isinstance(self.says, Exception):
            raise self.says
        states = [
            wire.RunState(
                job_id=run["job_id"],
                run_id=run["run_id"],
                state=self.says,
                cancel_requested=self.canceled,  # type: ignore[arg-type]
            )
            for run in runs
        ]
        return wire.BeatenMany(items=states, lease_seconds=lease_seconds or 0)


def test_a_run_is_stopped_before_its_lease_is_over() -> None:
    clock = Clock()
    holding = Holding(10.0, clock)
    held = control(clock.now)
    holding.add(held)
    guard = RemoteGuard(holding)
    assert guard.pause() + 8.5 < 10.0
    clock.now += 8.4
    guard.step()
    assert not held.canceled.is_set()
    clock.now += 0.1
    guard.step()
    assert held.canceled.is_set()
    assert held.by_shutdown  # so that the retry policy applies


def test_a_lease_counts_from_when_its_heartbeat_was_sent() -> None:
    clock = Clock()
    holding = Holding(10.0, clock)
    held = control(clock.now)
    holding.add(held)
    service = Service(clock)
    service.seconds = 2.0
    clock.now += 3
    RemoteHeartbeater(service, holding).step()
    assert held.renewed_at == 103.0


@pytest.mark.parametrize(
    "trouble", [ApiError(0, "unreachable", "x"), ApiError(502, "not_penstock", "x"), KeyError("x")]
)
def test_a_heartbeat_that_fails_extends_nothing_and_keeps_what_the_run_said(trouble: Exception) -> None:
    clock = Clock()
    holding = Holding(10.0, clock)
    held = control(clock.now)
    holding.add(held)
    held.report_progress(1, 2, "old")
    held.report_tails("out", "err")
    service = Service(clock)
    service.says = trouble
    beats = RemoteHeartbeater(service, holding)
    clock.now += 3
    beats.step()
    held.report_progress(2, 2, "new")
    assert (held.renewed_at, beats.missed) == (100.0, 1)
    service.says = "extended"
    beats.step()
    assert (held.renewed_at, beats.missed) == (103.0, 0)
    assert service.asked[-1][0]["progress"]["message"] == "new"
    assert service.asked[-1][0]["stdout_tail"] == "out"
    beats.step()
    assert set(service.asked[-1][0]) == {"job_id", "run_id"}


def test_one_beat_carries_no_more_than_the_service_takes() -> None:
    clock = Clock()
    holding = Holding(10.0, clock)
    for _ in range(10):
        held = control(clock.now)
        held.report_tails("x" * 200_000, "")
        holding.add(held)
    service = Service(clock)
    beats = RemoteHeartbeater(service, holding)
    carried = 0
    while carried < 10:
        beats.step()
        assert len(service.asked[-1]) == 10
        number = sum("stdout_tail" in run for run in service.asked[-1])
        assert 0 < number <= 5
        carried += number


def test_what_the_service_says_is_heeded() -> None:
    clock = Clock()
    holding = Holding(10.0, clock)
    held = control(clock.now)
    holding.add(held)
    service = Service(clock)
    service.canceled = True
    beats = RemoteHeartbeater(service, holding)
    beats.step()
    assert held.canceled.is_set() and not held.lost and not held.by_shutdown
    service.says = "lost"
    beats.step()
    assert held.lost
    beats.step()
    assert len(service.asked) == 2, "nobody asks for a run that is lost"


def test_an_ended_run_keeps_its_lease_while_it_is_reported_and_not_for_ever() -> None:
    clock = Clock()
    holding = Holding(10.0, clock)
    held = control(clock.now)
    holding.add(held)
    holding.end(held)
    assert holding.to_extend() == [held]
    assert holding.overdue() == holding.under_way() == []
    clock.now += REPORTING_SECONDS
    assert holding.to_extend() == []
    holding.drop(held)
    assert len(holding) == 0


def test_a_call_that_does_not_return_is_left_behind() -> None:
    never = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.05, never.wait)
    never.set()
    with pytest.raises(KeyError):
        within(30, lambda: {}["x"])
    assert within(30, lambda: 7) == 7


def test_what_is_worth_sending_again() -> None:
    assert is_refused(ApiError(422, "invalid_input", "x"))
    assert is_refused(ApiError(413, "not_penstock", "a proxy's limit"))
    assert is_refused(ValueError("no JSON"))
    for again in (
        ApiError(422, "not_penstock", "x"),
        ApiError(500, "internal_error", "x"),
        LeaseLost([]),
        TimeoutError(),
    ):
        assert not is_refused(again)


@pytest.mark.parametrize("lease", [0, -1, 3601])
def test_a_lease_that_the_service_would_refuse_is_refused_at_once(lease: float) -> None:
    with pytest.raises(InvalidInput, match="lease"):
        RemoteWorker(None, [], lease=lease)  # type: ignore[arg-type]
