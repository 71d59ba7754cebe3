"""`penstock tenants …`: the walls between customers."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from penstock.cli._common import AsJson, DatabaseUrl, err, fail, open_app, out
from penstock.cli._show import print_facts, print_json, print_table
from penstock.core.nouns import Tenant
from penstock.core.quota import QUOTAS, parsed
from penstock.core.tenancy import Deletion

Quotas = Annotated[
    list[str] | None,
    typer.Option("--quota", help="NAME=NUMBER, NAME=unlimited or NAME=default; may be given several times."),
]
MinPriority = Annotated[int | None, typer.Option(help="The most urgent priority that it may use: the smallest number.")]
MaxPriority = Annotated[int | None, typer.Option(help="The least urgent priority that it may use: the largest number.")]

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
    quota: Quotas = None,
    min_priority: MinPriority = None,
    max_priority: MaxPriority = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Create a tenant."""
    with open_app(database_url) as made:
        tenant = made.tenants.create(
            slug, name, timezone, weight, max_running, quotas=parsed(quota or []), min_priority=min_priority,
            max_priority=max_priority,
        )  # fmt: skip
    if as_json:
        print_json(tenant)
    else:
        out().print(str(tenant.id))


@app.command()
def update(
    slug: Annotated[str, typer.Argument(help="Its short name.")],
    name: Annotated[str | None, typer.Option()] = None,
    timezone: Annotated[str | None, typer.Option(help="For its schedules.")] = None,
    weight: Annotated[int | None, typer.Option(min=1, max=100, help="Its share while several tenants wait.")] = None,
    max_running: Annotated[int | None, typer.Option(min=0, help="At most so many jobs at a time.")] = None,
    quota: Quotas = None,
    min_priority: MinPriority = None,
    max_priority: MaxPriority = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Change a tenant. What is not given stays as it is."""
    given = {
        "name": name, "timezone": timezone, "weight": weight, "max_running": max_running, "min_priority": min_priority,
        "max_priority": max_priority, "quotas": parsed(quota) if quota else None,
    }  # fmt: skip
    with open_app(database_url) as made:
        tenant = made.tenants.update(slug, **{name: value for name, value in given.items() if value is not None})
    if as_json:
        print_json(tenant)
    else:
        _show(tenant)


@app.command()
def show(
    slug: Annotated[str, typer.Argument(help="Its short name.")],
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """One tenant, with its quotas and the range of its priorities."""
    with open_app(database_url) as made:
        tenant = made.tenants.get(slug)
    if as_json:
        print_json(tenant)
    else:
        _show(tenant)


def _show(tenant: Tenant) -> None:
    low, high = tenant.min_priority, tenant.max_priority
    lines: list[tuple[object, ...]] = [
        ("name", tenant.name), ("timezone", tenant.timezone), ("weight", tenant.weight),
        ("max running", "unlimited" if tenant.max_running is None else tenant.max_running),
        ("priorities", f"{'default' if low is None else low} to {'default' if high is None else high}"),
    ]  # fmt: skip
    for name in QUOTAS:
        limit = tenant.quotas.get(name, "default")
        lines.append((f"quota {name}", "unlimited" if limit is None else limit))
    print_table((tenant.slug, ""), lines, "")


@app.command()
def delete(
    slug: Annotated[str, typer.Argument(help="The tenant to delete for good.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the name once more.")] = False,
    timeout: Annotated[float | None, typer.Option(min=0, help="Seconds to wait; workers go on after that.")] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Close a tenant and erase everything of it: jobs, runs, schedules, webhooks, tokens, its audit. This cannot be undone."""
    with open_app(database_url) as made:
        made.tenants.get(slug)
        if not yes and typer.prompt(f"Type {slug} to delete the tenant and everything of it", err=True) != slug:
            fail("That is not its name; nothing was deleted.")
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        with Progress(*columns, console=err(), transient=True, disable=not sys.stderr.isatty()) as progress:
            task = progress.add_task("Closing …", total=None)

            def told(deletion: Deletion) -> None:
                progress.update(task, description=f"Erased {sum(deletion.erased.values()):,} rows …")

            certificate = made.tenants.delete(slug, requested_by="command line", timeout=timeout, progress=told)
    if as_json:
        print_json(certificate.told())
        return
    out().print(f"The tenant {certificate.slug} ({certificate.tenant_id}) is deleted.", markup=False)
    facts = [(f"{name} erased", number) for name, number in sorted(certificate.erased.items())]
    head = f"entry {certificate.audit_seq}, hash {certificate.audit_hash}" if certificate.audit_hash else "empty"
    print_facts([*facts, ("log files removed here", certificate.log_files), ("its audit ended with", head)])
