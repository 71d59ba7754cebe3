"""What a command may take of the machine if its commands file says nothing."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.core.outcomes import Failed, Succeeded
from penstock.run import log_room
from penstock.run.cgroup import Cells
from penstock.run.limits import FILE_MB, MB, OPEN_FILES, PROCESSES
from penstock.run.log_room import LogRoom, make_room
from tests.run.support import Desk, claim
from tests.run.test_command_runner import cgroups_usable, machine, python, runner, shell
from tests.support.waiting import eventually

__all__ = ["machine"]

FORKS = """
import os, sys, time
born = 0
for _ in range(%d):
    try:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        born += 1
    except OSError:
        break
print(born, flush=True)
time.sleep(600)
"""


@pytest.mark.usefixtures("machine")
def test_a_command_with_too_many_processes_is_ended() -> None:
    outcome = python(FORKS % (PROCESSES + 144), desk=Desk(timeout=300))
    assert isinstance(outcome, Failed)
    assert f"more than {PROCESSES} processes" in outcome.error


@pytest.mark.usefixtures("machine")
def test_the_commands_file_says_how_many_processes_there_may_be() -> None:
    few = python(FORKS % 20, desk=Desk(timeout=300), rlimits={"processes": 10})
    assert isinstance(few, Failed) and ("more than 10 processes" in few.error or os.getuid() != 0)
    some = shell("for i in 1 2 3 4 5 6 7 8; do sleep 0.5 & done; wait")
    assert isinstance(some, Succeeded)


@pytest.mark.skipif(not cgroups_usable(), reason="no control group may be made here")
def test_what_was_forked_before_its_parent_came_into_the_group_is_in_it() -> None:
    cells = Cells()
    cell = cells.take()
    assert cell is not None
    early = subprocess.Popen([sys.executable, "-c", FORKS % 3], stdout=subprocess.PIPE)
    assert early.stdout is not None
    try:
        assert early.stdout.readline() == b"3\n", "all were forked"
        assert cell.enter(early.pid)
        assert cell.count() == 4
    finally:
        cell.kill()
        early.wait(60)
        early.stdout.close()
        eventually(lambda: not cell.populated(), what="an empty group")
        cells.give_back(cell)
        cells.close()


def test_a_command_has_limits_that_nobody_asked_for() -> None:
    # They are set right after the start, so the script waits for them
    waiting = f"until = time.time() + 60\nwhile r.getrlimit(r.RLIMIT_FSIZE)[0] not in range({FILE_MB * MB + 1}) and time.time() < until: time.sleep(0.01)"
    telling = "[print(*r.getrlimit(w)) for w in (r.RLIMIT_CORE, r.RLIMIT_NOFILE, r.RLIMIT_FSIZE)]"
    outcome = python(f"import resource as r, time\n{waiting}\n{telling}")
    assert isinstance(outcome, Succeeded)
    core, files, size = [
        [int(part) for part in line.split()] for line in str(outcome.evidence.stdout_tail).splitlines()
    ]
    assert core[0] == 0
    assert files[0] == min(OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    assert 0 < size[0] <= FILE_MB * MB


def test_the_commands_file_has_the_last_word() -> None:
    outcome = shell("ulimit -n; ulimit -f", rlimits={"open_files": 100, "file_mb": 1})
    assert isinstance(outcome, Succeeded)
    assert str(outcome.evidence.stdout_tail).split()[0] == "100"


def log(folder: Path, size: int, age: int) -> Path:
    path = folder / f"{uuid4()}.log"
    path.write_bytes(b"x" * size)
    os.utime(path, (1_000_000 - age, 1_000_000 - age))
    return path


def test_the_oldest_logs_make_room(tmp_path: Path) -> None:
    logs = [log(tmp_path, 1000, age) for age in range(10)]
    other = tmp_path / "notes.txt"
    other.write_bytes(b"y" * 100_000)
    assert make_room(tmp_path, 3500) == 7
    assert [path.exists() for path in logs] == [True] * 3 + [False] * 7
    assert other.exists(), "what is no log of a run is not ours to remove"
    assert make_room(tmp_path / "none", 1) == 0


def test_the_logs_of_a_worker_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_room, "LOOK_SECONDS", 0.0)
    made = runner(["sh", "-c", "head -c 400000 /dev/zero"], log_dir=tmp_path, log_total_mb=1)
    for _ in range(8):
        assert isinstance(made.run(claim("c"), Desk()), Succeeded)
    held = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert held <= MB + 400_000, "the bound, and the one log that was written since"


def test_a_directory_is_not_looked_through_for_each_run(tmp_path: Path) -> None:
    room = LogRoom({tmp_path: 10})
    old = log(tmp_path, 100, 5)
    first = room.room_for(tmp_path, uuid4())
    assert not old.exists() and first.parent == tmp_path
    late = log(tmp_path, 100, 5)
    room.room_for(tmp_path, uuid4())
    assert late.exists(), "it was looked at a moment ago"
