"""Schedules, workers, groups: what steers the queue."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from playwright.sync_api import Browser, Page, expect

from penstock.core.clock import ManualClock
from penstock.core.worker_names import opaque
from penstock.store import workers
from penstock.store.database import Database
from tests.browser.chromium import sign_in, watched
from tests.browser.site import ROOT, SECRET, Site, Tenant


def test_a_schedule_is_made_and_shows_its_next_runs(page: Page, shop: Tenant) -> None:
    page.goto(shop.address("triggers"))
    page.get_by_role("button", name="New schedule").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Label").fill("Nightly report")
    dialog.get_by_label("Asks for").select_option("nightly-report")
    dialog.get_by_label("Cron expression").fill("61 2 * * *")
    expect(dialog.get_by_role("alert")).to_contain_text("minute")
    dialog.get_by_label("Cron expression").fill("30 2 * * *")
    dialog.get_by_label("Time zone").fill("America/New_York")
    expect(dialog.get_by_text("At 02:30 every day")).to_be_visible()
    expect(dialog.get_by_role("listitem")).to_have_count(10)
    expect(dialog.get_by_role("listitem").first).to_contain_text(re.compile(r"\d{4}-\d\d-\d\d 02:30 UTC-[45]"))
    dialog.get_by_label("Payload").fill('{"attempt_needed": 1}')
    dialog.get_by_role("button", name="Save").click()
    page.get_by_role("link", name="Nightly report").click()
    expect(page.get_by_role("list", name="Next runs").get_by_role("listitem")).to_have_count(10)
    page.get_by_role("button", name="Fire now").click()
    page.get_by_role("dialog").get_by_role("button", name="Fire").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("nightly-report")
    made = shop.api.get("/jobs/triggers")["items"]
    assert [(each["cron_expr"], each["timezone"]) for each in made] == [("30 2 * * *", "America/New_York")]


def test_clock_changes_stand_out_in_the_next_runs(page: Page, shop: Tenant) -> None:
    page.goto(shop.address("triggers?new=schedule"))
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Cron expression").fill("30 2 1 * *")
    dialog.get_by_label("Time zone").fill("Europe/Berlin")
    expect(dialog.get_by_role("listitem")).to_have_count(10)
    expect(dialog.get_by_text("clocks change").first).to_be_visible()
    texts = dialog.get_by_role("listitem").all_inner_texts()
    assert all("02:30" in text for text in texts)
    assert {"UTC+1", "UTC+2"} <= {word for text in texts for word in text.split()}


def test_a_stale_worker_is_warned_about(page: Page, shop: Tenant, site: Site) -> None:
    gone = opaque(leave_a_dead_worker(site))
    page.goto(shop.address("workers"))
    expect(page.get_by_text(re.compile(r"\d stale worker"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile(gone)).get_by_text("stale", exact=True)).to_be_visible()
    page.goto(shop.address("overview"))
    expect(page.get_by_text("not been seen for a while")).to_be_visible()


def leave_a_dead_worker(site: Site) -> str:
    """The row of a worker whose machine was switched off two minutes ago; its id."""
    db = Database(site.database_url, ManualClock(datetime.now(UTC) - timedelta(minutes=2)))
    values = {
        "hostname": "gone-machine", "pid": 7, "version": "0.1.0", "queues": [], "keys": ["resize-image"],
        "concurrency": 8, "metadata": {},
    }  # fmt: skip
    worker_id = f"gone-machine:7:{uuid4()}"
    db.transact(lambda tx: workers.register(tx, worker_id, values))
    db.close()
    return worker_id


def fill_the_lab(site: Site) -> None:
    """Run the lab's own program, which leaves two errors."""
    command = [sys.executable, "-m", "tests.browser.lab"]
    done = subprocess.run(command, cwd=ROOT, env=site.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_pipeline_is_opened_and_an_error_cleared(browser: Browser, site: Site) -> None:
    fill_the_lab(site)
    shop = site.tenant("lab")
    with watched(browser) as page:
        sign_in(page, site.address, SECRET)
        page.goto(shop.address("pipelines"))
        page.get_by_role("button", name=re.compile("Filtered.*2 errors")).click()
        expect(page.get_by_text("the electrode was not connected").first).to_be_visible()
        expect(page.get_by_role("heading", name="Filtered: 6 of 8 made")).to_be_visible()
        page.get_by_role("row", name=re.compile("recording_id=3")).get_by_role("button", name="Ignore").click()
        expect(page.get_by_role("row", name=re.compile("recording_id=3"))).to_have_count(0)
        page.get_by_role("button", name="Clear errors").click()
        page.get_by_role("dialog").get_by_role("button", name="Clear").click()
        expect(page.get_by_role("button", name="Clear errors")).to_have_count(0)
        page.get_by_role("button", name="Refresh").click()
        expect(page.get_by_text("Refreshed")).to_be_visible()
        page.get_by_label("Show keys that are").select_option("pending")
        expect(page.get_by_role("row", name=re.compile("recording_id=7"))).to_be_visible()
    status = site.api().get("/pipelines/lab/Filtered")
    assert (status["jobs"]["error"], status["jobs"]["ignore"], status["jobs"]["pending"]) == (0, 1, 1)


def test_a_group_is_a_picture_and_can_be_canceled(page: Page, shop: Tenant) -> None:
    jobs = [
        {"definition_key": "wait-for-file", "payload": {"name": "a.csv"}},
        {"definition_key": "resize-image", "payload": {"image_id": 1}},
    ]
    group = shop.api.post("/groups", {"label": "Onboarding", "mode": "sequential", "jobs": jobs})
    page.goto(shop.address("groups"))
    page.get_by_role("link", name="Onboarding").click()
    expect(page.get_by_role("link", name=re.compile("wait-for-file running"))).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("resize-image queued"))).to_be_visible()
    page.get_by_role("button", name="Cancel group").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel group").click()
    expect(page.get_by_role("link", name=re.compile("resize-image canceled"))).to_be_visible()
    for job in group["jobs"]:
        shop.api.wait(job["id"], "canceled")


def test_a_retry_chain_is_a_picture(page: Page, shop: Tenant) -> None:
    first = shop.api.enqueue("nightly-report", {"attempt_needed": 3})
    shop.api.wait(first, "failed")
    page.goto(shop.address(f"jobs/{first}"))
    expect(page.get_by_role("heading", name="Retry chain")).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("nightly-report succeeded"))).to_be_visible()


def test_a_webhook_is_made_and_its_secret_shown_once(page: Page, shop: Tenant) -> None:
    page.goto(shop.address("webhooks"))
    page.get_by_role("button", name="New webhook").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Address").fill("http://127.0.0.1/hook")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    dialog.get_by_label("Address").fill("https://hooks.example.com/penstock")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_text("it is not shown again")).to_be_visible()
    assert dialog.locator("code").inner_text().startswith("whsec_")
    dialog.get_by_role("button", name="Done").click()
    expect(page.get_by_text("https://hooks.example.com/penstock")).to_be_visible()
