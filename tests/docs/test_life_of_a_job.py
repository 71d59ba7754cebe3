"""The walk through the code names files and functions that are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "life-of-a-job.md").read_text()
SOURCE = ROOT / "src" / "penstock"


def test_every_file_it_names_exists() -> None:
    named = set(re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE))
    assert len(named) > 15
    assert [path for path in sorted(named) if not (SOURCE / path).is_file()] == []


def test_every_name_it_gives_is_in_the_file_before_it() -> None:
    steps = re.findall(r"`((?:\w+/)*\w+\.py)` `([\w.]+)`", PAGE)
    assert len(steps) > 12
    for path, dotted in steps:
        text = (SOURCE / path).read_text()
        for name in dotted.split("."):
            assert re.search(rf"(def|class) {name}\b", text), f"{path} has no {name}"
