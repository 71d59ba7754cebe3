"""Suspects run apart: what a worker does with a job that was under way when its worker died."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from penstock import Config, Penstock
from penstock.core.status import JobStatus
from tests.support.states import change
from tests.worker.conftest import eventually, working


@pytest.fixture
def stage(url: str) -> Iterator[Stage]:
    made = Stage(url)
    yield made
    made.app.close()


class Stage:
    """An app whose jobs say when they begin and wait until they are let go, and that knows who ran beside whom."""

    def __init__(self, url: str, suspect_seconds: float = 3600.0) -> None:
        self.app = Penstock(url, config=Config(lease_seconds=5.0, poll_seconds=0.2, suspect_seconds=suspect_seconds))
        self.begun: list[int] = []
        self.under_way: set[int] = set()
        self.beside: dict[int, set[int]] = {}
        self.go = {n: threading.Event() for n in range(10)}
        lock = threading.Lock()

        @self.app.job(key="work")
        def work(n: int) -> None:
            with lock:
                self.begun.append(n)
                self.under_way.add(n)
                for each in self.under_way:
                    self.beside.setdefault(each, set()).update(self.under_way - {each})
            self.go[n].wait(60)
            with lock:
                self.under_way.discard(n)

        self.work = work

    def enqueue(self, *numbers: int, suspects: tuple[int, ...] = (), crashes: int = 1) -> None:
        for n in numbers:
            job = self.work.enqueue(n=n)
            if n in suspects:
                change(self.app, job.id, suspect=True, crashes=crashes)

    def let_go(self, *numbers: int) -> None:
        for n in numbers:
            self.go[n].set()

    def done(self) -> bool:
        return all(job.status is JobStatus.SUCCEEDED for job in self.app.jobs.list())


def test_a_suspect_waits_for_what_runs_and_runs_alone(stage: Stage) -> None:
    stage.enqueue(0, 1, 2, 3, suspects=(2,))
    with working(stage.app, concurrency=4):
        eventually(lambda: set(stage.begun) == {0, 1}, what="the start of the others")
        eventually(lambda: stage.app.jobs.summary().running == 3, what="the claim of the suspect")
        stage.let_go(0)
        eventually(lambda: stage.app.jobs.summary().running == 2)
        stage.enqueue(4)
        assert stage.begun == sorted(stage.begun) and max(stage.begun) == 1, "it began beside another"
        stage.let_go(1)
        eventually(lambda: stage.begun[-1] == 2, what="the suspect's beginning")
        assert stage.app.jobs.summary().queued == 2
        stage.let_go(2, 3, 4)
        eventually(stage.done)
    assert stage.beside[2] == set(), "something ran beside the suspect"
    assert stage.app.doctor().clean


def test_many_suspects_run_one_after_the_other(stage: Stage) -> None:
    stage.enqueue(*range(6), suspects=(0, 1, 3, 4))
    stage.let_go(*range(6))
    with working(stage.app, concurrency=4):
        eventually(stage.done)
    assert [stage.beside[n] for n in (0, 1, 3, 4)] == [set()] * 4
    assert stage.begun == sorted(stage.begun), "suspects do not leave their places in the order"


def test_a_suspect_that_waits_goes_back_untouched_when_the_worker_stops(stage: Stage) -> None:
    stage.enqueue(0, 1, suspects=(1,))
    worker = stage.app.worker(concurrency=2).start()
    eventually(lambda: stage.app.jobs.summary().running == 2)
    worker.ask_to_stop()
    stage.let_go(0)
    worker.stop(grace=30)
    by_number = {job.params["n"]: job for job in stage.app.jobs.list()}
    assert by_number[0].status is JobStatus.SUCCEEDED
    assert (by_number[1].status, by_number[1].attempt_no) == (JobStatus.QUEUED, 0)
    assert stage.app.jobs.runs(by_number[1].id) == []


def test_a_long_suspect_does_not_hold_a_worker_up_for_ever(url: str) -> None:
    stage = Stage(url, suspect_seconds=0.2)
    stage.enqueue(0, 1, 2, suspects=(1,))
    with working(stage.app, concurrency=4):
        eventually(lambda: set(stage.begun) == {0, 1, 2}, what="company")
        stage.let_go(0, 1, 2)
        eventually(stage.done)
    stage.app.close()


def test_on_its_last_chance_a_suspect_is_alone_to_the_end(url: str) -> None:
    stage = Stage(url, suspect_seconds=0.2)
    stage.enqueue(0, 1, suspects=(0,), crashes=2)
    with working(stage.app, concurrency=4) as worker:
        eventually(lambda: stage.begun == [0])
        (suspect,) = eventually(worker.flight.under_way)
        suspect.started_at -= 3600
        assert worker.pump._apart.closed
        assert stage.begun == [0]
        stage.let_go(0, 1)
        eventually(stage.done)
    assert stage.beside[0] == set()
    stage.app.close()


def test_a_claim_whose_lease_may_be_over_does_not_begin(stage: Stage) -> None:
    """As after a suspended machine wakes up: somebody else may have the job by now."""
    from penstock.core.outcomes import Canceled
    from penstock.queue.begun import begun_file
    from penstock.worker.control import RunControl
    from penstock.worker.executors import Executors
    from penstock.worker.flight import Flight

    stage.enqueue(0)
    [claim] = stage.app.queue.claim(f"host:{os.getpid()}", 1)
    flight = Flight()
    executors = Executors(flight, {}, 1, begun_file("host:1"), lease_seconds=5.0)
    executors.start()
    control = RunControl(claim, None, stage.app.ground, -1e9, lambda _: None, lambda _: None)
    flight.board([control], 1)
    assert flight.inbox.get(timeout=30) is control
    executors.stop()
    assert stage.begun == []
    assert isinstance(control.outcome, Canceled) and control.outcome.by_shutdown
