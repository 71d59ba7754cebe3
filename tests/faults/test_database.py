"""The database goes away, is held by others, or tells another time."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from penstock import DatabaseError, Penstock
from penstock.core.status import JobStatus
from penstock.store.database import Database
from penstock.store.schema import upgrade
from tests.faults.conftest import Stage, eventually
from tests.support.postgres import Server

FLEET = int(os.environ.get("PENSTOCK_TEST_FLEET", "100"))
"""How many workers reconnect at once."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of this test's own, to be hurt."""
    made = Server(settings={"max_connections": "800"}).start()
    db = Database(made.url())
    upgrade(db)
    db.close()
    yield made
    made.remove()


@pytest.fixture
def own_stage(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", server.url())
    made = Stage(server.url(), tmp_path)
    yield made
    made.close()


class Client(threading.Thread):
    """Enqueues until told to stop; a job counts only if it was acknowledged."""

    def __init__(self, app: Penstock) -> None:
        super().__init__(daemon=True)
        self._app = app
        self.acknowledged: list[int] = []
        self.refused = 0
        self.done = threading.Event()

    def run(self) -> None:
        n = 0
        while not self.done.is_set():
            n += 1
            try:
                self._app.enqueue("effect", {"n": n}, dedupe_key=f"n{n}")
            except (DatabaseError, ConnectionError):
                self.refused += 1
                time.sleep(0.05)
            else:
                self.acknowledged.append(n)
                time.sleep(0.005)


def count(server: Server, query: str) -> int:
    with psycopg.connect(server.url()) as conn:
        row = conn.execute(query).fetchone()  # type: ignore[call-overload]
    return int(row[0]) if row else 0


def cut_connections(server: Server, application: str = "penstock") -> int:
    with psycopg.connect(server.url(), autocommit=True) as conn:
        found = conn.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s", [application]
        )
        return len(found.fetchall())


def assert_nothing_lost(stage: Stage, client: Client) -> None:
    stage.drained()
    done = {int(line) for line in stage.lines()}
    assert set(client.acknowledged) <= done, "an acknowledged job was lost"
    counts = stage.app.jobs.summary().counts
    assert counts[JobStatus.SUCCEEDED] == sum(counts.values()) >= len(client.acknowledged)
    stage.healthy()


def test_the_server_restarts_under_load(server: Server, own_stage: Stage) -> None:
    stage = own_stage
    workers = [stage.worker(), stage.worker()]
    client = Client(stage.app)
    client.start()
    for _ in range(2):
        before = len(stage.lines())
        eventually(lambda before=before: len(stage.lines()) > before + 30, what="work")
        server.restart("immediate")
    before = len(stage.lines())
    eventually(lambda: len(stage.lines()) > before + 30, what="work after the restarts")
    client.done.set()
    client.join(10)
    assert all(worker.poll() is None for worker in workers), "a worker fell with the server"
    assert_nothing_lost(stage, client)


def test_connections_are_cut_under_load(server: Server, own_stage: Stage) -> None:
    stage = own_stage
    workers = [stage.worker(), stage.worker()]
    client = Client(stage.app)
    client.start()
    cut = 0
    for _ in range(5):
        before = len(stage.lines())
        eventually(lambda before=before: len(stage.lines()) > before + 20, what="work")
        cut += cut_connections(server)
    client.done.set()
    client.join(10)
    assert cut >= 10
    assert all(worker.poll() is None for worker in workers)
    assert_nothing_lost(stage, client)


