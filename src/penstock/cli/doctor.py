"""`penstock doctor`: look for broken promises in the live database."""

from __future__ import annotations

import typer

from penstock.cli._common import UNHEALTHY, AsJson, DatabaseUrl, open_app, out
from penstock.cli._show import print_json


def doctor(as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Ask the database whether every promise holds. Exit code 4 if one does not; warnings alone are 0."""
    with open_app(database_url) as app:
        health = app.doctor()
    if as_json:
        print_json({"clean": health.clean, "checked": health.checked, "violations": health.violations,
                    "warnings": health.warnings, "notes": health.notes})  # fmt: skip
    else:
        for violation in health.violations:
            out().print(f"[bold red]broken[/]   {violation.promise} {violation.check}: {', '.join(violation.ids)}")
        for warning in health.warnings:
            out().print(f"[yellow]warning[/]  {warning.message}")
        for note in health.notes:
            out().print(f"[dim]note[/]     {note}")
        if health.clean:
            out().print(f"[green]healthy[/]  {health.checked} checks, none found anything.")
    if not health.clean:
        raise typer.Exit(UNHEALTHY)
