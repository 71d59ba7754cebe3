"""The upgrade to the layout in which a job's state is its table: every job stays what it was, whatever happens on the way."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock import ManualClock, Penstock, Succeeded
from penstock.cli import _progress
from penstock.core.errors import SchemaMismatch
from penstock.store import schema
from penstock.store.database import Database
from tests.cli.conftest import Shell
from tests.migrations.support import ROWS_END, create_many, create_states, execute, nouns
from tests.support.postgres import Server


def upgrade(url: str, progress: schema.Progress | None = None) -> None:
    db = Database(url)
    try:
        schema.upgrade(db, progress=progress)
        assert schema.compare(db) == []
    finally:
        db.close()


def scalar(url: str, query: str) -> Any:
    db = Database(url)
    with db.read() as tx:
        found = tx.scalar(sa.text(query))
    db.close()
    return found


def as_json(noun: Any) -> Any:
    return json.loads(json.dumps(dataclasses.asdict(noun), default=str))


def expected(told: dict[str, Any]) -> dict[str, Any]:
    """What the layout of 0010 says of a job of before: the same, except where it keeps less. A job has a place only while it is
    ready or runs; a claim that was given back leaves the run before it as the last one; and what a cancel said of a job is
    forgotten when the job is tried again without having run."""
    told = {**told}
    if not (told["status"] == "running" or (told["status"] == "queued" and told["waits_for"] is None)):
        told["position"] = 0
    if told["status"] == "queued" and told["runs"]:
        told["run_id"], told["claimed_by"] = told["runs"][-1]["id"], told["runs"][-1]["worker_id"]
    if told["status"] == "queued" and not told["runs"]:
        told["last_error"] = None
    return told


def test_every_job_is_what_it_was(empty_url: str) -> None:
    create_states(empty_url)
    upgrade(empty_url)
    app = Penstock(empty_url, clock=ManualClock(ROWS_END))
    jobs = {str(job.id): job for name in ("default", "acme") for job in app.as_tenant(name).jobs.list(limit=500)}
    told = nouns()
    assert jobs.keys() == told.keys()
    for job_id, before in told.items():
        owner = app.as_tenant("acme" if before["definition_key"] == "theirs" else "default")
        now = as_json(owner.jobs.get(job_id))
        now["runs"] = [as_json(run) for run in owner.jobs.runs(job_id)]
        assert now == expected(before)
        assert as_json(jobs[job_id]) == {name: now[name] for name in now if name != "runs"}
    app.close()


def test_every_job_goes_on_as_it_would_have(empty_url: str) -> None:
    """Retries, chains, groups, limits and dedupe keys included."""
    create_states(empty_url)
    upgrade(empty_url)
    clock = ManualClock(ROWS_END)
    app = Penstock(empty_url, clock=clock)
    assert app.doctor().violations == ()
    for key in ("kept while it waits", "of a chain", "later", "now"):
        held = [job for job in nouns().values() if job["dedupe_key"] == key]
        again = app.enqueue("story01", {}, dedupe_key=key)
        assert str(again.id) in [job["id"] for job in held], "it is active, so it is found"
    assert app.enqueue("story01", {}, dedupe_key="free again").attempt_no == 0
    clock.advance(2 * 86400)
    app.recover()
    for definition in app.definitions.list():
        if definition.paused:
            app.resume(definition.key)
    for _ in range(40):
        for claim in app.queue.claim("w:2", 50):
            app.queue.finish(claim, Succeeded({"done": True}))
        clock.advance(3600)
    active = {"queued", "running"}
    left = [job for job in app.jobs.list(limit=500) if job.status in active]
    assert left == [] and app.doctor().violations == ()
    for job_id, before in nouns().items():
        if before["status"] in active and before["definition_key"] != "theirs":
            was_last = before["status"] == "running" and before["attempt_no"] == before["max_attempts"]
            assert app.jobs.get(job_id).status in ("succeeded", "failed", "canceled", *["dead_letter"] * was_last), (
                before
            )
    app.close()


def test_what_recovery_would_have_mended_is_mended(empty_url: str) -> None:
    """An open run whose job has moved on, a job without the run that it has or had, and a run without a job."""
    create_states(empty_url)
    told = nouns()
    done = next(job for job in told.values() if job["status"] == "succeeded" and len(job["runs"]) == 1)
    waits = next(job for job in told.values() if job["waits_for"] == "time" and len(job["runs"]) == 1)
    lost = next(job for job in told.values() if job["status"] == "running" and len(job["runs"]) == 1)
    for job in (done, waits):
        execute(
            empty_url,
            "UPDATE penstock_runs SET status = 'running', finished_at = NULL, exit_code = NULL, error = NULL"
            f" WHERE job_id = '{job['id']}'",
        )
    dead = next(job for job in told.values() if job["status"] == "dead_letter" and len(job["runs"]) == 1)
    for job in (lost, dead):
        execute(empty_url, f"DELETE FROM penstock_runs WHERE job_id = '{job['id']}'")
    orphan = "01a1eacb-0000-7000-8000-00000000dead"
    execute(
        empty_url,
        "INSERT INTO penstock_runs (job_id, attempt_no, id, tenant_id, status, worker_id, started_at, finished_at)"
        f" SELECT '{orphan}', attempt_no, id, tenant_id, status, worker_id, started_at, finished_at FROM penstock_runs"
        f" WHERE job_id = '{waits['id']}'",
    )
    upgrade(empty_url)
    app = Penstock(empty_url, clock=ManualClock(ROWS_END))
    assert app.doctor().violations == ()
    now = app.jobs.get(done["id"])
    assert (now.status, str(now.finished_at)) == ("succeeded", done["finished_at"])
    [closed] = app.jobs.runs(done["id"])
    assert closed.status == "succeeded"
    [closed] = app.jobs.runs(waits["id"])
    assert closed.status == "failed" and "its job had moved on" in (closed.error or "")
    assert app.jobs.get(waits["id"]).waits_for == "time"
    assert str(app.jobs.get(lost["id"]).run_id) == lost["run_id"]
    assert as_json(app.jobs.get(dead["id"])) == {
        name: value for name, value in expected(dead).items() if name != "runs"
    }
    [made] = app.jobs.runs(dead["id"])
    assert (str(made.id), made.status, made.error) == (dead["run_id"], "failed", dead["last_error"])
    app.close()
    assert scalar(empty_url, f"SELECT count(*) FROM penstock_runs WHERE job_id = '{orphan}'") == 0


def test_more_than_a_batch_is_copied_and_told(empty_url: str) -> None:
    create_many(empty_url, 25_000)
    told: list[tuple[str, int, int]] = []
    upgrade(empty_url, lambda *each: told.append(each))
    assert told == [("jobs", done, 25_000) for done in (0, 10_000, 20_000, 25_000)]
    found = {
        name: scalar(empty_url, f"SELECT count(*) FROM penstock_{name}")
        for name in ("jobs", "ready", "waiting", "runs")
    }
    assert found == {"jobs": 25_000, "ready": 2_500, "waiting": 2_500, "runs": 20_000}
    assert scalar(empty_url, "SELECT count(*) FROM penstock_job_view WHERE status = 'succeeded'") == 20_000


def test_the_command_shows_how_far_it_is(
    empty_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain lines where it goes into a pipe, and not among the answer."""
    create_states(empty_url)
    monkeypatch.setattr(_progress, "EVERY_SECONDS", 0.0)
    penstock = Shell(empty_url, capsys, monkeypatch)
    answer = penstock.well("db", "upgrade", "--json")
    assert answer.json == {"before": "0009", "after": schema.HEAD}
    number = len(nouns())
    assert answer.err.splitlines() == [f"jobs: 0 of {number}", f"jobs: {number} of {number}"]
    assert penstock.well("db", "upgrade").err == ""


