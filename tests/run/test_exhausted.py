"""A machine that has no descriptors left cannot start a process: that is no fault of the job, and costs it no attempt."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.core.outcomes import Failed, Outcome, Succeeded
from penstock.run.command import CommandRunner
from penstock.run.commands import parse_commands
from penstock.run.python import PythonRunner
from penstock.run.spawn import is_exhausted
from tests.run import jobs
from tests.run.support import Desk, claim


@contextmanager
def descriptors_left(number: int) -> Iterator[None]:
    """At most so many more may be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = [os.dup(0) for _ in range(number + 1)]
    for fd in free:
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(free), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def by_command() -> tuple[Callable[[], Outcome], Callable[[], None]]:
    runner = CommandRunner(parse_commands('[commands.c]\nargv = ["/bin/true"]\n', Path(__file__), os.environ))
    return lambda: runner.run(claim("c"), Desk()), runner.close


def by_process() -> tuple[Callable[[], Outcome], Callable[[], None]]:
    runner = PythonRunner()
    runner.register("c", jobs.add, isolation="process")
    return lambda: runner.run(claim("c", {"a": 1, "b": 2}), Desk()), runner.close


@pytest.fixture(autouse=True)
def something_was_started() -> None:
    """What is opened once for all children is open."""
    run, close = by_command()
    assert isinstance(run(), Succeeded)
    close()


@pytest.mark.parametrize("left", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("how", [by_command, by_process])
def test_no_descriptors_left_is_no_fault_of_the_job(
    how: Callable[[], tuple[Callable[[], Outcome], Callable[[], None]]], left: int
) -> None:
    run, close = how()
    try:
        before = open_descriptors()
        with descriptors_left(left):
            outcome = run()
        assert isinstance(outcome, Failed)
        assert "Too many open files" in outcome.error
        assert outcome.blameless and not outcome.fatal
        assert open_descriptors() == before, "a descriptor was left open by what could not be started"
        assert isinstance(run(), Succeeded)
    finally:
        close()


def test_a_program_that_is_not_there_is_a_fault() -> None:
    assert not is_exhausted(FileNotFoundError(errno.ENOENT, "No such file or directory"))
