"""A run says which process does its work, while it runs and afterwards."""

from __future__ import annotations

import os
from pathlib import Path

from penstock import Penstock
from penstock.core.nouns import Run
from tests.worker.conftest import ended, eventually, working

COMMANDS = """
[commands.wait]
argv = ["sh", "-c", "echo $$ > {started}; while [ ! -e {go} ]; do sleep 0.05; done"]
"""


def test_of_a_command(app: Penstock, tmp_path: Path) -> None:
    started, go, file = tmp_path / "started", tmp_path / "go", tmp_path / "commands.toml"
    file.write_text(COMMANDS.replace("{started}", str(started)).replace("{go}", str(go)))
    app.define("wait", runner="command")
    with working(app, commands=file):
        job = app.enqueue("wait")
        eventually(lambda: started.exists() and started.read_text().strip(), what="the start")
        pid = int(started.read_text())
        eventually(lambda: last_run(app, job.id).pid == pid, what="the pid of an open run")
        go.touch()
        assert ended(app, job).status == "succeeded"
    assert last_run(app, job.id).pid == pid != os.getpid()


def where() -> int:
    return os.getpid()


def test_of_functions(app: Penstock) -> None:
    thread = app.job(key="thread")(where)
    process = app.job(key="process", isolation="process")(where)
    with working(app):
        jobs = [thread.enqueue(), process.enqueue()]
        first, second = (ended(app, job) for job in jobs)
    assert first.result == last_run(app, first.id).pid == os.getpid()
    assert second.result == last_run(app, second.id).pid != os.getpid()


def last_run(app: Penstock, job_id: object) -> Run:
    runs = app.jobs.runs(job_id)  # type: ignore[arg-type]
    return runs[-1]
