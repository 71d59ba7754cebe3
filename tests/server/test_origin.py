"""Who asks: the client's address through proxies, and what depends on it."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import event

from penstock.core.errors import InvalidInput
from penstock.core.forwarded import Origin, Proxies
from penstock.server import Settings, create_app
from tests.server.support import BOOTSTRAP, Transport, World

PEER = "127.0.0.1"  # what httpx's ASGI transport says


@pytest.fixture
def backend() -> str:
    return "sqlite"  # nothing here is about the database


def other(world: World, **settings: object) -> World:
    """The same database behind a service with other settings."""
    chosen = Settings(bootstrap_token=BOOTSTRAP, **settings)  # type: ignore[arg-type]
    return World(world.penstock, create_app(world.penstock, chosen), world.loop, world.tokens)


def guess(client: httpx.Client, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.get("/api/v1/jobs", headers={"authorization": "Bearer wrong", **named}).status_code


def throttled(world: World, client: httpx.Client, **headers: str) -> None:
    """Guess until the service has had enough of this address, for good."""
    world.app.state.gate._refused.rate = 1e-9
    for _ in range(2000):
        if guess(client, **headers) == 429:
            return
    raise AssertionError("nobody was throttled")


@pytest.mark.parametrize(
    "headers",
    [{"x_forwarded_for": "198.51.100.7"}, {"forwarded": "for=198.51.100.7"}, {"x_real_ip": "198.51.100.7"}],
)
def test_made_up_addresses_do_not_get_past_the_throttle(world: World, headers: dict[str, str]) -> None:
    anybody = world.bare()
    throttled(world, anybody)
    assert guess(anybody, **headers) == 429


@pytest.mark.parametrize("header", ["x_forwarded_for", "forwarded"])
def test_behind_a_trusted_proxy_each_client_is_throttled_alone(world: World, header: str) -> None:
    behind = other(world, trusted_proxies=(PEER,))
    proxied = behind.bare()
    form = "for={}" if header == "forwarded" else "{}"
    throttled(behind, proxied, **{header: form.format("198.51.100.7")})
    assert guess(proxied, **{header: form.format("198.51.100.7")}) == 429
    assert guess(proxied, **{header: form.format("198.51.100.8")}) == 401
    assert guess(proxied, **{header: form.format("203.0.113.1") + ", " + form.format("198.51.100.7")}) == 429, (
        "what the client wrote itself stands further out and is not believed"
    )


def test_who_is_throttled_costs_the_database_nothing(world: World) -> None:
    statements: list[str] = []
    anybody = world.bare()

    def seen(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    event.listen(world.penstock.db.engine, "before_cursor_execute", seen)
    try:
        guess(anybody)
        assert statements, "a first guess is looked up"
        throttled(world, anybody)
        statements.clear()
        assert [guess(anybody) for _ in range(3)] == [429] * 3
        assert statements == []
    finally:
        event.remove(world.penstock.db.engine, "before_cursor_execute", seen)


def test_guessing_does_not_shut_out_those_who_were_let_in_before(world: World) -> None:
    known = world.client("viewer")
    assert known.get("/api/v1/jobs").status_code == 200
    throttled(world, world.bare())
    world.app.state.gate._known.clear()
    assert known.get("/api/v1/jobs").status_code == 200


@pytest.mark.parametrize(
    "mark", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Real-IP", "Via"]
)
def test_metrics_for_this_machine_are_closed_to_whatever_came_through_a_proxy(world: World, mark: str) -> None:
    here = httpx.Client(
        transport=Transport(other(world, metrics="loopback").app, world.loop), base_url="http://127.0.0.1:8080"
    )
    assert here.get("/metrics").status_code == 200
    assert here.get("/metrics", headers={mark: "for=127.0.0.1"}).status_code == 401
    assert here.get("/metrics", headers={"host": "rebound.example"}).status_code == 401
    assert here.get("/metrics", headers={"host": "localhost:8080"}).status_code == 200


def test_metrics_for_this_machine_are_closed_to_a_trusted_proxy(world: World) -> None:
    app = other(world, metrics="loopback", trusted_proxies=("127.0.0.0/8",)).app
    proxy = httpx.Client(transport=Transport(app, world.loop), base_url="http://127.0.0.1:8080")
    assert proxy.get("/metrics").status_code == 401


def test_a_short_bootstrap_token_is_refused_at_start() -> None:
    with pytest.raises(InvalidInput, match=r"has 19 characters; at least 20"):
        Settings(bootstrap_token="a" * 19)
    assert Settings(bootstrap_token="a" * 20).bootstrap_token


def test_what_is_public_can_be_switched_off(world: World) -> None:
    for path in ("/api/v1/openapi.json", "/help/errors/not_found"):
        assert world.bare().get(path).status_code == 200
        hidden = other(world, public_docs="off").bare().get(path, headers={"accept": "text/html"})
        assert (hidden.status_code, hidden.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("setting", "match"),
    [
        ({"trusted_proxies": ("proxy.example",)}, "trusted_proxies has 'proxy.example'"),
        ({"public_docs": "maybe"}, "public_docs"),
        ({"hsts": "max-age=1\r\nx: y"}, "hsts"),
    ],
)
def test_settings_that_make_no_sense_are_refused(setting: dict[str, object], match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        Settings(**setting)  # type: ignore[arg-type]


TRUSTED = Proxies.of(["10.0.0.0/8", "2001:db8:aaaa::/48"])


@pytest.mark.parametrize(
    ("headers", "origin"),
    [
        ({}, ("10.0.0.1", "http")),
        ({"x-forwarded-for": "198.51.100.7"}, ("198.51.100.7", "http")),
        ({"x-forwarded-for": "198.51.100.7:4711", "x-forwarded-proto": "https"}, ("198.51.100.7", "https")),
        ({"x-forwarded-for": "203.0.113.9, 198.51.100.7, 10.0.0.2"}, ("198.51.100.7", "http")),
        ({"x-forwarded-for": "10.0.0.3, 10.0.0.2"}, ("10.0.0.3", "http")),
        ({"x-forwarded-for": "198.51.100.7, nonsense"}, ("10.0.0.1", "http")),
        ({"x-forwarded-for": "198.51.100.7, 10.0.0.2", "x-forwarded-proto": "https, http"}, ("198.51.100.7", "https")),
        ({"x-forwarded-for": "198.51.100.7", "x-forwarded-proto": "javascript"}, ("198.51.100.7", "http")),
        ({"forwarded": 'for=198.51.100.7;proto=https, for="[2001:db8:aaaa::1]:80";proto=http'}, ("198.51.100.7", "https")),
        ({"forwarded": 'For="[2001:db8:cafe::17]:4711"'}, ("2001:db8:cafe::17", "http")),
        ({"forwarded": "for=unknown"}, ("10.0.0.1", "http")),
        ({"forwarded": "for=_hidden;proto=https"}, ("10.0.0.1", "https")),
        ({"forwarded": 'for="unclosed'}, ("10.0.0.1", "http")),
        ({"forwarded": "for=1.1.1.1;for=2.2.2.2"}, ("10.0.0.1", "http")),
        ({"forwarded": "for=198.51.100.7", "x-forwarded-for": "198.51.100.7"}, ("198.51.100.7", "http")),
        ({"forwarded": "for=203.0.113.9;proto=https", "x-forwarded-for": "198.51.100.7"}, ("10.0.0.1", "http")),
    ],
)  # fmt: skip
def test_what_a_trusted_proxy_says(headers: dict[str, str], origin: tuple[str, str]) -> None:
    sent = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert TRUSTED.origin("10.0.0.1", "http", sent) == Origin(*origin)
    assert TRUSTED.origin("::ffff:10.0.0.1", "http", sent).scheme == origin[1]
    assert TRUSTED.origin("192.0.2.1", "http", sent) == Origin("192.0.2.1", "http"), "nobody else is believed"
