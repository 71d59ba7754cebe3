from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from penstock.store.database import Database
from penstock.store.schema import upgrade
from tests.browser.chromium import FLAGS, ensure_chromium, sign_in, watched
from tests.browser.site import Site, Tenant

ROOT = Path(__file__).parent.parent.parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One server and one browser for each database: all tests of one stay in one process."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            backend = "postgresql" if "[postgresql" in item.name else "sqlite"
            item.add_marker(pytest.mark.xdist_group(f"browser-{backend}"))


@pytest.fixture(scope="session")
def built_page() -> None:
    """The page, made from its sources."""
    sys.path.insert(0, str(ROOT))
    try:
        import hatch_build
    finally:
        sys.path.remove(str(ROOT))
    lock = Path(tempfile.gettempdir()) / f"penstock-page-{os.getuid()}.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # several test processes come here at once
        hatch_build.build()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Ended with the last test that needs it: while Playwright runs, asyncio thinks that this thread has a loop, and what
    starts one itself fails."""
    path = ensure_chromium()
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="package", params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, built_page: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A running Penstock on each database in turn."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('site') / 'penstock.db'}"
        db = Database(url)
        upgrade(db)
        db.close()
        made = Site(url)
        yield made
        made.stop()
        return
    server = request.getfixturevalue("postgres")
    name = server.create_database(server.template)
    made = Site(server.url(name))
    yield made
    made.stop()
    server.drop_database(name)


@pytest.fixture
def shop(site: Site) -> Tenant:
    """A fresh tenant, with the token of its administrator."""
    return site.tenant()


@pytest.fixture
def page(browser: Browser, shop: Tenant) -> Iterator[Page]:
    """The page, signed in as the administrator of `shop`."""
    with watched(browser) as found:
        sign_in(found, shop.site.address, shop.token)
        yield found
