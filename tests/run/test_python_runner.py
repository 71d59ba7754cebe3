"""Functions as jobs: in threads, on the loop and in processes; whatever they do, the worker gets an outcome."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import psutil
import pytest
import structlog
from pydantic import BaseModel

from penstock.core.errors import InvalidInput
from penstock.core.outcomes import Canceled, Failed, Outcome, Skipped, Snooze, Snoozed, Succeeded, TimedOut
from penstock.core.redact import Redactor
from penstock.run.context import Context
from penstock.run.python import PythonRunner
from tests.run import jobs
from tests.run.support import Desk, alive, claim, read_pid
from tests.support.waiting import eventually


@pytest.fixture
def runner() -> Iterator[PythonRunner]:
    made = PythonRunner(Redactor(["s3cret-of-worker"]), kill_grace=0.5)
    yield made
    made.close()


def run(
    runner: PythonRunner, function: Any, params: dict[str, Any] | None = None, desk: Desk | None = None, **options: Any
):  # type: ignore[no-untyped-def]
    runner.register("k", function, **options)
    return runner.run(claim("k", params), desk or Desk())


BOTH = pytest.mark.parametrize("isolation", ["thread", "process"])


@BOTH
def test_the_return_value_is_the_result(runner: PythonRunner, isolation: str) -> None:
    outcome = run(runner, jobs.add, {"a": 2}, isolation=isolation)
    assert isinstance(outcome, Succeeded)
    assert outcome.result["sum"] == 3
    assert (outcome.result["pid"] == os.getpid()) is (isolation == "thread")


@BOTH
def test_exceptions_become_outcomes(runner: PythonRunner, isolation: str) -> None:
    def outcome_of(kind: str) -> Any:
        return run(runner, jobs.fail, {"kind": kind, "password": "hunter-two"}, isolation=isolation)

    failed = outcome_of("value")
    assert isinstance(failed, Failed) and not failed.fatal
    assert failed.error == "ValueError: cannot log in with ***"
    assert "jobs.py" in failed.evidence.stderr_tail and "hunter-two" not in failed.evidence.stderr_tail
    skipped, snoozed, fatal = outcome_of("skip"), outcome_of("snooze"), outcome_of("fatal")
    assert isinstance(skipped, Skipped) and skipped.reason == "nothing new"
    assert isinstance(snoozed, Snoozed) and (snoozed.seconds, snoozed.reason) == (30, "busy")
    assert isinstance(fatal, Failed) and fatal.fatal and fatal.error == "the account is gone"
    for kind, error in (("exit", "SystemExit: 3"), ("interrupt", "KeyboardInterrupt")):
        contained = outcome_of(kind)
        assert isinstance(contained, Failed) and contained.error == error


@BOTH
def test_params_that_do_not_fit_are_fatal(runner: PythonRunner, isolation: str) -> None:
    outcome = run(runner, jobs.add, {"a": "x"}, isolation=isolation)
    assert isinstance(outcome, Failed) and outcome.fatal
    assert outcome.error.startswith("The params do not fit add(): $.a:")


@BOTH
def test_a_job_speaks_through_its_context(runner: PythonRunner, isolation: str, tmp_path: Path) -> None:
    desk = Desk()
    with structlog.testing.capture_logs() as logs:
        outcome = run(runner, jobs.report, {"folder": str(tmp_path)}, desk, isolation=isolation)
    assert isinstance(outcome, Succeeded) and outcome.result == "acme/k/1"
    assert desk.progress[-1] == (3, 3, "step 3")
    made = {"path": str(tmp_path / "made.csv"), "name": "made.csv", "size": 4, "kind": "table"}
    assert list(outcome.evidence.artifacts) == desk.artifacts == [made]
    assert desk.heartbeats == 1
    assert [(log["event"], log["log_level"], log["left"], log["definition_key"]) for log in logs] == [
        ("almost done", "warning", 1, "k")
    ]
    if isolation == "process":
        assert (outcome.evidence.stdout_tail, outcome.evidence.stderr_tail) == ("printed\n", "complained\n")


def returning(result: Any) -> Any:
    return lambda: result


def test_a_result_that_cannot_be_kept_does_not_undo_the_work(runner: PythonRunner) -> None:
    loop: list[Any] = []
    loop.append(loop)
    for result, why in (
        ("x" * (1024 * 1024 + 1), "larger than 1024 KiB"),
        ({"a": object()}, "object"),
        (loop, "Circular"),
        (float("nan"), "$"),
    ):
        with structlog.testing.capture_logs() as logs:
            outcome = run(runner, returning(result))
        assert isinstance(outcome, Succeeded) and outcome.result is None
        told = outcome.evidence.stderr_tail or ""
        assert told.startswith("[penstock] The job succeeded, but its result could not be stored: ") and why in told
        assert [log["event"] for log in logs] == ["result_not_stored"]


def test_a_result_of_rich_types_is_stored_as_json(runner: PythonRunner) -> None:
    @dataclass
    class Receipt:
        id: UUID
        total: Decimal

    class Answer(BaseModel):
        at: datetime
        receipts: list[Receipt]

    id, at = UUID(int=7), datetime(2026, 1, 1, tzinfo=UTC)
    outcome = run(runner, lambda: Answer(at=at, receipts=[Receipt(id, Decimal("1.50"))]))
    expected = {"at": "2026-01-01T00:00:00Z", "receipts": [{"id": str(id), "total": "1.50"}]}
    assert isinstance(outcome, Succeeded) and outcome.result == expected
    assert outcome.evidence.stderr_tail is None


def test_snooze_takes_a_timedelta(runner: PythonRunner) -> None:
    def later(wait: Any) -> Any:
        def job() -> None:
            raise Snooze(wait)

        return run(runner, job)

    outcome = later(timedelta(minutes=5))
    assert isinstance(outcome, Snoozed) and outcome.seconds == 300
    assert str(Snooze(timedelta(minutes=5))) == "snoozed for 300 s"
    wrong = later("soon")
    assert isinstance(wrong, Failed) and "seconds or a timedelta; got 'soon'" in wrong.error


def test_artifacts_are_regular_files(runner: PythonRunner, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", "absent", "."):

        def job(ctx: Context, name: str = name) -> None:
            ctx.artifact(tmp_path / name)

        outcome = run(runner, job)
        assert isinstance(outcome, Failed) and "The artifact" in outcome.error


def test_an_exception_that_cannot_be_shown(runner: PythonRunner) -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def job() -> None:
        raise Rude

    outcome = run(runner, job)
    assert isinstance(outcome, Failed) and "Rude" in outcome.error


def test_the_transaction_is_the_workers(runner: PythonRunner) -> None:
    desk = Desk()
    assert isinstance(run(runner, jobs.transact, desk=desk), Succeeded)
    assert desk.transactions == ["begin", "commit"]
    refused = run(runner, jobs.transact, isolation="process")
    assert isinstance(refused, Failed) and "isolation='thread'" in refused.error


@BOTH
def test_a_job_that_asks_learns_of_its_cancellation(runner: PythonRunner, isolation: str) -> None:
    desk = Desk()
    threading.Timer(0.2, desk.cancel, ("by ann", True)).start()
    outcome = run(runner, jobs.until_canceled, desk=desk, isolation=isolation)
    assert isinstance(outcome, Canceled)
    assert (outcome.reason, outcome.by_shutdown) == ("by ann", True)


def test_a_job_that_ended_before_it_was_told_has_succeeded(runner: PythonRunner) -> None:
    desk = Desk()
    assert run(runner, lambda: desk.cancel() or "whole", desk=desk) == Succeeded("whole")


def test_a_thread_that_overruns_is_told_and_ends_as_timed_out(runner: PythonRunner) -> None:
    outcome = run(runner, jobs.until_canceled, desk=Desk(timeout=0.2))
    assert isinstance(outcome, TimedOut) and outcome.error == "timed out after 0.2 s"


def test_a_process_that_overruns_is_killed_with_its_children(runner: PythonRunner, tmp_path: Path) -> None:
    desk = Desk()
    overrun = threading.Thread(target=lambda: (read_pid(tmp_path / "pid"), setattr(desk, "timeout", 0.1)))
    overrun.start()  # its time is up once it has a child of its own
    outcome = run(runner, jobs.hang, {"pid_file": f"{tmp_path}/pid"}, desk, isolation="process")
    overrun.join()
    assert isinstance(outcome, TimedOut)
    helper = read_pid(tmp_path / "pid")
    eventually(lambda: not alive(helper), what="the end of the job's own child")


def test_a_process_deaf_to_cancellation_is_killed(runner: PythonRunner, tmp_path: Path) -> None:
    desk = Desk()
    thread = threading.Thread(target=lambda: (read_pid(tmp_path / "pid"), desk.cancel("by ann")))
    thread.start()
    outcome = run(runner, jobs.hang, {"pid_file": f"{tmp_path}/pid"}, desk, isolation="process")
    thread.join()
    assert isinstance(outcome, Canceled) and outcome.reason == "by ann"


@pytest.mark.parametrize(("kind", "how"), [("die", "ended with exit code 9"), ("segfault", "killed by SIGSEGV")])
def test_a_process_that_dies_is_a_failed_run_and_is_replaced(runner: PythonRunner, kind: str, how: str) -> None:
    outcome = run(runner, jobs.fail, {"kind": kind}, isolation="process")
    assert isinstance(outcome, Failed) and how in outcome.error
    assert isinstance(run(runner, jobs.add, {"a": 1}, isolation="process"), Succeeded)


def test_processes_are_reused_and_leave_nothing_behind(runner: PythonRunner) -> None:
    runner.register("k", jobs.add, isolation="process")
    pids = {runner.run(claim("k", {"a": n}), Desk()).result["pid"] for n in range(20)}  # type: ignore[union-attr]
    assert len(pids) == 1
    descriptors = psutil.Process().num_fds()
    runner.close()
    assert not alive(pids.pop())
    assert psutil.Process().num_fds() < descriptors


def test_what_another_process_cannot_import_is_refused_at_registration(runner: PythonRunner) -> None:
    def inner() -> None: ...

    with pytest.raises(InvalidInput, match="top level of a module"):
        runner.register("k", inner, isolation="process")
    with pytest.raises(InvalidInput, match="expected 'thread' or 'process'"):
        runner.register("k", jobs.add, isolation="fiber")  # type: ignore[arg-type]


def test_a_decorated_function_is_found_beneath_its_decoration(runner: PythonRunner) -> None:
    assert isinstance(run(runner, jobs.decorated, {"a": 4}, isolation="process"), Succeeded)


@pytest.mark.parametrize("seconds", ["soon", float("nan"), None])
def test_a_snooze_that_makes_no_sense_is_explained(runner: PythonRunner, seconds: Any) -> None:
    class Odd(Snooze):
        def __init__(self) -> None:
            self.seconds, self.reason = seconds, ""

    def job() -> None:
        raise Odd

    outcome = run(runner, job)
    assert isinstance(outcome, Failed) and "Snooze takes a number of seconds" in outcome.error


def test_progress_takes_finite_numbers(runner: PythonRunner) -> None:
    desk = Desk()

    def job(ctx: Context, total: float | None = None) -> None:
        ctx.progress(1, total, "x" * 5000)
        ctx.progress(float("nan"))

    outcome = run(runner, job, desk=desk)
    assert isinstance(outcome, Failed) and "finite numbers" in outcome.error
    assert len(desk.progress[0][2]) == 1000


def test_an_object_with_an_async_call_is_async(runner: PythonRunner) -> None:
    class Job:
        async def __call__(self, a: int) -> int:
            return a

    assert run(runner, Job(), {"a": 3}) == Succeeded(3)


async def sleepy(seconds: float, ctx: Context) -> str:
    await asyncio.sleep(seconds)
    return ctx.key


def test_async_jobs_share_one_loop(runner: PythonRunner) -> None:
    async def where() -> int:
        return threading.get_ident()

    runner.register("where", where)
    first, second = (runner.run(claim("where"), Desk()) for _ in range(2))
    assert isinstance(first, Succeeded) and first == second
    assert first.result != threading.get_ident()


def test_async_jobs_wait_side_by_side(runner: PythonRunner) -> None:
    together = asyncio.Barrier(8)

    async def meet() -> None:
        await together.wait()

    runner.register("k", meet)
    outcomes: list[Outcome] = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(runner.run(claim("k"), Desk(timeout=60)))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {type(outcome) for outcome in outcomes} == {Succeeded}


@pytest.mark.parametrize("kind", ["value", "exit", "interrupt"])
def test_async_exceptions_are_contained(runner: PythonRunner, kind: str) -> None:
    assert isinstance(run(runner, jobs.fail_async, {"kind": kind}), Failed)
    assert isinstance(run(runner, sleepy, {"seconds": 0}), Succeeded), "the loop goes on"


def test_async_jobs_are_canceled_and_timed_out(runner: PythonRunner) -> None:
    assert isinstance(run(runner, sleepy, {"seconds": 60}, Desk(timeout=0.2)), TimedOut)
    desk = Desk()
    threading.Timer(0.2, desk.cancel, ("by ann",)).start()
    assert isinstance(run(runner, sleepy, {"seconds": 60}, desk), Canceled)


def test_async_snooze(runner: PythonRunner) -> None:
    async def later() -> None:
        raise Snooze(5)

    assert isinstance(run(runner, later), Snoozed)


SCRIPT = """
from penstock.run.python import PythonRunner
from tests.run.support import Desk, claim

