"""`penstock db …`: the tables."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from penstock.app import DEFAULT_URL
from penstock.cli._common import NO_DATABASE, AsJson, DatabaseUrl, out
from penstock.cli._progress import progress
from penstock.cli._show import print_json
from penstock.core.errors import SchemaMismatch
from penstock.store import schema
from penstock.store.copy import copy_database
from penstock.store.database import Database
from penstock.store.explain import explain as explained

app = typer.Typer(help="The tables.", no_args_is_help=True)


def _open(url: str | None) -> Database:
    return Database(url or os.environ.get("PENSTOCK_DATABASE_URL", DEFAULT_URL))


@app.command()
def upgrade(as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Make the tables, or bring them up to date. Safe to run at any time, from many places at once; if it is killed, nothing has
    changed, and it can be run again."""
    db = _open(database_url)
    try:
        with progress() as tell:
            before, after = schema.upgrade(db, progress=tell)
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
    """Check that the database answers and that its tables, columns and indexes are those of this program; exit code 3 if not."""
    db = _open(database_url)
    try:
        differences = schema.compare(db)
    finally:
        db.close()
    if as_json:
        print_json({"schema": schema.HEAD, "database": db.name, "differences": differences})
        if differences:
            raise typer.Exit(NO_DATABASE)
    elif differences:
        raise SchemaMismatch(
            f"The tables are at {schema.HEAD}, but not as the migrations make them: {'; '.join(differences)}."
        )
    else:
        out().print(f"The {db.name} database answers, and its tables are at {schema.HEAD}.")


@app.command()
def copy(
    source: Annotated[str, typer.Argument(help="The database to copy from, as a URL.")],
    target: Annotated[str, typer.Argument(help="A fresh database to copy into, as a URL.")],
    as_json: AsJson = False,
) -> None:
    """Copy every row into another database, ids and history kept: from SQLite to PostgreSQL, or back. All or nothing."""
    old, new = Database(source), Database(target)
    try:
        with progress() as tell:
            copied = copy_database(old, new, tell)
    finally:
        old.close()
        new.close()
    if as_json:
        print_json(copied)
    else:
        out().print(
            f"Copied {copied['jobs']} jobs with {copied['runs']} runs, and everything around them.", markup=False
        )


@app.command()
def explain(
    verb: Annotated[str, typer.Argument(metavar="VERB", help="enqueue, enqueue-many, claim, heartbeat or finish.")],
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show the statements of a verb of the hot path, each whole as it runs, with the plan that this database makes for it. Nothing
    is run and nothing is changed."""
    db = _open(database_url)
    try:
        found = explained(db, verb)
    finally:
        db.close()
    if as_json:
        print_json([each._asdict() for each in found])
        return
    for number, each in enumerate(found, 1):
        plan = each.plan.replace("\n", "\n--   ")
        out().print(
            f"-- {number}. {each.what}\n{each.sql};\n-- The plan on {db.name}:\n--   {plan}\n",
            markup=False,
            soft_wrap=True,
        )
