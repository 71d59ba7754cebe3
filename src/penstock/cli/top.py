"""`penstock top`: the queue, the workers and the rates, live."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Annotated

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.app import Penstock
from penstock.cli._common import DatabaseUrl, TenantName, open_app, out
from penstock.cli._show import STYLES, age, cell, span
from penstock.core.status import TERMINAL, JobStatus
from penstock.queue.observe import Summary, present_workers

WINDOW = 30
"""Rates are taken over so many looks."""


def top(
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end; so it is in a pipe.")] = False,
    tenant: TenantName = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """The queue, the workers and the rates, until Ctrl-C."""
    with open_app(database_url, tenant) as app:
        view = View(app)
        if once or not sys.stdout.isatty():
            out().print(view.render())
            return
        with Live(view.render(), console=out(), screen=True, auto_refresh=False) as live:
            try:
                while True:
                    time.sleep(every)
                    live.update(view.render(), refresh=True)
            except KeyboardInterrupt:
                return


class View:
    """What `top` shows, look by look."""

    def __init__(self, app: Penstock) -> None:
        self._app = app
        self._looks: deque[tuple[float, int]] = deque(maxlen=WINDOW)

    def render(self) -> RenderableType:
        summary = self._app.jobs.summary()
        ended = sum(summary.counts[status] for status in TERMINAL)
        self._looks.append((time.monotonic(), ended))
        return Group(self._head(summary), self._workers(), self._running())

    def _rate(self) -> float:
        (started, before), (now, after) = self._looks[0], self._looks[-1]
        return (after - before) / (now - started) if now > started else 0.0

    def _head(self, summary: Summary) -> RenderableType:
        line = Text()
        for status in JobStatus:
            line.append(f"{status.value} ", style="dim").append(f"{summary.counts[status]:,}   ", style=STYLES[status])
        line.append("rate ", style="dim").append(f"{self._rate():,.1f}/s   ")
        if summary.oldest_queued_seconds is not None:
            line.append("oldest waits ", style="dim").append(span(summary.oldest_queued_seconds))
        return line

    def _workers(self) -> RenderableType:
        table = Table("worker", "running", "queues", "seen", box=box.SIMPLE_HEAD, pad_edge=False)
        for row in present_workers(self._app.ground):
            style = "red" if row["stale"] else ""
            running = f"{row['running_count']}/{row['concurrency']}"
            queues = ", ".join(row["queues"]) or "all"
            table.add_row(cell(row["id"]), running, cell(queues), f"{age(row['last_seen_at'])} ago", style=style)
        return table

    def _running(self) -> RenderableType:
        table = Table("running", "key", "attempt", "for", "progress", box=box.SIMPLE_HEAD, pad_edge=False)
        for job in self._app.jobs.list("running", limit=20):
            progress = job.progress or {}
            done, total = progress.get("done"), progress.get("total")
            told = f"{done:g}/{total:g}" if done is not None and total else ""
            told = f"{told} {progress.get('message', '')}".strip()
            table.add_row(str(job.id), cell(job.definition_key), str(job.attempt_no), age(job.started_at), cell(told))
        return table
