from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import Config, Job, Penstock
from penstock.worker import Worker


@pytest.fixture
def app(url: str) -> Iterator[Penstock]:
    """An app on each backend whose leases are short, so that what depends on them is seen soon."""
    made = Penstock(url, config=Config(lease_seconds=2.0, poll_seconds=0.5))
    yield made
    made.close()


@contextmanager
def working(app: Penstock, **options: Any) -> Iterator[Worker]:
    """A worker for the length of the block."""
    worker = app.worker(**options).start()
    try:
        yield worker
    finally:
        worker.stop(grace=5.0)


def eventually(true: Callable[[], Any], seconds: float = 60.0, what: str = "it") -> Any:
    """Wait until it is true, as briefly as can be; answers what was."""
    until = time.monotonic() + seconds
    while not (found := true()):
        assert time.monotonic() < until, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.01)
    return found


def ended(app: Penstock, job: Job, seconds: float = 60.0) -> Job:
    """The job, once it has ended."""
    eventually(lambda: app.jobs.get(job.id).finished, seconds, f"the end of {job.definition_key}")
    return app.jobs.get(job.id)
