"""`penstock keys`: the operator's keys for encryption at rest."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from penstock.cli._common import AppPath, AsJson, DatabaseUrl, err, open_app, out
from penstock.cli._show import print_json
from penstock.core.cipher import KeyRing
from penstock.queue.keyring import KeysReport, Progress

app = typer.Typer(no_args_is_help=True, help="Keys for encryption at rest: create, show, replace.")


@app.command()
def generate(
    id: Annotated[
        str | None, typer.Option("--id", help="The key's name. Without it: k and the date, k20261117 for example.")
    ] = None,
) -> None:
    """Print a new random key as id:base64. Store it where your other secrets are: what it has encrypted is lost without it."""
    out().print(KeyRing.generate(id or f"k{datetime.now(UTC):%Y%m%d}"), markup=False)


@app.command("list")
def list_(as_json: AsJson = False, database_url: DatabaseUrl = None, app_path: AppPath = None) -> None:
    """Show which keys this process has, what is encrypted with each, and what is in clear. Reads every table once."""
    with open_app(database_url, app=app_path) as made:
        report = made.keys.list()
    if as_json:
        print_json(_plain(report))
    else:
        _print(report)


@app.command()
def rotate(
    scrub: Annotated[
        bool,
        typer.Option(
            "--scrub",
            help="At the end, rewrite an SQLite file so that nothing of what was overwritten stays in it. No other process may use "
            "the file meanwhile.",
        ),
    ] = False,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
    app_path: AppPath = None,
) -> None:
    """Encrypt everything with the first key: what an older key has encrypted, and what is in clear. Workers go on meanwhile. If
    it is interrupted, start it again."""
    console = err()
    told = 0

    def tell(progress: Progress) -> None:
        nonlocal told
        if progress.sealed - told >= 1000:
            told = progress.sealed
            console.print(f"{progress.table}: {progress.sealed:,} of about {progress.total:,} values", markup=False)

    with open_app(database_url, app=app_path) as made:
        done = made.keys.rotate(tell, scrub=scrub)
    if as_json:
        print_json({"sealed": done.sealed, "unreadable": dict(done.unreadable), **_plain(done.after)})
        return
    out().print(f"{done.sealed:,} values were encrypted with the first key.", markup=False)
    for reason, n in done.unreadable.items():
        out().print(f"{n:,} values were left as they are: {reason}.", markup=False)
    _print(done.after)


def _plain(report: KeysReport) -> dict[str, object]:
    return {
        "keys": [{"id": key.id, "role": key.role, "values": key.values} for key in report.keys],
        "in_clear": dict(report.in_clear),
        "unused": list(report.unused),
    }


_ROLES = {
    "writes": "encrypts what is written",
    "reads": "is only read with",
    "missing": "is NOT in this process's key ring",
}


def _print(report: KeysReport) -> None:
    console = out()
    if not report.keys:
        console.print("There are no keys. `penstock keys generate` creates one; set it as PENSTOCK_KEYS.", markup=False)
    for key in report.keys:
        console.print(f"{key.id}  {_ROLES[key.role]}; {key.values:,} values", markup=False)
    clear = sum(report.in_clear.values())
    if clear:
        where = ", ".join(f"{name} {n:,}" for name, n in report.in_clear.items())
        console.print(f"in clear  {clear:,} values: {where}", markup=False)
    if report.unused:
        console.print(f"No longer used, and may be removed from the ring: {', '.join(report.unused)}", markup=False)
