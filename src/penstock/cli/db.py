"""`penstock db …`: the tables."""

from __future__ import annotations

import os

import typer

from penstock.app import DEFAULT_URL
from penstock.cli._common import AsJson, DatabaseUrl, out
from penstock.cli._show import print_json
from penstock.store import schema
from penstock.store.database import Database

app = typer.Typer(help="The tables.", no_args_is_help=True)


def _open(url: str | None) -> Database:
    return Database(url or os.environ.get("PENSTOCK_DATABASE_URL", DEFAULT_URL))


@app.command()
def upgrade(as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Make the tables, or bring them up to date. Safe to run at any time, from many places at once."""
    db = _open(database_url)
    try:
        before, after = schema.upgrade(db)
    finally:
        db.close()
    if as_json:
        print_json({"before": before, "after": after})
    elif before == after:
        out().print(f"The tables are at {after} already.")
    else:
        out().print(f"The tables are now at {after}" + (f", from {before}." if before else "."))


@app.command()
def check(as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Whether the database answers and its tables are those of this program; exit code 3 if not."""
    db = _open(database_url)
    try:
        schema.check(db)
    finally:
        db.close()
    if as_json:
        print_json({"schema": schema.HEAD, "database": db.name})
    else:
        out().print(f"The {db.name} database answers, and its tables are at {schema.HEAD}.")
