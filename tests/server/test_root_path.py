"""Below a path of a host that others share."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from penstock import Penstock
from penstock.cli.serve import Server
from penstock.core.errors import InvalidInput
from penstock.server import Settings, create_app
from tests.server.support import Loop, World

HTML = {"accept": "text/html"}


@pytest.fixture
def backend() -> str:
    return "sqlite"  # nothing here is about the database


@pytest.fixture
def settings() -> Settings:
    return Settings(root_path="/penstock")


@pytest.mark.parametrize("prefix", ["/penstock", ""])
def test_the_proxy_may_pass_the_path_on_or_take_it_off(world: World, prefix: str) -> None:
    client = world.client("viewer")
    assert client.get(f"{prefix}/health/live").status_code == 200
    assert client.get(f"{prefix}/api/v1/jobs").status_code == 200
    problem = client.get(f"{prefix}/api/v1/none").json()
    assert problem["type"] == "/penstock/help/errors/not_found"
    assert client.get(problem["type"]).status_code == 200
    for path in ("/", "/t/acme/jobs"):
        page = client.get(prefix + path, headers=HTML).text
        assert '<meta name="penstock-root" content="/penstock" />' in page
        files = re.findall(r'(?:src|href)="([^"]+)"', page)
        assert files
        assert all(client.get(file).status_code == 200 for file in files if file.startswith("/penstock/"))
        assert all(file.startswith("/penstock/") for file in files)


def test_a_path_that_only_begins_alike_is_another(world: World) -> None:
    assert world.bare().get("/penstocks/health/live").status_code == 404


def test_without_a_prefix_the_page_is_at_the_root(world: World) -> None:
    plain = World(world.penstock, create_app(world.penstock, Settings()), world.loop)
    page = plain.bare().get("/t/acme/jobs", headers=HTML).text
    assert 'content=""' in page
    assert 'src="/assets/' in page
    assert plain.bare().get("/api/v1/none").json()["type"] == "/help/errors/not_found"


@pytest.mark.parametrize("wrong", ["penstock", "/", "/a/", "//a", "/a b", "/a?b", '/"><script>'])
def test_what_is_no_path_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidInput, match="root_path"):
        Settings(root_path=wrong)


@pytest.fixture
def bound(url: str) -> Iterator[Server]:
    with Penstock(url) as penstock:
        server = Server(penstock, "127.0.0.1", 0, None, "/penstock/")
        yield server
        server._socket.close()


def test_the_command_line_prints_the_whole_address(bound: Server, loop: Loop) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/penstock", bound.address)
