"""Workers that are killed, stopped, poisoned: no job is lost, no run overwritten, no process left."""

from __future__ import annotations

import signal
from pathlib import Path

from penstock.core.status import JobStatus, RunStatus
from tests.faults.conftest import Stage, eventually


def test_a_killed_worker_loses_nothing(stage: Stage) -> None:
    stage.app.enqueue_many("effect", [{"n": n, "seconds": 0.02} for n in range(150)])
    victim = stage.worker()
    eventually(lambda: len(stage.lines()) > 10, what="work")
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    stage.worker()
    stage.drained()
    assert {int(line) for line in stage.lines()} == set(range(150))
    stage.all_well(150)


def test_a_killed_worker_takes_its_commands_with_it(stage: Stage, tmp_path: Path) -> None:
    commands = tmp_path / "commands.toml"
    commands.write_text(
        "[commands.child]\n"
        'argv = ["/bin/sh", "-c", "echo begun >> $FAULT_EFFECTS; (setsid sleep 300 &) ; sleep 300"]\n'
        f'env_set = {{ FAULT_MARK = "{stage.mark}", FAULT_EFFECTS = "{stage.effects}" }}\n'
    )
    stage.app.define("child", runner="command", max_attempts=1)
    job = stage.app.enqueue("child")
    victim = stage.worker("--commands", str(commands))
    eventually(stage.lines, what="the command")
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    eventually(lambda: not stage.left_processes(), what="the end of the command and all it started")
    stage.worker("--commands", str(commands))
    after = eventually(lambda: (found := stage.app.jobs.get(job.id)).finished and found, what="recovery")
    assert after.status is JobStatus.DEAD_LETTER
    assert "vanished" in str(after.last_error)
    stage.healthy()


def test_a_worker_that_slept_past_its_lease_reports_in_vain(stage: Stage) -> None:
    job = stage.app.enqueue("hold", {"seconds": 0.5})
    sleeper = stage.worker()
    eventually(stage.lines, what="the beginning")
    sleeper.send_signal(signal.SIGSTOP)
    other = stage.worker()
    eventually(lambda: stage.app.jobs.get(job.id).finished, what="the takeover")
    sleeper.send_signal(signal.SIGCONT)
    eventually(lambda: "lease_lost" in stage.logged(sleeper), what="the refusal")
    after = stage.app.jobs.get(job.id)
    assert after.result == other.pid
    first, second = stage.app.jobs.runs(job.id)
    assert (first.status, second.status) == (RunStatus.FAILED, RunStatus.SUCCEEDED)
    stage.all_well(1)


def test_a_job_that_kills_its_workers_is_buried_as_poison(stage: Stage) -> None:
    job = stage.app.enqueue("poison")
    keeper = stage.worker("--processes", "2")
    after = eventually(lambda: (found := stage.app.jobs.get(job.id)).finished and found, what="the burial")
    assert after.status is JobStatus.DEAD_LETTER
    assert str(after.last_error).startswith("poison: its worker died 3 times")
    assert stage.lines() == ["poison"] * 3
    assert keeper.poll() is None, "the supervisor fell too"
    stage.app.enqueue("effect", {"n": 7})
    eventually(lambda: "7" in stage.lines(), what="work after the poison")
    stage.healthy()


def test_workers_end_with_their_supervisor(stage: Stage) -> None:
    keeper = stage.worker("--processes", "2")
    eventually(lambda: stage.logged(keeper).count("worker_started") == 2, what="both workers")
    keeper.send_signal(signal.SIGKILL)
    keeper.wait()
    eventually(lambda: not stage.left_processes(), what="the end of the workers")


def test_a_terminated_worker_leaves_order_and_no_trace(stage: Stage) -> None:
    stage.app.enqueue_many("effect", [{"n": n, "seconds": 0.05} for n in range(60)])
    first = stage.worker("--concurrency", "1")
    eventually(lambda: len(stage.lines()) > 3, what="work")
    first.send_signal(signal.SIGTERM)
    assert first.wait(120) == 0
    assert stage.app.jobs.summary().running == 0
    stage.worker("--concurrency", "1")
    stage.drained()
    assert [int(line) for line in stage.lines()] == list(range(60))
    stage.all_well(60)


def test_a_second_signal_does_not_wait(stage: Stage) -> None:
    job = stage.app.enqueue("hold", {"seconds": 60})
    worker = stage.worker("--grace", "60")
    eventually(stage.lines, what="the beginning")
    worker.send_signal(signal.SIGTERM)
    eventually(lambda: "worker_stopping" in stage.logged(worker), what="the first signal")
    worker.send_signal(signal.SIGTERM)
    worker.wait(120)
    after = stage.app.jobs.get(job.id)
    assert (after.status, after.attempt_no) == (JobStatus.QUEUED, 1)
    assert stage.app.jobs.runs(job.id)[0].status is RunStatus.CANCELED
    stage.healthy()
