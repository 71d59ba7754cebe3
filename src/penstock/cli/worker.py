"""`penstock worker`: claim, run and report until told to stop."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli._common import AppPath, DatabaseUrl, keep_secrets, open_app_patiently
from penstock.cli._logs import configure_logs
from penstock.cli.remote import run_remote
from penstock.core.errors import InvalidInput
from penstock.worker.service import patiently
from penstock.worker.supervise import die_with_parent, supervise
from penstock.worker.tuning import tuned_for_work

Names = Annotated[
    list[str] | None, typer.Option("--queues", "-q", help="Only these queues; may be repeated, or split by commas.")
]
Keys = Annotated[
    list[str] | None, typer.Option("--keys", "-k", help="Only these keys; may be repeated, or split by commas.")
]


def worker(
    context: typer.Context,
    app: AppPath = None,
    commands: Annotated[Path | None, typer.Option(help="The commands file: what each key runs.")] = None,
    pipeline: Annotated[
        list[str] | None, typer.Option("--pipeline", help="A module whose tables may be populated; may be repeated.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Runs at a time, per process.")] = 8,
    processes: Annotated[int, typer.Option(min=1, help="Worker processes to keep running.")] = 1,
    queues: Names = None,
    keys: Keys = None,
    grace: Annotated[float, typer.Option(min=0, help="Seconds that running work has to end after SIGTERM.")] = 30.0,
    lease: Annotated[float | None, typer.Option(help="Seconds a claim holds without a heartbeat.")] = None,
    log_dir: Annotated[Path | None, typer.Option(help="Where whole logs of commands are kept.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log every run.")] = False,
    json_logs: Annotated[bool | None, typer.Option("--json-logs/--human-logs", help="How to log.")] = None,
    api: Annotated[str | None, typer.Option(help="Work over the API at this address, without a database.")] = None,
    token: Annotated[str | None, typer.Option(envvar="PENSTOCK_TOKEN", help="With --api: a worker's token.")] = None,
    supervised_by: Annotated[int | None, typer.Option(hidden=True)] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Run jobs until SIGTERM or SIGINT: functions of --app, commands of --commands.

    The first signal lets running work end within --grace and gives the rest back; a second one does not wait.
    """
    configure_logs(verbose, json_logs)
    keep_secrets()
    if api is not None:
        _refuse_with_api(context, pipeline)
    elif _typed(context, "token"):
        raise InvalidInput("--token is for a worker that works over the API: give --api as well, or leave --token out.")
    if app is None and commands is None and not pipeline:
        raise InvalidInput(
            "This worker has nothing to run. Give --app module:attribute for functions, --commands FILE for commands, "
            "or --pipeline MODULE for tables."
        )
    if processes > 1:
        raise typer.Exit(supervise(processes, grace))
    if supervised_by is not None:
        die_with_parent(supervised_by)
    if api is not None:
        run_remote(
            api, token, app=app, commands=commands, log_dir=log_dir, concurrency=concurrency, queues=_split(queues),
            keys=_split(keys), grace=grace, lease=lease,
        )  # fmt: skip
        return
    made = open_app_patiently(database_url, app)
    try:
        worker = patiently(
            lambda: made.worker(
                concurrency,
                queues=_split(queues),
                keys=_split(keys),
                commands=commands,
                log_dir=log_dir,
                pipelines=pipeline or (),
                grace=grace,
                lease=lease,
            ),
            made.config.startup_seconds,
        )
        with tuned_for_work():
            worker.run()
    finally:
        made.close()
    if made_to_leave_threads():
        os._exit(0)


def _refuse_with_api(context: typer.Context, pipeline: list[str] | None) -> None:
    """A worker without a database takes no option that needs one."""
    if pipeline:
        raise InvalidInput(
            "--pipeline cannot be used with --api: tables are populated in the database itself, which this worker does not "
            "have. Run a second worker with --database-url and --pipeline where the database can be reached."
        )
    if _typed(context, "database_url"):
        raise InvalidInput(
            "--database-url cannot be used with --api: this worker has no database. Give one of the two."
        )


def _typed(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line, rather than in the environment."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _split(given: list[str] | None) -> list[str] | None:
    names = [name.strip() for text in given or [] for name in text.split(",") if name.strip()]
    return names or None


def made_to_leave_threads() -> bool:
    """Whether a job's thread goes on although it was told to stop; it would keep the process from ending."""
    return any(thread.name.startswith("penstock-run") for thread in threading.enumerate())
