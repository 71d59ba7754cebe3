"""The tables of the security page name every requirement once, and only tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "explanation" / "security.md"
ROW = re.compile(r"^\| ([^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*)\|$", re.M)
NAMED = re.compile(r"`([a-z_]+(?:/[a-z_]+)*\.py)(?:::(\w+))?`")


def rows() -> list[tuple[str, ...]]:
    return [tuple(cell.strip() for cell in row) for row in ROW.findall(PAGE.read_text()) if row[0][0].isdigit()]


def test_every_requirement_of_level_2_is_named_once() -> None:
    wanted = (TESTS / "docs" / "asvs_level_2.txt").read_text().split()
    named = [number.strip() for row in rows() for number in row[0].split(",")]
    assert sorted(named) == sorted(wanted)


def test_what_is_met_says_how_and_what_is_not_says_why() -> None:
    for numbers, state, how, _ in rows():
        assert state in ("met", "partly", "open", "operator", "n/a"), numbers
        assert how, numbers


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(PAGE.read_text())
    assert len(named) > 50
    for file, function in named:
        path = TESTS / file
        assert path.exists(), file
        assert not function or re.search(rf"^ *(async )?def {function}\b", path.read_text(), re.M), (
            f"{file}::{function}"
        )
