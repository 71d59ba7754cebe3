"""Write docs/reference from the code: command line, settings, HTTP, Python, events, metrics, errors.

`python tools/reference.py` writes; `--check` says what is out of date. A test runs the check.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import typer

import penstock
import penstock.pipeline as dj
from penstock.cli._root import app as cli
from penstock.core.config import Config
from penstock.core.explain import EXPLANATIONS
from penstock.core.message import GROUP_TYPES, JOB_TYPES, TEST_TYPE
from penstock.core.settings.base import BOUNDS, PREFIX, Group
from penstock.core.settings.process import ProcessSettings
from penstock.pipeline.config import SETTINGS as PIPELINE_SETTINGS
from penstock.server.openapi import document
from penstock.server.series import SERIES
from penstock.server.settings import Settings

ROOT = Path(__file__).parent.parent / "docs" / "reference"
NOTE = "<!-- Written by tools/reference.py from the code; do not edit. -->\n"


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ").strip()


def _verbs(command: click.Command, path: str) -> list[tuple[str, click.Command]]:
    if isinstance(command, click.Group) or hasattr(command, "commands"):
        return [pair for name, sub in sorted(command.commands.items()) for pair in _verbs(sub, f"{path} {name}")]
    return [(path, command)]


def command_line() -> str:
    lines = ["# Command line\n", "Every verb takes `--help`. Answers are tables on a terminal and plain in a pipe.\n"]
    for path, command in _verbs(typer.main.get_command(cli), "penstock"):
        lines += [f"## `{path}`\n", inspect.cleandoc(command.help or "") + "\n"]
        rows = []
        for parameter in command.params:
            if getattr(parameter, "hidden", False) or parameter.name == "help":
                continue
            names = ", ".join(f"`{name}`" for name in parameter.opts) or f"`{parameter.name}`"
            variable = getattr(parameter, "envvar", None)
            told = _cell(getattr(parameter, "help", None) or "")
            rows.append(f"| {names} | {told} | {f'`{variable}`' if variable else ''} |")
        if rows:
            lines += ["| option | what it does | variable |", "| --- | --- | --- |", *rows, ""]
    return "\n".join(lines)


def _field_notes(kind: type) -> dict[str, str]:
    """The string under each field, as the source has it."""
    source = inspect.getsource(kind)
    found = re.findall(r'^    (\w+): [^\n]*\n(?:    """(.+?)""")?', source, re.M | re.S)
    return {name: " ".join(note.split()) for name, note in found}


def _groups(kind: type[Group]) -> list[type[Group]]:
    """The groups that a kind of settings is put together from."""
    found = [group for group in kind.__bases__ if issubclass(group, Group) and group is not Group]
    return found or [kind]


def settings() -> str:
    lines = [
        "# Settings\n",
        "Every setting has a variable; a value that is not allowed stops the program at its start. "
        "[Tuning](../explanation/tuning.md) says what to change when.\n",
    ]
    for title, kind, how in (
        ("The engine", Config, "Set by the variable, or in code: `Penstock(url, config=Config(lease_seconds=10))`. A `Config` that is passed is "
         "taken as it is; `Config.from_environment(lease_seconds=10)` reads the rest from the variables."),
        ("The service", Settings, "Set by the variable, or in code: `create_app(penstock, Settings(rate_limit=50))`."),
        ("Penstock's own processes", ProcessSettings, "Set by the variable. They hold in processes that Penstock starts for itself: `penstock worker`, "
         "`up`, `api`, `scheduler`, `pipeline populate` and their children. A program of yours that imports Penstock is left as it is."),
    ):  # fmt: skip
        lines += [f"## {title}\n", f"{how}\n"]
        for group in _groups(kind):
            if group is not kind:
                lines += [f"### {_first_line(group)}\n"]
            notes = _field_notes(group)
            lines += ["| setting | default | allowed | what it is |", "| --- | --- | --- | --- |"]
            for each in fields(group):
                allowed = each.metadata.get(BOUNDS, "")
                name = f"{PREFIX}{each.name.upper()}"
                lines.append(f"| `{name}` | `{_cell(each.default)}` | {allowed} | {_cell(notes.get(each.name, ''))} |")
            lines.append("")
    lines += [
        "## Pipelines\n", "Set by `dj.config[name] = value`.\n", "| setting | default | least | what it is |", "| --- | --- | --- | --- |",
        *(f"| `{name}` | `{_cell(each.default)}` | {'' if each.at_least is None else each.at_least} | {_cell(each.meaning)} |"
          for name, each in sorted(PIPELINE_SETTINGS.items())), "",
        "## Elsewhere\n", "| variable | what it is |", "| --- | --- |",
        "| `PENSTOCK_DATABASE_URL` | the database, where none is named |",
        "| `PENSTOCK_KEYS` | keys for encryption at rest, as `id:base64` separated by commas; the first encrypts, all decrypt |",
        "| `PENSTOCK_KEYS_FILE` | the same, in a file: one key on each line |",
        "| `PENSTOCK_TENANT` | the tenant that the command line acts for |",
        "| `PENSTOCK_FAILPOINTS` | for tests: seams that misbehave |", "",
    ]  # fmt: skip
    return "\n".join(lines)


def http() -> str:
    lines = [
        "# HTTP\n", "The whole document is at `/api/v1/openapi.json`. Errors are problem details (RFC 9457) with a `code`.\n",
        "| method | path | what it does |", "| --- | --- | --- |",
    ]  # fmt: skip
    for path, methods in sorted(json.loads(document())["paths"].items()):
        for method, operation in methods.items():
            told = operation.get("description", "").split("\n")[0] or operation.get("summary", "")
            lines.append(f"| {method.upper()} | `{path}` | {_cell(told)} |")
    return "\n".join([*lines, "", *_scopes(), ""])


def _scopes() -> list[str]:
    lines = ["## Scopes\n", "What a token that is limited to a scope may use, within its role.\n"]
    lines += ["| scope | routes |", "| --- | --- |"]
    found: dict[str, list[str]] = {}
    for path, methods in sorted(json.loads(document())["paths"].items()):
        for method, operation in methods.items():
            if "x-scope" in operation:
                found.setdefault(operation["x-scope"], []).append(f"`{method.upper()} {path}`")
    return [*lines, *(f"| `{scope}` | {', '.join(routes)} |" for scope, routes in sorted(found.items()))]


def _first_line(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "").split("\n")[0]


def python() -> str:
    lines = ["# Python\n", "## `penstock`\n", "| name | what it is |", "| --- | --- |"]
    lines += [f"| `{name}` | {_cell(_first_line(getattr(penstock, name)))} |" for name in penstock.__all__]
    lines += ["", "## `Penstock`\n"]
    for name, member in inspect.getmembers(penstock.Penstock, inspect.isfunction):
        if not name.startswith("_"):
            signature = (
                re.sub(r"penstock\.[\w.]+\.", "", str(inspect.signature(member)))
                .replace("self, ", "")
                .replace("self", "")
                .replace("'", "")
            )
            lines += [f"### `{name}{signature}`\n", inspect.cleandoc(member.__doc__ or "") + "\n"]
    lines += ["## `penstock.pipeline`\n", "| name | what it is |", "| --- | --- |"]
    lines += [f"| `{name}` | {_cell(_first_line(getattr(dj, name)))} |" for name in dj.__all__]
    return "\n".join([*lines, ""])


def events() -> str:
    told = {
        "job.run.completed": "a run succeeded", "job.run.failed": "a run failed or timed out", "job.run.skipped": "there was nothing to do",
        "job.run.dead_letter": "a job failed for good", "job.run.canceled": "a job was canceled",
        "group.completed": "every member succeeded", "group.partial": "a member did not", "group.canceled": "every member was canceled",
        TEST_TYPE: "sent on request, to try a subscription",
    }  # fmt: skip
    rows = [f"| `{name}` | {told[name]} |" for name in (*JOB_TYPES, *GROUP_TYPES, TEST_TYPE)]
    head = ["# Webhook events\n", "Signed as Standard Webhooks says.\n", "| type | when |", "| --- | --- |"]
    return "\n".join([*head, *rows, ""])


def metric_names() -> str:
    head = [
        "# Metrics\n",
        "At `/metrics`, in Prometheus' text format. A super admin sees every tenant, everyone else their own alone.\n",
        "The number of series is bounded: `PENSTOCK_METRICS_TENANTS` tenants have a label of their own, and of each tenant "
        "`PENSTOCK_METRICS_SERIES` pairs of `queue` and `definition_key`; what is beyond is summed as `other`. Counters count "
        "from the start of the service's process.\n",
        "| metric | kind | labels | what it is |",
        "| --- | --- | --- | --- |",
    ]
    rows = [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {_cell(each.help)} |"
        for each in sorted(SERIES.values())
    ]
    return "\n".join([*head, *rows, ""])


def errors() -> str:
    lines = [
        "# Errors\n",
        "Every error carries a `code`. `penstock explain CODE` says the same as this page, and so does the address in the `type` of the "
        "service's problem answers.\n",
    ]
    for each in EXPLANATIONS.values():
        lines += [f"## {each.code}\n", f"{each.happened}\n", f"What to do: {each.do} [More](../{each.page}).\n"]
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": command_line, "settings.md": settings, "http.md": http, "python.md": python, "events.md": events,
    "metrics.md": metric_names, "errors.md": errors,
}  # fmt: skip


def main() -> int:
    stale = []
    for name, make in PAGES.items():
        path, text = ROOT / name, NOTE + make()
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                stale.append(name)
        else:
            ROOT.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale:
        sys.stdout.write(f"docs/reference is out of date: {', '.join(stale)}. Run: python tools/reference.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
