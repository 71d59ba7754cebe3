"""`penstock explain`: what an error code means and what to do."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from penstock.cli._common import out
from penstock.core.explain import EXPLANATIONS
from penstock.core.explain import explain as explanation_of


def explain(
    code: Annotated[
        str | None, typer.Argument(help="The code, for example invalid_payload; none lists them all.")
    ] = None,
) -> None:
    """Say what an error means and what to do about it."""
    console = out()
    if code is None:
        table = Table("code", "what happened", box=None, pad_edge=False)
        for each in EXPLANATIONS.values():
            table.add_row(each.code, each.happened)
        console.print(table)
        return
    found = explanation_of(code)
    console.print(found.code, style="bold")
    console.print(found.happened, markup=False)
    console.print(f"\nWhat to do: {found.do}", markup=False)
    console.print(f"\nThe page that goes deeper: docs/{found.page}", style="dim", markup=False)
