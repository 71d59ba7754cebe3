"""Requests a second of our API beside a bare FastAPI route with one INSERT or one SELECT on the same database.

    python bench/service.py [--seconds 5] [--clients 8] [--url postgresql://…]

Both apps run in a server process of their own, on the same database and machine, and are asked in turn. The bare routes
do what a minimal service would with rows of the same columns: read one JSON body, insert one row, commit; or read fifty
rows and answer them. Ours also authenticates, validates, finds the job's place in the queue, audits and masks secrets.
At least half is the aim.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy import Column, MetaData, Table, select

from penstock import Penstock
from penstock.server import Settings, create_app
from penstock.store.database import Database, make_engine
from penstock.store.schema import upgrade
from penstock.store.tables import job_view

TOKEN = "bench-token-of-the-operator"
APPS = ("bare", "ours")
REQUESTS = {"enqueue": "POST", "list 50": "GET"}
TURNS = 6


class New(BaseModel):
    definition_key: str
    payload: dict[str, Any] = {}


def bare(url: str) -> FastAPI:
    """What anybody would write first."""
    engine = make_engine(url)
    metadata = MetaData()
    table = Table("bare_jobs", metadata, *(Column(c.name, c.type, primary_key=c.primary_key) for c in job_view.c))
    metadata.create_all(engine)
    app = FastAPI()

    @app.post("/api/v1/jobs", status_code=201)
    def create(body: New) -> dict[str, Any]:
        now, made = datetime.now(UTC), uuid.uuid4()
        values = {
            "id": made, "tenant_id": made, "definition_key": body.definition_key, "queue": "default", "status": "queued",
            "priority": 100, "position": 100, "params": body.payload, "source": "manual", "root_id": made,
            "scheduled_for": now, "created_at": now, "queued_at": now, "max_attempts": 3, "retry_mode": "requeue",
        }  # fmt: skip
        with engine.connect().execution_options(penstock_write=True) as conn, conn.begin():
            row = conn.execute(table.insert().values(**values).returning(table)).mappings().one()
        return dict(row)

    @app.get("/api/v1/jobs")
    def listed(limit: int = 50) -> list[dict[str, Any]]:
        with engine.connect() as conn:
            found = conn.execute(select(table).order_by(table.c.id.desc()).limit(limit)).mappings()
            return [dict(row) for row in found]

    return app


def ours(url: str) -> FastAPI:
    db = Database(url)
    upgrade(db)
    db.close()
    penstock = Penstock(url)
    penstock.define("echo", runner="command")
    return create_app(penstock, Settings(bootstrap_token=TOKEN, rate_limit=1e9))


def serve(which: str, url: str, port: int) -> None:
    import uvicorn

    uvicorn.run(
        {"bare": bare, "ours": ours}[which](url), host="127.0.0.1", port=port, log_level="warning", access_log=False
    )


def request(method: str) -> bytes:
    """As it goes over the wire: a client library would be measured with the servers, and take longer than they do."""
    body = json.dumps({"definition_key": "echo", "payload": {"n": 1}}) if method == "POST" else ""
    lines = [
        f"{method} /api/v1/jobs{'?limit=50' if method == 'GET' else ''} HTTP/1.1",
        "host: 127.0.0.1",
        f"authorization: Bearer {TOKEN}",
        "content-type: application/json",
        f"content-length: {len(body)}",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


async def load(port: int, asked: bytes, seconds: float, clients: int) -> float:
    """Answers a second to so many clients, each of which asks again as soon as it has its answer."""
    connections = [await asyncio.open_connection("127.0.0.1", port, limit=2**20) for _ in range(clients)]
    done = 0
    started = time.perf_counter()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal done
        while time.perf_counter() < started + seconds:
            writer.write(asked)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            said = await reader.readexactly(int(head.split(b"content-length: ")[1].split(b"\r\n")[0]))
            assert head[9:12] in (b"200", b"201"), said
            done += 1
        writer.close()

    await asyncio.gather(*(one(*connection) for connection in connections))
    return done / (time.perf_counter() - started)


def free_port() -> int:
    for port in range(20000, 32000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise RuntimeError("no free port")


@contextmanager
def served(which: str, url: str) -> Iterator[int]:
    """A server process of its own; the port it answers on."""
    port = free_port()
    server = subprocess.Popen([sys.executable, __file__, "--serve", which, "--url", url, "--port", str(port)])
    try:
        for _ in range(300):
            try:
                httpx.get(f"http://127.0.0.1:{port}/health/live")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        yield port
    finally:
        server.terminate()
        server.wait()


def measure(url: str, seconds: float, clients: int) -> dict[str, dict[str, list[float]]]:
    """Both sides in turn, in short turns, so that what else the machine does meets both alike."""
    found: dict[str, dict[str, list[float]]] = {which: {name: [] for name in REQUESTS} for which in APPS}
    with ExitStack() as stack:
        ports = {which: stack.enter_context(served(which, url)) for which in APPS}
        for port in ports.values():
            asyncio.run(load(port, request("POST"), 1, clients))
        for turn in range(TURNS):
            for which in APPS if turn % 2 else reversed(APPS):
                for name, method in REQUESTS.items():
                    found[which][name].append(
                        asyncio.run(load(ports[which], request(method), seconds / TURNS, clients))
                    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--url", default=os.environ.get("PENSTOCK_DATABASE_URL"))
    parser.add_argument("--serve")
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    if given.serve:
        serve(given.serve, given.url, given.port)
        return
    with tempfile.TemporaryDirectory() as folder:
        url = given.url or f"sqlite:///{Path(folder) / 'bench.db'}"
        turns = measure(url, given.seconds, given.clients)
    found = {which: {name: statistics.median(rates) for name, rates in each.items()} for which, each in turns.items()}
    for name in found["bare"]:
        ratio = found["ours"][name] / found["bare"][name]
        each = [ours / bare for ours, bare in zip(turns["ours"][name], turns["bare"][name], strict=True)]
        print(
            f"{name:8}  bare {found['bare'][name]:7.0f}/s   ours {found['ours'][name]:7.0f}/s   {ratio:.2f} of bare"
            f"   ({min(each):.2f} to {max(each):.2f} in {len(each)} turns)"
        )
    print(json.dumps({"clients": given.clients, "database": url.split(":")[0], **found}))


if __name__ == "__main__":
    main()
