"""`penstock tenants …`: the walls between customers."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli._common import AsJson, DatabaseUrl, open_app, out
from penstock.cli._show import print_json, print_table

app = typer.Typer(help="The walls between customers.", no_args_is_help=True)


@app.command("list")
def list_(as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Every tenant."""
    with open_app(database_url) as made:
        found = made.tenants.list()
    if as_json:
        print_json(found)
        return
    columns = ("slug", "name", "id", "timezone", "weight", "max running", "")
    lines = [
        (t.slug, t.name, t.id, t.timezone, t.weight, t.max_running, "" if t.is_active else "inactive") for t in found
    ]
    print_table(columns, lines, "No tenants.")


@app.command()
def create(
    slug: Annotated[str, typer.Argument(help="Its short name, as in --tenant.")],
    name: Annotated[str | None, typer.Option()] = None,
    timezone: Annotated[str, typer.Option(help="For its schedules.")] = "UTC",
    weight: Annotated[int, typer.Option(min=1, max=100, help="Its share while several tenants wait.")] = 1,
    max_running: Annotated[int | None, typer.Option(min=0, help="At most so many jobs at a time.")] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Create a tenant."""
    with open_app(database_url) as made:
        tenant = made.tenants.create(slug, name, timezone, weight, max_running)
    if as_json:
        print_json(tenant)
    else:
        out().print(str(tenant.id))
