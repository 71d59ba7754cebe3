"""A hundred thousand jobs in the list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from statistics import median

from playwright.sync_api import Browser, Page, Request, expect

from penstock import Penstock
from tests.browser.chromium import sign_in, watched
from tests.browser.site import Site, Tenant

MANY = 100_000
FEW = 200
FIRST_ROW = """
new MutationObserver((_, observer) => {
  if (document.querySelector("[data-job]")) { window.firstRowAt = performance.now(); observer.disconnect(); }
}).observe(document, { childList: true, subtree: true });
"""


def test_a_hundred_thousand_jobs_are_listed_at_once(browser: Browser, site: Site) -> None:
    shop, few = site.tenant("big"), site.tenant("small")
    with Penstock(site.database_url) as app:
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        for tenant, number in ((shop, MANY), (few, FEW)):
            app.as_tenant(tenant.slug).enqueue_many(
                "resize-image", ({"image_id": n} for n in range(number)), scheduled_for=tomorrow
            )
    lists: list[str] = []

    def note(request: Request) -> None:
        if "/api/v1/jobs?" in request.url:
            lists.append(request.url)

    with watched(browser) as page, watched(browser) as other:
        for at, tenant in ((page, shop), (other, few)):
            at.add_init_script(FIRST_ROW)
            sign_in(at, site.address, tenant.token)
        times = [(_first_row(page, shop), _first_row(other, few)) for _ in range(5)]
        many, some = (min(column) for column in zip(*times, strict=True))
        # Beside a list of few, so that a busy machine does not count against it.
        assert many < max(1000, 3 * some), times
        other.close()
        page.on("request", note)
        region = page.get_by_role("region", name="Jobs")
        still, moving = region.evaluate(SCROLL, 0), region.evaluate(SCROLL, 160)
        expect(page.get_by_text("loaded, more below")).to_be_visible()
        cursors = [url for url in lists if "cursor=" in url]
        assert len(cursors) == len(set(cursors)) >= 3, "each page is asked for once"
        assert page.locator("[data-job]").count() < 80, "only what is in view is in the page"
        # Beside the same page at rest, so that a busy machine does not count against it.
        assert median(moving) < max(34, 3 * median(still)), "scrolling is not smooth"


def _first_row(page: Page, tenant: Tenant) -> float:
    """Open the list, and return after how many milliseconds its first row was there."""
    page.goto(tenant.address("jobs"))
    expect(page.locator("[data-job]").first).to_be_visible()
    return float(page.evaluate("window.firstRowAt"))


SCROLL = """async (element, distance) => {
  const frames = [];
  let before = performance.now();
  for (let step = 0; step < 100; step += 1) {
    element.scrollBy(0, distance);
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - before);
    before = now;
  }
  return frames;
}"""
