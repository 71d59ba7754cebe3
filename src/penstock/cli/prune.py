"""`penstock prune`: forget what ended long ago."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from penstock.cli._common import AsJson, DatabaseUrl, TenantName, err, open_app, out
from penstock.cli._show import print_facts, print_json


def prune(
    older_than_days: Annotated[float | None, typer.Option(min=0, help="Without it, as configured: 30 days.")] = None,
    status: Annotated[list[str] | None, typer.Option("--status", "-s", help="Only these; may be repeated.")] = None,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Delete jobs that ended long ago, with their runs. Never anything that waits or runs."""
    age = None if older_than_days is None else timedelta(days=older_than_days)
    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with (
        open_app(database_url, tenant) as app,
        Progress(*columns, console=err(), transient=True, disable=not sys.stderr.isatty()) as progress,
    ):
        progress.add_task("Pruning …", total=None)
        removed = app.prune(age, status or None)
    if as_json:
        print_json(removed)
    elif not any(removed.values()):
        out().print("There was nothing to prune.")
    else:
        print_facts((f"{name} removed", n) for name, n in removed.items() if n)
