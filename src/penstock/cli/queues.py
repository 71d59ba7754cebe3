"""`penstock queues …`: see, create, pause and resume."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli._common import AsJson, DatabaseUrl, open_app, out
from penstock.cli._show import print_json, print_table

app = typer.Typer(help="See, create, pause and resume queues.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The name of a queue.")]


@app.command("list")
def list_(as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Every queue, and whether it is paused."""
    with open_app(database_url) as made:
        found = made.queues.list()
    if as_json:
        print_json([{"name": name, "paused": paused} for name, paused in found.items()])
    else:
        print_table(("name", ""), [(n, "paused" if p else "open") for n, p in found.items()], "No queues.")


@app.command()
def create(name: Name, database_url: DatabaseUrl = None) -> None:
    """Create a queue that no definition names, so that jobs can be enqueued in it."""
    with open_app(database_url) as made:
        made.queues.create(name)
    out().print(f"{name} exists.")


@app.command()
def pause(name: Name, database_url: DatabaseUrl = None) -> None:
    """Claim nothing of this queue, anywhere, until it is resumed. What runs goes on."""
    with open_app(database_url) as made:
        made.queues.pause(name)
    out().print(f"{name} is paused.")


@app.command()
def resume(name: Name, database_url: DatabaseUrl = None) -> None:
    """Let a paused queue go on."""
    with open_app(database_url) as made:
        made.queues.resume(name)
    out().print(f"{name} is open.")
