"""`penstock scheduler`: turn due moments into jobs until told to stop."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Annotated

import typer

from penstock.cli._common import DatabaseUrl, keep_secrets, open_app_patiently
from penstock.cli._logs import configure_logs


def scheduler(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
    json_logs: Annotated[bool | None, typer.Option("--json-logs/--human-logs", help="How to log.")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Run the schedules until SIGTERM or SIGINT. Start as many as you like: each moment fires once."""
    configure_logs(verbose, json_logs)
    keep_secrets()
    told = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        told.set()

    with open_app_patiently(database_url) as made:
        running = made.scheduler()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        running.start()
        try:
            told.wait()
        finally:
            running.stop()
