"""What one tenant's attack does to another tenant: the other's requests alone, and while the attack goes on, in one run.

    python -m bench.walls [--seconds 15] [--only claims streams …] [--url postgresql://…]

The service is a real `penstock api` beside a real worker; the attacker is a process of its own with tokens of tenant alpha. Tenant beta
asks twenty times a second, each time by a new connection: a summary, then an enqueue. The bar is 1.5 times beta's usual p95. The attack on
the queue's order is measured by how long a job of beta's waits until it starts, beside an alpha that has as much work at the usual priority.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
from tests.support.ports import free_port
from tests.support.postgres import Server

from penstock import Penstock
from penstock.queue.access import create_token
from penstock.store.database import Database
from penstock.store.schema import upgrade

BAR = 1.5
FROM = "127.0.0.1"
"""The address that requests come from. The attacker has another."""
TAGS = {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}}
HEAD = (
    "authorization: Bearer {token}\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
)


def request(method: str, path: str, token: str, body: Any = None, *, close: bool = True) -> bytes:
    said = "" if body is None else json.dumps(body)
    head = f"{method} /api/v1{path} HTTP/1.1\r\n" + HEAD.format(token=token, length=len(said))
    return f"{head}{'connection: close' if close else 'connection: keep-alive'}\r\n\r\n{said}".encode()


async def ask(port: int, asked: bytes) -> int:
    """The status, once the whole answer has come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(FROM, 0))
    try:
        writer.write(asked)
        status = (await reader.readline()).split()
        await reader.read()
        return int(status[1]) if len(status) > 1 else 0
    finally:
        writer.close()


# The attacks: each is what one of many tasks does, again and again, until the process is ended.
async def payload(port: int, tokens: dict[str, str]) -> None:
    await ask(
        port,
        request("POST", "/jobs", tokens["operator"], {"definition_key": "tags", "payload": {"tags": [1] * 200_000}}),
    )


async def claims(port: int, tokens: dict[str, str]) -> None:
    body = {"worker_id": f"w{id(asyncio.current_task())}", "queues": ["none"], "wait_seconds": 20}
    await _not_too_often(ask(port, request("POST", "/worker/jobs/claim", tokens["worker"], body)))


async def reservations(port: int, tokens: dict[str, str]) -> None:
    await _not_too_often(
        ask(port, request("POST", "/reservations", tokens["operator"], {"wait_seconds": 20, "expires_in": 60}))
    )


async def heads(port: int, _tokens: dict[str, str]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(FROM, 0))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
    with suppress(OSError):
        await reader.read()
    writer.close()
    await asyncio.sleep(random.uniform(3, 7))


async def streams(port: int, tokens: dict[str, str]) -> None:
    await _not_too_often(ask(port, request("GET", "/stream", tokens["viewer"])))


async def flood(port: int, tokens: dict[str, str]) -> None:
    await _not_too_often(ask(port, request("GET", "/jobs?limit=200", tokens["viewer"])), 0.2)


async def _not_too_often(work: Awaitable[int], seconds: float = 5.0) -> None:
    """An attacker that is refused at once tries again when it was told to; one that hammers is `flood`."""
    began = time.monotonic()
    await work
    await asyncio.sleep(max(0.0, seconds * random.uniform(0.6, 1.4) - (time.monotonic() - began)))


ATTACKS: dict[str, tuple[Callable[[int, dict[str, str]], Awaitable[None]], int, str]] = {
    "payload": (payload, 3, "three refused payloads of 0.6 MB at a time"),
    "claims": (claims, 300, "300 claims that wait for a job"),
    "reservations": (reservations, 60, "60 reservations that wait"),
    "heads": (heads, 2050, "2,050 connections that never end their request's head"),
    "streams": (streams, 1990, "1,990 live streams"),
    "flood": (flood, 100, "500 lists of 200 jobs a second by one token"),
}


async def attack(name: str, port: int, tokens: dict[str, str]) -> None:
    once, number, _ = ATTACKS[name]

    async def again() -> None:
        await asyncio.sleep(random.uniform(0, 5))
        while True:
            try:
                await once(port, tokens)
            except OSError:
                await asyncio.sleep(0.5)

    await asyncio.gather(*(again() for _ in range(number)))


async def probe(port: int, token: str, seconds: float) -> tuple[list[float], int]:
    """Beta's latencies in milliseconds, and how many requests were not answered well."""
    found: list[float] = []
    bad = 0
    asked = [request("GET", "/jobs/summary", token), request("POST", "/jobs", token, {"definition_key": "echo"})]
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for each in asked:
            began = time.perf_counter()
            try:
                bad += await asyncio.wait_for(ask(port, each), 30) not in (200, 201)
            except (OSError, TimeoutError):
                bad += 1
            found.append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(0.05)
    return found, bad


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