def double(n: int) -> int:
    return 2 * n

def wait(pid_file: str) -> None:
    import os, time, pathlib
    pathlib.Path(pid_file).write_text(str(os.getpid()))
    time.sleep(300)

if __name__ == "__main__":
    import sys
    runner = PythonRunner()
    runner.register("double", double, isolation="process")
    runner.register("wait", wait, isolation="process")
    print(runner.run(claim("double", {"n": 21}), Desk()).result, flush=True)
    if len(sys.argv) > 1:
        runner.run(claim("wait", {"pid_file": sys.argv[1]}), Desk())
    runner.close()
"""


def script_process(tmp_path: Path, *arguments: str) -> subprocess.Popen[str]:
    (tmp_path / "program.py").write_text(SCRIPT)
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)  # noqa: PTH109
    return subprocess.Popen(
        [sys.executable, str(tmp_path / "program.py"), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_functions_of_a_script_run_in_processes_too(tmp_path: Path) -> None:
    with script_process(tmp_path) as program:
        assert program.communicate(timeout=200)[0] == "42\n"


def test_a_killed_worker_takes_its_processes_along(tmp_path: Path) -> None:
    with script_process(tmp_path, f"{tmp_path}/pid") as program:
        try:
            pid = read_pid(tmp_path / "pid")
        finally:
            program.kill()
    eventually(lambda: not alive(pid), what="the end of the pool's process")
