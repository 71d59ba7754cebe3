"""The four commands of the service's execution model, end to end: the example's files, the worker's process, the verbs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.ids import DEFAULT_TENANT_ID
from tests.cli.conftest import Shell

EXAMPLE = Path(__file__).parents[2] / "examples" / "commands"
KEYS = ("sync-dropbox", "recompute-trained-tags", "recompute-zeroshot-tags", "train-keyword-models")


@pytest.fixture
def worker(url: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "penstock.cli", "worker", "--commands", str(EXAMPLE / "commands.toml")]
    with (tmp_path / "worker.log").open("wb") as log:
        child = subprocess.Popen(
            [*command, "--log-dir", str(tmp_path / "logs")],
            stderr=log,
            env={**os.environ, "PENSTOCK_DATABASE_URL": url},
        )
    yield child
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
    assert child.wait(120) == 0


def ended(penstock: Shell, id: str) -> dict[str, object]:
    until = time.monotonic() + 120
    while True:
        job: dict[str, object] = penstock.well("jobs", "show", id, "--json").json
        if job["finished_at"]:
            return job
        assert time.monotonic() < until, f"{job['definition_key']} did not end"
        time.sleep(0.05)


def test_the_four_commands(penstock: Shell, worker: subprocess.Popen[bytes], tmp_path: Path) -> None:
    penstock.well("definitions", "apply", str(EXAMPLE / "definitions.toml"))
    ids = {key: penstock.well("enqueue", key).out.strip() for key in KEYS}
    for key, id in ids.items():
        job = ended(penstock, id)
        assert job["status"] == "succeeded", job
        followed = penstock.well("jobs", "logs", id, "-f")
        assert followed.out.splitlines() == [
            *(f"{key}: step {n} of 3 for tenant {DEFAULT_TENANT_ID}" for n in (1, 2, 3)),
            "done",
        ]
        assert str(tmp_path / "logs") in followed.err

    nothing_new = penstock.well("enqueue", "sync-dropbox", "-p", '{"path_prefix": "/empty"}').out.strip()
    job = ended(penstock, nothing_new)
    assert (job["status"], job["runs"][0]["status"]) == ("succeeded", "skipped")  # type: ignore[index]

    sly = penstock.well(
        "enqueue", "sync-dropbox", "-p", '{"path_prefix": "/x --tenant-id=other; rm -rf /"}'
    ).out.strip()
    assert ended(penstock, sly)["status"] == "succeeded"
    refused = penstock("enqueue", "sync-dropbox", "-p", '{"tenant_id": "other"}')
    assert refused.code == 2 and "tenant_id" in refused.err
    assert penstock.well("doctor", "--json").json["clean"] is True


def test_a_placeholder_that_nothing_can_fill_is_said_at_start(penstock: Shell, tmp_path: Path) -> None:
    penstock.well("definitions", "apply", str(EXAMPLE / "definitions.toml"))
    commands = tmp_path / "commands.toml"
    commands.write_text('[commands.train-keyword-models]\nargv = ["true", "--model={model}"]\n')
    answer = penstock("worker", "--commands", str(commands))
    assert answer.code == 2
    assert "'train-keyword-models' asks for model" in answer.err
    commands.write_text('[commands.train-keyword-models]\nargv = ["true", "{unclosed"]\n')
    answer = penstock("worker", "--commands", str(commands))
    assert answer.code == 2 and f"{commands}" in answer.err and "2" in answer.err
