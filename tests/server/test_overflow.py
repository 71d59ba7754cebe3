"""Who keeps the service computing is served by another process, so that nobody else waits for it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from penstock import Penstock
from penstock.queue.access import create_token
from tests.support.waiting import PATIENCE, eventually

TAGS = {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}}
REFUSED = json.dumps({"definition_key": "tags", "payload": {"tags": [1] * 200_000}}).encode()
SUMMARY = "GET /api/v1/jobs/summary HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n"


@dataclass
class Service:
    """A `penstock api` with the tenants alpha, which keeps it computing, beta, and gamma, which is only there. A share that is used up
    does not come back in time, so that it does not matter how fast this machine is. That is so for beta, too: it sends few requests."""

    process: psutil.Process
    address: tuple[str, int]
    alpha: str
    beta: str
    gamma: str

    def ask(self, token: str, path: str = "/jobs/summary", body: bytes | None = None) -> tuple[int, bool, Any]:
        """The status, whether the connection is closed after the response, and what the body says."""
        with closing(http.client.HTTPConnection(*self.address, timeout=PATIENCE)) as conn:
            headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
            conn.request("GET" if body is None else "POST", f"/api/v1{path}", body, headers)
            response = conn.getresponse()
            said = json.loads(response.read())
            return response.status, response.getheader("connection") == "close", said

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(self.address, PATIENCE) as conn:
            yield conn

    def keep_it_computing(self) -> None:
        """Let alpha use up its share, until another process serves it."""

        def attempt() -> bool:
            assert self.ask(self.gamma)[0] == 200  # there is somebody who would have to wait
            status, elsewhere, said = self.ask(self.alpha, "/jobs", REFUSED)
            assert (status, said["code"]) == (422, "invalid_payload")
            return elsewhere

        eventually(attempt, what="that another process serves alpha")
        assert self.ask(self.beta)[:2] == (200, False)

    def others(self) -> list[psutil.Process]:
        """The process that starts the overflow process, and that one."""
        return self.process.children(recursive=True)


@pytest.fixture
def service(url: str, tmp_path: Path) -> Iterator[Service]:
    tokens = []
    with Penstock(url) as app:
        app.define("tags", runner="command", arg_schema=TAGS)
        for tenant in ("alpha", "beta", "gamma"):
            app.tenants.create(tenant, name=tenant)
            tokens.append(create_token(app.ground, "operator", "operator", tenant=tenant)[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "api", "--port", "0"], cwd=tmp_path, text=True,
        env={**os.environ, "PENSTOCK_DATABASE_URL": url, "PENSTOCK_PROCESSOR_SHARE": "0.000001"}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = urlsplit(process.stdout.readline().split(" at ")[1].strip())
        yield Service(psutil.Process(process.pid), (str(found.hostname), int(found.port or 0)), *tokens)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def has_ended(process: psutil.Process) -> bool:
    """Whether it runs no more, though nobody may have asked how it ended."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def responses(conn: socket.socket, number: int) -> list[tuple[int, bool]]:
    """The status of each of the next responses, and whether it says that the connection is closed."""
    found = []
    with conn.makefile("rb") as file:
        for _ in range(number):
            status = int(file.readline().split()[1])
            headers = {}
            while line := file.readline().strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            file.read(int(headers["content-length"]))
            found.append((status, headers.get("connection") == "close"))
    return found


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_tenant_that_is_alone_needs_no_other_process(service: Service) -> None:
    for _ in range(5):
        assert service.ask(service.alpha, "/jobs", REFUSED)[:2] == (422, False)
    assert len(service.others()) == 1, "only the process that would start it is there"


def test_nobody_waits_for_the_process_that_serves_who_keeps_computing(service: Service) -> None:
    service.keep_it_computing()
    _, overflow = service.others()
    overflow.suspend()
    eventually(lambda: overflow.status() == psutil.STATUS_STOPPED)
    found: list[tuple[int, bool, Any]] = []
    waiting = threading.Thread(target=lambda: found.append(service.ask(service.alpha)))
    try:
        waiting.start()
        for _ in range(10):
            assert service.ask(service.beta)[:2] == (200, False)
        assert not found, "alpha was served by the process that serves beta"
    finally:
        overflow.resume()
    waiting.join(PATIENCE)
    assert found[0][:2] == (200, True)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_request_is_passed_on_however_it_comes(service: Service) -> None:
    service.keep_it_computing()
    alpha, beta = (SUMMARY.format(token).encode() for token in (service.alpha, service.beta))
    with service.connected() as conn:  # on a connection that a proxy shares between tenants
        conn.sendall(beta)
        assert responses(conn, 1) == [(200, False)]
        conn.sendall(alpha)
        assert responses(conn, 1) == [(200, True)]
        assert not conn.recv(1)
    with service.connected() as conn:  # before the response to the request before it has come
        conn.sendall(beta + alpha)
        assert responses(conn, 2) == [(200, False), (200, True)]
    with service.connected() as conn:  # in pieces
        for piece in (alpha[:10], alpha[10:50], alpha[50:-1], alpha[-1:]):
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            conn.sendall(piece)
            assert service.ask(service.beta)[0] == 200  # so that each piece is read by itself
        assert responses(conn, 1) == [(200, True)]


def test_a_large_body_arrives_whole(service: Service) -> None:
    service.keep_it_computing()
    tags = [f"tag {n}" for n in range(20_000)]
    body = json.dumps({"definition_key": "tags", "payload": {"tags": tags}}).encode()
    status, elsewhere, job = service.ask(service.alpha, "/jobs", body)
    assert (status, elsewhere, job["payload"]) == (201, True, {"tags": tags})
    assert service.ask(service.beta, f"/jobs/{job['id']}")[0] == 404


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_body_is_never_taken_for_the_head_of_a_request(service: Service) -> None:
    """Else who can choose a body could have a request of his own answered on a connection that others use, too."""
    service.keep_it_computing()
    alpha, beta = (SUMMARY.format(token).encode() for token in (service.alpha, service.beta))
    with service.connected() as conn:
        conn.sendall(f"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {len(alpha)}\r\n\r\n".encode())
        assert responses(conn, 1)[0][0] == 401  # before its body has come
        last = beta.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        try:
            conn.sendall(alpha)  # the body
            conn.sendall(last)
            rest = conn.makefile("rb").read()
        except ConnectionError:
            return  # the service closed the connection instead
        assert rest.count(b"HTTP/1.1 ") == rest.count(b"HTTP/1.1 200") <= 1, rest


@pytest.mark.parametrize("backend", ["sqlite"])
def test_the_service_goes_on_without_the_other_process(service: Service) -> None:
    service.keep_it_computing()
    _, overflow = service.others()
    overflow.kill()
    eventually(lambda: has_ended(overflow))
    service.keep_it_computing()
    assert overflow.pid not in {each.pid for each in service.others()}, "it is started again"
    for each in service.others():
        each.kill()

    def is_served_by_the_first() -> bool:
        try:
            return service.ask(service.alpha)[:2] == (200, False)
        except (ConnectionError, http.client.HTTPException):
            return False  # it was passed on to a process that was just being killed

    eventually(is_served_by_the_first)
    assert service.ask(service.beta)[:2] == (200, False)


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_other_process_ends_with_the_service(service: Service, how: signal.Signals) -> None:
    service.keep_it_computing()
    others = service.others()
    service.process.send_signal(how)
    eventually(lambda: all(has_ended(each) for each in others))
