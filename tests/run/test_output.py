"""What a child prints is kept in bounded memory, whatever the size of the pieces."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from penstock.core.redact import Redactor
from penstock.run.output import TAIL_BYTES, LogFile, Stream, Tail


@pytest.mark.parametrize("piece", [1000, 60_000, 65_536, 300_000])
def test_a_tail_is_the_end_of_the_stream_and_no_more(piece: int) -> None:
    tail = Tail()
    tracemalloc.start()
    for number in range(2_000_000 // piece):
        tail.write(bytes([65 + number % 26]) * piece)
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    last = chr(65 + (2_000_000 // piece - 1) % 26)
    assert tail.text().endswith(last * min(piece, TAIL_BYTES))
    assert len(tail.text()) == TAIL_BYTES
    assert kept < 4 * TAIL_BYTES


def test_text_that_grows_when_mended_still_fits() -> None:
    tail = Tail()
    tail.write(b"\xff" * TAIL_BYTES)
    assert len(tail.text().encode()) <= TAIL_BYTES
    assert set(tail.text()) == {"\ufffd"}


def test_without_a_log_the_tail_is_still_kept() -> None:
    log = LogFile(None, 10)
    log.write(b"nowhere to go")
    assert log.trouble is None
    stream = Stream(Redactor(), log)
    stream.feed(b"no newline yet")
    assert stream.tail.text() == ""
    stream.finish()
    assert stream.tail.text() == "no newline yet"


def test_a_log_directory_that_cannot_be_made_is_noted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = LogFile(tmp_path / "file" / "logs" / "run.log", 10)
    assert log.path is None
    assert log.trouble is not None and "no log was kept" in log.trouble
