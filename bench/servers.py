"""Which HTTP server carries the service: requests a second, and what 2,050 half-sent requests do to it.

    python -m pip install --target /tmp/servers granian hypercorn
    PYTHONPATH=/tmp/servers python -m bench.servers [--seconds 6] [--clients 8] [--half-open 2050]

Each server runs the same app in one process on a SQLite file of its own and is asked in turn, in short turns, so that what else
the machine does meets all alike. docs/decisions/0007-deadlines-in-uvicorn.md has the figures that decided.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import psutil

from bench.service import free_port, load, ours, request

SERVERS = ("uvicorn", "bounded", "granian", "hypercorn")
HEAD = b"GET /health/live HTTP/1.1\r\nHost: x\r\n"
TURNS = 4


def serve(which: str, url: str, port: int) -> None:
    app: Any = ours(url)
    if which in ("uvicorn", "bounded"):
        import uvicorn

        from penstock.server import uvicorn_config

        as_before = {"http": "h11", "limit_concurrency": 2000, "backlog": 2048} if which == "uvicorn" else {}
        uvicorn.Server(uvicorn_config(app, host="127.0.0.1", port=port, **as_before)).run()
    elif which == "granian":
        from granian.constants import Interfaces
        from granian.http import HTTP1Settings
        from granian.server.embed import Server

        http1 = HTTP1Settings(header_read_timeout=10_000)
        asyncio.run(
            Server(
                app,
                "127.0.0.1",
                port,
                interface=Interfaces.ASGI,
                http1_settings=http1,
                log_enabled=False,
                backlog=2048,
                backpressure=4096,
            ).serve()
        )
    else:
        from hypercorn.asyncio import serve as run
        from hypercorn.config import Config

        config = Config()
        config.bind, config.keep_alive_timeout, config.accesslog, config.errorlog = (
            [f"127.0.0.1:{port}"],
            15,
            None,
            None,
        )
        asyncio.run(run(app, config))


@contextmanager
def served(which: str, folder: str) -> Iterator[tuple[int, psutil.Process]]:
    port = free_port()
    command = [sys.executable, "-m", "bench.servers", "--serve", which, "--url", f"sqlite:///{folder}/{which}.db"]
    server = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            if server.poll() is not None:
                raise RuntimeError(f"{which} did not start")
            if _health(port, 1) == "200":
                break
            time.sleep(0.1)
        yield port, psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait()


def _health(port: int, patience: float, path: str = "/health/ready") -> str:
    began = time.perf_counter()
    try:
        with socket.create_connection(("127.0.0.1", port), patience) as conn:
            conn.settimeout(patience)
            conn.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
            said = conn.recv(4096)
    except OSError as error:
        return f"{type(error).__name__} after {time.perf_counter() - began:.1f} s"
    return said[9:12].decode()


def half_open(port: int, number: int, wait: float) -> dict[str, Any]:
    """Hold half-sent heads; what a health check gets at once and `wait` seconds later, and how many are still open."""
    with ExitStack() as stack:
        held = []
        for _ in range(number):
            try:
                conn = stack.enter_context(socket.create_connection(("127.0.0.1", port), 2))
            except OSError:
                break  # it takes no more
            try:
                conn.sendall(HEAD)
            except OSError:
                pass
            held.append(conn)
        at_once = _health(port, 10)
        time.sleep(wait)
        later = _health(port, 10)
        return {
            "taken": len(held),
            "at once": at_once,
            f"after {wait:.0f} s": later,
            "still open": sum(not _ended(conn) for conn in held),
        }


def _ended(conn: socket.socket) -> bool:
    conn.setblocking(False)
    try:
        while conn.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--half-open", type=int, default=2050)
    parser.add_argument("--wait", type=float, default=20)
    parser.add_argument("--serve")
    parser.add_argument("--url")
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    if given.serve:
        serve(given.serve, given.url, given.port)
        return
    asked = {"health": (b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n"), "enqueue": request("POST")}
    turns: dict[str, dict[str, list[tuple[float, float]]]] = {which: {name: [] for name in asked} for which in SERVERS}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running = {which: stack.enter_context(served(which, folder)) for which in SERVERS}
        for turn in range(TURNS):
            for which in SERVERS if turn % 2 else reversed(SERVERS):
                for name, wire in asked.items():
                    turns[which][name].append(measured(*running[which], wire, given.seconds / TURNS, given.clients))
        attacked = {which: half_open(port, given.half_open, given.wait) for which, (port, _) in running.items()}
    for which in SERVERS:
        told = "  ".join(
            f"{name} {statistics.median(rate for rate, _ in found):5.0f}/s {statistics.median(cpu for _, cpu in found):5.0f} µs"
            for name, found in turns[which].items()
        )
        print(f"{which:10} {told}  {json.dumps(attacked[which])}")


def measured(port: int, process: psutil.Process, wire: bytes, seconds: float, clients: int) -> tuple[float, float]:
    """Requests a second, and microseconds of processor time for each: what holds on a machine that does other things, too."""
    before = process.cpu_times()
    rate = asyncio.run(load(port, wire, seconds, clients))
    after = process.cpu_times()
    spent = after.user + after.system - before.user - before.system
    return rate, spent / (rate * seconds) * 1e6


if __name__ == "__main__":
    main()
