"""`penstock api`, `penstock up`: the service, alone or with everything else in one process."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from penstock.app import Penstock
from penstock.cli._common import AppPath, DatabaseUrl, err, keep_secrets, open_app_patiently, out
from penstock.cli._logs import configure_logs
from penstock.core.errors import InvalidInput
from penstock.core.own_process import is_ours
from penstock.core.settings.process import ProcessSettings
from penstock.queue.access import console, ensure_bootstrap, sign_in_code
from penstock.worker.tuning import turns_of

Host = Annotated[str, typer.Option(envvar="PENSTOCK_HOST", help="The address to listen on.")]
Port = Annotated[int, typer.Option(envvar="PENSTOCK_PORT", min=0, max=65535, help="The port; 0 takes a free one.")]
RootPath = Annotated[
    str | None,
    typer.Option(envvar="PENSTOCK_ROOT_PATH", help="The path below which a proxy serves Penstock, such as /penstock."),
]
Commands = Annotated[Path | None, typer.Option(help="The commands file: what each key runs.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log every request and every run.")]
JsonLogs = Annotated[bool | None, typer.Option("--json-logs/--human-logs", help="How to log.")]
Pipelines = Annotated[
    list[str] | None, typer.Option("--pipeline", help="A module of pipeline tables to show; may be repeated.")
]


def api(
    host: Host = "127.0.0.1",
    port: Port = 8080,
    app: AppPath = None,
    commands: Annotated[
        Path | None, typer.Option(help="The workers' commands file: params are checked by it when a job is enqueued.")
    ] = None,
    pipeline: Pipelines = None,
    root_path: RootPath = None,
    verbose: Verbose = False,
    json_logs: JsonLogs = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Serve the API and the page. Workers and schedulers run elsewhere."""
    configure_logs(verbose, json_logs)
    keep_secrets()
    with open_app_patiently(database_url, app) as made:
        if commands is not None:
            made.use_commands(commands)
        server = Server(made, host, port, pipeline, root_path)
        out().print(f"Penstock's API is at {server.address}/api/v1", markup=False)
        with server.tuned():
            server.run()


def up(
    host: Host = "127.0.0.1",
    port: Port = 8080,
    app: AppPath = None,
    commands: Commands = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, help="Runs at a time.")] = 8,
    pipeline: Pipelines = None,
    root_path: RootPath = None,
    verbose: Verbose = False,
    json_logs: JsonLogs = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Everything in one process: API, page, scheduler and worker. Prints the address and a sign-in link."""
    configure_logs(verbose, json_logs)
    keep_secrets()
    with open_app_patiently(database_url, app) as made:
        server = Server(made, host, port, pipeline, root_path)
        with server.tuned():
            parts = _parts(made, commands, concurrency, pipeline or [])
            try:
                out().print(f"Penstock is up at {server.address}", markup=False)
                code = sign_in_code(made.ground, console(made.ground).id)
                out().print(f"Sign in: {server.address}/sign-in#{code}", markup=False)
                out().file.flush()
                server.run()
            finally:
                for part in reversed(parts):
                    part.stop()


def _parts(app: Penstock, commands: Path | None, concurrency: int, pipelines: list[str]) -> list[Any]:
    """The worker and the scheduler, started."""
    parts: list[Any] = []
    scheduler = app.scheduler()
    scheduler.start()
    parts.append(scheduler)
    if commands is None and not app.functions:
        err().print("Give --commands FILE or --app module:attribute to run your own jobs here, too.", markup=False)
    parts.append(app.worker(concurrency, commands=commands, pipelines=pipelines).start())
    return parts


class Server:
    """uvicorn on a socket that is bound at once, so that the address is known and a taken port is told plainly."""

    def __init__(
        self, app: Penstock, host: str, port: int, pipelines: list[str] | None, root_path: str | None = None
    ) -> None:
        try:
            import uvicorn

            from penstock.server import Settings, create_app, uvicorn_config
            from penstock.server.transport import raise_open_files
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"The service needs {error.name}, which is not installed: pip install 'penstock[server]'"
            ) from error
        self._process = ProcessSettings.from_environment()
        settings = Settings.from_environment()
        if pipelines:
            settings = replace(settings, pipelines=tuple(pipelines))
        if root_path is not None:
            settings = replace(settings, root_path=root_path.rstrip("/"))
        if settings.bootstrap_token:
            ensure_bootstrap(app.ground, settings.bootstrap_token)
        if is_ours() and self._process.raise_open_files == "on":
            raise_open_files(settings.max_connections)
        self._socket = _listen(host, port)
        bound = self._socket.getsockname()[1]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{bound}{settings.root_path}"
        self._server = uvicorn.Server(uvicorn_config(create_app(app, settings)))

    def tuned(self) -> AbstractContextManager[None]:
        """Tune this process for as long as it serves. Only for a process that is our own."""
        return turns_of(self._process.api_switch_interval)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._heard)
            signal.signal(signal.SIGINT, self._heard)
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        self._server.should_exit = True

    def stop(self) -> None:
        self._server.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise InvalidInput(
            f"{host}:{port} cannot be listened on: {error.strerror}. Choose another with --port."
        ) from error
    made.listen(512)
    return made
