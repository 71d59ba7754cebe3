"""Behind nginx and Caddy as the page on reverse proxies configures them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright

from penstock import Client, Penstock
from penstock.server import Settings, create_app
from tests.browser.chromium import FLAGS, ensure_chromium
from tests.neighbours.proxies import PATIENCE, Proxy, running
from tests.server.support import BOOTSTRAP, Loop, World, served

PROGRAMS = {"nginx": ("penstock.conf", "prefix.conf"), "caddy": ("Caddyfile", "Caddyfile.prefix")}
ANN, BOB = "127.0.0.7", "127.0.0.8"
"""Two clients; the proxy itself connects from 127.0.0.1."""
Start = Callable[[Settings], AbstractContextManager[World]]


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


@pytest.fixture
def start(tmp_path: Path, loop: Loop) -> Start:
    @contextmanager
    def started(settings: Settings) -> Iterator[World]:
        with Penstock(f"sqlite:///{tmp_path}/penstock.db") as penstock:
            penstock.tenants.create("acme", name="Acme")
            penstock.define("echo", runner="command", arg_schema={}, max_attempts=2)
            yield World(penstock, create_app(penstock, settings), loop)

    return started


@pytest.fixture(params=sorted(PROGRAMS))
def program(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(start: Start) -> Iterator[World]:
    with start(Settings(bootstrap_token=BOOTSTRAP, trusted_proxies=("127.0.0.1",), stream_interval=0.1)) as world:
        yield world


@pytest.fixture
def proxy(program: str, world: World) -> Iterator[Proxy]:
    with served(world) as url, running(program, PROGRAMS[program][0], urlsplit(url).netloc) as proxy:
        yield proxy


@pytest.fixture
def below(program: str, start: Start) -> Iterator[tuple[World, Proxy]]:
    """Behind the proxy, at /penstock."""
    settings = Settings(
        bootstrap_token=BOOTSTRAP, trusted_proxies=("127.0.0.1",), stream_interval=0.1, root_path="/penstock"
    )
    with (
        start(settings) as world,
        served(world) as url,
        running(program, PROGRAMS[program][1], urlsplit(url).netloc) as proxy,
    ):
        yield world, proxy


def bearer(world: World, role: str = "operator") -> str:
    return f"Bearer {world.token(role)}"


def test_the_page_and_the_api_are_served_with_their_headers(world: World, proxy: Proxy) -> None:
    with proxy.client(ANN, Authorization=bearer(world)) as client:
        page = client.get("/", headers={"accept": "text/html"})
        assert page.status_code == 200
        script = re.search(r'src="(/assets/[^"]+)"', page.text)
        assert script is not None
        answers = [page, client.get(script[1]), client.get("/api/v1/jobs"), client.get("/api/v1/none")]
        assert [each.status_code for each in answers] == [200, 200, 200, 404]
        for each in answers:
            assert each.headers["strict-transport-security"] == "max-age=31536000; includeSubDomains"
            assert each.headers["x-content-type-options"] == "nosniff"
            assert each.headers.get_list("content-security-policy") == [page.headers["content-security-policy"]]
        made = client.post("/api/v1/jobs", json={"definition_key": "echo", "payload": {}})
        assert made.status_code == 201
        json = {"content-type": "application/json"}
        # It is refused by its length, unread; what comes after the head of the answer may be lost with the rest of the body.
        with client.stream("POST", "/api/v1/jobs", content=b" " * 3_000_000, headers=json) as large:
            assert large.status_code == 413


@pytest.mark.parametrize("program", ["nginx"], indirect=True)
def test_whoever_speaks_plain_http_is_sent_to_tls(proxy: Proxy) -> None:
    """By the page's own lines; Caddy does so unasked, on port 80, which a test cannot have."""
    answer = httpx.get(f"{proxy.plain_url}/api/v1/jobs", timeout=PATIENCE)
    assert (answer.status_code, answer.headers["location"][:8]) == (308, "https://")


def test_a_session_has_a_cookie_for_tls_and_may_change_things(world: World, proxy: Proxy) -> None:
    with proxy.client(ANN, Origin=proxy.url, Sec_Fetch_Site="same-origin") as page:
        signed_in = page.post("/api/v1/session", json={"token": world.token("operator")})
        assert signed_in.status_code == 201, signed_in.text
        cookie = signed_in.headers["set-cookie"]
        assert cookie.startswith("__Host-penstock_session=")
        assert {"Secure", "HttpOnly", "Path=/"} <= {part.strip() for part in cookie.split(";")}
        send = {"x-csrf-token": signed_in.json()["csrf_token"]}
        assert page.post("/api/v1/jobs", json={"definition_key": "echo"}, headers=send).status_code == 201
        elsewhere = {**send, "origin": "https://evil.example", "sec-fetch-site": "cross-site"}
        assert page.post("/api/v1/jobs", json={"definition_key": "echo"}, headers=elsewhere).status_code == 403


