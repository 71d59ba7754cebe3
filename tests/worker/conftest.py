from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import Config, Job, Penstock
from penstock.worker import Worker
from tests.support.waiting import eventually


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


def ended(app: Penstock, job: Job, seconds: float = 60.0) -> Job:
    """The job, once it has ended."""
    eventually(lambda: app.jobs.get(job.id).finished, seconds, f"the end of {job.definition_key}")
    return app.jobs.get(job.id)
