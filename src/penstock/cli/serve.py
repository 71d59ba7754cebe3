"""`penstock api`, `penstock up`: the service, alone or with everything else in one process."""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.app import Penstock
from penstock.cli import _overflow
from penstock.cli._common import AppPath, DatabaseUrl, err, keep_secrets, open_app_patiently, out
from penstock.cli._logs import configure_logs
from penstock.core.errors import InvalidInput
from penstock.core.own_process import is_ours
from penstock.core.settings.process import ProcessSettings
from penstock.queue.access import console, ensure_bootstrap, sign_in_code
from penstock.worker.tuning import turns_of

if TYPE_CHECKING:
    from penstock.server.settings import Settings

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
    part = Part(database_url, app, commands, pipeline, root_path)
    channel = part.start_overflow()
    with part.open() as made:
        server = Server(made, host, port, pipeline, root_path, channel)
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
    channel = Part(database_url, app, commands, pipeline, root_path).start_overflow()
    with open_app_patiently(database_url, app) as made:
        server = Server(made, host, port, pipeline, root_path, channel)
        server.heed_signals()
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


@dataclass(frozen=True, slots=True)
class Part:
    """What the service is made of, in this process and in its overflow process."""

    database_url: str | None
    app: str | None
    commands: Path | None
    pipelines: list[str] | None
    root_path: str | None

    def open(self) -> Penstock:
        """The app, which checks params by the commands file."""
        made = open_app_patiently(self.database_url, self.app)
        if self.commands is not None:
            made.use_commands(self.commands)
        return made

    def start_overflow(self) -> socket.socket | None:
        """The channel to the overflow process, which is started when somebody keeps the service computing; None without one."""
        process = ProcessSettings.from_environment()
        if process.overflow == "off" or not is_ours() or not _overflow.is_possible():
            return None
        return _overflow.start(partial(self._serve_overflow, process))

    def _serve_overflow(self, process: ProcessSettings, channel: socket.socket) -> None:
        from penstock.server import create_app, uvicorn_config
        from penstock.server.overflow import OverflowServer
        from penstock.server.threads import Threads
        from penstock.server.transport import raise_open_files

        with self.open() as made:
            settings = _settings(self.pipelines, self.root_path)
            if process.raise_open_files == "on":
                raise_open_files(settings.max_connections)
            asgi = create_app(made, settings)
            asgi.state.threads = Threads(settings.threads, processor_share=settings.processor_share, crowded=True)
            _overflow.give_way(process.overflow_nice)
            server = OverflowServer(uvicorn_config(asgi), channel, asgi.state.threads, process.overflow_idle_seconds)
            with turns_of(process.api_switch_interval):
                server.run()


class Server:
    """uvicorn on a socket that is bound at once, so that the address is known and a taken port is told plainly."""

    def __init__(
        self,
        app: Penstock,
        host: str,
        port: int,
        pipelines: list[str] | None,
        root_path: str | None = None,
        channel: socket.socket | None = None,
    ) -> None:
        try:
            import uvicorn

            from penstock.server import create_app, uvicorn_config
            from penstock.server.overflow import Overflow
            from penstock.server.transport import raise_open_files
        except ModuleNotFoundError as error:
            raise InvalidInput(
                f"The service needs {error.name}, which is not installed: pip install 'penstock[server]'"
            ) from error
        self._process = ProcessSettings.from_environment()
        settings = _settings(pipelines, root_path)
        if settings.bootstrap_token:
            ensure_bootstrap(app.ground, settings.bootstrap_token)
        if is_ours() and self._process.raise_open_files == "on":
            raise_open_files(settings.max_connections)
        self._socket = _listen(host, port)
        bound = self._socket.getsockname()[1]
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{bound}{settings.root_path}"
        asgi = create_app(app, settings)
        self._server = uvicorn.Server(uvicorn_config(asgi, None if channel is None else Overflow(channel, asgi)))

    def tuned(self) -> AbstractContextManager[None]:
        """Tune this process for as long as it serves. Only for a process that is our own."""
        return turns_of(self._process.api_switch_interval)

    def heed_signals(self) -> None:
        """End in good order at SIGTERM or SIGINT, from now on: what is started beside the service may already have work."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._heard)
            signal.signal(signal.SIGINT, self._heard)

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        self.heed_signals()
        try:
            if not self._server.should_exit:
                self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        self._server.should_exit = True

    def stop(self) -> None:
        self._server.should_exit = True


def _settings(pipelines: list[str] | None, root_path: str | None) -> Settings:
    from penstock.server.settings import Settings

    settings = Settings.from_environment()
    if pipelines:
        settings = replace(settings, pipelines=tuple(pipelines))
    return settings if root_path is None else replace(settings, root_path=root_path.rstrip("/"))


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
