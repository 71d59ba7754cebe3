"""What doctor warns of: nothing is broken yet, but an operator should look."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from penstock import ManualClock, Penstock
from penstock.store import doctor, workers
from tests.support.postgres import Server


def warned(app: Penstock) -> dict[str, str]:
    return {warning.check: warning.message for warning in app.doctor().warnings}


@pytest.mark.parametrize("backend", ["postgresql"])
def test_an_old_transaction(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "OLD_TRANSACTION_SECONDS", 0.05)
    with Penstock(url) as app:
        assert "old open transaction" not in warned(app)
        with app.db.engine.connect() as forgotten:
            pid = forgotten.execute(text("SELECT pg_backend_pid(), pg_sleep(0.1)")).scalar()
            assert str(pid) in warned(app)["old open transaction"]
        assert "old open transaction" not in warned(app)


@pytest.mark.parametrize("backend", ["postgresql"])
def test_settings_that_can_lose_jobs(url: str, postgres: Server) -> None:
    database = url.rpartition("/")[2]
    postgres.execute(f"ALTER DATABASE {database} SET synchronous_commit = off")
    with Penstock(url) as app:
        assert "asynchronous commit" in warned(app)
        with app.db.read() as tx:
            fsync = tx.scalar(text("SELECT current_setting('fsync')"))
        assert ("no fsync" in warned(app)) == (fsync == "off")


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_write_ahead_log_that_a_reader_keeps_from_shrinking(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LARGE_WAL_BYTES", 1024 * 1024)
    with Penstock(url) as app:
        app.define("work")
        assert "large write-ahead log" not in warned(app)
        reader = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM penstock_jobs").fetchone()
        app.enqueue_many("work", [{"text": "x" * 1000} for _ in range(3000)])
        assert "MiB" in warned(app)["large write-ahead log"]
        reader.close()


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_clock_that_ran_backwards(url: str) -> None:
    clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
    with Penstock(url, clock=clock) as app:
        with app.db.write() as tx:
            tx.run(text("UPDATE penstock_clock SET latest = :latest"), {"latest": int(clock.now().timestamp() * 1e6)})
        assert "clock that ran backwards" not in warned(app)
        clock.set(clock.now() - timedelta(hours=1))
        assert "1 h behind" in warned(app)["clock that ran backwards"]


def test_a_tenant_far_from_its_turn(url: str) -> None:
    with Penstock(url) as app:
        app.define("work")
        app.tenants.create("late")
        app.enqueue("work")
        late: Any = app.enqueue("work", tenant="late")
        assert "tenant far from its turn" not in warned(app)
        with app.db.write() as tx:
            given = {"id": str(late.id) if app.db.name == "sqlite" else late.id}
            tx.run(text("UPDATE penstock_ready SET position = 200000 WHERE job_id = :id"), given)
        assert "'late'" in warned(app)["tenant far from its turn"]


def test_keys_and_queues_that_no_live_worker_serves(url: str) -> None:
    name = "waiting jobs that no live worker serves"
    with Penstock(url) as app:

        @app.job(key="work")
        def work() -> None: ...

        app.define("gpu")
        app.define("elsewhere", queue="aside")
        app.define("nowhere", queue="paused")
        app.enqueue_many("gpu", [{}] * 3)
        app.enqueue("gpu", delay=3600)
        app.enqueue("work", queue="aside")
        app.queues.pause("paused")
        app.enqueue("gpu", queue="paused")
        found = [warning.message for warning in app.doctor().warnings if warning.check == name]
        assert len(found) == 2
        assert any("'gpu' on the queue 'default': 3 job(s)" in message for message in found)
        assert any("'work' on the queue 'aside': 1 job(s)" in message for message in found)
        row = {
            "hostname": "h",
            "pid": 1,
            "version": "",
            "queues": [],
            "keys": ["gpu"],
            "concurrency": 1,
            "metadata": {},
        }
        app.db.transact(lambda tx: workers.register(tx, "w:1", row))
        left = [warning.message for warning in app.doctor().warnings if warning.check == name]
        assert len(left) == 1 and "'aside'" in left[0]
