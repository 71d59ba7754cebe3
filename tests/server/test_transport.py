"""Slow clients and many connections: every wait has one deadline, connections are bounded, and health checks answer meanwhile."""

from __future__ import annotations

import http.client
import json
import os
import resource
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from penstock.cli.serve import Server
from penstock.server import Settings, page
from tests.server.support import BOOTSTRAP, World, served

PATIENCE = 60.0
DRIP = 0.05
HALF = b"GET /health/live HTTP/1.1\r\nHost: x\r\n"
WHOLE = HALF + b"\r\n"
NEIGHBOUR = "127.0.0.2"
"""Another address of this machine, for another client."""


@pytest.fixture
def backend() -> str:
    return "sqlite"  # nothing here is about the database


@pytest.fixture
def settings() -> Settings:
    return Settings(
        bootstrap_token=BOOTSTRAP, header_timeout=1.0, idle_timeout=1.0, body_timeout=1.0, max_connections=40,
        connections_per_address=20, threads=4, stream_interval=0.1,
    )  # fmt: skip


@pytest.fixture
def address(world: World) -> Iterator[tuple[str, int]]:
    with served(world) as url:
        found = urlsplit(url)
        yield str(found.hostname), int(found.port or 0)


@contextmanager
def connected(address: tuple[str, int], source: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.create_connection(address, PATIENCE, (source, 0)) as conn:
        yield conn


def is_closed(conn: socket.socket) -> bool:
    """Whether the server has ended the connection; what it said before is thrown away."""
    try:
        while select.select([conn], [], [], 0)[0]:
            if not conn.recv(65536):
                return True
    except ConnectionError:
        return True
    return False


def drip_until_closed(conn: socket.socket, piece: bytes) -> None:
    """Send a piece every now and then, as a client does that wants to keep a connection for nothing."""
    for _ in range(int(PATIENCE / DRIP)):
        if is_closed(conn):
            return
        try:
            conn.sendall(piece)
        except ConnectionError:
            return
        select.select([conn], [], [], DRIP)
    raise AssertionError("the server keeps the connection")


def wait_closed(conn: socket.socket) -> None:
    conn.settimeout(PATIENCE)
    try:
        while conn.recv(65536):
            pass
    except ConnectionError:
        pass


def ask(
    address: tuple[str, int], path: str = "/health/live", source: str = "127.0.0.1", **headers: str
) -> tuple[int, bytes]:
    conn = http.client.HTTPConnection(*address, timeout=PATIENCE, source_address=(source, 0))
    try:
        conn.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = conn.getresponse()
        return answer.status, answer.read()
    finally:
        conn.close()


def read_answer(conn: socket.socket) -> tuple[int, dict[str, str], bytes]:
    answer = http.client.HTTPResponse(conn)
    answer.begin()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def test_a_head_that_drips_in_is_not_waited_for(address: tuple[str, int]) -> None:
    with connected(address) as conn:
        conn.sendall(HALF)
        drip_until_closed(conn, b"a: b\r\n")


def test_a_connection_that_says_nothing_is_closed(address: tuple[str, int]) -> None:
    with connected(address) as conn:
        wait_closed(conn)


def test_the_head_of_a_second_request_has_the_deadline_too(address: tuple[str, int]) -> None:
    with connected(address) as conn:
        conn.sendall(WHOLE)
        assert read_answer(conn)[0] == 200
        conn.sendall(HALF)
        drip_until_closed(conn, b"a: b\r\n")


def test_an_idle_connection_is_closed(address: tuple[str, int]) -> None:
    with connected(address) as conn:
        conn.sendall(WHOLE)
        assert read_answer(conn)[0] == 200
        wait_closed(conn)


def test_a_body_that_nobody_wants_any_more_does_not_keep_the_connection(address: tuple[str, int]) -> None:
    """The answer came before the body, which keeps dripping in."""
    with connected(address) as conn:
        conn.sendall(b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        assert read_answer(conn)[0] == 401
        drip_until_closed(conn, b"x")


def test_a_body_that_drips_in_is_refused_and_its_connection_closed(world: World, address: tuple[str, int]) -> None:
    with connected(address) as conn:
        head = (
            "POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n"
            f"Authorization: Bearer {world.token('operator')}\r\n\r\n"
        )
        conn.sendall(head.encode())
        while not select.select([conn], [], [], DRIP)[0]:
            conn.sendall(b" ")
        status, _, body = read_answer(conn)
        assert (status, json.loads(body)["code"]) == (408, "too_slow")
        drip_until_closed(conn, b" ")


def test_who_does_not_read_its_answers_is_cut_off(address: tuple[str, int]) -> None:
    largest = max(page.PAGE.rglob("*.js"), key=lambda path: path.stat().st_size)
    asked = f"GET /assets/{largest.name} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with socket.socket() as conn:
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        conn.connect(address)
        conn.sendall(asked * 100)
        poll = select.poll()
        poll.register(conn, 0)  # only errors and the end, without reading
        assert poll.poll(PATIENCE * 1000), "the server keeps the connection"


def test_requests_in_one_piece_are_all_answered(address: tuple[str, int]) -> None:
    with connected(address) as conn:
        conn.sendall(WHOLE * 20)
        said = b""
        while said.count(b'{"status":"ok"}') < 20:
            said += conn.recv(65536)
        wait_closed(conn)


def test_beyond_the_bound_the_longest_waiting_connection_of_an_address_makes_room(address: tuple[str, int]) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(connected(address, NEIGHBOUR)) for _ in range(20)]
        for conn in held:
            conn.sendall(HALF)
        assert ask(address, source=NEIGHBOUR)[0] == 200, "its own new request is answered"
        wait_closed(held[0])
        conn = held[-1]
        conn.sendall(b"\r\n")
        assert read_answer(conn)[0] == 200, "the newest are still there"


def test_an_address_that_is_busy_everywhere_is_told_so_and_others_are_not(
    world: World, address: tuple[str, int]
) -> None:
    token = f"Bearer {world.token('viewer')}"
    stream = f"GET /api/v1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n\r\n".encode()
    with ExitStack() as stack:
        for _ in range(20):
            conn = stack.enter_context(connected(address, NEIGHBOUR))
            conn.sendall(stream)
            assert b"200" in conn.recv(65536)
        with connected(address, NEIGHBOUR) as conn:
            conn.sendall(WHOLE.replace(b"/health/live", b"/api/v1/jobs"))
            status, headers, body = read_answer(conn)
            assert (status, json.loads(body)["code"]) == (503, "too_many_connections")
            assert (headers["connection"], headers["x-content-type-options"]) == ("close", "nosniff")
            wait_closed(conn)
        for path in ("/health/live", "/health/ready"):
            assert ask(address, path, NEIGHBOUR)[0] == 200
        assert ask(address, "/api/v1/jobs", Authorization=token)[0] == 200


def test_when_all_connections_are_busy_health_checks_answer(world: World, address: tuple[str, int]) -> None:
    token = f"Bearer {world.token('viewer')}"
    stream = f"GET /api/v1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: {token}\r\n\r\n".encode()
    with ExitStack() as stack:
        for number in range(40):
            conn = stack.enter_context(connected(address, f"127.0.0.{2 + number % 4}"))
            conn.sendall(stream)
            assert b"200" in conn.recv(65536)
        half = [stack.enter_context(connected(address)) for _ in range(60)]
        for conn in half:
            try:
                conn.sendall(HALF)
            except ConnectionError:
                pass  # the spare places are bounded as well
        for path in ("/health/live", "/health/ready"):
            assert ask(address, path)[0] == 200
        assert ask(address, "/api/v1/jobs", Authorization=token)[0] == 503


def test_health_checks_answer_while_all_threads_are_busy(world: World, address: tuple[str, int]) -> None:
    entered, release = threading.Semaphore(0), threading.Event()

    def hold(_request: Request) -> PlainTextResponse:
        entered.release()
        release.wait(PATIENCE)
        return PlainTextResponse("released")

    world.app.router.routes.insert(0, Route("/hold", hold))
    with ExitStack() as stack:
        held = [stack.enter_context(connected(address)) for _ in range(8)]
        try:
            for conn in held:
                conn.sendall(WHOLE.replace(b"/health/live", b"/hold"))
            for _ in range(world.app.state.settings.threads):
                assert entered.acquire(timeout=PATIENCE)
            for path in ("/health/live", "/health/ready"):
                assert ask(address, path)[0] == 200
        finally:
            release.set()
        for conn in held:
            assert read_answer(conn)[0] == 200


def test_a_trusted_proxy_has_as_many_connections_as_there_are(world: World, settings: Settings) -> None:
    from dataclasses import replace

    from penstock.server import create_app

    app = create_app(world.penstock, replace(settings, trusted_proxies=(NEIGHBOUR,), header_timeout=PATIENCE))
    with served(World(world.penstock, app, world.loop)) as url, ExitStack() as stack:
        found = urlsplit(url)
        proxy = (str(found.hostname), int(found.port or 0))
        held = [stack.enter_context(connected(proxy, NEIGHBOUR)) for _ in range(30)]
        for conn in held:
            conn.sendall(HALF)
        for conn in held:
            conn.sendall(b"\r\n")
            assert read_answer(conn)[0] == 200


def test_what_is_no_http_is_refused_like_everything_else(address: tuple[str, int]) -> None:
    with connected(address) as conn:
        conn.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: minus one\r\n\r\n")
        status, headers, body = read_answer(conn)
        assert (status, json.loads(body)["code"]) == (400, "bad_request")
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["cache-control"] == "no-store"
        wait_closed(conn)


@contextmanager
def penstock_api(folder: Path, **settings: str) -> Iterator[tuple[tuple[str, int], psutil.Process]]:
    """`penstock api` as a process of its own."""
    environment = {
        **os.environ, "PENSTOCK_BOOTSTRAP_TOKEN": BOOTSTRAP, "PENSTOCK_DATABASE_URL": "sqlite:///penstock.db", **settings,
    }  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "api", "--port", "0"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = urlsplit(process.stdout.readline().split(" at ")[1].strip())
        yield (str(found.hostname), int(found.port or 0)), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("per_address", ["256", "100000"])
def test_two_thousand_half_open_connections_shut_nobody_out(tmp_path: Path, per_address: str) -> None:
    """By the bound of the address, and, as if they came from everywhere, by the bound of all."""
    number = 2050
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, number + 500)), hard))
    limits = {"PENSTOCK_CONNECTIONS_PER_ADDRESS": per_address, "PENSTOCK_HEADER_TIMEOUT": "600"}
    with penstock_api(tmp_path, **limits) as (address, process), ExitStack() as stack:
        held = [stack.enter_context(connected(address)) for _ in range(number)]
        for conn in held:
            try:
                conn.sendall(HALF)
            except ConnectionError:
                pass
        token = {"Authorization": f"Bearer {BOOTSTRAP}"}
        for source in ("127.0.0.1", NEIGHBOUR):
            for path in ("/health/live", "/health/ready"):
                assert ask(address, path, source)[0] == 200
            assert ask(address, "/api/v1/jobs", source, **token)[0] == 200
        open_now = [each for each in process.net_connections("tcp") if each.status == psutil.CONN_ESTABLISHED]
        assert len(open_now) <= min(int(per_address), 2000) + 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_made_up_addresses_do_not_get_past_the_throttle_of_the_real_server(world: World) -> None:
    server = Server(world.penstock, "127.0.0.1", 0, None)
    server._server.config.app.state.gate._refused.rate = 1e-9  # type: ignore[union-attr]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        with httpx.Client(
            base_url=server.address, timeout=PATIENCE, headers={"authorization": "Bearer wrong"}
        ) as client:
            while client.get("/api/v1/jobs").status_code == 401:
                pass
            assert client.get("/api/v1/jobs").status_code == 429
            assert client.get("/api/v1/jobs", headers={"x-forwarded-for": "198.51.100.7"}).status_code == 429
    finally:
        server.stop()
        thread.join(PATIENCE)


def test_the_service_takes_no_more_connections_than_its_file_descriptors_allow(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from penstock.server.transport import affordable, raise_open_files as more;"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (600, int(sys.argv[1]))); len(sys.argv) > 2 and more(2000); n = affordable(2000);"
        "print(n, resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )

    def found(*arguments: object) -> list[str]:
        command = [sys.executable, "-c", code, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.split("\n")[-2].split()

    assert found(4000, "ours") == ["2000", "2512"], "the limit is raised as far as is needed"
    assert found(1000, "ours") == ["488", "1000"], "else fewer are taken"
    assert found(4000) == ["88", "600"], "the limit of a process that is not ours is left alone"
