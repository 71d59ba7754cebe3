"""Each screen: no serious fault by axe, and with PENSTOCK_SCREENSHOTS a picture of it in light and dark in that folder.

`make screenshots` takes the pictures of the documentation. Without the variable the tests write nothing into the clone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.chromium import serious_faults, sign_in, watched
from tests.browser.site import SECRET, Site
from tests.browser.test_steer import fill_the_lab, leave_a_dead_worker

PICTURES = os.environ.get("PENSTOCK_SCREENSHOTS")
SCREENS = ("overview", "jobs", "job", "groups", "group", "triggers", "trigger", "new-schedule", "definitions", "webhooks",
           "tokens", "audit", "workers", "tenants", "pipelines")  # fmt: skip


class Company:
    """A tenant with some of everything, and where each screen of it is."""

    def __init__(self, site: Site) -> None:
        shop = site.tenant("acme", timezone="America/New_York")
        api = shop.api
        done = [api.enqueue("resize-image", {"image_id": n, "width": 400 + n}) for n in range(24)]
        dead = [api.enqueue("sync-folder", {"provider": "dropbox", "path": f"/photos/{n}"}) for n in range(3)]
        dead += [
            api.enqueue("import-feed", {"url": f"https://feeds.example/{n}.xml", "broken": True}) for n in range(2)
        ]
        for n in range(3):
            api.enqueue("resize-image", {"image_id": n}, delay_seconds=7200, priority=10)
        members = [{"definition_key": "resize-image", "payload": {"image_id": n}} for n in range(3)]
        group = api.post("/groups", {"label": "Thumbnails of album 12", "mode": "sequential", "jobs": members})["id"]
        trigger = api.post("/jobs/triggers", {
            "label": "Nightly report", "trigger_type": "schedule", "cron_expr": "30 2 * * *",
            "timezone": "America/New_York", "definition_key": "nightly-report", "payload_template": {"attempt_needed": 1},
        })["id"]  # fmt: skip
        api.post("/jobs/triggers", {
            "label": "Resync on folder change", "trigger_type": "event", "event_name": "provider.folder.updated",
            "definition_key": "sync-folder", "payload_template": {"provider": "{{event.provider}}"},
        })  # fmt: skip
        api.post("/webhooks", {"url": "https://hooks.example.com/penstock", "description": "Tells the help desk"})
        leave_a_dead_worker(site)
        fill_the_lab(site)
        for job in done:
            api.wait(job, "succeeded")
        for job in dead:
            api.wait(job, "dead_letter")
        running = api.enqueue("train-model", {"epochs": 900, "pause": 0.5})
        api.wait(running, "running")
        self.shop = shop
        self.running = running
        self.paths = {
            **{name: name for name in SCREENS},
            "job": f"jobs/{running}",
            "group": f"groups/{group}",
            "trigger": f"triggers/{trigger}",
            "new-schedule": "triggers?new=schedule",
            "pipelines": "pipelines?schema=lab&table=Filtered",
        }

    def wait_until_drawn(self, page: Page, screen: str) -> None:
        title = {"job": "train-model", "group": "Thumbnails", "trigger": "Nightly report", "new-schedule": "Triggers"}
        expect(page.get_by_role("heading", level=1, include_hidden=True)).to_contain_text(
            title.get(screen, screen.title())
        )
        if screen == "job":
            expect(page.get_by_text(re.compile(r"epoch \d+/900  loss")).first).to_be_visible()
        if screen == "new-schedule":
            expect(page.get_by_role("listitem")).to_have_count(10)
        expect(page.locator('[aria-busy="true"]')).to_have_count(0)


@pytest.fixture(scope="module")
def company(site: Site) -> Iterator[Company]:
    made = Company(site)
    yield made
    made.shop.api.post(f"/jobs/{made.running}/cancel")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_screen(browser: Browser, site: Site, company: Company, theme: str) -> None:
    postgresql = site.database_url.startswith("postgresql")
    with watched(browser, color_scheme=theme, viewport={"width": 1280, "height": 800}) as page:
        page.goto(site.address)
        page.get_by_label("API token").wait_for()
        found = {"sign-in": serious_faults(page)}
        _picture(page, "sign-in", theme, postgresql)
        sign_in(page, site.address, SECRET)
        for screen in SCREENS:
            page.goto(company.shop.address(company.paths[screen]))
            company.wait_until_drawn(page, screen)
            found[screen] = serious_faults(page)
            _picture(page, screen, theme, postgresql)
    assert {screen: faults for screen, faults in found.items() if faults} == {}


def _picture(page: Page, screen: str, theme: str, postgresql: bool) -> None:
    if PICTURES and not postgresql:
        page.screenshot(path=Path(PICTURES) / f"{screen}-{theme}.png")


def test_every_screen_fits_a_phone(browser: Browser, site: Site, company: Company) -> None:
    too_wide = []
    with watched(browser, viewport={"width": 375, "height": 720}, has_touch=True) as page:
        sign_in(page, site.address, SECRET)
        for screen in SCREENS:
            page.goto(company.shop.address(company.paths[screen]))
            company.wait_until_drawn(page, screen)
            if not page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"):
                too_wide.append(screen)
        page.goto(company.shop.address("jobs"))
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("link", name="Triggers").click()
        expect(page.get_by_role("heading", name="Triggers")).to_be_visible()
    assert too_wide == []
