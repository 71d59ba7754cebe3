from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock.pipeline as dj
from penstock.pipeline.connection import forget_connections
from tests.pipeline.lab import Lab


@pytest.fixture(scope="session")
def pipeline_database(postgres: Any) -> Iterator[str]:
    """One PostgreSQL database for all tests of pipelines; what they make in it, `url` drops."""
    name = postgres.create_database()
    yield postgres.url(name)
    postgres.drop_database(name)


@pytest.fixture
def url(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database on each backend in turn. Pipelines need none of Penstock's own tables."""
    if backend == "sqlite":
        yield f"sqlite:///{tmp_path / 'pipeline.db'}"
        return
    where = request.getfixturevalue("pipeline_database")
    yield where
    with psycopg.connect(where, autocommit=True) as conn:
        found = conn.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$|^public$'")
        for (schema,) in found.fetchall():
            conn.execute(f'DROP SCHEMA "{schema}" CASCADE')  # type: ignore[call-overload]


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Each test leaves the process's settings as it found them."""
    with dj.config.override({}):
        yield


@pytest.fixture
def home(url: str) -> Iterator[str]:
    """Pipelines live in a fresh database."""
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
