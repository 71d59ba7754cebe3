"""The code blocks of a page, in order, with what their info line says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    language: str
    info: str
    text: str

    @property
    def title(self) -> str | None:
        found = re.search(r'title="([^"]+)"', self.info)
        return found.group(1) if found else None


def blocks_of(page: Path) -> list[Block]:
    return [Block(language, info.strip(), text) for language, info, text in FENCE.findall(page.read_text())]
