"""What browsers are told, on every answer there is."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import pytest

from penstock.server import page
from tests.server.support import World, served

PROXY = {"x-forwarded-proto": "https", "x-forwarded-for": "198.51.100.7"}
ALWAYS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
POLICY = ("default-src 'none'", "script-src 'self'", "object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'")
NO_DEVICES = ("camera=()", "geolocation=()", "microphone=()", "payment=()", "usb=()")


@pytest.fixture
def backend() -> str:
    return "sqlite"  # nothing here is about the database


@pytest.fixture
def settings() -> object:
    from penstock.server import Settings

    return Settings(trusted_proxies=("127.0.0.1",), metrics="token", stream_interval=0.1)


@pytest.fixture
def site(world: World) -> Iterator[httpx.Client]:
    with served(world) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


def requests(world: World) -> Iterator[tuple[str, str]]:
    """One request for every route and method."""
    for path, methods in world.app.openapi()["paths"].items():
        for method in methods:
            yield method.upper(), re.sub(r"{[^}]*}", lambda _: str(uuid4()), path)
    yield from (("GET", path) for path in ("/", "/api/v1/openapi.json", "/help/errors/not_found", "/help/errors/none"))


def others(folder: Path) -> Iterator[tuple[str, str]]:
    """Files, and addresses and methods that there are not."""
    yield from (("GET", f"/{path.relative_to(folder)}") for path in folder.rglob("*") if path.is_file())
    yield from (
        ("GET", "/jobs"),
        ("GET", "/none.js"),
        ("GET", "/api/v1/none"),
        ("TRACE", "/"),
        ("DELETE", "/api/v1/jobs"),
    )


def check(answer: httpx.Response, method: str, path: str) -> None:
    named = f"{method} {path} {answer.status_code}"
    for name, value in ALWAYS.items():
        assert answer.headers.get(name) == value, named
    for part in POLICY:
        assert part in answer.headers.get("content-security-policy", ""), named
    for part in NO_DEVICES:
        assert part in answer.headers.get("permissions-policy", ""), named
    assert answer.headers.get("x-request-id"), named
    expected = {"no-store"}
    if answer.status_code == 200 and not path.startswith(("/api", "/health", "/metrics", "/help")):
        expected = {"no-cache", "public, max-age=31536000, immutable"}
    assert answer.headers.get("cache-control") in expected, named
    assert len(answer.headers.get_list("cache-control")) == 1, named


def test_every_answer_has_them(world: World, site: httpx.Client) -> None:
    """Good answers, refusals, streams and files; with and without a token."""
    statuses: set[int] = set()
    for token in (None, world.token("super_admin")):
        headers = {"authorization": f"Bearer {token}"} if token else {}
        for method, path in [*requests(world), *others(page.PAGE)]:
            with site.stream(method, path, headers=headers) as answer:
                check(answer, method, path)
                assert "strict-transport-security" not in answer.headers, path
                statuses.add(answer.status_code)
    assert {200, 401, 404, 405, 422} <= statuses, statuses


def test_under_tls_every_answer_says_to_stay_there(world: World, site: httpx.Client) -> None:
    for method, path in [*requests(world), *others(page.PAGE)]:
        with site.stream(method, path, headers=PROXY) as answer:
            check(answer, method, path)
            assert answer.headers["strict-transport-security"] == "max-age=31536000; includeSubDomains", path


def test_a_request_with_two_lengths_is_refused_and_nothing_after_it_is_read(site: httpx.Client) -> None:
    address = urlsplit(str(site.base_url))
    smuggled = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    both = (
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        + smuggled
    )
    with socket.create_connection((address.hostname, address.port), 60) as conn:
        conn.sendall(both)
        said = b""
        while piece := conn.recv(65536):
            said += piece
    assert said.startswith(b"HTTP/1.1 400"), said
    assert b"ambiguous_length" in said
    assert said.count(b"HTTP/1.1 ") == 1, "the connection was closed after the refusal"
