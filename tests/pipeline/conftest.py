from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock.pipeline as dj
from penstock.pipeline.connection import forget_connections
from tests.pipeline.lab import Lab


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Each test leaves the process's settings as it found them."""
    with dj.config.override({}):
        yield


@pytest.fixture
def home(url: str) -> Iterator[str]:
    """Pipelines live in a fresh database, on each backend in turn."""
    dj.config["database.url"] = url
    yield url
    forget_connections()


@pytest.fixture
def schema(home: str) -> dj.Schema:
    return dj.Schema("lab")


@pytest.fixture
def lab(schema: dj.Schema) -> Lab:
    """Subjects, images and filtered images."""
    return Lab(schema)
