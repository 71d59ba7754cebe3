"""The commands file says exactly what runs; its errors name their line, and no value becomes an option."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import InvalidInput
from penstock.run.commands import Command, load_commands, parse_commands
from penstock.run.template import Misfit, Template
from tests.run.support import claim

HERE = Path(__file__).parent


def command(argv: list[str], **settings: Any) -> Command:
    lines = [f"argv = {argv!r}".replace("\\'", "'"), *(f"{name} = {value}" for name, value in settings.items())]
    return parse_commands("[commands.c]\n" + "\n".join(lines), HERE / "commands.toml", os.environ)["c"]


def rendered(argv: list[str], **params: Any) -> list[str]:
    return command(["true", *argv]).argv(claim("c", params))[1:]


def test_placeholders_become_exact_arguments() -> None:
    ours = claim("c", {"path": "a b;$(x)", "n": 3, "f": 0.5, "on": True, "deep": {"er": "é"}})
    made = command(
        ["true", "{path}", "--n={n}", "--f={f}", "--on={on}", "{deep.er}", "--t={tenant.id}", "{tenant.slug}", "{job.id}",
         "{run.id}", "{{literal}}", "s3://bucket/{path}"]
    ).argv(ours)  # fmt: skip
    assert made[0] == str(Path("/usr/bin/true")) or Path(made[0]).name == "true"
    assert Path(made[0]).is_absolute()
    assert made[1:] == [
        "a b;$(x)", "--n=3", "--f=0.5", "--on=true", "é", f"--t={ours.tenant_id}", "acme", str(ours.job_id),
        str(ours.run_id), "{literal}", "s3://bucket/a b;$(x)",
    ]  # fmt: skip


def test_an_optional_argument_is_left_out_when_its_field_is_absent_or_null() -> None:
    argv = ["go", "--path={path?}", "{also?}"]
    assert rendered(argv) == ["go"]
    assert rendered(argv, path=None) == ["go"]
    assert rendered(argv, path="/", also="x") == ["go", "--path=/", "x"]


@pytest.mark.parametrize(
    "value",
    ["--config=/etc/passwd", "-oProxyCommand=x", "-", "@file", "--tenant-id=B", "--ten", "\u2013x", "\u2212x", "\uff0dx",
     "\u2014x", "\uff20file", ""],
)  # fmt: skip
def test_a_value_cannot_become_an_option(value: str) -> None:
    with pytest.raises(Misfit):
        rendered(["run", "{v}"], v=value)
    assert rendered(["run", "--v={v}"], v=value) == ["run", f"--v={value}"]


def test_after_two_dashes_a_value_may_start_with_a_dash() -> None:
    assert rendered(["run", "--", "{v}"], v="-x") == ["run", "--", "-x"]


def test_a_value_of_two_dashes_does_not_open_the_door_for_the_next() -> None:
    with pytest.raises(Misfit):
        rendered(["{a}", "{b}"], a="--", b="-x")


def test_a_negative_number_is_no_operand_either() -> None:
    with pytest.raises(Misfit, match="could be taken for an option"):
        rendered(["{n}"], n=-5)


@pytest.mark.parametrize("char", ["\0", "\n", "\r", "\t", "\x1b", "\x7f", "\x85", "\u2028", "\u202e"])
def test_control_characters_are_refused(char: str) -> None:
    with pytest.raises(Misfit, match="control character"):
        rendered(["--v={v}"], v=f"a{char}b")


@pytest.mark.parametrize("value", [["a"], {"a": 1}])
def test_only_plain_values_fill_placeholders(value: Any) -> None:
    with pytest.raises(Misfit, match="an argument takes text, a number, true or false"):
        rendered(["--v={v}"], v=value)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(Misfit, match=r"no field 'deep\.er'"):
        rendered(["{deep.er}"], deep={"other": 1})


def test_an_argument_that_the_kernel_would_refuse() -> None:
    with pytest.raises(Misfit, match="longer than 127 KiB"):
        rendered(["--v={v}"], v="x" * 140_000)


@pytest.mark.parametrize("text", ["-{x}", "--{x}", "--{x}=1", "-o{x}", "\u2013{x}"])
def test_templates_in_which_a_value_would_name_an_option(text: str) -> None:
    with pytest.raises(InvalidInput, match="could become an option's name"):
        Template.parse(text)


FILE = """\
[defaults]
kill_grace = 5

