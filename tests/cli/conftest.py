from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import Penstock
from penstock.cli import main


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Shell:
    """Types `penstock …` on a database; its answers go into a pipe."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = url
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("PENSTOCK_DATABASE_URL", url)
        monkeypatch.setenv("NO_COLOR", "1")

    def __call__(self, *arguments: str) -> Answer:
        self._monkeypatch.setattr(sys, "argv", ["penstock", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = self._capsys.readouterr()
        code = ended.value.code
        return Answer(code if isinstance(code, int) else 1, captured.out, captured.err)

    def well(self, *arguments: str) -> Answer:
        answer = self(*arguments)
        assert answer.code == 0, answer
        return answer


@pytest.fixture
def penstock(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(url, capsys, monkeypatch)


@pytest.fixture
def app(url: str) -> Iterator[Penstock]:
    made = Penstock(url)
    made.define("resize", arg_schema={"type": "object", "properties": {"width": {"type": "integer"}}}, max_attempts=1)
    yield made
    made.close()
