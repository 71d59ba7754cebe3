"""The docs are held true: blocks run, the site builds, and everything there is to know is written down."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import expect, sync_playwright

from tests.browser.chromium import FLAGS, ensure_chromium, watched
from tests.docs.blocks import blocks_of

ROOT = Path(__file__).parent.parent.parent
BIN = Path(sys.executable).parent


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK")}
    return {**kept, "PATH": f"{BIN}:{os.environ['PATH']}", "PYTHONPATH": ".", "PYTHONWARNINGS": "default"}


def sign_in_link(folder: Path) -> str:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        found = re.search(r"Sign in: (http\S+)", "".join(path.read_text() for path in folder.glob("log*")))
        if found:
            return found[1]
        time.sleep(0.1)
    raise AssertionError("penstock up printed no sign-in link")


def see_the_page(link: str) -> None:
    """In a real browser, what the tutorial says is to be seen there."""
    expect.set_options(timeout=20_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=ensure_chromium(), args=FLAGS)
        with watched(browser) as page:
            page.goto(link)
            menu = page.get_by_role("navigation")
            menu.get_by_role("link", name="Jobs").click()
            page.get_by_role("row").get_by_text("greet").first.click()
            expect(page.get_by_role("heading", level=1).get_by_text("succeeded")).to_be_visible()
            expect(page.get_by_role("region", name="Log", exact=True).get_by_text("hello, world")).to_be_visible()
            menu.get_by_role("link", name="Triggers").click()
            expect(page.get_by_text("Receipt at two").first).to_be_visible()
        browser.close()


def test_tutorial_step_by_step(tmp_path: Path) -> None:
    running: list[subprocess.Popen[bytes]] = []
    shell = "export PENSTOCK_DATABASE_URL=sqlite:///shop.db\n"
    printed = ""
    try:
        for block in blocks_of(ROOT / "docs" / "tutorial" / "first-ten-minutes.md"):
            if block.title:
                (tmp_path / block.title).write_text(block.text)
            elif block.language == "sh" and "pip install" in block.text:
                continue  # the environment that runs this test is that environment
            elif block.language == "sh" and block.info == "background":
                log = (tmp_path / f"log{len(running)}").open("wb")
                command = ["bash", "-c", shell + "exec " + block.text]
                running.append(
                    subprocess.Popen(
                        command, cwd=tmp_path, env=environment(), stdout=log, stderr=log, start_new_session=True
                    )
                )
                log.close()
            elif block.language == "sh":
                done = subprocess.run(
                    ["bash", "-ec", shell + block.text],
                    cwd=tmp_path,
                    env=environment(),
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                logs = "".join(path.read_text() for path in sorted(tmp_path.glob("log*")))
                assert (done.returncode != 0) == (block.info == "fails"), (
                    f"{block.text}\n{done.stdout}{done.stderr}\n{logs}"
                )
                assert "Traceback" not in done.stderr
                printed += done.stdout
        assert re.search(r"send-receipt\s+succeeded", printed)
        assert re.search(r"greet\s+succeeded", printed)
        assert "fires next at" in printed and "10 made" in printed and "healthy" in printed
        see_the_page(sign_in_link(tmp_path))
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            process.wait(120)


def test_readme_blocks_run(tmp_path: Path) -> None:
    python = [block.text for block in blocks_of(ROOT / "README.md") if block.language == "python"]
    assert len(python) >= 2
    for number, text in enumerate(python):
        path = tmp_path / f"block{number}.py"
        path.write_text(text)
        done = subprocess.run(
            [sys.executable, path.name], cwd=tmp_path, env=environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, f"{text}\n{done.stderr}"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.stem)
def test_python_blocks_parse(page: Path) -> None:
    for block in blocks_of(page):
        if block.language == "python":
            wrapped = "async def _():\n" + "".join(f"    {line}\n" for line in block.text.splitlines())
            compile(
                wrapped if "await" in block.text and "async def" not in block.text else block.text, str(page), "exec"
            )


@pytest.mark.parametrize(
    "path", sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "examples").glob("*.py") if p.stem != "__init__")
)
def test_examples_run(path: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / path], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, env={**environment(), "NO_MKDOCS_2_WARNING": "1", "DISABLE_MKDOCS_2_WARNING": "true"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "site" / "tutorial" / "first-ten-minutes" / "index.html").exists()


def test_the_reference_is_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, "tools/reference.py", "--check"], cwd=ROOT, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_deployment_files_are_well_formed() -> None:
    deploy = ROOT / "examples" / "deploy"
    documents = list(yaml.safe_load_all((deploy / "kubernetes.yaml").read_text()))
    assert {document["kind"] for document in documents} == {"Deployment"}
    for document in documents:
        spec = document["spec"]["template"]
        assert document["spec"]["selector"]["matchLabels"] == spec["metadata"]["labels"]
    unit = (deploy / "penstock-worker.service").read_text()
    assert "ExecStart=" in unit and int(re.search(r"TimeoutStopSec=(\d+)", unit).group(1)) > 60  # type: ignore[union-attr]
    instructions = [
        line.split()[0]
        for line in (deploy / "Dockerfile").read_text().splitlines()
        if line and not line.startswith(" ")
    ]
    assert instructions[0] == "FROM" and "USER" in instructions and instructions[-1] == "CMD"
