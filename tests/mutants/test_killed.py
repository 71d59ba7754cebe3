"""Every deliberate bug is caught by some check: one that survives fails here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from penstock import ManualClock, Penstock
from penstock.store import failpoints
from penstock.store.database import Database
from penstock.store.postgresql import claim, close
from penstock.store.schema import upgrade
from tests.mutants.bugs import BUGS, HUNTERS
from tests.mutants.checks import CHECKS, Check


class Survived(AssertionError):
    """No check noticed the bug."""


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "jobs.db"
    db = Database(f"sqlite:///{path}")
    upgrade(db)
    db.close()
    return path


@pytest.fixture
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patched:
        yield patched
    failpoints.disarm()
    claim._claim_sql.cache_clear()
    close._close_successes_sql.cache_clear()


def first_to_notice(urls: Iterator[str], checks: Sequence[Check] = tuple(CHECKS)) -> str:
    """The first check that fails, on a fresh database each."""
    for check, url in zip(checks, urls, strict=False):
        clock = ManualClock()
        try:
            with Penstock(url, clock=clock) as app:
                check(app, clock)
        except (Exception, pytest.fail.Exception):
            return check.__name__
    raise Survived


@pytest.mark.parametrize("name", BUGS["sqlite"])
def test_a_bug_on_sqlite_is_caught(name: str, patch: pytest.MonkeyPatch, template: Path, tmp_path: Path) -> None:
    def fresh() -> Iterator[str]:
        for number in range(len(CHECKS)):
            shutil.copy(template, tmp_path / f"{number}.db")
            yield f"sqlite:///{tmp_path / f'{number}.db'}"

    BUGS["sqlite"][name](patch)
    assert first_to_notice(fresh(), sorted(CHECKS, key=lambda check: check.__name__ != HUNTERS[name]))


@pytest.mark.parametrize("backend", ["postgresql"])
@pytest.mark.parametrize("name", BUGS["postgresql"])
def test_a_bug_on_postgresql_is_caught(name: str, patch: pytest.MonkeyPatch, url: str) -> None:
    [hunter] = [check for check in CHECKS if check.__name__ == HUNTERS[name]]
    BUGS["postgresql"][name](patch)
    assert first_to_notice(iter([url]), [hunter])


def test_there_are_enough_of_them() -> None:
    assert set(HUNTERS) == set(BUGS["sqlite"]) | set(BUGS["postgresql"])
    assert len(BUGS["sqlite"]) >= 40
    assert len(BUGS["postgresql"]) >= 10
