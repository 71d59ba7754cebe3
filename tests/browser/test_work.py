"""What an administrator does all day: watch, read, cancel, retry."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.site import Tenant


def row(page: Page, job_id: str):  # type: ignore[no-untyped-def]
    return page.locator('[role="row"]', has=page.locator(f'[data-job="{job_id}"]'))


def test_a_job_goes_from_queued_to_done_without_a_reload(page: Page, shop: Tenant) -> None:
    page.goto(shop.address("jobs"))
    expect(page.get_by_text("No jobs yet")).to_be_visible()
    page.evaluate("window.sameDocument = true")
    waits = shop.api.enqueue("train-model", {"epochs": 12, "pause": 0.8}, delay_seconds=4)
    expect(row(page, waits).get_by_text("queued")).to_be_visible()
    expect(row(page, waits).get_by_text("running")).to_be_visible()
    expect(row(page, waits).get_by_text("succeeded")).to_be_visible()
    assert page.evaluate("window.sameDocument") is True


def test_its_log_is_read_while_it_runs(page: Page, shop: Tenant) -> None:
    job = shop.api.enqueue("train-model", {"epochs": 40, "pause": 0.25})
    page.goto(shop.address(f"jobs/{job}"))
    log = page.get_by_role("region", name="Log", exact=True)
    expect(log.get_by_text("epoch 2/40")).to_be_visible()
    expect(page.get_by_role("progressbar")).to_be_visible()
    expect(page.get_by_text(re.compile(r"about .* left"))).to_be_visible()
    page.get_by_label("Search the log").fill("epoch 2/")
    expect(log.locator("mark").first).to_have_text("epoch 2/")
    assert shop.api.get(f"/jobs/{job}")["status"] == "running"
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
    expect(page.get_by_role("heading", level=1).get_by_text("canceled")).to_be_visible()


def test_a_running_job_is_canceled(page: Page, shop: Tenant) -> None:
    job = shop.api.enqueue("wait-for-file", {"name": "orders.csv"})
    shop.api.wait(job, "running")
    page.goto(shop.address(f"jobs/{job}"))
    page.get_by_role("button", name="Cancel job").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel job").click()
    expect(page.get_by_role("heading", level=1).get_by_text("canceled")).to_be_visible()
    assert shop.api.wait(job, "canceled")["cancel_requested_at"] is not None


def test_a_dead_job_is_retried(page: Page, shop: Tenant) -> None:
    job = shop.api.enqueue("fragile")
    shop.api.wait(job, "dead_letter")
    page.goto(shop.address(f"jobs/{job}"))
    expect(page.get_by_text("It failed for good")).to_be_visible()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("heading", level=1).get_by_text("succeeded")).to_be_visible()
    expect(page.get_by_text("Attempt 2 succeeded")).to_be_visible()


def test_many_are_retried_by_filter_with_a_count_first(page: Page, shop: Tenant) -> None:
    broken = [shop.api.enqueue("fragile") for _ in range(3)]
    other = shop.api.enqueue("import-feed", {"url": "x", "broken": True})
    for job in (*broken, other):
        shop.api.wait(job, "dead_letter")
    page.goto(shop.address("jobs"))
    page.keyboard.press("/")
    page.get_by_label("Search jobs").fill("key:frag")
    page.get_by_role("option", name="key:fragile").click()
    expect(page).to_have_url(re.compile(r"q=key%3Afragile"))
    expect(row(page, other)).to_have_count(0)
    page.get_by_label(f"Select job {broken[0]}").check()
    page.get_by_role("button", name="Select all that match").click()
    page.get_by_role("button", name="Retry…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("3 jobs can be retried")).to_be_visible()
    assert {shop.api.get(f"/jobs/{job}")["status"] for job in broken} == {"dead_letter"}
    dialog.get_by_role("button", name="Retry 3 jobs").click()
    for job in broken:
        expect(row(page, job).get_by_text("succeeded")).to_be_visible()
    assert shop.api.get(f"/jobs/{other}")["status"] == "dead_letter"


def test_a_link_shows_the_same_list(page: Page, shop: Tenant) -> None:
    dead = shop.api.enqueue("import-feed", {"url": "x", "broken": True})
    done = shop.api.enqueue("import-feed", {"url": "x"})
    shop.api.wait(dead, "dead_letter")
    assert shop.api.wait(done, "succeeded")["result"] == 1841
    page.goto(shop.address("jobs"))
    expect(row(page, done)).to_be_visible()
    page.get_by_role("button", name="dead letter").click()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(row(page, dead)).to_be_visible()
    expect(row(page, done)).to_have_count(0)
    page.get_by_label("Search jobs").fill("stauts:failed")
    page.keyboard.press("Enter")
    expect(page.get_by_text("“stauts:” is not a field")).to_be_visible()


def test_a_waiting_job_is_explained_edited_and_moved(page: Page, shop: Tenant) -> None:
    job = shop.api.enqueue("resize-image", {"image_id": 1}, delay_seconds=3600)
    page.goto(shop.address(f"jobs/{job}"))
    expect(page.get_by_text(re.compile("It is due at"))).to_be_visible()
    page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Payload").fill('{"image_id": "seven"}')
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert")).to_contain_text("image_id")
    dialog.get_by_label("Payload").fill('{"image_id": 7}')
    dialog.get_by_label("Priority").fill("5")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("5 (lower runs first)")).to_be_visible()
    assert shop.api.get(f"/jobs/{job}")["payload"] == {"image_id": 7}


def test_a_job_that_waits_for_its_time_is_rescheduled_and_run_now(page: Page, shop: Tenant) -> None:
    job = shop.api.enqueue("resize-image", {"image_id": 1}, delay_seconds=3600)
    page.goto(shop.address(f"jobs/{job}"))
    page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Not before").fill("2099-02-16T10:30:00")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text(re.compile("It is due at 2099-02-1[567]"))).to_be_visible()
    later = shop.api.get(f"/jobs/{job}")
    assert later["scheduled_for"].startswith("2099-02-1") and later["waits_for"] == "time"
    page.get_by_role("button", name="Run now").click()
    expect(page.get_by_role("heading", level=1).get_by_text("succeeded")).to_be_visible()
    expect(page.get_by_role("button", name="Run now")).to_have_count(0)


def test_a_job_is_asked_for_by_a_form_of_its_schema(page: Page, shop: Tenant) -> None:
    page.goto(shop.address("definitions"))
    page.get_by_role("row", name=re.compile("resize-image")).get_by_role("button", name="Enqueue").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Enqueue").click()
    expect(dialog.get_by_text("This is needed.")).to_be_visible()
    dialog.get_by_label("image_id").fill("41")
    dialog.get_by_role("button", name="Enqueue").click()
    expect(page).to_have_url(re.compile(r"/jobs/[0-9a-f-]{36}$"))
    expect(page.get_by_role("heading", level=1).get_by_text("succeeded")).to_be_visible()
    expect(page.get_by_role("region", name="Result")).to_contain_text('"image_id": 41')


def test_the_keyboard_is_enough(page: Page, shop: Tenant) -> None:
    jobs = [shop.api.enqueue("resize-image", {"image_id": n}) for n in range(3)]
    for job in jobs:
        shop.api.wait(job, "succeeded")
    page.goto(shop.address("jobs"))
    expect(row(page, jobs[2])).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator(f'[data-job="{jobs[2]}"]')).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("j")
    expect(page.locator(f'[data-job="{jobs[1]}"]')).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(jobs[1]))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog").get_by_text("Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)  # while it closes, keys are the dialog's
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()


def test_an_open_tab_outlives_an_upgrade_and_an_outage(page: Page, shop: Tenant) -> None:
    job = shop.api.enqueue("resize-image", {"image_id": 1}, delay_seconds=3600)
    page.goto(shop.address("jobs"))
    expect(row(page, job)).to_be_visible()
    loads: list[str] = []
    page.on("request", lambda request: loads.append(request.url) if request.resource_type == "document" else None)
    # After an upgrade the parts have other names: the document is loaded again, once, with the new ones.
    page.route(
        "**/assets/job-*.js", lambda route: route.continue_() if loads else route.fulfill(status=404, body="gone")
    )
    page.locator(f'[data-job="{job}"]').click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("resize-image")
    assert loads == [shop.address(f"jobs/{job}")]
    # While the server is away the page says so, and shows what was known.
    page.route("**/*", lambda route: route.abort())
    expect(page.get_by_text("Not connected since")).to_be_visible()
    expect(page.get_by_role("heading", level=1)).to_contain_text("resize-image")
    page.get_by_role("link", name="Groups").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.unroute("**/*")
    expect(page.get_by_text("No groups yet")).to_be_visible()
    expect(page.get_by_text("Not connected since")).to_have_count(0)