def test_many_workers_reconnect_at_once(server: Server, own_stage: Stage) -> None:
    stage = own_stage
    fleet = stage.fleet(FLEET)
    eventually(lambda: count(server, "SELECT count(*) FROM penstock_workers") == FLEET, what="the fleet")
    stage.app.enqueue_many("effect", [{"n": n} for n in range(500)])
    eventually(lambda: len(stage.lines()) > 50, what="work")
    server.restart("immediate")
    restarted = time.time()
    stage.app.enqueue_many("effect", [{"n": n} for n in range(500, 1000)])
    eventually(lambda: len(set(stage.lines())) == 1000, what="the work of all")
    stage.drained()
    back = f"SELECT count(*) FROM penstock_workers WHERE last_seen_at > to_timestamp({restarted})"
    eventually(lambda: count(server, back) == FLEET, what="the return of every worker")
    assert fleet.poll() is None
    connections = count(server, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'penstock'")
    assert connections <= FLEET * 5 + 10, "connections beyond what a worker needs"
    stage.all_well(1000)


def hold_all_writes(url: str, seconds: float) -> None:
    """As a backup, a migration or a forgotten transaction would."""
    db = Database(url)
    with db.write() as tx:
        if db.name == "postgresql":
            tx.conn.exec_driver_sql("LOCK TABLE penstock_jobs, penstock_ready, penstock_running IN EXCLUSIVE MODE")
        time.sleep(seconds)
    db.close()


def test_another_writer_holds_the_lock_for_seconds(stage: Stage) -> None:
    stage.app.enqueue_many("effect", [{"n": n, "seconds": 0.01} for n in range(300)])
    worker = stage.worker()
    eventually(lambda: len(stage.lines()) > 20, what="work")
    hold_all_writes(stage.url, 3.0)  # longer than the lease
    stage.drained()
    assert {int(line) for line in stage.lines()} == set(range(300))
    assert worker.poll() is None
    stage.all_well(300)


def small_disk(path: Path) -> tuple[str, ...]:
    """A command that goes before another, which then sees a disk of 256 KiB at `path`."""
    mount = f'mount -t tmpfs -o size=256k tmpfs {path} && exec "$@"'
    return ("unshare", "-rm", "/bin/sh", "-c", mount, "sh")


def small_files(path: Path) -> tuple[str, ...]:
    """Where mounting is not allowed: no file may grow beyond 4 MiB. The write that does so fails as on a full disk."""
    return ("/bin/sh", "-c", f'ulimit -f 8192; : {path}; exec "$@"', "sh")


def test_the_disk_for_the_logs_is_full(stage: Stage, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    commands = tmp_path / "commands.toml"
    commands.write_text(
        "[commands.flood]\n"
        """argv = ["/bin/sh", "-c", "yes 0123456789abcdef | head -c 5100000; echo last words >&2"]\n"""
        'env = ["PATH"]\n'
    )
    stage.app.define("flood", runner="command", max_attempts=1)
    jobs = [stage.app.enqueue("flood") for _ in range(3)]
    may_mount = subprocess.run([*small_disk(logs), "true"], capture_output=True).returncode == 0
    limit = small_disk if may_mount else small_files
    stage.worker("--commands", str(commands), "--log-dir", str(logs), prefix=limit(logs))
    stage.drained()
    for job in jobs:
        (run,) = stage.app.jobs.runs(job.id)
        assert run.exit_code == 0
        assert str(run.stdout_tail).endswith("0123456789abcdef\n")
        assert "last words" in str(run.stderr_tail)
        assert ("No space left" if may_mount else "File too large") in str(run.stderr_tail)
    stage.all_well(3)


@pytest.mark.parametrize("seconds", [-3600, 600])
def test_the_clock_is_moved(stage: Stage, seconds: int) -> None:
    stage.app.enqueue_many("effect", [{"n": n, "seconds": 0.02} for n in range(100)])
    workers = [stage.worker(FAULT_CLOCK=str(stage.clock)) for _ in range(2)]
    eventually(lambda: len(stage.lines()) > 10, what="work")
    stage.clock.write_text(str(seconds))
    stage.app.enqueue_many("effect", [{"n": n, "seconds": 0.02} for n in range(100, 200)])
    eventually(lambda: len(set(stage.lines())) == 200, what="the work of both times")
    stage.drained()
    assert all(worker.poll() is None for worker in workers)
    stage.all_well(200)
