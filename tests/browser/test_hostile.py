"""Text from jobs is text: it runs nothing, hides nothing and breaks no layout."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.browser.site import Tenant

KEY = "hostile-<img src=x onerror=alert(1)>"


def hostile_job(shop: Tenant) -> str:
    text = "</pre><script>alert(3)</script> javascript:alert(4) \u202egnp.exe"
    job = shop.api.enqueue(KEY, {"text": text, "long_line": 2000}, correlation_id="<b>bold</b>")
    shop.api.wait(job, "dead_letter")
    return job


def no_wider_than_its_window(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_html_terminal_codes_and_direction_marks_are_shown_as_text(page: Page, shop: Tenant) -> None:
    job = hostile_job(shop)
    page.goto(shop.address(f"jobs/{job}"))
    log = page.get_by_role("region", name="Log", exact=True)
    expect(log.get_by_text("<script>alert(1)</script>")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_contain_text(KEY)
    shown = log.inner_text()
    assert "red" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in page.locator("body").inner_text()
    assert page.locator("main img, main script, main b:has-text('bold')").count() == 0
    assert no_wider_than_its_window(page)
    page.goto(shop.address("jobs"))
    expect(page.locator(f'[data-job="{job}"]')).to_have_text(KEY)
    page.goto(shop.address("overview"))
    expect(page.get_by_text("RuntimeError: <img src=x")).to_be_visible()
    assert no_wider_than_its_window(page)


def test_a_megabyte_on_one_line_is_shown_by_its_beginning(page: Page, shop: Tenant) -> None:
    job = shop.api.enqueue(KEY, {"text": "x" * 60_000, "long_line": 1_000_000})
    shop.api.wait(job, "dead_letter")
    page.goto(shop.address(f"jobs/{job}"))
    expect(page.get_by_text("more characters").first).to_be_visible()
    assert no_wider_than_its_window(page)
    assert len(page.get_by_role("region", name="Log", exact=True).inner_text()) < 10_000


def test_secrets_in_a_payload_are_masked(page: Page, shop: Tenant) -> None:
    job = shop.api.enqueue("sync-folder", {"provider": "password=hunter2hunter2", "path": "/"}, delay_seconds=3600)
    page.goto(shop.address(f"jobs/{job}"))
    expect(page.get_by_role("region", name="Payload")).to_contain_text("***")
    assert "hunter2" not in page.content()
