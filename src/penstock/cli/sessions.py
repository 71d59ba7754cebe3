"""`penstock sessions …`: who is signed in to the page."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from penstock.cli._common import AsJson, DatabaseUrl, open_app, out
from penstock.cli._show import print_json, print_table
from penstock.core import check
from penstock.core.errors import InvalidInput
from penstock.queue import access, sign_in

app = typer.Typer(help="Who is signed in to the page.", no_args_is_help=True)


def _id(text: str) -> UUID:
    return check.identifier("id", text)


@app.command("list")
def list_(
    token: Annotated[str | None, typer.Option(help="Only of the token or person with this id.")] = None,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the sessions, the one used last first."""
    with open_app(database_url) as made:
        found = sign_in.list_sessions(made.ground, None if token is None else _id(token))
        if as_json:
            print_json(found)
            return
        labels = {each.id: each.label for each in access.list_tokens(made.ground)}
    columns = ("id", "whose", "signed in", "last used", "from", "browser", "ends")
    rows = [
        (s.id, labels.get(s.principal_id, s.principal_id), s.created_at, s.last_seen_at, s.address or "",
         s.user_agent or "", s.expires_at)
        for s in found
    ]  # fmt: skip
    print_table(columns, rows, "Nobody is signed in.")


@app.command()
def end(
    id: Annotated[str | None, typer.Argument(help="The session's id.")] = None,
    token: Annotated[str | None, typer.Option(help="End all sessions of the token or person with this id.")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """End one session, or all of one token or person. The token itself stays valid."""
    if (id is None) == (token is None):
        raise InvalidInput("Give the id of a session, or --token with the id of a token or person.")
    with open_app(database_url) as made:
        if token is not None:
            ended = sign_in.end_sessions(made.ground, _id(token))
            out().print(f"Sessions that ended: {ended}.", markup=False)
        elif id is not None:
            sign_in.end_session(made.ground, _id(id))
            out().print("The session has ended.", markup=False)
