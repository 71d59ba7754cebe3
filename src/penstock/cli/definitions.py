"""`penstock definitions …`: what may be asked for."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli._common import AsJson, DatabaseUrl, TenantName, open_app, out
from penstock.cli._show import print_json, print_table
from penstock.core.errors import InvalidInput

app = typer.Typer(help="What may be asked for.", no_args_is_help=True)


@app.command("list")
def list_(
    archived: Annotated[bool, typer.Option("--archived", help="Those that take no new jobs, too.")] = False,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """The definitions that a tenant may use."""
    with open_app(database_url, tenant) as made:
        found = made.definitions.list(archived)
    if as_json:
        print_json(found)
        return
    columns = ("key", "runner", "queue", "timeout", "attempts", "retry", "priority", "", "description")
    print_table(
        columns,
        [
            (
                d.key,
                d.runner,
                d.queue,
                f"{d.timeout_seconds} s",
                d.max_attempts,
                d.retry_mode.value,
                d.priority,
                "archived" if not d.is_active else "paused" if d.paused else "",
                d.description,
            )
            for d in found
        ],
        "No definitions.",
    )


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(help="TOML with [definitions.KEY] tables, or the same as JSON.")],
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Create or change definitions to what a file says. What it does not mention stays as it is."""
    wanted = _read(file)
    with open_app(database_url, tenant) as made:
        done = [made.define(key, **values) for key, values in wanted.items()]
    if as_json:
        print_json(done)
    else:
        for definition in done:
            out().print(f"{definition.key} (version {definition.version})")


def _read(file: Path) -> dict[str, dict[str, Any]]:
    try:
        text = file.read_text(encoding="utf-8")
        document = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InvalidInput(f"{file} is neither TOML nor JSON that can be read: {error}.") from error
    wanted = document.get("definitions") if isinstance(document, dict) else None
    if not isinstance(wanted, dict) or not all(isinstance(values, dict) for values in wanted.values()):
        raise InvalidInput(f"{file} has no [definitions.KEY] tables.")
    return wanted
