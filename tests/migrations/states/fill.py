"""Writes `0009.{sqlite,postgresql}.json` and `0009.nouns.json`: jobs in every state that the last program before the layout of
0010 could bring them into, and what that program said of each.

It was run once, with the program of commit `b98248b` on the path, and is kept to be read:
`python fill_0009.py postgresql://…/an_empty_database`.
"""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from penstock import Canceled, Claim, Failed, Job, ManualClock, Penstock, Skipped, Snoozed, Succeeded, TimedOut
from penstock.core.outcomes import Evidence, Outcome
from penstock.store import claims
from penstock.store.copy import copy_database
from penstock.store.database import Database
from penstock.store.tables import metadata

HERE = Path(__file__).parent
WORKER = "host:1:abc"


class Filler:
    def __init__(self, url: str) -> None:
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.app = Penstock(url, clock=self.clock)
        self.keys = 0

    def key(self, **options: Any) -> str:
        """Each story has a key of its own, so that it claims its own job."""
        self.keys += 1
        name = f"story{self.keys:02}"
        self.app.define(name, **options)
        return name

    def enqueue(self, key: str, **options: Any) -> Job:
        self.clock.advance(0.25)
        return self.app.enqueue(key, {"n": self.keys}, **options)

    def claim(self, key: str) -> Claim:
        self.clock.advance(0.25)
        [claim] = self.app.queue.claim(WORKER, 1, keys=[key], lease_seconds=7200)
        return claim

    def run(self, key: str, outcome: Outcome) -> None:
        claim = self.claim(key)
        self.clock.advance(0.5)
        self.app.queue.finish(claim, outcome)

    def report(self, claim: Claim) -> None:
        with self.app.db.write() as tx:
            claims.report_progress(tx, claim.job_id, claim.run_id, {"done": 3, "total": 7, "message": "on the way"})
            claims.report_tails(tx, claim.job_id, claim.run_id, "out\n", "err\n")
            claims.report_pid(tx, claim.job_id, claim.run_id, 4711)
            claims.append_artifacts(tx, claim.job_id, claim.run_id, [{"name": "a.txt", "size": 3}])

    def fill(self) -> None:
        self.ends()
        self.retries()
        self.cancels()
        self.chains()
        self.waits()
        self.groups()
        self.interruptions()

    def ends(self) -> None:
        key = self.key(max_attempts=1)
        evidence = Evidence(3, "said\n", "cried\n", ({"name": "b.txt"},), "/logs/b", 99)
        self.enqueue(key, correlation_id="order-7", priority=50, dedupe_key="free again")
        self.run(key, Succeeded({"ok": "✓", "n": [1, None, 1.5]}, evidence))
        for outcome in (
            Succeeded(),
            Skipped("nothing to do"),
            TimedOut("too slow", evidence),
            Failed("no", evidence=evidence),
        ):
            self.enqueue(key)
            self.run(key, outcome)
        acme = self.app.tenants.create("acme", "Acme", weight=3)
        assert acme.id
        self.app.define("theirs")
        self.enqueue("theirs", tenant="acme")
        self.enqueue("theirs", tenant="acme")
        self.run("theirs", Succeeded({"of": "acme"}))
        with_progress = self.key()
        self.enqueue(with_progress)
        claim = self.claim(with_progress)
        self.report(claim)
        self.app.queue.finish(claim, Succeeded(7))

    def retries(self) -> None:
        key = self.key(max_attempts=3)
        self.enqueue(key, dedupe_key="kept while it waits")
        self.run(key, Failed("waits for its backoff", delay=3600))
        self.enqueue(key)
        self.run(key, Failed("first"))
        self.clock.advance(30)
        self.run(key, TimedOut("second"))
        self.clock.advance(60)
        self.claim(key)  # its third attempt is under way
        self.enqueue(key)
        reporting = self.claim(key)
        self.report(reporting)
        self.app.queue.finish(reporting, Failed("progress stays", delay=0))
        self.claim(key)
        last = self.key(max_attempts=1)
        dead = self.enqueue(last)
        self.run(last, Failed("dead"))
        self.app.jobs.retry(dead.id)
        self.run(last, Succeeded("after a retry by hand"))
        dead = self.enqueue(last)
        self.run(last, Failed("dead"))
        self.app.jobs.retry(dead.id)  # waits, with an attempt more
        edited = self.key(max_attempts=2)
        job = self.enqueue(edited)
        self.run(edited, Failed("wrong params", delay=0))
        self.app.jobs.update(job.id, params={"n": "mended"}, priority=7)
        self.enqueue(edited, priority=9)
        released = self.claim(edited)
        self.app.queue.release([released])

    def cancels(self) -> None:
        key = self.key(max_attempts=3)
        self.app.jobs.cancel(self.enqueue(key, dedupe_key="free again").id)
        after_a_run = self.enqueue(key)
        self.run(key, Failed("before", delay=3600))
        self.clock.advance(1)
        self.app.jobs.cancel(after_a_run.id)
        for outcome in (Canceled("stopped"), Failed("failed while it was asked to stop"), Succeeded("was done")):
            job = self.enqueue(key)
            claim = self.claim(key)
            self.app.jobs.cancel(job.id)
            self.app.queue.finish(claim, outcome)
        job = self.enqueue(key)
        claim = self.claim(key)
        self.report(claim)
        self.app.jobs.cancel(job.id)  # its worker has not heard of it yet
        again = self.enqueue(key)
        self.app.jobs.cancel(again.id)
        self.app.jobs.retry(again.id)

    def chains(self) -> None:
        key = self.key(max_attempts=3, retry_mode="chain")
        self.enqueue(key, dedupe_key="of a chain")
        self.run(key, Failed("a retry waits for it", delay=3600))
        self.enqueue(key)
        self.run(key, Failed("one", delay=0))
        self.run(key, Failed("two", delay=0))
        self.run(key, Failed("three"))
        self.enqueue(key)
        self.run(key, Failed("its retry runs", delay=0))
        self.claim(key)
        first = self.enqueue(key)
        self.run(key, Failed("its retry is canceled", delay=3600))
        [_, retry] = self.app.jobs.chain(first.id)
        self.app.jobs.cancel(retry.id)

    def waits(self) -> None:
        key = self.key()
        self.enqueue(key, delay=3600, dedupe_key="later")
        self.enqueue(key, delay=0.1, dedupe_key="now")
        narrow = self.key(max_running=1)
        for _ in range(3):
            self.enqueue(narrow)
        self.claim(narrow)
        another = self.key(max_running=1)
        self.enqueue(another)
        self.enqueue(another)
        self.claim(key)  # gives the slot
        held = self.key()
        self.app.pause(held)
        self.enqueue(held)
        self.app.triggers.schedule("each minute", "* * * * *", key)
        self.app.enqueue(
            key, {}, trace={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, source_ref="x"
        )

    def groups(self) -> None:
        key = self.key(max_attempts=1)
        for mode in ("sequential", "parallel"):
            self.app.groups.create([(key, {"n": n}) for n in range(3)], mode=mode)
        self.run(key, Succeeded())
        stopped = self.key(max_attempts=1)
        self.app.groups.create([(stopped, {"n": n}) for n in range(3)])
        self.run(stopped, Failed("stops its group"))
        later = self.key()
        self.app.groups.create([(later, {}), (later, {})], delay=3600)

    def interruptions(self) -> None:
        key = self.key(max_attempts=2)
        self.enqueue(key)
        self.run(key, Snoozed(3600, "not yet"))
        self.enqueue(key)
        self.run(key, Canceled("shutdown", by_shutdown=True))
        self.run(key, Failed("its worker died", crashed=True, delay=3600))
        self.enqueue(key)
        self.run(key, Failed("its worker died", crashed=True, delay=0))
        self.claim(key)


def nouns(app: Penstock) -> dict[str, Any]:
    """Each job by its id, as `jobs.get` returns it, and its runs."""
    found = {}
    for tenant in ("default", "acme"):
        theirs = app.as_tenant(tenant)
        for job in theirs.jobs.list(limit=500):
            told = dataclasses.asdict(theirs.jobs.get(job.id))
            told["runs"] = [dataclasses.asdict(run) for run in theirs.jobs.runs(job.id)]
            found[str(job.id)] = told
    return dict(sorted(found.items()))


def written(told: dict[str, Any]) -> str:
    """A job to a line."""
    lines = [
        f' "{key}": ' + json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
        for key, value in told.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(postgresql: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/0009.db"
        filler = Filler(f"sqlite:///{path}")
        filler.fill()
        assert not filler.app.doctor().violations
        target = Database(postgresql)
        copy_database(filler.app.db, target)
        target.close()
        moved = Penstock(postgresql, clock=filler.clock)
        assert written(nouns(moved)) == written(nouns(filler.app))
        moved.close()
        (HERE / "0009.nouns.json").write_text(written(nouns(filler.app)))
        print("left at", filler.clock.now())
        filler.app.close()
        tables = [table.name for table in metadata.sorted_tables]
        with sqlite3.connect(path) as conn:
            conn.row_factory = sqlite3.Row
            conn.execute("UPDATE penstock_clock SET boot_id = NULL, booted_at = NULL")
            rows = {name: [filled(dict(row)) for row in conn.execute(f"SELECT * FROM {name}")] for name in tables}
        write_rows("0009.sqlite.json", rows)
        with psycopg.connect(postgresql) as pg:
            query = "SELECT to_jsonb(t) FROM {} t"
            rows = {name: [filled(row) for (row,) in pg.execute(query.format(name))] for name in tables}  # type: ignore[call-overload]
        for row in rows["penstock_clock"]:
            row.pop("boot_id", None), row.pop("booted_at", None)
        write_rows("0009.postgresql.json", rows)


def filled(row: dict[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in sorted(row) if row[name] is not None}


def write_rows(name: str, rows: dict[str, list[dict[str, Any]]]) -> None:
    """A row to a line."""
    blocks = []
    for table, held in rows.items():
        lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in held)
        blocks.append(f' "{table}": [\n{lines}\n ]' if held else f' "{table}": []')
    (HERE / name).write_text("{\n" + ",\n".join(blocks) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
