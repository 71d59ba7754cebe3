"""Debian's Chromium, and what a page must not do in it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

PATH = "/usr/bin/chromium"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
WATCH = """
window.addEventListener("securitypolicyviolation", (event) =>
  console.error("policy violated: " + event.violatedDirective + " " + event.blockedURI));
"""
AXE = Path(__file__).parent.parent.parent / "ui" / "node_modules" / "axe-core" / "axe.min.js"


def ensure_chromium() -> str:
    """Where Chromium is; installed with apt-get when it is missing and that is possible."""
    if Path(PATH).exists():
        return PATH
    if shutil.which("apt-get"):
        for command in (["update", "-q"], ["install", "-y", "-q", "chromium"]):
            patient = ["apt-get", "-o", "DPkg::Lock::Timeout=120", *command]
            subprocess.run(patient, capture_output=True, check=False, timeout=280)
    assert Path(PATH).exists(), (
        f"The browser tests need Chromium at {PATH}, and it could not be installed here."
        " On Debian: apt-get install chromium"
    )
    return PATH


@contextmanager
def watched(browser: Browser, **options: Any) -> Iterator[Page]:
    """A page in a fresh browser profile. A dialog, an error, a warning or a breach of the policy fails the test."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, "timezone_id": "UTC", **options})
    context.set_default_timeout(60_000)
    context.add_init_script(WATCH)
    page = context.new_page()
    faults: list[str] = []
    page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("console", lambda message: _hear(message, faults))
    yield page
    context.close()
    assert faults == [], faults


def _hear(message: Any, faults: list[str]) -> None:
    if message.type not in ("error", "warning"):
        return
    # The browser itself tells of every answer that is an error; the page shows those.
    if message.text.startswith("Failed to load resource"):
        return
    faults.append(f"{message.type}: {message.text}")


def sign_in(page: Page, address: str, token: str) -> None:
    """As the sign-in screen does it, without waiting for that screen."""
    answer = page.context.request.post(f"{address}/api/v1/session", data={"token": token})
    assert answer.status == 201, answer.text()


def serious_faults(page: Page) -> list[str]:
    """What axe finds that is serious or critical."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{each['id']} ({each['impact']}): {each['help']}: {node['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"][:5]
    ]
