"""What does not fit into an argument reaches a command by stdin or by a file; what fits nowhere is found before it is enqueued."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import InvalidInput, InvalidPayload, Penstock
from penstock.core.outcomes import Failed, Succeeded
from penstock.run.command import CommandRunner
from penstock.run.commands import load_commands, parse_commands
from penstock.run.guardian import guardian
from tests.docs.blocks import blocks_of
from tests.run.support import Desk, claim
from tests.run.test_command_runner import runner

ECHO = "import sys; sys.stdout.write(sys.stdin.read())"
SHOW = "import os,sys; p=sys.argv[1]; print(oct(os.stat(p).st_mode)[-3:], oct(os.stat(os.path.dirname(p)).st_mode)[-3:], p); print(open(p).read())"
LONG = "first line\n\tsecond – “quoted”\n" * 20_000


def run(argv: list[str], params: dict[str, Any], **settings: Any) -> Any:
    return runner([sys.executable, "-c", *argv], **settings).run(claim("c", params), Desk())


def test_text_of_many_lines_comes_by_stdin() -> None:
    outcome = run([ECHO], {"text": "one\ntwo\n-three"}, stdin="{text}")
    assert isinstance(outcome, Succeeded), outcome
    assert outcome.evidence.stdout_tail == "one\ntwo\n-three"
    count = "import sys; print(len(sys.stdin.read()))"
    assert run([count], {"text": LONG}, stdin="{text}").evidence.stdout_tail == f"{len(LONG)}\n"


def test_lists_and_objects_come_as_json() -> None:
    params = {"ids": [1, 2], "options": {"a": "ä\n"}, "text": "x"}
    outcome = run([ECHO], params, stdin="{ids} {options} {missing?}{tenant.slug}")
    assert (outcome.evidence.stdout_tail or "").startswith('[1,2] {"a":"ä\\n"} ')
    assert json.loads(run([ECHO], params, stdin="params").evidence.stdout_tail) == params


def test_without_stdin_there_is_nothing_to_read() -> None:
    assert run([ECHO], {"text": "x"}).evidence.stdout_tail == ""


def test_all_params_come_in_a_private_file_that_is_removed() -> None:
    params = {"rows": [{"n": 1}, {"n": 2}], "text": "a\nb", "api_token": "s3cret-value-of-params"}
    outcome = run([SHOW, "{params_file}"], params)
    assert isinstance(outcome, Succeeded), outcome
    first, text = (outcome.evidence.stdout_tail or "").split("\n", 1)
    mode, folder, path = first.split(" ", 2)
    assert (mode, folder) == ("600", "700")
    assert not Path(path).exists() and not Path(path).parent.exists()
    assert Path(path).parent.parent == Path(
        guardian().workspaces.base
    )  # which the guardian removes, should we be killed
    assert json.loads(text)["rows"] == params["rows"]
    assert "s3cret-value-of-params" not in text  # printed by the command, and masked as everywhere


def test_the_file_goes_too_when_the_command_fails_or_cannot_start() -> None:
    outcome = run(["import sys; print(sys.argv[1]); sys.exit(3)", "--params={params_file}"], {"a": [1]})
    assert isinstance(outcome, Failed)
    assert not Path((outcome.evidence.stdout_tail or "").strip().removeprefix("--params=")).exists()


@pytest.mark.parametrize(
    ("stdin", "why"),
    [
        ("nothing named", 'expected "params", or a text with a payload field'),
        ("{params_file}", 'expected "params", or a text with a payload field'),
        ("{tenant.name}", "unknown placeholder {tenant.name}"),
        ("{", "has a single '{'"),
    ],
)
def test_a_stdin_that_gives_nothing_is_refused_when_the_file_is_read(stdin: str, why: str) -> None:
    text = f"[commands.c]\nargv = ['sh']\nstdin = '{stdin}'\n"
    with pytest.raises(InvalidInput, match=f"line 3: .*{re.escape(why)}"):
        parse_commands(text, Path("commands.toml"), {"PATH": "/bin:/usr/bin"})


COMMANDS = """
[commands.tag]
argv = ["no-such-program-here", "--model={model}", "{path?}"]
stdin = "{notes?}"
"""


@pytest.fixture
def app(tmp_path: Path) -> Any:
    (tmp_path / "commands.toml").write_text(COMMANDS)
    with Penstock(f"sqlite:///{tmp_path / 'jobs.db'}") as made:
        made.define("tag", runner="command", default_params={"model": "siglip"})
        made.define("other", runner="command")
        made.use_commands(tmp_path / "commands.toml")
        yield made


@pytest.mark.parametrize(
    ("params", "path", "why"),
    [
        ({"model": "a\nb"}, "$.model", "control character U+000A"),
        ({"model": ["a"]}, "$.model", "of type list"),
        ({"model": {"a": 1}}, "$.model", "of type dict"),
        ({"path": "--force"}, "$.path", "could be taken for an option"),
        ({"model": None}, "$.model", "no field 'model'"),
    ],
)
def test_params_that_a_command_cannot_take_are_refused_at_enqueue(
    app: Penstock, params: dict[str, Any], path: str, why: str
) -> None:
    job = app.enqueue("tag")
    for verb in (
        lambda: app.enqueue("tag", params),
        lambda: app.enqueue_many("tag", [{}, params]),
        lambda: app.groups.create([("tag", params)]),
        lambda: app.jobs.update(job.id, params=params),
    ):
        with pytest.raises(InvalidPayload) as refused:
            verb()
        [fault] = refused.value.faults
        assert fault.path == path and why in fault.message and "'tag'" in fault.message
    assert len(app.jobs.list()) == 1


def test_what_a_command_can_take_and_what_is_unknown_pass(app: Penstock) -> None:
    app.enqueue("tag", {"model": "a b", "notes": "one\ntwo", "unused": [1]})
    app.enqueue("other", {"anything": ["goes"]})


def test_the_rules_are_those_of_the_runner(tmp_path: Path) -> None:
    (tmp_path / "commands.toml").write_text(COMMANDS)
    with pytest.raises(InvalidInput, match="not on the worker's PATH"):
        load_commands(tmp_path / "commands.toml")
    command = load_commands(tmp_path / "commands.toml", to_run=False)["tag"]
    assert command.faults({"model": "x"}) == []
    assert [fault.path for fault in command.faults({})] == ["$.model"]


def test_the_example_of_the_docs_runs(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "howto" / "commands.md"
    [block] = [block for block in blocks_of(page) if block.title == "commands.toml"]
    (tmp_path / "commands.toml").write_text(block.text.replace('"python3"', json.dumps(sys.executable)))
    (tmp_path / "summarize.py").write_text("import sys; print(sys.argv[1], sys.stdin.read().splitlines())")
    (tmp_path / "import_rows.py").write_text("import json, sys; print(json.load(open(sys.argv[1]))['rows'])")
    text = (tmp_path / "commands.toml").read_text()
    for name in ("summarize.py", "import_rows.py"):
        text = text.replace(f'"{name}"', json.dumps(str(tmp_path / name)))
    (tmp_path / "commands.toml").write_text(text)
    made = CommandRunner(load_commands(tmp_path / "commands.toml"))
    told = made.run(claim("summarize", {"model": "m", "notes": "a\nb"}), Desk())
    assert isinstance(told, Succeeded) and told.evidence.stdout_tail == "--model=m ['a', 'b']\n"
    told = made.run(claim("import-rows", {"rows": [{"n": 1}]}), Desk())
    assert isinstance(told, Succeeded) and told.evidence.stdout_tail == "[{'n': 1}]\n"
