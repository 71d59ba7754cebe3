"""A SQLite file that is deleted, renamed or replaced under a running fleet is noticed, and nothing goes into a lost file."""

from __future__ import annotations

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from penstock import Penstock, Succeeded
from penstock.core.errors import DatabaseUnavailable, SchemaOutdated
from penstock.queue.recover import keep_house
from penstock.triggers.scheduler import Scheduler
from tests.support.waiting import eventually

WAYS = ("unlink", "rename", "replace")
FAULT = r"is gone: it was deleted or renamed|was replaced by another"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture(params=["url", "engine"])
def app(request: pytest.FixtureRequest, path: Path) -> Iterator[Penstock]:
    url = f"sqlite:///{path}"
    if request.param == "url":
        app = Penstock(url)
    else:
        Penstock(url).close()
        app = Penstock(create_engine(url))
    app.define("work")
    with app:
        yield app


def backup(path: Path) -> Path:
    kept = path.with_name("backup.db")
    with sqlite3.connect(path) as source, sqlite3.connect(kept) as target:
        source.backup(target)
    source.close()
    target.close()
    return kept


def take_away(path: Path, way: str) -> None:
    """What an operator does to the file; its log goes with it."""
    put(path, backup(path)) if way == "replace" else remove(path, way)


def put(path: Path, other: Path) -> None:
    remove(path, "unlink")
    other.rename(path)


def remove(path: Path, way: str) -> None:
    if way == "rename":
        path.rename(path.with_name("elsewhere.db"))
    else:
        path.unlink()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def stored(path: Path) -> set[str]:
    if not path.exists():
        return set()
    conn = sqlite3.connect(path)
    found = {row[0] for row in conn.execute("SELECT id FROM penstock_jobs")}
    conn.close()
    return found


VERBS: dict[str, Callable[[Penstock], Any]] = {
    "enqueue": lambda app: app.enqueue("work", {"n": 1}),
    "enqueue_many": lambda app: app.enqueue_many("work", [{}, {}]),
    "claim": lambda app: app.queue.claim("w:1", 1),
    "read": lambda app: app.jobs.list(),
    "recover": lambda app: keep_house(app.ground),
    "schedule": lambda app: Scheduler(app.ground).step(),
    "event": lambda app: app.emit("image.uploaded", {}),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("way", WAYS)
def test_every_verb_notices_that_the_file_was_taken_away(app: Penstock, path: Path, way: str, verb: str) -> None:
    app.enqueue("work", {"n": 0})
    take_away(path, way)
    with pytest.raises(DatabaseUnavailable, match=FAULT):
        VERBS[verb](app)
    assert path.exists() == (way == "replace"), "no empty database is left at the path"


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_acknowledged_into_a_lost_file(app: Penstock, path: Path, way: str) -> None:
    """Many threads enqueue while it happens: what is acknowledged afterwards is in the file at the path."""
    acknowledged: list[str] = []
    refused = threading.Event()
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            try:
                job = app.enqueue("work", {})
            except DatabaseUnavailable:
                refused.set()
            else:
                acknowledged.append(str(job.id))

    threads = [threading.Thread(target=produce) for _ in range(4)]
    for thread in threads:
        thread.start()
    while len(acknowledged) < 20:
        time.sleep(0.001)
    take_away(path, way)
    assert refused.wait(120)
    since = len(acknowledged)
    if way == "replace":
        while len(acknowledged) < since + 20:
            time.sleep(0.001)
    stop.set()
    for thread in threads:
        thread.join(30)
    if way == "replace":
        assert set(acknowledged[-10:]) <= stored(path)
    else:
        assert not path.exists()
        with pytest.raises(DatabaseUnavailable):
            app.enqueue("work", {})


def test_a_commit_into_a_file_that_is_lost_meanwhile_is_not_acknowledged(app: Penstock, path: Path) -> None:
    with pytest.raises(DatabaseUnavailable, match=FAULT), app.db.write() as tx:
        tx.conn.exec_driver_sql("UPDATE penstock_queues SET paused = 0")
        path.rename(path.with_name("elsewhere.db"))


def test_a_file_that_comes_back_is_used_again(app: Penstock, path: Path) -> None:
    app.enqueue("work", {"n": 0})
    elsewhere = path.with_name("elsewhere.db")
    path.rename(elsewhere)
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable):
            app.enqueue("work", {"n": 1})
    elsewhere.rename(path)
    job = app.enqueue("work", {"n": 2})
    assert {job.id} <= {each.id for each in app.jobs.list()}
    assert len(app.queue.claim("w:1", 10)) == 2


def test_a_backup_put_in_place_is_used_after_one_failure(app: Penstock, path: Path) -> None:
    first = app.enqueue("work", {"n": 0})
    kept = backup(path)
    app.enqueue("work", {"n": 1})
    put(path, kept)
    with pytest.raises(DatabaseUnavailable, match="was replaced by another"):
        app.enqueue("work", {"n": 2})
    after = app.enqueue("work", {"n": 3})
    assert stored(path) == {str(first.id), str(after.id)}
    assert app.doctor().violations == ()


def test_another_schema_put_in_place_is_not_used(app: Penstock, path: Path) -> None:
    kept = backup(path)
    conn = sqlite3.connect(kept)
    with conn:
        conn.execute("UPDATE penstock_version SET version_num = '0001'")
    conn.close()
    put(path, kept)
    with pytest.raises(DatabaseUnavailable):
        app.enqueue("work", {})
    for _ in range(2):
        with pytest.raises(SchemaOutdated, match="0001"):
            app.enqueue("work", {})
    assert stored(path) == set()


def test_an_enqueue_in_the_callers_transaction_notices(app: Penstock, path: Path) -> None:
    conn = sqlite3.connect(path)
    app.enqueue("work", {}, connection=conn)
    conn.commit()
    take_away(path, "unlink")
    with pytest.raises(DatabaseUnavailable, match="is gone"):
        app.enqueue("work", {}, connection=conn)
    conn.close()


@pytest.mark.parametrize("way", WAYS)
def test_an_idle_worker_notices_and_goes_on_when_the_file_is_back(path: Path, way: str) -> None:
    done: list[int] = []
    with Penstock(f"sqlite:///{path}") as app:

        @app.job(key="note")
        def note(n: int) -> None:
            done.append(n)

        note.enqueue(n=1)
        worker = app.worker(concurrency=2).start()
        try:
            eventually(lambda: done == [1])
            kept = backup(path)
            take_away(path, way)
            if way != "replace":
                eventually(lambda: any(service.failures for service in worker._services))
                shutil.move(kept, path)
            eventually(lambda: _enqueued(note))
            eventually(lambda: 2 in done)
        finally:
            worker.stop()
        assert app.doctor().violations == ()


def _enqueued(task: Any) -> bool:
    try:
        task.enqueue(n=2)
    except DatabaseUnavailable:
        return False
    return True


def test_a_database_by_uri_works(path: Path) -> None:
    with Penstock(f"sqlite:///file:{path}?uri=true") as app:
        app.define("work")
        app.enqueue("work", {})
        [claim] = app.queue.claim("w:1", 1)
        app.queue.finish(claim, Succeeded())
        take_away(path, "unlink")
        with pytest.raises(DatabaseUnavailable, match="is gone"):
            app.enqueue("work", {})
    assert sorted(each.name for each in path.parent.iterdir() if not each.name.endswith(("-wal", "-shm"))) == []
