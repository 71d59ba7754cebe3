"""Who comes in, and what each may see and do."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import sign_in, watched
from tests.browser.site import SECRET, Site, Tenant


def test_sign_in_refuses_and_admits(browser: Browser, shop: Tenant) -> None:
    with watched(browser) as page:
        page.goto(shop.address("jobs"))
        page.get_by_label("API token").fill("pst_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("unknown, expired or revoked")
        page.get_by_label("API token").fill(shop.token)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
        page.get_by_role("button", name="Account").click()
        page.get_by_role("menuitem", name="Sign out").click()
        expect(page.get_by_label("API token")).to_be_visible()
        page.goto(shop.address("jobs"))
        expect(page.get_by_label("API token")).to_be_visible()


def test_a_sign_in_link_works_once_and_leaves_the_address(browser: Browser, site: Site) -> None:
    with watched(browser) as page:
        page.goto(site.link)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        assert "#" not in page.url
    with watched(browser) as page:
        page.goto(site.link)
        expect(page.get_by_role("alert")).to_contain_text("not valid")
    with watched(browser) as page:
        page.goto(f"{site.address}/#token={SECRET}")
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        assert SECRET not in page.url


def test_a_viewer_sees_everything_and_is_offered_nothing(browser: Browser, shop: Tenant) -> None:
    job = shop.api.enqueue("resize-image", {"image_id": 1}, delay_seconds=3600)
    token = shop.site.token(shop.slug, "viewer")
    with watched(browser) as page:
        sign_in(page, shop.site.address, token)
        page.goto(shop.address("jobs"))
        expect(page.locator(f'[data-job="{job}"]')).to_be_visible()
        expect(page.get_by_role("link", name="New job")).to_have_count(0)
        expect(page.get_by_role("checkbox")).to_have_count(0)
        for hidden in ("Tokens", "Audit", "Tenants", "Webhooks"):
            expect(page.get_by_role("link", name=hidden, exact=True)).to_have_count(0)
        page.goto(shop.address(f"jobs/{job}"))
        expect(page.get_by_role("heading", level=1).get_by_text("queued")).to_be_visible()
        for refused in ("Cancel job", "Edit", "Move in the queue"):
            expect(page.get_by_role("button", name=refused)).to_have_count(0)
        page.goto(shop.address("tokens"))
        expect(page.get_by_role("alert")).to_contain_text("may not do this")
        answer = page.evaluate("async (id) => (await fetch(`/api/v1/jobs/${id}/cancel`, {method: 'POST'})).status", job)
        assert answer == 403
    assert shop.api.get(f"/jobs/{job}")["status"] == "queued"


def test_another_tenant_does_not_exist(page: Page, shop: Tenant) -> None:
    other = shop.site.tenant("rival")
    secret = other.api.enqueue("resize-image", {"image_id": 1}, delay_seconds=3600, correlation_id="rival-secret")
    page.goto(other.address("jobs"))
    expect(page).to_have_url(re.compile(f"/t/{shop.slug}/overview"))
    page.goto(shop.address(f"jobs/{secret}"))
    expect(page.get_by_text("There is no such job")).to_be_visible()
    page.goto(shop.address("jobs"))
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    assert other.slug not in page.content()
    assert "rival-secret" not in page.content()


def test_a_super_admin_acts_for_a_tenant(browser: Browser, shop: Tenant) -> None:
    job = shop.api.enqueue("resize-image", {"image_id": 1}, delay_seconds=3600)
    with watched(browser) as page:
        sign_in(page, shop.site.address, SECRET)
        page.goto(f"{shop.site.address}/t/default/overview")
        page.get_by_role("button", name=re.compile("Tenant:")).click()
        page.get_by_role("menuitem", name=re.compile(shop.slug)).click()
        page.get_by_role("link", name="Jobs").click()
        expect(page.locator(f'[data-job="{job}"]')).to_be_visible()
        page.goto(shop.address("tokens"))
        page.get_by_role("button", name="New token").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Label").fill("ann")
        dialog.get_by_label("Role").select_option("operator")
        dialog.get_by_role("button", name="Create the token").click()
        token = dialog.locator("code").inner_text()
        dialog.get_by_role("button", name="Done").click()
        assert shop.site.api(token).get("/session")["role"] == "operator"
        page.get_by_role("row", name=re.compile("^ann ")).get_by_role("button", name="Revoke").click()
        page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
        expect(page.get_by_role("row", name=re.compile("^ann ")).get_by_text("revoked")).to_be_visible()
        page.goto(shop.address("audit"))
        expect(page.get_by_text("token.revoke").first).to_be_visible()


def test_the_policy_allows_nothing_inline(page: Page, shop: Tenant) -> None:
    answer = page.goto(shop.address("overview"))
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.reload()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert requests
    assert [each for each in requests if not each.startswith(shop.site.address)] == []


def test_one_sees_ones_sessions_and_signs_out_everywhere(browser: Browser, shop: Tenant) -> None:
    token = shop.site.token(shop.slug, "operator")
    with watched(browser) as page, watched(browser) as other:
        for each in (page, other):
            sign_in(each, shop.site.address, token)
            each.goto(shop.address("overview"))
        page.get_by_role("button", name="Account").click()
        page.get_by_role("menuitem", name="Your sessions").click()
        dialog = page.get_by_role("dialog")
        expect(dialog.get_by_text("this one")).to_be_visible()
        dialog.get_by_role("button", name="Sign out everywhere").click()
        expect(page.get_by_label("API token")).to_be_visible()
        other.reload()
        expect(other.get_by_label("API token")).to_be_visible()
