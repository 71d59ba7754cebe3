"""The packages of the two databases can be read side by side, and nobody else knows which database it is on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import no_database_names as tool

STORE = tool.SOURCE / "store"
SAME = {"engine", "transaction", "insert", "claim", "close", "heartbeat", "wake", "locks", "types", "tables"}


@pytest.mark.parametrize("package", ["postgresql", "sqlite"])
def test_both_packages_have_the_same_files(package: str) -> None:
    assert {path.stem for path in (STORE / package).glob("*.py")} >= SAME


def test_no_other_module_names_a_database() -> None:
    assert tool.all_faults(tool.SOURCE) == []


def test_what_is_allowed_is_there() -> None:
    assert all((tool.SOURCE / path).exists() and reason for path, reason in tool.ALLOWED.items())


@pytest.mark.parametrize(
    "source",
    [
        'if tx.dialect.name == "postgresql": pass',
        'ways = {"sqlite": 1}',
        "import sqlite3",
        "from psycopg import sql",
        "from sqlalchemy.dialects import postgresql",
        "from penstock.store import postgresql",
        "from penstock.store.sqlite.file import check",
        'if type(error).__module__ == "psycopg": pass',
    ],
)
def test_the_tool_finds(source: str) -> None:
    assert list(tool.faults(Path("module.py"), source))


@pytest.mark.parametrize(
    "source",
    [
        '"""Runs on SQLite and on postgresql."""',
        'EXPECTED = "Expected sqlite:///path/to/jobs.db or postgresql://user@host/database."',
        "from penstock.store.dialect import Dialect",
        "if db.dialect.many_writers: pass",
    ],
)
def test_the_tool_leaves_alone(source: str) -> None:
    assert not list(tool.faults(Path("module.py"), source))
