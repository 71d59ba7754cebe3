from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import Penstock
from penstock.server import Settings, create_app
from tests.server.support import BOOTSTRAP, Loop, World


@pytest.fixture(scope="session")
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


@pytest.fixture
def settings() -> Settings:
    return Settings(bootstrap_token=BOOTSTRAP, stream_interval=0.1)


@pytest.fixture
def world(url: str, loop: Loop, settings: Settings) -> Iterator[World]:
    """A service with the tenants acme and bolt, and a definition `echo` for everyone."""
    with Penstock(url) as penstock:
        penstock.tenants.create("acme", name="Acme")
        penstock.tenants.create("bolt", name="Bolt")
        penstock.define("echo", runner="command", arg_schema={}, max_attempts=2)
        yield World(penstock, create_app(penstock, settings), loop)