def test_a_file_that_was_upgraded_is_used_as_any_other(tmp_path: Path) -> None:
    """Only the upgrade itself has SQLite keep on disk what it would else keep in memory."""
    db = Database(f"sqlite:///{tmp_path / 'a.db'}")
    create_states(str(db.url))
    schema.upgrade(db)
    with db.engine.connect() as conn:
        assert conn.exec_driver_sql("PRAGMA temp_store").scalar() == 2
    db.close()


def _upgrade_and_stop(url: str, reached: Any) -> None:
    """Everything is copied, and nothing is committed."""

    def told(_what: str, done: int, total: int) -> None:
        if done == total:
            reached.set()
            time.sleep(600)

    schema.upgrade(Database(url), progress=told)


def test_an_upgrade_that_is_killed_changes_nothing_and_can_be_run_again(empty_url: str) -> None:
    create_states(empty_url)
    context = multiprocessing.get_context("spawn")
    reached = context.Event()
    process = context.Process(target=_upgrade_and_stop, args=(empty_url, reached))
    process.start()
    assert reached.wait(120)
    process.kill()
    process.join(60)
    db = Database(empty_url)
    assert schema.current(db) == "0009"
    db.close()
    assert scalar(empty_url, "SELECT count(*) FROM penstock_jobs WHERE status IS NOT NULL") == len(nouns())
    upgrade(empty_url)
    assert scalar(empty_url, "SELECT count(*) FROM penstock_job_view WHERE status IS NOT NULL") == len(nouns())


def test_what_depends_on_the_old_tables_stops_the_upgrade(postgres: Server) -> None:
    """A view of the operator's own would be lost: it is named, and nothing has changed."""
    name = postgres.create_database()
    url = postgres.url(name)
    create_states(url)
    execute(url, "CREATE VIEW mine AS SELECT id, status FROM penstock_jobs")
    with pytest.raises(SchemaMismatch, match=r"view mine depends on.*Nothing was changed"):
        upgrade(url)
    execute(url, "DROP VIEW mine")
    upgrade(url)
    postgres.drop_database(name)
