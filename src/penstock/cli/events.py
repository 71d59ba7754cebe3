"""`penstock events …`: say that something happened, and see what came of it."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli._common import AsJson, DatabaseUrl, TenantName, open_app, out
from penstock.cli._show import print_json, print_table
from penstock.cli.enqueue import read_object
from penstock.queue.shown import shown_events

app = typer.Typer(help="Named facts, and the jobs that triggers made of them.", no_args_is_help=True)


@app.command()
def emit(
    name: Annotated[str, typer.Argument(help="Such as orders.paid.")],
    context: Annotated[str, typer.Argument(help="A JSON object; @FILE reads it from a file, - from stdin.")] = "{}",
    correlation_id: Annotated[str | None, typer.Option(help="What ties its jobs to others.")] = None,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Emit an event. Prints what each matching trigger made of it."""
    given = read_object("CONTEXT", context)
    with open_app(database_url, tenant) as made:
        [event] = shown_events(made.ground, [made.emit(name, given, correlation_id=correlation_id)])
    if as_json:
        print_json(event)
        return
    if not event.outcomes:
        out().print(f"{event.id}: no trigger answers {name}.", markup=False)
        return
    lines = [(each["label"], each["outcome"], each.get("job_id"), each.get("reason")) for each in event.outcomes]
    print_table(("trigger", "outcome", "job", "reason"), lines, "")


@app.command("list")
def list_(
    name: Annotated[str | None, typer.Option(help="Only events of this name.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Newest first."""
    with open_app(database_url, tenant) as made:
        found = shown_events(made.ground, made.events.list(name, limit))
    if as_json:
        print_json(list(found))
        return
    lines = [
        (event.created_at, event.name, ", ".join(f"{o['label']}: {o['outcome']}" for o in event.outcomes), event.id)
        for event in found
    ]
    print_table(("at", "name", "outcomes", "id"), lines, "No events.")