@contextmanager
def process(*args: str, url: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": url, **variables}
    began = subprocess.Popen(
        [sys.executable, *args], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield began
    finally:
        began.terminate()
        began.wait(60)


def prepare(url: str) -> dict[str, dict[str, str]]:
    db = Database(url)
    upgrade(db)
    db.close()
    with Penstock(url) as app:
        app.define("tags", runner="command", arg_schema=TAGS)
        app.define("echo", runner="command", queue="echo")
        app.queues.create("none")
        tokens: dict[str, dict[str, str]] = {}
        for tenant in ("alpha", "beta"):
            app.tenants.create(tenant, name=tenant)
            tokens[tenant] = {
                role: create_token(app.ground, role, role, tenant=tenant)[1]
                for role in ("operator", "viewer", "worker")
            }
        for tenant in ("alpha", "beta"):
            app.as_tenant(tenant).enqueue_many("echo", [{"n": n} for n in range(500)])
    return tokens


def measure(url: str, seconds: float, only: list[str]) -> list[tuple[str, float, float, int]]:
    tokens = prepare(url)
    rows: list[tuple[str, float, float, int]] = []
    with ExitStack() as stack:
        port = free_port()
        stack.enter_context(process("-m", "penstock.cli", "api", "--port", str(port), url=url))
        stack.enter_context(process("-m", "penstock.cli", "worker", "--app", "bench.naps:app", "-c", "8", url=url))
        _until_ready(port)
        beta = tokens["beta"]["operator"]
        asyncio.run(probe(port, beta, 2))
        for name in [each for each in ATTACKS if each in only]:
            usual, _ = asyncio.run(probe(port, beta, seconds))
            args = ("-m", "bench.walls", "--attack", name, "--port", str(port), "--tokens", json.dumps(tokens["alpha"]))
            with process(*args, url=url):
                time.sleep(8)  # until all of it is there
                during, bad = asyncio.run(probe(port, beta, seconds))
                bad += not _is_ready(port)
            rows.append((ATTACKS[name][2], p95(usual), p95(during), bad))
            _say(rows[-1])
            _until_ready(port)
        if "priority" in only:
            usual_wait, wait = (_waited(url, port, tokens, priority) for priority in (100, None))
            rows.append(("jobs before all others (wait until a job starts)", usual_wait, wait, 0))
            _say(rows[-1])
    return rows


def _waited(url: str, port: int, tokens: dict[str, dict[str, str]], priority: int | None) -> float:
    """Milliseconds until jobs of beta's start, one after the other, while alpha has 400 short ones before all others, or at a priority."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60) as client:
        alpha = {"authorization": f"Bearer {tokens['alpha']['operator']}"}
        chosen = priority
        for lowest in (-(2**31), -1000, 0) if priority is None else (priority,):
            job = {"definition_key": "nap", "payload": {"seconds": 0.1}, "priority": lowest}
            chosen = lowest
            if client.post("/jobs", headers=alpha, json=job).status_code == 201:
                break
        for _ in range(400):
            client.post(
                "/jobs", headers=alpha, json={"definition_key": "nap", "payload": {"seconds": 0.1}, "priority": chosen}
            )
        beta = {"authorization": f"Bearer {tokens['beta']['operator']}"}
        made = [
            client.post("/jobs", headers=beta, json={"definition_key": "nap", "payload": {"seconds": 0.01}}).json()
            for _ in range(5)
        ]
        waits: list[float] = []
        with Penstock(url) as app:
            acting = app.as_tenant("beta")
            for each in made:
                while (job_now := acting.jobs.get(each["id"])).started_at is None:
                    time.sleep(0.02)
                waits.append(1000 * (job_now.started_at - job_now.queued_at).total_seconds())
            while app.as_tenant("alpha").jobs.list(status="queued", key="nap", limit=1):
                time.sleep(0.1)
    return statistics.median(waits)


def _is_ready(port: int) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=10).status_code == 200
    return False


def _until_ready(port: int) -> None:
    until = time.monotonic() + 300
    while not _is_ready(port):
        if time.monotonic() > until:
            raise RuntimeError("the service did not become ready")
        time.sleep(0.2)


def _say(row: tuple[str, float, float, int]) -> None:
    name, usual, during, bad = row
    met = "met" if during <= BAR * usual and not bad else "MISSED"
    print(f"{name:55} {usual:8.1f} ms  {during:8.1f} ms  {during / usual:6.2f}x  {bad:3} failed  {met}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--only", nargs="+", choices=[*ATTACKS, "priority"], default=[*ATTACKS, "priority"])
    parser.add_argument("--url", help="a database of your own; else a new SQLite file and then a new PostgreSQL server")
    parser.add_argument("--attack", choices=list(ATTACKS))
    parser.add_argument("--port", type=int)
    parser.add_argument("--tokens", type=json.loads)
    given = parser.parse_args()
    if given.attack:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
        global FROM
        FROM = "127.0.0.2"
        asyncio.run(attack(given.attack, given.port, given.tokens))
        return
    if given.url:
        measure(given.url, given.seconds, given.only)
        return
    with tempfile.TemporaryDirectory() as folder:
        print("SQLite", flush=True)
        measure(f"sqlite:///{Path(folder) / 'walls.db'}", given.seconds, given.only)
    server = Server().start()
    try:
        print("PostgreSQL", flush=True)
        measure(server.url(), given.seconds, given.only)
    finally:
        server.remove()


if __name__ == "__main__":
    main()
