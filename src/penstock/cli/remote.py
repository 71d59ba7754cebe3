"""`penstock worker --api URL --token TOKEN`: a worker that has no database."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from penstock.cli._common import load_app
from penstock.core.config import Config
from penstock.core.errors import InvalidInput
from penstock.core.redact import Redactor
from penstock.run.command import CommandRunner
from penstock.run.commands import load_commands
from penstock.run.context import Runner
from penstock.run.python import PythonRunner
from penstock.worker.remote import RemoteWorker


def run_remote(
    api: str,
    token: str | None,
    *,
    app: str | None = None,
    commands: Path | None = None,
    log_dir: Path | None = None,
    concurrency: int = 8,
    queues: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    grace: float = 30.0,
    lease: float | None = None,
) -> None:
    """Run jobs over the API until SIGTERM or SIGINT."""
    if not token:
        raise InvalidInput("--api needs --token, a token of the role worker; or set PENSTOCK_TOKEN.")
    try:
        from penstock.client import Client
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"--api needs {error.name}, which is not installed: pip install 'penstock[client]'"
        ) from error
    with Client(api, token) as client:
        runners = _runners(app, commands, log_dir, token)
        worker = RemoteWorker(
            client,
            runners,
            concurrency=concurrency,
            queues=queues,
            keys=keys,
            grace=grace,
            lease=lease,
            settings=Config.from_environment(),
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: worker.stop())  # the second signal does not wait
        worker.run()


def _runners(app: str | None, commands: Path | None, log_dir: Path | None, token: str) -> list[Runner]:
    redactor = Redactor([token])
    found: list[Runner] = []
    if commands is not None:
        found.append(CommandRunner(load_commands(commands), redactor, log_dir))
    if app is not None:
        functions = PythonRunner(redactor)
        for name, function in load_app(app).functions.items():
            functions.register(name, function.call, function.isolation)
        found.append(functions)
    return found
