"""What every verb shares: where the database is, who asks, how errors are told, and which exit code says what."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import structlog
import typer
from rich.console import Console

from penstock.app import Penstock
from penstock.core.config import Config
from penstock.core.errors import (
    DatabaseError,
    DefinitionArchived,
    InvalidInput,
    PenstockError,
    UnknownDefinition,
    UnknownTenant,
)
from penstock.core.own_process import claim_process
from penstock.core.settings.process import ProcessSettings
from penstock.core.terminal import printable
from penstock.run.shield import shield
from penstock.worker.service import patiently

OK, FAILED, USAGE, NO_DATABASE, UNHEALTHY = 0, 1, 2, 3, 4

EXIT_CODES = (
    "Exit codes: 0 all went well; 1 it could not be done, or there is no such thing; 2 bad usage; "
    "3 the database cannot be used; 4 `doctor` or `audit verify` found something broken."
)

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        "--database-url",
        envvar="PENSTOCK_DATABASE_URL",
        show_envvar=True,
        help="sqlite:///jobs.db or postgresql://user@host/database. Without it: ./penstock.db.",
    ),
]
TenantName = Annotated[str, typer.Option("--tenant", envvar="PENSTOCK_TENANT", help="The tenant to act for.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]
AppPath = Annotated[
    str | None,
    typer.Option("--app", help="Your Penstock object, as module:attribute, for example shop.jobs:app."),
]


class SafeConsole(Console):
    """A console that shows control characters in texts as escapes, so that no job or tenant can drive the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        super().print(*(printable(each) if isinstance(each, str) else each for each in objects), **options)


def out() -> Console:
    """For answers. Plain when it goes into a pipe."""
    return SafeConsole(file=sys.stdout, soft_wrap=not sys.stdout.isatty(), highlight=False)


def err() -> Console:
    """For everything that is not the answer."""
    return SafeConsole(file=sys.stderr, soft_wrap=True, highlight=False)


def keep_secrets() -> None:
    """Hide what this process was started with from the commands that it will start. For verbs that run for long; their process is
    Penstock's own."""
    claim_process()
    if ProcessSettings.from_environment().hide_secrets == "on" and shield():
        structlog.get_logger("penstock").warning(
            "secret_in_arguments",
            message="A password or token was given among the arguments, where every user of this machine could see it until now. "
            "Give it by PENSTOCK_DATABASE_URL or PENSTOCK_TOKEN instead.",
        )


def open_app_patiently(database_url: str | None, app: str | None = None) -> Penstock:
    """`open_app` for what runs for long: it may be started while the database is still starting."""
    return patiently(lambda: open_app(database_url, app=app), Config.from_environment().startup_seconds)


def open_app(database_url: str | None, tenant: str = "default", app: str | None = None) -> Penstock:
    """The app to work with: the user's own if one is named, else a plain one on the database."""
    made = load_app(app, database_url) if app else Penstock(database_url)
    if tenant == "default":
        return made
    try:
        return made.as_tenant(tenant)
    except PenstockError:
        made.close()
        raise


def load_app(path: str, database_url: str | None = None) -> Penstock:
    """Import a user's Penstock object. The working directory comes first, as with `python -m`."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise InvalidInput(f"--app is {path!r}; expected module:attribute, for example shop.jobs:app.")
    if database_url is not None:
        os.environ["PENSTOCK_DATABASE_URL"] = database_url
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not module_name.startswith(error.name):
            raise
        raise InvalidInput(f"--app names the module {module_name!r}, which is not to be found from {here}.") from error
    for step in attribute.split("."):
        found = getattr(found, step, None)
    if not isinstance(found, Penstock):
        raise InvalidInput(f"--app names {path!r}, which is {type(found).__name__}, not a Penstock object.")
    return found


def fail(message: str, code: int = FAILED) -> NoReturn:
    """One red line on stderr, and the exit code."""
    console = err()
    console.print(f"penstock: {message}", style="red", markup=False)
    raise typer.Exit(code)


def code_of(error: PenstockError) -> int:
    """The exit code that tells this error."""
    if isinstance(error, DatabaseError):
        return NO_DATABASE
    not_there = UnknownDefinition | UnknownTenant | DefinitionArchived
    return USAGE if isinstance(error, InvalidInput) and not isinstance(error, not_there) else FAILED


def guarded(run: Callable[[], int | None]) -> int:
    """Run it; what Penstock raises becomes one line, where to read more, and an exit code; never a traceback."""
    try:
        return run() or OK
    except PenstockError as error:
        console = err()
        console.print(f"penstock: {' '.join(str(error).split())}", style="red", markup=False)
        console.print(f"More: {error.help}", style="dim", markup=False)
        return code_of(error)
    except BrokenPipeError:
        # The reader of our answer has gone: nobody is left to tell.
        sys.stdout = None
        return OK
    except KeyboardInterrupt:
        return 130
