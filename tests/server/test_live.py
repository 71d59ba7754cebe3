"""The service as a process of its own: streams, `penstock up`, the page."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import Succeeded
from penstock.store import claims
from tests.server.support import BOOTSTRAP, World, served
from tests.support.ports import free_port


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])


def test_the_stream_tells_a_tenant_what_changes_and_nothing_else(world: World) -> None:
    acme, bolt = world.penstock.as_tenant("acme"), world.penstock.as_tenant("bolt")
    with served(world) as address, httpx.Client(timeout=60) as client:
        headers = {"authorization": f"Bearer {world.token('viewer')}"}
        with client.stream("GET", f"{address}/api/v1/stream", headers=headers) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            told = events(response.iter_lines())
            assert next(told) == ("hello", {"tenant": "acme"})
            name, first = next(told)
            assert (name, first["counts"]["queued"]) == ("summary", 0)
            bolt.enqueue("echo", {"words": "bolts-own"})
            job = acme.enqueue("echo")
            seen: list[tuple[str, Any]] = [next(told), next(told)]
            [changed] = next(data["items"] for name, data in seen if name == "jobs")
            assert (changed["id"], changed["status"]) == (str(job.id), "queued")
            assert next(data["counts"]["queued"] for name, data in seen if name == "summary") == 1
            [taken] = [each for each in world.penstock.queue.claim("w", 2) if each.tenant_slug == "acme"]
            world.penstock.queue.finish(taken, Succeeded())
            while True:
                name, data = next(told)
                assert "bolts-own" not in json.dumps(data)
                if name == "jobs" and data["items"][0]["status"] == "succeeded":
                    break


def test_a_jobs_log_is_followed_to_its_end(world: World) -> None:
    acme = world.penstock.as_tenant("acme")
    job = acme.enqueue("echo")
    [taken] = world.penstock.queue.claim("w", 1)
    with served(world) as address, httpx.Client(timeout=60) as client:
        headers = {"authorization": f"Bearer {world.token('viewer')}"}
        with client.stream("GET", f"{address}/api/v1/jobs/{job.id}/logs/stream", headers=headers) as response:
            told = events(response.iter_lines())
            assert next(told)[1]["stdout"] == ""
            world.penstock.db.transact(lambda tx: claims.report_tails(tx, taken.job_id, taken.run_id, "one\ntwo", ""))
            assert next(told)[1]["stdout"] == "one\ntwo"
            world.penstock.queue.finish(taken, Succeeded())
            rest = list(told)
            assert rest[-1] == ("end", {"status": "succeeded"})


def test_a_stream_ends_when_its_token_does(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.server.routes import stream

    monkeypatch.setattr(stream, "RECHECK", 0.2)
    made = world.client().post("/api/v1/admin/tokens", json={"tenant": "acme", "role": "viewer", "label": "x"}).json()
    with served(world) as address, httpx.Client(timeout=60) as client:
        headers = {"authorization": f"Bearer {made['token']}"}
        with client.stream("GET", f"{address}/api/v1/stream", headers=headers) as response:
            lines = response.iter_lines()
            assert next(lines) == "event: hello"
            world.client().delete(f"/api/v1/admin/tokens/{made['id']}")
            assert list(lines) is not None


def test_penstock_up_serves_everything_from_one_file(tmp_path: Path) -> None:
    commands = tmp_path / "commands.toml"
    commands.write_text(f'[commands.greet]\nargv = ["{sys.executable}", "-c", "print(\'hello from a job\')"]\n')
    environment = {
        **os.environ,
        "PENSTOCK_BOOTSTRAP_TOKEN": BOOTSTRAP,
        "PENSTOCK_DATABASE_URL": "sqlite:///penstock.db",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "up", "--port", "0", "--commands", str(commands)],
        cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        told = process.stdout.readline() + process.stdout.readline()
        link = re.search(r"Sign in: (http://127\.0\.0\.1:\d+)/sign-in#(\S+)", told)
        assert link, told or (process.stderr.read() if process.stderr else "")
        with httpx.Client(base_url=link[1], timeout=60) as page:
            wait_ready(page)
            signed_in = page.post("/api/v1/session", json={"token": link[2]}).json()
            assert signed_in["role"] == "super_admin"
            send = {"x-csrf-token": signed_in["csrf_token"]}
            assert (
                page.post(
                    "/api/v1/admin/jobs/definitions", json={"key": "greet", "runner": "command"}, headers=send
                ).status_code
                == 201
            )
            job = page.post("/api/v1/jobs", json={"definition_key": "greet"}, headers=send).json()
            end = time.monotonic() + 120
            while page.get(f"/api/v1/jobs/{job['id']}").json()["status"] != "succeeded":
                assert time.monotonic() < end, page.get(f"/api/v1/jobs/{job['id']}").text
                time.sleep(0.1)
            assert "hello from a job" in page.get(f"/api/v1/jobs/{job['id']}/logs").json()["stdout"]
            policy = page.get("/").headers["content-security-policy"]
            assert "unsafe" not in policy
            assert "default-src 'none'" in policy
        with httpx.Client(base_url=link[1], headers={"authorization": f"Bearer {BOOTSTRAP}"}) as operator:
            assert operator.get("/api/v1/session").json()["label"] == "bootstrap"
        assert (tmp_path / "penstock.db").stat().st_mode & 0o077 == 0
    finally:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors


def wait_ready(client: httpx.Client) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            if client.get("/health/ready").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_taken_port_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli", "api", "--port", str(port), "--database-url", f"sqlite:///{tmp_path}/p.db"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert "cannot be listened on" in done.stderr
    assert "Traceback" not in done.stderr
