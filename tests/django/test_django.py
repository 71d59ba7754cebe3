"""A Django project joins its own transactions, on connections as Django configures them (P16)."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from penstock.store.database import Database
from penstock.store.schema import upgrade
from tests.docs.blocks import blocks_of

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RECIPE = ROOT / "docs" / "howto" / "django.md"

CONFIGURED: Mapping[str, Mapping[str, Any]] = {
    "sqlite": {"backend": "sqlite", "use_tz": True, "options": {}},
    "sqlite-immediate-naive": {"backend": "sqlite", "use_tz": False, "options": {"transaction_mode": "IMMEDIATE"}},
    "postgresql": {"backend": "postgresql", "use_tz": True, "options": {}},
    "postgresql-server-side-naive": {
        "backend": "postgresql",
        "use_tz": False,
        "options": {"server_side_binding": True},
    },
}


def scenarios() -> list[str]:
    tree = ast.parse((HERE / "scenarios.py").read_text())
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return [each.name for each in functions if any(ast.unparse(mark) == "scenario" for mark in each.decorator_list)]


@pytest.fixture(scope="module", params=CONFIGURED)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | None]]:
    """What each scenario said in a project of this configuration: nothing, or a traceback."""
    configured = CONFIGURED[request.param]
    directory = tmp_path_factory.mktemp("shop")
    elsewhere = {"ENGINE": "django.db.backends.postgresql", "NAME": "none"}
    if configured["backend"] == "sqlite":
        url = f"sqlite:///{directory / 'shop.db'}"
        upgrade(Database(url))
        default: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(directory / "shop.db")}
        yield _run(url, default, elsewhere, configured)
        return
    server = request.getfixturevalue("postgres")
    name = server.create_database(server.template)
    url = server.url(name)
    parsed = make_url(url)
    default = {
        "ENGINE": "django.db.backends.postgresql", "NAME": parsed.database, "USER": parsed.username,
        "PASSWORD": parsed.password or "", "HOST": parsed.host, "PORT": parsed.port,
    }  # fmt: skip
    elsewhere = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(directory / "elsewhere.db")}
    yield _run(url, default, elsewhere, configured)
    server.drop_database(name)


def _run(
    url: str, default: dict[str, Any], elsewhere: dict[str, Any], configured: Mapping[str, Any]
) -> dict[str, str | None]:
    default = {**default, "OPTIONS": dict(configured["options"])}
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, HERE / "project"))),
        "DJANGO_SETTINGS_MODULE": "settings", "SHOP_PENSTOCK_URL": url, "SHOP_USE_TZ": "yes" if configured["use_tz"] else "no",
        "SHOP_DATABASES": json.dumps({"default": default, "second": default, "elsewhere": elsewhere}),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.django.scenarios"], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]  # the others are logs
    return {line["scenario"]: line["failed"] for line in lines}


@pytest.mark.xdist_group("django")
@pytest.mark.parametrize("scenario", scenarios())
def test_django(told: dict[str, str | None], scenario: str) -> None:
    assert told[scenario] is None, told[scenario]


def test_the_recipe_is_the_project_that_the_tests_run() -> None:
    shown = {block.title: block.text for block in blocks_of(RECIPE) if block.title}
    assert shown.keys() >= {"shop/jobs.py", "shop/views.py", "shop/worker.py"}
    for title, text in shown.items():
        assert text == (HERE / "project" / title).read_text(), title
