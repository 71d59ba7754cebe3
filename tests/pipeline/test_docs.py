"""The pages on pipelines say what is so."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import penstock.pipeline as dj
from penstock.pipeline import blob
from penstock.pipeline.config import SETTINGS
from penstock.pipeline.runner import ARG_SCHEMA

DOCS = Path(__file__).parents[2] / "docs" / "pipelines"


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text()


def test_the_first_page_runs(url: str, tmp_path: Path) -> None:
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", page("index"), re.MULTILINE | re.DOTALL))
    (tmp_path / "first.py").write_text(program)
    environment = {**os.environ, "PENSTOCK_DATABASE_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "first.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "(1 row)" in done.stdout and "'pending': 0" in done.stdout


def test_every_setting_is_told_with_its_default() -> None:
    told = re.findall(r"^\| `([\w.]+)` \| `([^`]*)` \| (.*) \|$", page("settings"), re.MULTILINE)
    assert told == [(name, repr(each.default), each.meaning) for name, each in SETTINGS.items()]


def test_every_parameter_of_populate_is_told() -> None:
    told = page("jobs").split("## make")[0]
    for name in inspect.signature(dj.Computed.populate).parameters:
        assert name == "self" or name in told, name
    for name in inspect.signature(dj.JobsTable.refresh).parameters:
        assert name == "self" or name in page("jobs"), name


def test_every_public_verb_of_a_job_table_is_told() -> None:
    own = [name for name in vars(dj.JobsTable) if not name.startswith("_")]
    silent = {
        "definition",
        "is_declared",
        "declare",
        "drop_quick",
        "target_source",
        "add_missing",
        "table_name",
        "full_table_name",
    }
    assert [name for name in own if name not in silent and f"{name}" not in page("jobs")] == []


def test_every_tag_of_the_blob_format_is_told() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \|", page("blobs"), re.MULTILINE)
    tags = {int(tag) for row in rows for tag in row.split(",")}
    assert tags == set(range(blob.OBJECTS + 1))


def test_every_parameter_of_the_runner_is_told() -> None:
    told = set(re.findall(r"^\| `(\w+)` \|", page("outside"), re.MULTILINE))
    assert told == set(ARG_SCHEMA["properties"])
