"""`penstock definitions apply FILE`: what is kept in git is made so, with its difference."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock import Penstock
from penstock.cli._common import guarded
from penstock.cli._root import app

YAML = """
definitions:
  sync-dropbox:
    description: Sync provider updates
    runner: command
    timeout_seconds: 60
    arg_schema: {type: object, required: [provider_id]}
"""


def apply(file: Path, url: str, *more: str) -> tuple[int, str]:
    runner = CliRunner()
    code = 0

    def run() -> int:
        result = runner.invoke(app, ["definitions", "apply", str(file), "--database-url", url, *more])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        nonlocal code
        code = result.exit_code
        outputs.append(result.output)
        return code

    outputs: list[str] = []
    return guarded(run), "".join(outputs)


@pytest.mark.parametrize("ending", ["yaml", "toml", "json"])
def test_a_file_is_applied_with_its_difference(url: str, tmp_path: Path, ending: str) -> None:
    texts = {
        "yaml": YAML,
        "toml": '[definitions.sync-dropbox]\ntimeout_seconds = 60\nrunner = "command"\n',
        "json": '{"definitions": {"sync-dropbox": {"timeout_seconds": 60, "runner": "command"}}}',
    }
    file = tmp_path / f"definitions.{ending}"
    file.write_text(texts[ending])
    assert "created" in apply(file, url, "--dry-run")[1]
    with Penstock(url) as penstock:
        assert penstock.definitions.list() == []
    assert "created" in apply(file, url)[1]
    assert "unchanged" in apply(file, url)[1]
    file.write_text(texts[ending].replace("60", "90"))
    code, told = apply(file, url)
    assert (code, "timeout_seconds: 60 -> 90" in told) == (0, True)
    with Penstock(url) as penstock:
        assert penstock.definitions.get("sync-dropbox").timeout_seconds == 90


@pytest.mark.parametrize(
    "text",
    [
        "definitions: {a: {timeout_seconds: no}}",
        "definitions: {a: {typo: 1}}",
        "definitions: [1",
        "[]",
        "a: !!python/object:os.system x",
    ],
)
def test_a_file_that_cannot_be_used_changes_nothing(url: str, tmp_path: Path, text: str) -> None:
    file = tmp_path / "definitions.yaml"
    file.write_text(text)
    assert apply(file, url)[0] == 2
    with Penstock(url) as penstock:
        assert penstock.definitions.list() == []
