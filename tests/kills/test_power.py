"""Power cuts on SQLite, simulated (F20): no acknowledged job is lost, no file is corrupt, whenever the power goes."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text

from penstock import Failed, Penstock, Succeeded
from penstock.store import database
from penstock.store.database import Database
from penstock.store.schema import upgrade
from tests.support.power import Disk, engine_on

CUTS = int(os.environ.get("PENSTOCK_POWER_CUTS", "150"))
CUTS_PER_LIFE = 30


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file without a write-ahead log, to begin each life with."""
    path = tmp_path_factory.mktemp("power") / "jobs.db"
    db = Database(f"sqlite:///{path}")
    upgrade(db)
    with Penstock(f"sqlite:///{path}") as app:
        app.define("work", max_attempts=5, retry_mode="chain")
    db.close()
    with sqlite3.connect(path) as conn:
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def live(app: Penstock, disk: Disk, chance: random.Random) -> None:
    """Use the queue; each acknowledgement goes into the disk's log at the moment the caller has it."""
    for _ in range(25):
        if chance.random() < 0.5:
            job = app.enqueue("work", {"text": "x" * chance.randint(1, 3000)})
            disk.log.append((None, "job", str(job.id)))
            continue
        for claim in app.queue.claim("host:1", 2):
            disk.log.append((None, "claim", str(claim.run_id)))
            app.queue.finish(claim, chance.choice([Succeeded({"n": 1}), Failed("no", delay=0)]))
            disk.log.append((None, "finish", str(claim.run_id)))


def survivors(path: Path) -> tuple[str, set[str], set[str], set[str]]:
    conn = sqlite3.connect(path)
    try:
        health = conn.execute("PRAGMA integrity_check").fetchone()[0]
        jobs = {row[0] for row in conn.execute("SELECT id FROM penstock_jobs")}
        ended = {row[0] for row in conn.execute("SELECT id FROM penstock_runs")}
        runs = ended | {row[0] for row in conn.execute("SELECT run_id FROM penstock_running")}
        return health, jobs, runs, ended
    finally:
        conn.close()


def outcome_of(disk: Disk, until: int, into: Path, chance: random.Random) -> tuple[set[str], str]:
    """Cut the power after that entry; answers (what was acknowledged and is gone, what the file says of itself)."""
    disk.image(until, into, chance)
    told: dict[str, set[str]] = {"job": set(), "claim": set(), "finish": set()}
    for entry in disk.log[:until]:
        if entry[0] is None:
            told[entry[1]].add(entry[2])
    health, jobs, runs, ended = survivors(into / "jobs.db")
    gone = (told["job"] - jobs) | (told["claim"] - runs) | (told["finish"] - ended)
    if health == "ok":
        with Penstock(f"sqlite:///{into / 'jobs.db'}") as app:
            app.recover()
            assert app.doctor().violations == ()
    return gone, health


def app_on(engine: Engine) -> Penstock:
    """An app that has made its engine itself, as far as it knows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "make_engine", lambda *_args, **_options: engine)
        return Penstock(engine.url.render_as_string())


def cut_the_power(template: Path, tmp_path: Path, cuts: int, pragma: str = "") -> tuple[int, int, int]:
    """Answers (cuts, cuts that lost something acknowledged, cuts that left a corrupt file)."""
    lost = corrupt = made = 0
    for life in range((cuts + CUTS_PER_LIFE - 1) // CUTS_PER_LIFE):
        chance = random.Random(life)
        path = tmp_path / f"life-{life}" / "jobs.db"
        path.parent.mkdir()
        shutil.copy(template, path)
        disk = Disk(f"disk-{os.getpid()}-{pragma}-{life}", path)
        engine = engine_on(disk, path)
        # Every other life as those who open the database by its URL have it, on shorter ways through the code.
        short = life % 2 == 1
        with app_on(engine) if short else Penstock(engine) as app:
            assert app.db.has_short_way == short
            with app.db.read() as tx:
                tx.run(text("PRAGMA wal_autocheckpoint = 20"))  # so that cuts fall into checkpoints too
            if pragma:
                raw: Any = engine.raw_connection().driver_connection
                raw.raw.execute(pragma)
            live(app, disk, chance)
            for number in range(CUTS_PER_LIFE):
                into = path.parent / f"cut-{number}"
                gone, health = outcome_of(disk, chance.randint(2, len(disk.log)), into, chance)
                lost += bool(gone)
                corrupt += health != "ok"
                made += 1
                shutil.rmtree(into)
        engine.dispose()
        disk.unregister()
    return made, lost, corrupt


def test_power_cuts_lose_nothing_acknowledged_and_corrupt_nothing(template: Path, tmp_path: Path) -> None:
    made, lost, corrupt = cut_the_power(template, tmp_path, CUTS)
    assert made >= CUTS
    assert (lost, corrupt) == (0, 0)


def test_the_simulation_can_lose_jobs(template: Path, tmp_path: Path) -> None:
    """With synchronous=NORMAL, which is not ours, the same cuts lose acknowledged jobs: the test above can fail."""
    _, lost, _ = cut_the_power(template, tmp_path, 2 * CUTS_PER_LIFE, "PRAGMA synchronous = NORMAL")
    assert lost > 0
