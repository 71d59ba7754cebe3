"""Sign-in with a real OpenID provider, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import watched
from tests.browser.site import Site, Tenant
from tests.support.openid import CLIENT, SECRET, OpenIdProvider, client
from tests.support.ports import free_port


@pytest.fixture
def door(site: Site, shop: Tenant) -> Iterator[Site]:
    """A second service on the database of `site`, where people of `shop` sign in with a provider that asks for consent."""
    port = free_port()
    home = f"http://127.0.0.1:{port}"
    provider = OpenIdProvider({"bob": ["operators"], "cem": []}, [client(home, trusted=False)])
    try:
        found = Site(
            site.database_url, port, public_url=home, oidc_issuer=provider.issuer, oidc_client_id=CLIENT,
            oidc_client_secret=SECRET, oidc_name="Acme ID", oidc_role_map=f"operators=operator@{shop.slug}",
        )  # fmt: skip
        yield found
        found.stop()
    finally:
        provider.stop()


def log_in(page: Page, name: str) -> None:
    page.get_by_role("link", name="Sign in with Acme ID").click()
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill("pw")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Authorize").click()


def test_somebody_signs_in_at_the_provider_and_out_again(browser: Browser, door: Site, shop: Tenant) -> None:
    with watched(browser) as page:
        page.goto(f"{door.address}/t/{shop.slug}/jobs")
        expect(page.get_by_label("API token")).to_be_visible()
        log_in(page, "bob")
        expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
        assert page.url == f"{door.address}/t/{shop.slug}/jobs"
        page.reload()
        expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
        page.get_by_role("button", name="Account").click()
        expect(page.get_by_text("oidc:1 (Bob, bob@example.com)")).to_be_visible()
        page.get_by_role("menuitem", name="Sign out").click()
        page.locator('input[name="allow"]').click()
        expect(page.get_by_role("link", name="Sign in with Acme ID")).to_be_visible()
        page.goto(f"{door.address}/t/{shop.slug}/jobs")
        expect(page.get_by_label("API token")).to_be_visible()


def test_somebody_without_a_role_is_told_so(browser: Browser, door: Site, shop: Tenant) -> None:
    with watched(browser) as page:
        page.goto(f"{door.address}/sign-in")
        log_in(page, "cem")
        expect(page.get_by_text("(Cem, cem@example.com), but you have no role here")).to_be_visible()
        page.get_by_role("link", name="Back to the sign-in page").click()
        expect(page.get_by_label("API token")).to_be_visible()
