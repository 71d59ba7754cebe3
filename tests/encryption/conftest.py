from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import KeyRing, ManualClock, Penstock
from tests.conformance.fixtures import reused_postgres, url
from tests.encryption.support import K1

__all__ = ["reused_postgres", "url"]


@pytest.fixture(autouse=True)
def _no_keys_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_KEYS", "PENSTOCK_KEYS_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def app(url: str, clock: ManualClock) -> Iterator[Penstock]:
    """The engine with one key, k1. Whatever a test does, doctor() is clean after it."""
    with Penstock(url, clock=clock, keys=KeyRing.parse(K1)) as made:
        made.define("work", max_attempts=3)
        yield made
        assert made.doctor().clean
