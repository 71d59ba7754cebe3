"""A program that uses Penstock stays its user's: nothing that is set for the whole process is another after it enqueued, ran a
worker, filled tables or made the service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parent / "program.py"


@pytest.fixture
def seen(url: str, tmp_path: Path) -> tuple[list[Any], list[Any]]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM), url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env={name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")},
    )
    assert done.returncode == 0, done.stderr
    states, inside = json.loads(done.stdout.splitlines()[-1])
    return states, inside


def differences(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {name: (before[name], value) for name, value in after.items() if value != before[name]}


def test_nothing_of_a_users_process_is_changed(seen: tuple[list[Any], list[Any]]) -> None:
    states, inside = seen
    before = states[0][1]
    assert [name for name, _ in states][-1] == "close"
    assert {name for name, _ in inside} == {"in a job", "in make()"}
    for name, state in [*states[1:], *inside]:
        assert not differences(before, state), name
