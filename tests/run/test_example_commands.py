"""The four commands of the execution model, as the example file maps them, with the stand-in program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.core.outcomes import Failed, Skipped, Snoozed, Succeeded
from penstock.run.command import CommandRunner
from penstock.run.commands import load_commands
from tests.run.support import Desk, claim

FILE = Path(__file__).parents[2] / "examples" / "commands" / "commands.toml"


@pytest.mark.parametrize(
    ("key", "params", "arguments"),
    [
        (
            "sync-dropbox",
            {"provider_id": "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09", "path_prefix": "--tenant-id=other"},
            ["--provider-id=6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09", "--path-prefix=--tenant-id=other"],
        ),
        ("sync-dropbox", {}, []),
        ("recompute-trained-tags", {"model": "siglip"}, ["--model=siglip"]),
        ("recompute-zeroshot-tags", {}, []),
        ("train-keyword-models", {}, []),
    ],
)
def test_a_key_runs_its_exact_arguments(key: str, params: dict[str, Any], arguments: list[str]) -> None:
    commands = load_commands(FILE)
    ours = claim(key, params)
    assert commands[key].argv(ours) == [
        str(FILE.parent / "zoltag"), key, f"--tenant-id={ours.tenant_id}", *arguments,
    ]  # fmt: skip
    outcome = CommandRunner(commands).run(ours, Desk())
    assert isinstance(outcome, Succeeded)
    first = f"{key}: step 1 of 3 for tenant {ours.tenant_id}"
    assert (outcome.evidence.stdout_tail or "").splitlines()[0] == first


def test_nothing_to_do_is_skipped_and_busy_comes_later(tmp_path: Path) -> None:
    skipped = CommandRunner(load_commands(FILE)).run(claim("sync-dropbox", {"path_prefix": "/empty"}), Desk())
    assert isinstance(skipped, Skipped) and skipped.reason == "exit code 78: no file has changed"
    (tmp_path / "zoltag").symlink_to(FILE.parent / "zoltag")
    busy = tmp_path / "commands.toml"
    busy.write_text(FILE.read_text().replace("[defaults]", '[defaults]\nenv_set = { ZOLTAG_BUSY = "1" }'))
    snoozed = CommandRunner(load_commands(busy)).run(claim("sync-dropbox"), Desk())
    assert isinstance(snoozed, Snoozed) and snoozed.seconds == 30


def test_a_provider_that_is_no_uuid_fails_with_the_programs_own_words() -> None:
    outcome = CommandRunner(load_commands(FILE)).run(claim("sync-dropbox", {"provider_id": "x"}), Desk())
    assert isinstance(outcome, Failed) and "exit code 2" in outcome.error and "--provider-id" in outcome.error
