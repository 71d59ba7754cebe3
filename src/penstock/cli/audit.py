"""`penstock audit …`: who did what, and whether somebody changed what was written."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from penstock.app import Penstock
from penstock.cli._common import UNHEALTHY, AsJson, DatabaseUrl, err, open_app, out
from penstock.cli._show import print_json, print_table
from penstock.core import check
from penstock.core.access import AuditEntry
from penstock.core.audit_chain import Head
from penstock.core.audit_export import csv_lines, json_lines
from penstock.core.errors import InvalidInput
from penstock.core.terminal import printable, printable_json
from penstock.queue import audit

app = typer.Typer(help="Who did what, and whether somebody changed what was written.", no_args_is_help=True)

Tenant = Annotated[str | None, typer.Option("--tenant", help="Only this tenant's. Without it, everybody's.")]
Operator = Annotated[bool, typer.Option("--operator", help="Only what belongs to no tenant.")]
Actor = Annotated[str | None, typer.Option(help="Any part of the actor.")]
Action = Annotated[str | None, typer.Option(help="For example token.create, or token.* for all of a kind.")]
Subject = Annotated[str | None, typer.Option(help="The id of what was changed.")]
Address = Annotated[str | None, typer.Option(help="The network address that it came from.")]
Since = Annotated[str | None, typer.Option(help="From this time on, for example 2026-02-16T10:30:00Z.")]
Until = Annotated[str | None, typer.Option(help="Before this time.")]
Search = Annotated[str | None, typer.Option("--text", help="Look for this in every field.")]


def _time(name: str, given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        found = datetime.fromisoformat(given)
    except ValueError as error:
        raise InvalidInput(f"--{name} is {given!r}; expected a time such as 2026-02-16T10:30:00Z.") from error
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _whose(made: Penstock, tenant: str | None) -> UUID | None:
    return None if tenant is None else made.ground.tenant_id(tenant)


@app.command("list")
def list_(
    tenant: Tenant = None,
    operator: Operator = False,
    actor: Actor = None,
    action: Action = None,
    subject: Subject = None,
    address: Address = None,
    since: Since = None,
    until: Until = None,
    text: Search = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    before: Annotated[str | None, typer.Option(help="Page on: the id of the last entry that was shown.")] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """The newest entries."""
    where = audit.filter_of(
        _time("since", since), _time("until", until), actor=actor, action=action, subject_id=subject, address=address,
        text=text,
    )  # fmt: skip
    with open_app(database_url) as made:
        cursor = check.identifier("before", before) if before else None
        found = audit.listed(made.ground, _whose(made, tenant), where, limit, cursor, operator=operator)
    if as_json:
        print_json(found)
        return
    columns = ("at", "actor", "action", "subject", "address", "entry", "id")
    print_table(columns, [_row(entry) for entry in found], "No entries.")


def _row(entry: AuditEntry) -> Sequence[Any]:
    subject = entry.subject_type if entry.subject_id is None else f"{entry.subject_type} {entry.subject_id}"
    return entry.at, entry.actor, entry.action, subject, entry.address or "", entry.seq or "", entry.id


@app.command()
def export(
    tenant: Tenant = None,
    operator: Operator = False,
    actor: Actor = None,
    action: Action = None,
    subject: Subject = None,
    address: Address = None,
    since: Since = None,
    until: Until = None,
    text: Search = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV for a spreadsheet, instead of JSON Lines.")] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Every entry to stdout, oldest first: JSON Lines or CSV."""
    where = audit.filter_of(
        _time("since", since), _time("until", until), actor=actor, action=action, subject_id=subject, address=address,
        text=text,
    )  # fmt: skip
    with open_app(database_url) as made:
        found = audit.exported(made.ground, _whose(made, tenant), where, operator=operator)
        for line in csv_lines(found) if as_csv else json_lines(found):
            sys.stdout.write(printable(line) if as_csv else printable_json(line))


@app.command()
def head(tenant: Tenant = None, operator: Operator = False, database_url: DatabaseUrl = None) -> None:
    """The head of each hash chain, one line of JSON each. Keep the lines where nobody who can write to the database can change them."""
    with open_app(database_url) as made:
        whose = _whose(made, tenant)
        found = audit.heads(made.ground)
        if operator or whose is not None:
            found = [each for each in found if each.tenant_id == whose]
            found = found or [audit.head(made.ground, whose, tenant)]
    for each in found:
        sys.stdout.write(json.dumps(_plain(each)) + "\n")


def _plain(head: Head) -> dict[str, Any]:
    return {
        "tenant_id": None if head.tenant_id is None else str(head.tenant_id), "tenant": head.tenant, "seq": head.seq,
        "hash": head.hash, "at": head.at.astimezone(UTC).isoformat(),
    }  # fmt: skip


@app.command()
def verify(
    head: Annotated[
        list[Path] | None,
        typer.Option("--head", exists=True, dir_okay=False, help="A file of `penstock audit head`; may be repeated."),
    ] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Look for entries that were edited, removed, inserted or moved. With the heads of before, also for an end that was cut off and for
    a chain that was rewritten."""
    kept = [each for path in head or () for each in _read(path)]
    with open_app(database_url) as made:
        found = made.audit.verify(kept)
    if as_json:
        print_json(found)
    else:
        for finding in found.findings:
            out().print(f"{str(finding)[0].upper()}{str(finding)[1:]}", style="red", markup=False)
        for note in found.notes:
            out().print(f"Note: {note}", style="yellow", markup=False)
        if found.clean:
            out().print(f"{found.chains} chains with {found.entries:,} entries are whole.", markup=False)
    if not kept:
        err().print("Without --head nobody can tell whether the end of a chain was cut off.", style="dim", markup=False)
    if not found.clean:
        raise typer.Exit(UNHEALTHY)


def _read(path: Path) -> list[Head]:
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            owner = given["tenant_id"]
            found.append(
                Head(
                    None if owner is None else UUID(owner), given.get("tenant"), int(given["seq"]), str(given["hash"]),
                    datetime.fromisoformat(given["at"]),
                )
            )  # fmt: skip
        except (ValueError, KeyError, TypeError) as error:
            raise InvalidInput(f"Line {number} of {path} is not a head of `penstock audit head`.") from error
    return found
