"""Requests a second of our API beside a bare FastAPI route with one INSERT or one SELECT on the same database.

    python bench/service.py [--seconds 5] [--clients 8] [--url postgresql://…]

Both apps run in a server process of their own, on the same database and machine, one after the other. The bare routes
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
import subprocess
import sys
import tempfile
import time
import uuid
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
from penstock.store.tables import jobs

TOKEN = "bench-token-of-the-operator"


class New(BaseModel):
    definition_key: str
    payload: dict[str, Any] = {}


def bare(url: str) -> FastAPI:
    """What anybody would write first."""
    engine = make_engine(url)
    metadata = MetaData()
    table = Table("bare_jobs", metadata, *(Column(c.name, c.type, primary_key=c.primary_key) for c in jobs.c))
    metadata.create_all(engine)
    app = FastAPI()

    @app.post("/api/v1/jobs", status_code=201)
    def create(body: New) -> dict[str, Any]:
        now, made = datetime.now(UTC), uuid.uuid4()
        values = {
            "id": made, "tenant_id": made, "definition_key": body.definition_key, "queue": "default", "status": "queued",
            "claimable": True, "priority": 100, "position": 100, "params": body.payload, "source": "manual", "root_id": made,
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


async def load(port: int, method: str, seconds: float, clients: int) -> float:
    body = {"definition_key": "echo", "payload": {"n": 1}}
    done = 0
    end = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal done
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers) as client:
            while time.perf_counter() < end:
                answer = await (
                    client.post("/api/v1/jobs", json=body) if method == "POST" else client.get("/api/v1/jobs?limit=50")
                )
                assert answer.status_code in (200, 201), answer.text
                done += 1

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(clients)))
    return done / (time.perf_counter() - started)


def free_port() -> int:
    for port in range(20000, 32000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise RuntimeError("no free port")


def measure(which: str, url: str, seconds: float, clients: int) -> dict[str, float]:
    port = free_port()
    server = subprocess.Popen([sys.executable, __file__, "--serve", which, "--url", url, "--port", str(port)])
    try:
        for _ in range(100):
            try:
                httpx.get(f"http://127.0.0.1:{port}/health/live")
                break
            except httpx.TransportError:
                time.sleep(0.1)
        asyncio.run(load(port, "POST", 1, clients))
        return {
            "enqueue": asyncio.run(load(port, "POST", seconds, clients)),
            "list 50": asyncio.run(load(port, "GET", seconds, clients)),
        }
    finally:
        server.terminate()
        server.wait()


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
        found = {which: measure(which, url, given.seconds, given.clients) for which in ("bare", "ours")}
    for name in found["bare"]:
        ratio = found["ours"][name] / found["bare"][name]
        print(f"{name:8}  bare {found['bare'][name]:7.0f}/s   ours {found['ours'][name]:7.0f}/s   {ratio:.2f} of bare")
    print(json.dumps({"clients": given.clients, "database": url.split(":")[0], **found}))


if __name__ == "__main__":
    main()
