"""What a stranger installs: the wheel and the source distribution, on a clean Python, outside the checkout."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 900
"""Seconds for one command. To install is the index's and the machine's pace."""

pytestmark = [pytest.mark.xdist_group("package"), pytest.mark.timeout(1800)]

SHOP = """
from penstock import Penstock

app = Penstock("sqlite:///shop.db")


@app.job(key="double")
def double(n: int) -> dict:
    return {"doubled": 2 * n}
"""

WORK = """
import time

from shop import app

worker = app.worker()
worker.start()
until = time.monotonic() + 200
while app.jobs.list(("queued", "running")) and time.monotonic() < until:
    time.sleep(0.05)
worker.stop(grace=5)
"""


class Place:
    """An empty directory with a Python of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "venv", with_pip=True)
        self.bin = folder / "venv" / "bin"

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK", "PYTHON"))}
        return {**kept, "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def run(self, *command: str, code: int = 0) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=PATIENCE
        )
        assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def install(self, what: str) -> None:
        self.run(str(self.bin / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check", what)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The two files, by their endings."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, check=True, capture_output=True
    )
    return {"wheel": next(folder.glob("*.whl")), "sdist": next(folder.glob("*.tar.gz"))}


@pytest.fixture(scope="module")
def core(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Place:
    made = Place(tmp_path_factory.mktemp("core"))
    made.install(str(built["wheel"]))
    return made


def test_the_core_alone_runs_jobs(core: Place) -> None:
    (core.folder / "shop.py").write_text(SHOP)
    core.run("penstock", "enqueue", "double", "--app", "shop:app", "--params", '{"n": 21}')
    (core.folder / "work.py").write_text(WORK)
    core.run("python", "work.py")
    [job] = json.loads(core.run("penstock", "jobs", "list", "--json", "--database-url", "sqlite:///shop.db"))
    assert job["status"] == "succeeded"
    installed = core.run(str(core.bin / "python"), "-m", "pip", "list", "--format=freeze").lower()
    assert not re.search(r"^(fastapi|uvicorn|psycopg|numpy|pandas|sqlglot)==", installed, re.M)


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["up"], "penstock[server]"),
        (["jobs", "list", "--database-url", "postgresql://postgres@127.0.0.1:9/none"], "penstock[postgres]"),
    ],
)
def test_what_is_not_installed_is_named(core: Place, command: list[str], extra: str) -> None:
    told = core.run("penstock", *command, code=3 if "list" in command else 2)
    assert extra in told and "Traceback" not in told


@pytest.fixture
def up(built: dict[str, Path], tmp_path: Path) -> Iterator[str]:
    """`penstock up` in an empty directory, from the source distribution; answers its sign-in link."""
    place = Place(tmp_path)
    place.install(f"penstock[server] @ file://{built['sdist']}")
    log = place.folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(place.bin / "penstock"), "up", "--port", "0"],
            cwd=place.folder, env=place.environment(), stdout=out, stderr=out,
        )  # fmt: skip
    try:
        until = time.monotonic() + 200
        while not (found := re.search(r"Sign in: (http\S+)", log.read_text())):
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def test_the_source_distribution_brings_the_page(up: str) -> None:
    address = up.partition("/sign-in")[0]
    page = urllib.request.urlopen(f"{address}/", timeout=10).read().decode()
    script = re.search(r'src="(/assets/[^"]+\.js)"', page)
    assert script is not None
    assert len(urllib.request.urlopen(address + script[1], timeout=10).read()) > 10_000
    assert b'"ok"' in urllib.request.urlopen(f"{address}/health/ready", timeout=10).read()
