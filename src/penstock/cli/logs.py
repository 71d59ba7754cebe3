"""`penstock jobs logs ID`: what a run printed, and with -f what it prints."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from penstock.app import Penstock
from penstock.cli._common import DatabaseUrl, TenantName, err, open_app
from penstock.core.nouns import Run
from penstock.core.status import RunStatus
from penstock.core.terminal import printable

EVERY_SECONDS = 0.5


def logs(
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of a job.")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run ends.")] = False,
    attempt: Annotated[int | None, typer.Option(help="Which attempt; without it the last.")] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print control characters as they are. Only for output that you trust.")
    ] = False,
    tenant: TenantName = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Print the last 64 KiB that a run wrote to stdout and stderr, with control characters shown as escapes.

    Where the whole log was kept, its path is shown."""
    with open_app(database_url, tenant) as made:
        run = _run(made, id, attempt)
        while run is None and follow and not made.jobs.get(id).finished:
            time.sleep(EVERY_SECONDS)
            run = _run(made, id, attempt)
        if run is None:
            err().print("It has not run yet.", style="dim")
            return
        shown = ("", "")
        while True:
            shown = _print_news(run, shown, raw)
            if not follow or run.status is not RunStatus.RUNNING:
                break
            time.sleep(EVERY_SECONDS)
            run = _run(made, id, run.attempt_no) or run
    if run.log_path:
        err().print(f"The whole log: {run.log_path}", style="dim", markup=False)
    if run.error:
        err().print(f"{run.status.value}: {run.error}", style="red", markup=False)


def _run(app: Penstock, id: str, attempt: int | None) -> Run | None:
    runs = [run for run in app.jobs.runs(id) if attempt is None or run.attempt_no == attempt]
    return app.jobs.shown_runs(runs[-1:])[0] if runs else None


def _print_news(run: Run, shown: tuple[str, str], raw: bool) -> tuple[str, str]:
    """Print what came since; answers what has been shown by now."""
    tails = (run.stdout_tail or "", run.stderr_tail or "")
    for stream, before, now in ((sys.stdout, shown[0], tails[0]), (sys.stderr, shown[1], tails[1])):
        new = news(before, now)
        stream.write(new if raw else printable(new))
        stream.flush()
    return tails


def news(before: str, now: str) -> str:
    """What a tail holds that an earlier one did not: the tail moves on, so the old end is looked for in the new.

    >>> news("abc", "abcde"), news("abc", "cde"), news("abc", "xyz")
    ('de', 'de', 'xyz')
    """
    if now.startswith(before):
        return now[len(before) :]
    for size in range(min(len(before), len(now)), 0, -1):
        if before.endswith(now[:size]):
            return now[size:]
    return now