[commands.good]
argv = ["true", "{x}"]

[commands."odd key"]
%s
"""


@pytest.mark.parametrize(
    ("setting", "line", "reason"),
    [
        ('argv = ["true", "{tenant.name}"]', 8, "unknown placeholder {tenant.name}"),
        ('argv = ["true", "{job}"]', 8, "unknown placeholder {job}"),
        ('argv = ["true", "{a b}"]', 8, "placeholder {a b}"),
        ('argv = ["true", "{open"]', 8, "single '{'"),
        ('argv = ["no-such-program-anywhere"]', 8, "not on the worker's PATH"),
        ('argv = ["./missing"]', 8, "is not an executable file"),
        ('argv = ["{program}"]', 8, "must be a fixed name"),
        ("argv = []", 8, "argv: List should have at least 1 item"),
        ('argv = "true"', 8, "argv: Input should be a valid list"),
        ('env = ["PATH"]', 7, "argv: Field required"),
        ('argv = ["true"]\ntimeout = -1', 9, "timeout: Input should be greater than 0"),
        ('argv = ["true"]\ntimout = 3', 9, "timout: Extra inputs are not permitted"),
        ('argv = ["true"]\nenv = ["PENSTOCK_DATABASE_URL"]', 9, "is ours"),
        ('argv = ["true"]\nenv_set = { "A B" = "x" }', 9, "is not a name of an environment variable"),
        ('argv = ["true"]\ncwd = "/no/such/dir"', 9, "does not exist"),
        ('argv = ["true"]\nsecrets = ["("]', 9, "is not a regular expression"),
        ('argv = ["true"]\nskip_exit_codes = [3]\nretry_exit_codes = [3]', 10, "both skip and retry"),
        ('argv = ["true"]\nrlimits = { memory = 3 }', 9, "rlimits.memory: Extra inputs"),
        ('argv = ["true"', 8, "not TOML: Unclosed array"),
        ('argv = ["true"]\nenv = PATH', 9, "not TOML: Invalid value"),
    ],
)
def test_an_error_in_the_file_names_line_and_reason(setting: str, line: int, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "commands.toml"
    path.write_text(FILE % setting)
    with pytest.raises(InvalidInput) as caught:
        load_commands(path)
    assert reason in str(caught.value)
    assert f"line {line}" in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_and_an_unknown_table(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        load_commands(tmp_path / "none.toml")
    (tmp_path / "c.toml").write_text("\n[comands.x]\nargv = ['true']\n")
    with pytest.raises(InvalidInput, match="line 2: unknown table 'comands'"):
        load_commands(tmp_path / "c.toml")


def test_the_environment_is_an_allowlist() -> None:
    ours = claim("c", {"who": "ann"}, attempt=2)
    made = command(["true"], env='["PATH", "ABSENT"]', env_set='{ LANG = "C.UTF-8", WHO = "{who}", NOT = "{gone?}" }')
    inherited = {"PATH": "/bin", "PENSTOCK_DATABASE_URL": "x", "HOME": "/h", "AWS_SECRET": "s"}
    assert made.env(ours, inherited) == {
        "PATH": "/bin",
        "LANG": "C.UTF-8",
        "WHO": "ann",
        "PENSTOCK_RUN_ID": str(ours.run_id),
        "PENSTOCK_JOB_ID": str(ours.job_id),
        "PENSTOCK_TENANT_ID": str(ours.tenant_id),
        "PENSTOCK_ATTEMPT": "2",
    }


def test_fields_that_a_closed_schema_does_not_have_are_found_at_start() -> None:
    made = command(["true", "{path}", "--x={other?}", "--t={tenant.id}"])
    schema = {"properties": {"path": {}}, "additionalProperties": False}
    assert made.unknown_fields(schema) == ["other"]
    assert made.unknown_fields({"properties": {}}) == []
