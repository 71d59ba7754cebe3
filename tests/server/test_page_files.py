"""Addresses that no file system takes are the page's own to route; they never break the service."""

from __future__ import annotations

import pytest

from tests.server.support import World


@pytest.mark.parametrize("path", ["x" * 300, "/".join(["x"] * 3000), "a/%00/b", "%2e%2e/%2e%2e/etc/passwd"])
def test_an_address_that_is_no_file_name(world: World, path: str) -> None:
    browser = world.bare(Accept="text/html")
    assert browser.get(f"/{path}").status_code in (200, 404)
    assert world.bare().get(f"/{path}").status_code == 404


@pytest.mark.parametrize("name", ["action", "subject_id"])
def test_a_filter_of_the_audit_that_no_database_holds(world: World, name: str) -> None:
    assert world.client("tenant_admin").get("/api/v1/audit", params={name: "\0"}).status_code == 422
