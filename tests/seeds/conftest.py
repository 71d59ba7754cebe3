from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import ManualClock, Penstock


@pytest.fixture
def app(url: str, clock: ManualClock) -> Iterator[Penstock]:
    """The engine on each database, with one plain definition `work`. Whatever a test does, doctor() is clean after it."""
    penstock = Penstock(url, clock=clock)
    penstock.define("work", retry_policy={"base": 10, "factor": 2, "jitter": 0})
    yield penstock
    health = penstock.doctor()
    penstock.close()
    assert health.clean, health.violations
