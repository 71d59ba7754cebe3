"""`penstock definitions …`: what may be asked for."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from penstock.cli._common import AsJson, DatabaseUrl, TenantName, open_app, out
from penstock.cli._show import print_json, print_table
from penstock.core.errors import InvalidInput
from penstock.core.wire.definitions import ApplyDefinitions, NewDefinition
from penstock.queue.apply import apply_definitions
from penstock.store.unit import Borrowed

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
    file: Annotated[Path, typer.Argument(help="YAML, TOML or JSON with a table of definitions by key.")],
    tenant: TenantName = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the difference.")] = False,
    archive_others: Annotated[bool, typer.Option(help="Archive those that the file does not mention.")] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make the definitions what a file says, all or none, and show the difference. Doing it again changes nothing."""
    owner = None if tenant == "default" else tenant
    wanted = ApplyDefinitions(definitions=_definitions(file, owner), dry_run=dry_run, archive_others=archive_others)
    with open_app(database_url) as made:
        done = made.db.transact(
            lambda tx: apply_definitions(replace(made.ground, db=Borrowed(made.db, tx)), tx, wanted)
        )
        made.ground.forget_definitions()
    if as_json:
        print_json(done.model_dump(mode="json"))
        return
    for each in done.items:
        out().print(f"{each.action:10} {each.key}", markup=False)
        for change in each.changes:
            out().print(f"           {change.field}: {change.before!r} -> {change.after!r}", markup=False)


def _definitions(file: Path, owner: str | None) -> list[NewDefinition]:
    found = []
    for key, values in _read(file).items():
        try:
            found.append(NewDefinition(**{**values, "key": key, "tenant": owner}))
        except ValidationError as error:
            faults = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5])
            raise InvalidInput(f"{file}: the definition {key!r} cannot be used: {faults}.") from error
    return found


def _read(file: Path) -> dict[str, dict[str, Any]]:
    try:
        document = _parsed(file, file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InvalidInput(f"{file} cannot be read as {file.suffix or 'TOML'}: {error}.") from error
    wanted = document.get("definitions") if isinstance(document, dict) else None
    if not isinstance(wanted, dict) or not all(isinstance(values, dict) for values in wanted.values()):
        raise InvalidInput(f"{file} has no [definitions.KEY] tables.")
    return wanted


def _parsed(file: Path, text: str) -> Any:
    if file.suffix == ".json":
        return json.loads(text)
    if file.suffix in (".yaml", ".yml"):
        try:
            import yaml
        except ModuleNotFoundError as error:
            raise InvalidInput("Reading YAML needs PyYAML: pip install 'penstock[server]'; or write TOML.") from error
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise ValueError(" ".join(str(error).split())) from error
    return tomllib.loads(text)
