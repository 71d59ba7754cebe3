"""`penstock enqueue KEY`: ask for work."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli._common import AppPath, AsJson, DatabaseUrl, TenantName, open_app, out
from penstock.cli._show import print_json
from penstock.core.errors import InvalidInput


def enqueue(
    key: Annotated[str, typer.Argument(help="What to run: the key of a definition.")],
    params: Annotated[
        str, typer.Option("--params", "-p", help="A JSON object; @FILE reads it from a file, - from stdin.")
    ] = "{}",
    priority: Annotated[int | None, typer.Option(help="Lower runs first.")] = None,
    queue: Annotated[str | None, typer.Option(help="Another queue than the definition's.")] = None,
    at: Annotated[str | None, typer.Option(help="Not before this time, with its zone: 2026-02-16T10:30:00Z.")] = None,
    delay: Annotated[float | None, typer.Option(min=0, help="Not before so many seconds from now.")] = None,
    dedupe_key: Annotated[
        str | None, typer.Option(help="Answer with the active job of this key, if there is one.")
    ] = None,
    correlation_id: Annotated[str | None, typer.Option(help="What ties this job to others.")] = None,
    max_attempts: Annotated[int | None, typer.Option(min=1)] = None,
    app: AppPath = None,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Ask for work. Prints the job's id; the job is durable when it does."""
    given = read_object("--params", params)
    with open_app(database_url, tenant, app) as made:
        job = made.enqueue(
            key,
            given,
            priority=priority,
            queue=queue,
            scheduled_for=read_moment("--at", at),
            delay=delay,
            dedupe_key=dedupe_key,
            correlation_id=correlation_id,
            max_attempts=max_attempts,
        )
        [job] = made.jobs.shown([job])
    if as_json:
        print_json(job)
    else:
        out().print(str(job.id))


def read_object(option: str, text: str) -> dict[str, Any]:
    """A JSON object given on the command line, in a file or on stdin."""
    try:
        raw = sys.stdin.read() if text == "-" else Path(text[1:]).read_text() if text.startswith("@") else text
        value = json.loads(raw)
    except OSError as error:
        raise InvalidInput(f"{option}: {text[1:]} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise InvalidInput(f"{option} is not JSON: {error}.") from error
    if not isinstance(value, dict):
        raise InvalidInput(f'{option} is a JSON {type(value).__name__}; expected an object like {{"name": "value"}}.')
    return value


def read_moment(option: str, text: str | None) -> datetime | None:
    """A time given on the command line."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(f"{option} is {text!r}; expected a time like 2026-02-16T10:30:00Z.") from error
