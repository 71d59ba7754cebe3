"""Workers behind walls: no token touches another tenant's row or learns of it, and no tenant learns of the operator's machines."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import sqlalchemy as sa

from penstock.core.nouns import Claim
from penstock.core.outcomes import Failed
from penstock.queue.identity import process_identity
from penstock.store import workers as store
from penstock.store.tables import workers
from tests.server.support import World

API = "/api/v1"
HTTP_WORKER = "far:1:x"


def claim(client: httpx.Client, name: str = HTTP_WORKER) -> list[dict[str, Any]]:
    response = client.post(f"{API}/worker/jobs/claim", json={"worker_id": name, "hostname": "far", "pid": 7})
    assert response.status_code == 200, response.text
    items: list[dict[str, Any]] = response.json()["items"]
    return items


def rows(world: World) -> list[dict[str, Any]]:
    with world.penstock.db.read() as tx:
        return [dict(row) for row in tx.run(sa.select(workers).order_by(workers.c.id)).mappings()]


def operators_worker(world: World) -> str:
    """A worker beside the database, on this machine."""
    identity = process_identity()
    row = {"hostname": socket.gethostname(), "pid": 4711, "version": "1", "queues": [], "keys": None, "concurrency": 1}
    world.penstock.db.transact(lambda tx: store.register(tx, identity, {**row, "metadata": {}}))
    return identity


def long_ago(world: World) -> None:
    world.penstock.db.transact(
        lambda tx: tx.run(sa.update(workers).values(last_seen_at=tx.later(-3600), running_count=3))
    )


def test_a_token_does_not_touch_the_row_of_another(world: World) -> None:
    identity = operators_worker(world)
    claim(world.client("worker", "bolt"))
    long_ago(world)
    before = rows(world)
    for name in (HTTP_WORKER, identity):
        assert claim(world.client("worker"), name) == []
    world.penstock.enqueue("echo", {}, tenant="acme")
    (job,) = claim(world.client("worker"), identity)
    beat = {"run_id": job["run_id"]}
    assert world.client("worker").post(f"{API}/worker/jobs/{job['job_id']}/heartbeat", json=beat).status_code == 200
    many = {"runs": [{"job_id": job["job_id"], "run_id": job["run_id"]}]}
    assert world.client("worker").post(f"{API}/worker/jobs/heartbeat", json=many).status_code == 200
    after = rows(world)
    assert [row for row in after if row in before] == before, "the rows of bolt and of the operator are as they were"
    mine = {each["id"]: each for each in world.client("viewer").get(f"{API}/workers").json()["items"]}
    assert {HTTP_WORKER, identity} <= set(mine), "a name that others have is a worker of its own"
    theirs = world.client("viewer", "bolt").get(f"{API}/workers").json()["items"]
    assert {each["hostname"] for each in theirs} <= {"far", None}
    assert all(each["stale"] for each in theirs)


def secrets() -> list[str]:
    host, pid, boot = process_identity().split(":")
    return [f"{host}:", boot, f":{pid}:{boot}"]


def test_a_tenant_learns_nothing_of_the_operators_machines(world: World) -> None:
    identity = operators_worker(world)
    world.penstock.enqueue("echo", {}, tenant="acme")
    waiting = world.penstock.enqueue("echo", {}, tenant="acme", priority=900)
    (held,) = world.penstock.queue.claim(identity, 1)
    assert isinstance(held, Claim)
    viewer = world.client("viewer")
    reads = [
        "/workers", "/jobs", f"/jobs/{held.job_id}", f"/jobs/{held.job_id}/attempts", f"/jobs/{held.job_id}/why",
        f"/jobs/{waiting.id}/why", "/jobs/export.csv", "/stats/failures", "/stats/timeline",
    ]  # fmt: skip
    told = {path: viewer.get(API + path).text for path in reads}
    for path, text in told.items():
        assert not any(secret in text for secret in secrets()), path
    (listed,) = viewer.get(f"{API}/workers").json()["items"]
    job = viewer.get(f"{API}/jobs/{held.job_id}").json()
    (attempt,) = viewer.get(f"{API}/jobs/{held.job_id}/attempts").json()["items"]
    assert listed["id"] == listed["name"] == job["claimed_by_worker"] == attempt["worker_id"], "one stable name"
    assert listed["hostname"] is None and attempt["pid"] is None
    (full,) = world.client().get(f"{API}/workers").json()["items"]
    assert (full["id"], full["hostname"], full["name"]) == (identity, socket.gethostname(), listed["name"])

    world.penstock.queue.finish(held, Failed(f"CRASH_RECOVERY: its worker {identity} vanished", fatal=True))
    for path in (
        f"/jobs/{held.job_id}",
        f"/jobs/{held.job_id}/attempts",
        f"/jobs/{held.job_id}/why",
        "/jobs",
        "/stats/failures",
    ):
        text = viewer.get(API + path).text
        assert not any(secret in text for secret in secrets()), path
    assert f"its worker {listed['name']} vanished" in viewer.get(f"{API}/jobs/{held.job_id}").json()["last_error"]


def test_a_tenants_own_workers_are_shown_to_it_in_full(world: World) -> None:
    world.penstock.enqueue("echo", {}, tenant="acme")
    (job,) = claim(world.client("worker"))
    assert job["worker_id"] == HTTP_WORKER
    viewer = world.client("viewer")
    (listed,) = viewer.get(f"{API}/workers").json()["items"]
    assert (listed["id"], listed["name"], listed["hostname"]) == (HTTP_WORKER, HTTP_WORKER, "far")
    assert viewer.get(f"{API}/jobs/{job['job_id']}").json()["claimed_by_worker"] == HTTP_WORKER
    (attempt,) = viewer.get(f"{API}/jobs/{job['job_id']}/attempts").json()["items"]
    assert (attempt["worker_id"], attempt["pid"]) == (HTTP_WORKER, 7)
    assert HTTP_WORKER in viewer.get(f"{API}/jobs/{job['job_id']}/why").json()["sentence"]
    done = world.client("worker").post(f"{API}/worker/jobs/{job['job_id']}/complete", json={"run_id": job["run_id"]})
    assert done.status_code == 200


def test_why_names_no_worker_of_another_tenant(world: World) -> None:
    claim(world.client("worker", "bolt"), "bolts:1:x")
    waiting = world.penstock.enqueue("echo", {}, tenant="acme")
    why = world.client("viewer").get(f"{API}/jobs/{waiting.id}/why")
    assert why.json()["reason"] == "no_worker" and "bolts" not in why.text


def test_first_claims_at_once_are_of_one_worker(world: World) -> None:
    """Two requests of a worker that nobody knew: neither fails, and there is one row."""
    together = threading.Barrier(8)

    def first(_: int) -> list[dict[str, Any]]:
        with world.client("worker") as client:
            together.wait()
            return claim(client)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(first, range(8))) == [[]] * 8
    assert len([row for row in rows(world) if row["id"].endswith(HTTP_WORKER)]) == 1
