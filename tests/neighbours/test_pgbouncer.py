"""Behind PgBouncer in transaction mode: nothing to configure, nothing lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine

from penstock import Config, Penstock
from penstock.core.status import JobStatus, RunStatus
from penstock.store.wake import ear
from tests.faults.conftest import Stage, eventually
from tests.neighbours.pgbouncer import PgBouncer, PooledServer
from tests.pipeline.test_processes import Crowd
from tests.worker.conftest import ended, working

JOBS = 2020
LIMIT = 120.0


@pytest.fixture
def stage(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", url)
    made = Stage(url, tmp_path)
    yield made
    made.close()


@pytest.fixture
def app(url: str) -> Iterator[Penstock]:
    made = Penstock(url, config=Config(lease_seconds=10.0, poll_seconds=0.3))
    yield made
    made.close()


def faults_in(log: str) -> list[str]:
    """What a worker logged that is not as it should be."""
    lines = [line for line in log.splitlines() if line.strip()]
    return [line for line in lines if json.loads(line)["level"] not in ("info", "debug")]


def test_workers_drain_many_jobs_and_nothing_goes_wrong(stage: Stage, url: str) -> None:
    workers = [stage.worker("--lease", "10"), stage.worker("--lease", "10")]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: stage.app.enqueue("effect", {"n": n}), range(20)))
    stage.app.enqueue_many("effect", [{"n": n} for n in range(20, JOBS)])
    eventually(lambda: len(stage.lines()) == JOBS, LIMIT, "the drain")
    stage.drained()
    assert sorted(int(line) for line in stage.lines()) == list(range(JOBS)), "each ran once"
    with psycopg.connect(url) as conn:
        runs = conn.execute("SELECT status, attempt_no, count(*) FROM penstock_runs GROUP BY 1, 2").fetchall()
    assert runs == [(RunStatus.SUCCEEDED.value, 1, JOBS)], "no lease was lost"
    stage.all_well(JOBS)
    for worker in workers:
        assert faults_in(stage.logged(worker)) == []


def test_an_idle_worker_finds_work_by_polling_and_nobody_listens(
    app: Penstock, pooled: PooledServer, database: str
) -> None:
    @app.job(key="add")
    def add(a: int) -> int:
        return a + 1

    with working(app) as worker:
        eventually(worker.pump.resting.is_set, LIMIT, "rest")
        for a in range(3):
            assert ended(app, add.enqueue(a=a), LIMIT).result == a + 1
        with psycopg.connect(pooled.direct.url(database)) as conn:
            listening = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'LISTEN%'"
            )
            assert conn.execute(listening).fetchall() == [(0,)]


def test_groups_reservations_and_schedules(app: Penstock) -> None:
    order: list[int] = []

    @app.job(key="note")
    def note(n: int) -> None:
        order.append(n)

    with working(app):
        group = app.groups.create([("note", {"n": n}) for n in range(8)], mode="sequential")
        eventually(lambda: app.jobs.summary().counts[JobStatus.SUCCEEDED] == 8, LIMIT, "the group")
        assert order == list(range(8))
        with app.reserve(wait=30, expires_in=60):
            held = app.enqueue("note", {"n": 8})
            assert app.jobs.get(held.id).status is JobStatus.QUEUED
        assert ended(app, held, LIMIT).status is JobStatus.SUCCEEDED
        trigger = app.triggers.schedule("minutely", "* * * * *", "note", params={"n": 9})
        app.triggers.fire(trigger.id)
        eventually(lambda: 9 in order, LIMIT, "the trigger's job")
        scheduler = app.scheduler()
        scheduler.step()
    assert app.groups.get(group.id) is not None
    assert app.doctor().clean


def test_an_engine_of_the_callers_own_behind_the_pooler(url: str) -> None:
    """Its driver would prepare what it has seen five times; ours to prevent, in the pool that we were given too."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"), pool_size=4)
    app = Penstock(engine, config=Config(lease_seconds=10.0, poll_seconds=0.3))

    @app.job(key="add")
    def add(a: int) -> int:
        return a + 1

    with working(app), ThreadPoolExecutor(4) as threads:
        jobs = list(threads.map(lambda a: add.enqueue(a=a), range(200)))
        eventually(lambda: app.jobs.summary().counts[JobStatus.SUCCEEDED] == len(jobs), LIMIT, "the drain")
    assert app.doctor().clean
    app.close()
    engine.dispose()


def test_populate_in_many_processes(pooled: PooledServer, monkeypatch: pytest.MonkeyPatch) -> None:
    name = pooled.create_database()
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", pooled.url(name))
    crowd = Crowd(pooled.url(name))
    tables = crowd.tables
    tables.Number.insert({"n": n} for n in range(300))
    for _ in range(2):
        crowd.start()
    for process in crowd.processes:
        _, said = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, said
        assert "prepared statement" not in said
    assert len(tables.Square()) == len(tables.Effect()) == 300
    from penstock.pipeline.connection import forget_connections

    forget_connections()
    pooled.drop_database(name)


def test_a_pooler_that_restarts_is_found_again(app: Penstock, pooled: PooledServer) -> None:
    @app.job(key="add")
    def add(a: int) -> int:
        return a + 1

    with working(app):
        assert ended(app, add.enqueue(a=1), LIMIT).result == 2
        pooled.pooler.restart()
        job = eventually(lambda: attempt(lambda: add.enqueue(a=2)), LIMIT, "an enqueue")
        assert ended(app, job, LIMIT).result == 3
    assert app.doctor().clean


def attempt(work: Any) -> Any:
    from penstock.core.errors import DatabaseError

    try:
        return work()
    except DatabaseError:
        return None


def test_a_pooler_in_session_mode_may_be_named(pooled: PooledServer, database: str) -> None:
    """Then a connection keeps its session: statements are prepared, and LISTEN is heard."""
    pooler = PgBouncer(pooled.direct.port, mode="session", pool_size=20)
    app = Penstock(f"{pooler.url(database)}?pooler=session")
    borrowed: Any = app.db.engine.raw_connection()
    assert borrowed.dbapi_connection.prepare_threshold == 1
    borrowed.close()
    hearing = ear(app.db)
    assert hearing.wait(0)
    app.define("note", runner="python")
    app.enqueue("note")
    eventually(lambda: hearing.wait(0.2), LIMIT, "a notice")
    hearing.close()
    app.close()
    pooler.stop()


def test_the_command_line_works_behind_it(url: str) -> None:
    command = [sys.executable, "-m", "penstock.cli"]
    for verb in (["doctor", "--database-url", url], ["db", "upgrade", "--database-url", url]):
        done = subprocess.run([*command, *verb], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    bench = subprocess.run([*command, "bench", "--database-url", url], capture_output=True, text=True)
    assert bench.returncode != 0
    assert "direct connection" in bench.stdout + bench.stderr
    assert "Traceback" not in bench.stderr
