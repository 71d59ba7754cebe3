"""The seeds' code blocks, by number."""

from __future__ import annotations

import re
from pathlib import Path
from types import CodeType

HERE = Path(__file__).parent / "seeds"


def block(seed: str, number: int) -> str:
    """The text of one block."""
    text = (HERE / f"{seed}.txt").read_text()
    found = re.search(rf"^## {number}\n\n```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"seed {seed} has no block {number}"
    return found[1]


def count(seed: str) -> int:
    return len(re.findall(r"^## \d+$", (HERE / f"{seed}.txt").read_text(), re.MULTILINE))


def code(seed: str, number: int, *, without: str | None = None) -> CodeType:
    """One block, compiled; `without` is a line, an import, that it may leave out."""
    text = block(seed, number)
    if without is not None:
        assert without in text
        text = text.replace(without, "pass")
    return compile(text, f"seed {seed}, block {number}", "exec")
