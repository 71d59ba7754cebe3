"""`penstock webhooks …`: tell other systems what happens to jobs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli._common import AsJson, DatabaseUrl, TenantName, err, open_app, out
from penstock.cli._show import print_json, print_table
from penstock.core.message import TYPES
from penstock.triggers.webhooks import NewWebhook

app = typer.Typer(help="Signed messages to other systems when jobs and groups end.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(help="The webhook's id.")]
Events = Annotated[list[str] | None, typer.Option("--event", "-e", help=f"May be repeated: {', '.join(TYPES)}.")]


@app.command("list")
def list_(tenant: TenantName = "default", as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Every webhook of the tenant."""
    with open_app(database_url, tenant) as made:
        found = made.webhooks.list()
    if as_json:
        print_json(list(found))
        return
    lines = [(hook.id, hook.url, ", ".join(hook.event_types), "" if hook.is_enabled else "disabled") for hook in found]
    print_table(("id", "url", "told of", ""), lines, "No webhooks.")


@app.command()
def add(
    url: Annotated[str, typer.Argument(help="An https address that is not private.")],
    event: Events = None,
    description: Annotated[str, typer.Option()] = "",
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Subscribe an address. Prints its id and, this once, the secret that signs its messages."""
    with open_app(database_url, tenant) as made:
        new = made.webhooks.create(url, event or TYPES, description=description)
    _show_secret(new, as_json)


@app.command()
def edit(
    id: Id,
    url: Annotated[str | None, typer.Option()] = None,
    event: Events = None,
    description: Annotated[str | None, typer.Option()] = None,
    enabled: Annotated[bool | None, typer.Option("--enable/--disable")] = None,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Change what is given; the rest stays."""
    given: dict[str, Any] = {"url": url, "event_types": event, "description": description, "enabled": enabled}
    with open_app(database_url, tenant) as made:
        hook = made.webhooks.update(id, **{name: value for name, value in given.items() if value is not None})
    if as_json:
        print_json(hook)
    else:
        out().print(str(hook.id))


@app.command()
def delete(id: Id, tenant: TenantName = "default", database_url: DatabaseUrl = None) -> None:
    """Remove it, and the record of its deliveries."""
    with open_app(database_url, tenant) as made:
        made.webhooks.delete(id)


@app.command()
def rotate(
    id: Id,
    overlap: Annotated[int, typer.Option(min=0, help="Seconds for which the old secret signs, too.")] = 86400,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Give it a new secret. Prints it, this once."""
    with open_app(database_url, tenant) as made:
        new = made.webhooks.rotate_secret(id, overlap)
    _show_secret(new, as_json)


@app.command()
def test(id: Id, tenant: TenantName = "default", as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Send a test message. Prints the id of the job that delivers it."""
    with open_app(database_url, tenant) as made:
        job = made.webhooks.test(id)
    if as_json:
        print_json(job)
    else:
        out().print(str(job.id))


@app.command()
def deliveries(
    id: Id,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Every attempt to deliver, newest first."""
    with open_app(database_url, tenant) as made:
        found = made.webhooks.deliveries(id, limit)
    if as_json:
        print_json(list(found))
        return
    lines = [
        (d.created_at, d.event_type, d.attempt, d.status, d.response_status, d.duration_ms, d.error) for d in found
    ]
    print_table(("at", "told", "attempt", "status", "answer", "ms", "error"), lines, "No deliveries.")


def _show_secret(new: NewWebhook, as_json: bool) -> None:
    if as_json:
        print_json({"id": new.webhook.id, "url": new.webhook.url, "secret": new.secret})
        return
    out().print(str(new.webhook.id))
    out().print(new.secret, markup=False)
    err().print("Keep the secret now; it is not shown again.", style="dim")
