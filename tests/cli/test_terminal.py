"""What a job printed or a worker reported never drives the terminal of whoever reads it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import unicodedata

from penstock import Failed, Penstock
from penstock.core.nouns import Job
from penstock.core.outcomes import Evidence
from penstock.core.terminal import printable, printable_json
from tests.cli.conftest import Shell

HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07\x1b[2J\x1b]8;;javascript:x\x07\x9b31m\u202etxt.exe\r"


def failed_job(app: Penstock) -> Job:
    app.enqueue("resize")
    [claim] = app.queue.claim("host:1")
    app.queue.finish(claim, Failed(HOSTILE, evidence=Evidence(stdout_tail=HOSTILE, stderr_tail=HOSTILE)))
    return app.jobs.get(claim.job_id)


def controls(text: str) -> set[str]:
    return {char for char in text if unicodedata.category(char) in ("Cc", "Cf") and char not in "\n\t"}


def test_every_view_of_a_job_shows_controls_as_escapes(penstock: Shell, app: Penstock) -> None:
    job = failed_job(app)
    for verb in (("show", str(job.id)), ("why", str(job.id)), ("logs", str(job.id)), ("list",)):
        answer = penstock.well("jobs", *verb)
        assert "\\x1b]52;c;" in answer.out + answer.err, verb
        assert not controls(answer.out + answer.err), verb


def test_json_means_the_same_and_holds_no_controls(penstock: Shell, app: Penstock) -> None:
    job = failed_job(app)
    answer = penstock.well("jobs", "show", str(job.id), "--json")
    assert not controls(answer.out)
    assert answer.json["last_error"] == job.last_error
    assert json.loads(printable_json(json.dumps({"x": HOSTILE}, ensure_ascii=False))) == {"x": HOSTILE}


def test_raw_is_for_those_who_ask(penstock: Shell, app: Penstock) -> None:
    job = failed_job(app)
    assert HOSTILE in penstock.well("jobs", "logs", str(job.id), "--raw").out


def test_on_a_terminal_too(url: str, app: Penstock) -> None:
    job = failed_job(app)
    for verb in ("show", "logs"):
        shown = on_a_terminal(url, "jobs", verb, str(job.id))
        assert "\\x1b]52;c;" in shown
        assert "\x1b]" not in shown and "\x1b[2J" not in shown and "\u202e" not in shown


def on_a_terminal(url: str, *arguments: str) -> str:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-c", "from penstock.cli import main; main()", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "PENSTOCK_DATABASE_URL": url, "TERM": "xterm", "COLUMNS": "400"},
    )
    os.close(theirs)
    pieces = []
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(ours)
    assert child.wait() == 0
    return b"".join(pieces).decode()


def test_ordinary_text_is_left_as_it_is() -> None:
    text = "Grüße, 世界 👋🏽\n\tline two"
    assert printable(text) == text
