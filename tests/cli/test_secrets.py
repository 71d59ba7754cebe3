"""The command line and its log show no secret, and nothing that drives a terminal."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import pytest
import structlog

from penstock import Failed, Penstock
from penstock.cli._logs import configure_logs
from penstock.core.outcomes import Evidence
from penstock.run.context import Context, running
from tests.cli.conftest import Shell
from tests.run.support import Desk, claim

PIN = "4711-of-the-vault"
SCHEMA = {"properties": {"code": {"type": "string", "x-secret": True}, "n": {}}}


def test_no_verb_shows_what_a_schema_marks(penstock: Shell, app: Penstock) -> None:
    app.define("vault", arg_schema=SCHEMA, max_attempts=1, default_params={"code": PIN})
    params = json.dumps({"code": PIN, "n": 1})
    told = [penstock.well("enqueue", "vault", "-p", params, "--json").out]
    [held] = app.queue.claim("host:1")
    app.queue.finish(held, Failed(f"no luck with {PIN}", evidence=Evidence(stdout_tail=f"out {PIN}", stderr_tail=PIN)))
    id = str(held.job_id)
    for verb in (
        ("show", id),
        ("show", id, "--json"),
        ("list",),
        ("list", "--json"),
        ("why", id),
        ("logs", id),
        ("retry", id, "--json"),
    ):
        answer = penstock.well("jobs", *verb)
        told += [answer.out, answer.err]
    told.append(penstock.well("definitions", "list", "--json").out)
    made = ("triggers", "add", "nightly", "vault", "--cron", "0 2 * * *", "-p", params, "--json")
    told += [penstock.well(*made).out, penstock.well("triggers", "list", "--json").out]
    told.append(penstock.well("doctor", "--json").out)
    assert not [text for text in told if PIN in text]
    assert sum("***" in text for text in told) >= 8


def test_a_mask_that_comes_back_on_the_command_line_stays_what_it_was(penstock: Shell, app: Penstock) -> None:
    app.define("vault", arg_schema=SCHEMA)
    job = app.enqueue("vault", {"code": PIN, "n": 1})
    penstock.well("jobs", "update", str(job.id), "-p", '{"code": "***", "n": 2}')
    assert app.jobs.get(job.id).params == {"code": PIN, "n": 2}


@pytest.fixture
def logs() -> Iterator[None]:
    """Whatever a test does to logging is undone."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    yield
    root.handlers[:] = before
    root.setLevel(level)
    structlog.reset_defaults()
    logging.captureWarnings(False)


HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07\x1b[2J\x9b31m\u202etxt.exe\rx"


@pytest.mark.parametrize("as_json", [True, False])
def test_the_log_masks_secrets_and_obeys_nobody(logs: None, capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    configure_logs(as_json=as_json)
    context = Context.of(claim("vault", {"code": PIN})._replace(secrets=("/code",)), Desk())
    before = running.set(context)
    try:
        structlog.get_logger("penstock").warning(
            f"said {PIN}", why=f"because {PIN}", deep={"list": [PIN]}, password="pw-of-ann"
        )
        logging.getLogger("job").warning("logged %s %s", PIN, HOSTILE)
        try:
            raise ValueError(f"raised {PIN} {HOSTILE}")
        except ValueError:
            logging.getLogger("job").exception("failed")
            structlog.get_logger("penstock").exception("failed")
    finally:
        running.reset(before)
    structlog.get_logger("penstock").info("done", text=HOSTILE, url="postgresql://me:hunter22@db/x", odd={HOSTILE: 1})
    written = capsys.readouterr().err
    assert PIN not in written and "hunter22" not in written and "pw-of-ann" not in written
    assert written.count("***") >= 6 and "raised" in written
    written = re.sub("\x1b\\[[0-9;]*m", "", written)  # the log's own colours
    for code in ("\x1b", "\x07", "\x9b", "\u202e", "\r"):
        assert code not in written, repr(code)


def test_a_jobs_progress_quotes_no_secret() -> None:
    desk = Desk()
    Context.of(claim("vault", {"password": PIN}), desk).progress(1, 2, f"at {PIN}")
    assert desk.progress == [(1, 2, "at ***")]
