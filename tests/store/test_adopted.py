"""`Penstock(engine)` on SQLite gets what it gets from a URL, or says what it misses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.pool import StaticPool

from penstock import Penstock

PRAGMAS = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")

PROCESS = """
import sys
import sqlalchemy as sa
from penstock import Penstock

engine = sa.create_engine(sys.argv[1])
app = Penstock(engine)
for n in range(40):
    app.enqueue("work", {"by": sys.argv[2], "n": n})
    with engine.begin() as caller:
        app.enqueue("work", {"by": sys.argv[2], "n": n}, connection=caller)
    for claim in app.queue.claim(f"worker:{sys.argv[2]}", 3):
        print(claim.run_id, claim.job_id)
app.close()
engine.dispose()
"""


def pragmas(app: Penstock) -> dict[str, Any]:
    with app.db.read() as tx:
        return {name: tx.conn.exec_driver_sql(f"PRAGMA {name}").scalar() for name in PRAGMAS}


def warnings(app: Penstock) -> list[str]:
    return [each.message for each in app.doctor().warnings if each.check == "engine without what Penstock needs"]


def test_an_engine_gets_what_a_url_gets(tmp_path: Path) -> None:
    with Penstock(f"sqlite:///{tmp_path / 'url.db'}") as by_url:
        expected = pragmas(by_url)
    assert expected == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'engine.db'}")
    with engine.connect() as caller:
        theirs = {name: caller.exec_driver_sql(f"PRAGMA {name}").scalar() for name in PRAGMAS}
    with Penstock(engine) as app:
        assert pragmas(app) == expected
        assert warnings(app) == []
    engine.dispose()
    with engine.connect() as caller:  # which stays the caller's; only the journal is the file's
        now = {name: caller.exec_driver_sql(f"PRAGMA {name}").scalar() for name in PRAGMAS}
    assert now == {**theirs, "journal_mode": "wal"}
    engine.dispose()


def test_several_processes_on_engines_of_their_own(tmp_path: Path) -> None:
    """No error, nothing lost, nothing claimed twice."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    app = Penstock(sa.create_engine(url))
    app.define("work")
    started = [
        subprocess.Popen([sys.executable, "-c", PROCESS, url, str(n)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for n in range(4)
    ]  # fmt: skip
    said = [each.communicate() for each in started]
    assert [(each.returncode, error) for each, (_, error) in zip(started, said, strict=True)] == [(0, "")] * 4
    claims = [line.split() for out, _ in said for line in out.splitlines()]
    jobs = [job for _, job in claims]
    assert len(jobs) == len(set(jobs))
    counts = app.jobs.summary().counts
    assert sum(counts.values()) == 4 * 80
    assert app.jobs.summary().running == len(jobs)
    assert app.doctor().violations == ()
    app.close()


@pytest.mark.parametrize("begin", [True, False])
def test_an_engine_that_sets_another_journal_is_left_so(tmp_path: Path, begin: bool) -> None:
    """Its transactions still begin as they must, also if the engine begins them itself."""
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'jobs.db'}")

    @sa.event.listens_for(engine, "connect")
    def connect(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode=DELETE")
        if begin:
            connection.isolation_level = None

    if begin:
        sa.event.listen(engine, "begin", lambda conn: conn.exec_driver_sql("BEGIN"))
    with Penstock(engine) as app:
        app.define("work")
        app.enqueue("work")
        with app.db.write() as tx:
            connection: Any = tx.conn.connection.driver_connection
            assert connection.in_transaction
            with engine.connect() as other, pytest.raises(sa.exc.OperationalError, match="locked"):
                other.exec_driver_sql("PRAGMA busy_timeout = 0")
                other.exec_driver_sql("UPDATE penstock_queues SET paused = true")
        assert len(app.queue.claim("w", 1)) == 1
        assert pragmas(app)["journal_mode"] == "delete"
        (warning,) = warnings(app)
        assert "journal_mode" in warning
    engine.dispose()


def test_an_engine_that_is_less_durable_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'jobs.db'}")
    sa.event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous=NORMAL"))
    with Penstock(engine) as app:
        assert pragmas(app)["synchronous"] == 2
        (warning,) = warnings(app)
        assert "synchronous below FULL" in warning
    assert "synchronous below FULL" in "".join(capsys.readouterr())
    engine.dispose()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///{}/jobs.db"])
def test_an_engine_with_one_connection_is_told_so(tmp_path: Path, url: str) -> None:
    engine = sa.create_engine(url.format(tmp_path), poolclass=StaticPool, connect_args={"check_same_thread": False})
    with Penstock(engine) as app:
        app.define("work")
        app.enqueue("work")
        (warning,) = warnings(app)
        assert "in memory" in warning or "StaticPool" in warning
    engine.dispose()