MADE_UP = [
    {},
    {"X-Forwarded-For": "198.51.100.7"},
    {"X-Forwarded-For": "127.0.0.1"},
    {"Forwarded": "for=198.51.100.7;proto=http"},
    {"X-Real-IP": "198.51.100.7"},
]


def test_clients_are_known_by_their_own_address_whatever_they_say(world: World, proxy: Proxy) -> None:
    buckets = world.app.state.gate._refused
    buckets.rate = 1e-9
    with proxy.client(ANN, Authorization="Bearer wrong") as ann, proxy.client(BOB, Authorization="Bearer wrong") as bob:
        while ann.get("/api/v1/jobs").status_code == 401:
            pass
        for headers in MADE_UP:
            assert ann.get("/api/v1/jobs", headers=headers).status_code == 429, headers
            assert bob.get("/api/v1/jobs", headers=headers).status_code == 401, headers
    assert set(buckets._left) == {ANN, BOB}


def test_a_live_stream_is_not_held_back(world: World, proxy: Proxy) -> None:
    with (
        proxy.client(ANN, Authorization=bearer(world, "viewer")) as client,
        client.stream("GET", "/api/v1/stream") as live,
    ):
        lines = live.iter_lines()
        assert next(lines) == "event: hello"
        job = world.client("operator").post("/api/v1/jobs", json={"definition_key": "echo"}).json()
        assert any(job["id"] in line for line in lines), "the event arrived while the stream is open"


def test_metrics_for_this_machine_are_not_for_those_behind_the_proxy(program: str, start: Start) -> None:
    """Also where the proxy was not named."""
    with (
        start(Settings(bootstrap_token=BOOTSTRAP, metrics="loopback")) as world,
        served(world) as url,
        running(program, PROGRAMS[program][0], urlsplit(url).netloc) as proxy,
        proxy.client(ANN) as client,
    ):
        assert httpx.get(f"{url}/metrics", timeout=PATIENCE).status_code == 200
        assert client.get("/metrics").status_code == 401


def test_below_a_path_everything_is_found(below: tuple[World, Proxy]) -> None:
    world, proxy = below
    with proxy.client(ANN, Authorization=bearer(world)) as client:
        for path in ("/penstock/", "/penstock/t/acme/jobs"):
            page = client.get(path, headers={"accept": "text/html"})
            files = re.findall(r'(?:src|href)="(/[^"]+)"', page.text)
            assert page.status_code == 200
            assert len(files) > 2
            for file in files:
                assert file.startswith("/penstock/"), file
                assert client.get(file).status_code == 200, file
        assert client.get("/penstock/health/ready").status_code == 200
        problem = client.get("/penstock/api/v1/none").json()
        assert client.get(problem["type"]).status_code == 200
        assert client.get("/penstock/api/v1/openapi.json").json()["servers"] == [{"url": "/penstock"}]
        assert client.get("/penstock", follow_redirects=True).url.path == "/penstock/"
        assert "items" not in client.get("/api/v1/jobs").text, "nothing of it is elsewhere on the host"


def test_below_a_path_the_client_works(below: tuple[World, Proxy], monkeypatch: pytest.MonkeyPatch) -> None:
    world, proxy = below
    monkeypatch.setenv("SSL_CERT_FILE", str(proxy.folder / "penstock.crt"))
    with Client(f"{proxy.url}/penstock", world.token("operator")) as client:
        job = client.enqueue("echo")
        assert client.job(job.id).id == job.id


def test_below_a_path_a_person_signs_in_and_works(below: tuple[World, Proxy]) -> None:
    world, proxy = below
    job = world.client("operator").post("/api/v1/jobs", json={"definition_key": "echo"}).json()
    expect.set_options(timeout=PATIENCE * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=ensure_chromium(), args=FLAGS)
        page = browser.new_context(ignore_https_errors=True).new_page()
        failed: list[str] = []
        page.on("response", lambda answer: failed.append(answer.url) if answer.status >= 400 else None)
        page.goto(f"{proxy.url}/penstock/")
        page.get_by_label("API token").fill(world.token("operator"))
        failed.clear()  # before somebody is signed in, the session is not there
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("navigation").get_by_role("link", name="Jobs").click()
        expect(page.get_by_role("row").get_by_text("echo").first).to_be_visible()
        assert urlsplit(page.url).path == "/penstock/t/acme/jobs"
        page.goto(f"{proxy.url}/penstock/t/acme/jobs/{job['id']}")
        expect(page.get_by_role("heading", level=1).get_by_text("queued")).to_be_visible()
        assert json.dumps(failed) == "[]"
        browser.close()
