"""A campaign of faults against living workers, and the check of what became of the work. Nobody is killed: a worker's death frees
what it holds, and so hides that it would have held it for ever."""

from __future__ import annotations

import os
import random
import resource
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from sqlalchemy import text

from penstock import DatabaseError, Penstock
from penstock.core.status import JobStatus
from tests.faults.attempts import CREATE_LEDGER, PATIENT
from tests.faults.conftest import Stage, eventually
from tests.support.postgres import Server
from tests.support.proxy import Proxy

SEED = int(os.environ.get("PENSTOCK_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
ROUNDS = int(os.environ.get("PENSTOCK_CHAOS_ROUNDS", "1"))
FAULTS_PER_ROUND = 7
KEYS = ("progress", "pay", "await", "again", "later", "long", "say", "apart")
WEIGHTS = (6, 6, 3, 3, 2, 1, 1, 1)
COMMANDS = '[commands.say]\nargv = ["/bin/echo", "said"]\n'


class Field(Stage):
    """Where the campaign takes place: a ledger, and workers that run every kind of job."""

    module = "tests.faults.mixture"
    lease = 5.0

    def __init__(self, url: str, directory: Path, through: str | None = None) -> None:
        super().__init__(url, directory)
        self.direct, self.url = url, through or url
        self.app.define("say", runner="command", **PATIENT)
        with self.app.db.write() as tx:
            tx.run(text(CREATE_LEDGER))
        self.commands = directory / "commands.toml"
        self.commands.write_text(COMMANDS)

    def start_workers(self, number: int) -> None:
        for _ in range(number):
            self.worker("--commands", str(self.commands), "--concurrency", "4")
        eventually(
            lambda: all("worker_started" in self.logged(w) for w in self.workers), 120, "the start of the workers"
        )


class Producer(threading.Thread):
    """Enqueues one of everything until told to stop. A job counts once it was acknowledged."""

    def __init__(self, url: str, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._app = Penstock(url)
        self._chance = chance
        self.acknowledged: list[UUID] = []
        self.groups: list[UUID] = []
        self.refused = 0
        self.done = threading.Event()

    def run(self) -> None:
        n = 0
        while not self.done.wait(self._chance.random() * 0.06):
            n += 1
            try:
                self._enqueue(n)
            except (DatabaseError, ConnectionError):
                self.refused += 1
        self._app.close()

    def _enqueue(self, n: int) -> None:
        chance, app = self._chance, self._app
        if n % 12 == 0:
            mode = chance.choice(["sequential", "parallel"])
            group = app.groups.create([("member", {"n": i}) for i in range(3)], mode=mode)
            self.groups.append(group.id)
            self.acknowledged += [job.id for job in group.jobs]
            return
        key = chance.choices(KEYS, WEIGHTS)[0]
        options: dict[str, object] = {}
        if n % 5 == 0:
            options["delay"] = chance.random() * 2
        if n % 4 == 0:
            options["dedupe_key"] = f"{key} {chance.randrange(3)}"
        self.acknowledged.append(app.enqueue(key, {} if key == "say" else {"n": n}, **options).id)


def sleep(worker: subprocess.Popen[bytes], seconds: float) -> None:
    """Stop a worker for longer than its lease, as a laptop's lid or a busy hypervisor does."""
    worker.send_signal(signal.SIGSTOP)
    time.sleep(seconds)
    worker.send_signal(signal.SIGCONT)


def faults_of_server(
    field: Field, server: Server, proxy: Proxy, chance: random.Random
) -> dict[str, Callable[[], None]]:
    def stop() -> None:
        server.stop("immediate")
        time.sleep(chance.random() * 3)
        server.start()

    def swallow() -> None:
        proxy.swallow_commits = chance.randint(1, 4)

    return {
        "server stopped": stop,
        "connections cut": proxy.cut,
        "COMMIT replies dropped": swallow,
        "worker asleep": lambda: sleep(chance.choice(field.workers), field.lease * 1.3),
    }


def faults_of_file(field: Field, chance: random.Random) -> dict[str, Callable[[], None]]:
    path = field.direct.removeprefix("sqlite:///")

    def hold() -> None:
        holder = sqlite3.connect(path, isolation_level=None, timeout=60)
        holder.execute("BEGIN IMMEDIATE")
        time.sleep(1.0 + chance.random() * 3)  # longer than the busy timeout
        holder.close()

    def fill() -> None:
        """No file of a worker may grow, nor be written beyond its first page."""
        for worker in field.workers:
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        time.sleep(0.5 + chance.random() * 2)
        for worker in field.workers:
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    return {
        "write lock held": hold,
        "disk full": fill,
        "worker asleep": lambda: sleep(chance.choice(field.workers), field.lease * 1.3),
    }


def campaign(field: Field, producer: Producer, faults: dict[str, Callable[[], None]], chance: random.Random) -> None:
    """Each fault at least once in a round, in random order and at random moments; then everything must come to its end."""
    producer.start()
    for _ in range(ROUNDS):
        names = [*faults, *chance.choices(list(faults), k=max(0, FAULTS_PER_ROUND - len(faults)))]
        chance.shuffle(names)
        for name in names:
            time.sleep(0.3 + chance.random())
            print(f"{time.strftime('%X')} {name}", flush=True)
            faults[name]()
    producer.done.set()
    producer.join(60)


def assert_sound(field: Field, producer: Producer) -> None:
    """Nothing lost, nothing doubled, nothing stuck; doctor is content, and every worker still claims."""
    app = field.app
    assert producer.acknowledged, "nothing was enqueued"
    field.drained()
    assert all(worker.poll() is None for worker in field.workers), "a worker fell"
    every_worker_claims(field)
    ends = [app.jobs.chain(job_id)[-1] for job_id in dict.fromkeys(producer.acknowledged)]
    wrong = [job for job in ends if job.status is not JobStatus.SUCCEEDED and "poison" not in str(job.last_error)]
    assert not wrong, [(job.definition_key, job.status, job.attempt_no, job.last_error) for job in wrong[:5]]
    with app.db.read() as tx:
        paid = tx.rows(text("SELECT id FROM penstock_job_view WHERE definition_key = 'pay' AND status = 'succeeded'"))
        ledger = tx.rows(text("SELECT job FROM ledger"))
    assert sorted(row.job for row in ledger) == sorted(str(row.id) for row in paid), "an effect was lost or doubled"
    for group_id in producer.groups:
        in_order(app, group_id)
    field.healthy()


def every_worker_claims(field: Field) -> None:
    """Give out work until each of the workers has had some."""
    alive = {worker.pid for worker in field.workers}

    def all_had_some() -> bool:
        jobs = [field.app.enqueue("who") for _ in range(4 * len(alive))]
        eventually(lambda: all(field.app.jobs.get(job.id).finished for job in jobs), what="the end of the roll call")
        alive.difference_update(field.app.jobs.get(job.id).result for job in jobs)
        return not alive

    eventually(all_had_some, what="work for every worker")


def in_order(app: Penstock, group_id: UUID) -> None:
    group = app.groups.get(group_id)
    if group.mode != "sequential":
        return
    last = None
    for job in group.jobs:
        runs = app.jobs.runs(job.id)
        assert last is None or runs[0].started_at >= last, f"group {group_id} ran out of order"
        last = runs[-1].finished_at
