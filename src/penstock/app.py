"""`Penstock`: the one object a program holds. It wires the rooms and owns no logic."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload
from uuid import UUID

import structlog
from sqlalchemy import Engine

from penstock.core.caller import OWN
from penstock.core.cipher import KeyRing
from penstock.core.clock import Clock
from penstock.core.config import Config
from penstock.core.errors import Conflict, InvalidInput, UnknownTenant
from penstock.core.nouns import Definition, Health, Job, Reservation
from penstock.core.outcomes import Fatal
from penstock.core.reach import Event
from penstock.core.redact import Redactor
from penstock.core.signature import arg_schema
from penstock.core.webhook import Egress
from penstock.queue import define as defining
from penstock.queue import doors, enqueue, keyring, observe, recover
from penstock.queue.enqueue import Options
from penstock.queue.ground import Ground
from penstock.queue.shown import ClaimSecrets
from penstock.run.context import Context, Runner
from penstock.run.python import Isolation, PythonRunner
from penstock.run.webhook import WebhookRunner
from penstock.store import schema
from penstock.store.database import Database
from penstock.triggers.events import Events
from penstock.triggers.scheduler import Scheduler
from penstock.triggers.schedules import Triggers
from penstock.triggers.webhooks import Post, Webhooks, install_outbox
from penstock.worker import Worker

if TYPE_CHECKING:
    from penstock.run.commands import Command

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_URL = "sqlite:///penstock.db"


@dataclass(frozen=True, slots=True)
class Function:
    """A registered function, and what its definition says."""

    key: str
    call: Callable[..., Any]
    isolation: Isolation
    definition: Mapping[str, Any]


@dataclass(slots=True)
class Shared:
    """What an app and its tenant-bound views have in common."""

    ground: Ground
    functions: dict[str, Function] = field(default_factory=dict)
    runners: list[Callable[[], Runner]] = field(default_factory=list)
    """Made anew for each worker, beside functions and commands."""
    defined: set[str] = field(default_factory=set)
    egress: Egress = field(default_factory=Egress)
    """Where webhooks may go."""


def populating(modules: Sequence[str]) -> Callable[..., dict[str, Any]]:
    """What a job with `runner="populate"` calls. Only tables of these modules: what runs is the worker's to say."""

    def populate(ctx: Context, **params: Any) -> dict[str, Any]:
        table = str(params.get("table", ""))
        if table.partition(":")[0] not in modules:
            raise Fatal(f"This worker populates tables of {', '.join(modules)}; {table!r} is not among them.")
        from penstock.pipeline.runner import populate_job  # only where tables are populated: it is a large room

        result = populate_job(params, ctx)
        if result["failed"] and not ctx.canceled():
            first = result["errors"][0]
            raise Fatal(
                f"{result['made']} made, {result['failed']} failed, {result['remaining']} left. The first that failed: "
                f"{first['key']}: {first['error']}"
            )
        return result

    return populate


class Task(Generic[P, R]):
    """A function that can be called, or enqueued: `resize(7)` runs it here, `resize.enqueue(image_id=7)` later."""

    def __init__(self, app: Penstock, function: Function, call: Callable[P, R]) -> None:
        self.app = app
        self.function = function
        self._call = call
        self.__doc__ = call.__doc__
        self.__name__ = getattr(call, "__name__", function.key)
        self.__wrapped__ = call

    @property
    def key(self) -> str:
        return self.function.key

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._call(*args, **kwargs)

    def enqueue(self, **params: Any) -> Job:
        """Ask for it with these params; durable when this returns."""
        return self.app.enqueue(self.key, params)

    def using(self, **options: Any) -> Callable[..., Job]:
        """`resize.using(priority=10, tenant="acme")(image_id=7)`: as `enqueue`, with options."""
        return lambda **params: self.app.enqueue(self.key, params, **options)


class Penstock:
    """A durable job engine on your own database.

    >>> app = Penstock("sqlite:///jobs.db")
    >>> @app.job(key="add")
    ... def add(a: int, b: int = 1) -> int:
    ...     return a + b
    >>> add.enqueue(a=2).status.value
    'queued'
    """

    def __init__(
        self,
        url: str | Engine | None = None,
        *,
        clock: Clock | None = None,
        config: Config | None = None,
        tenant: str = "default",
        egress: Egress | None = None,
        keys: KeyRing | None = None,
    ) -> None:
        """With `keys`, params, results, output and secrets are encrypted at rest. Without, the keys are those of PENSTOCK_KEYS or
        PENSTOCK_KEYS_FILE, if there are any. Without `config`, the settings are those of the environment."""
        settings = config or Config.from_environment()
        target = url if url is not None else os.environ.get("PENSTOCK_DATABASE_URL", DEFAULT_URL)
        db = Database(
            target, clock, pool_size=settings.pool_size, busy_timeout=settings.busy_timeout,
            statement_seconds=settings.statement_seconds, keys=keys or keyring.from_environment(),
        )  # fmt: skip
        try:
            schema.open_embedded(db)
        except BaseException:
            db.close()
            raise
        for message in db.missing:
            structlog.get_logger("penstock").warning("engine_lacks", message=message)
        ground = Ground(db, settings)
        defining.create_queues(ground, [settings.default_queue])
        install_outbox(ground)
        self._bind(Shared(ground, egress=egress or Egress()), tenant)

    def _bind(self, shared: Shared, tenant: str) -> None:
        self._shared = shared
        self.ground = shared.ground
        self.db = shared.ground.db
        self.config = shared.ground.config
        self.tenant = tenant
        self.jobs = doors.Jobs(self.ground, tenant)
        self.groups = doors.Groups(self.ground, tenant, self._ensure_defined)
        self.definitions = doors.Definitions(self.ground, tenant)
        self.tenants = doors.Tenants(self.ground)
        self.tokens = doors.Tokens(self.ground)
        self.sessions = doors.Sessions(self.ground)
        self.queues = doors.Queues(self.ground)
        self.queue = doors.Queue(self.ground)
        self.audit = doors.Audit(self.ground, tenant)
        self.keys = keyring.Keys(self.ground)
        self.triggers = Triggers(self.ground, tenant, self._ensure_defined)
        self.events = Events(self.ground, tenant)
        self.webhooks = Webhooks(self.ground, tenant, shared.egress)

    def as_tenant(self, slug: str) -> Penstock:
        """The same surface, bound to one tenant."""
        self.ground.tenant_id(slug)
        bound = object.__new__(type(self))
        bound._bind(self._shared, slug)
        return bound

    @property
    def functions(self) -> Mapping[str, Function]:
        return self._shared.functions

    @overload
    def job(self, key: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def job(
        self,
        key: str | None = None,
        *,
        timeout: int | None = None,
        isolation: Isolation = "thread",
        **definition: Any,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def job(
        self,
        key: str | Callable[..., Any] | None = None,
        *,
        timeout: int | None = None,
        isolation: Isolation = "thread",
        **definition: Any,
    ) -> Any:
        """Register a function as a job: `@app.job` or `@app.job(key="resize", timeout=60)`. Its argument schema is derived
        from the signature; the definition is written with the first enqueue, or when a worker starts."""
        if callable(key):
            return self.job()(key)

        def register(call: Callable[P, R]) -> Task[P, R]:
            name = key or getattr(call, "__name__", "job").replace("_", "-")
            if name in self._shared.functions:
                raise Conflict(f"A function is registered as {name!r} already.")
            given = {"runner": "python", "arg_schema": arg_schema(call, (Context,)), **definition}
            if timeout is not None:
                given["timeout_seconds"] = timeout
            if call.__doc__ and "description" not in given:
                given["description"] = call.__doc__.strip().splitlines()[0]
            function = Function(name, call, isolation, given)
            self._shared.functions[name] = function
            return Task(self, function, call)

        return register

    def define(self, key: str, **definition: Any) -> Definition:
        """Say what may be asked for. Unbound it is offered to every tenant; bound, to that tenant alone."""
        return defining.define(self.ground, self._owner(), key, **definition)

    def archive(self, key: str) -> defining.Archived:
        """Take no new jobs of this key. Its triggers are disabled, and named in the answer."""
        return defining.archive(self.ground, self._owner(), key)

    def pause(self, key: str) -> Definition:
        """Hold back the jobs of a definition."""
        return defining.pause(self.ground, self._owner(), key, True)

    def resume(self, key: str) -> Definition:
        return defining.pause(self.ground, self._owner(), key, False)

    def _owner(self) -> UUID | None:
        return None if self.tenant == "default" else self.ground.tenant_id(self.tenant)

    def sync_definitions(self) -> None:
        """Write the definitions of the registered functions, as a worker does when it starts."""
        for name in self._shared.functions:
            self._ensure_defined(name)

    def _ensure_defined(self, key: str, connection: Any = OWN) -> None:
        function = self._shared.functions.get(key)
        if function is None or key in self._shared.defined:
            return
        if defining.ensure(self.ground, key, function.definition, connection):
            self._shared.defined.add(key)

    def enqueue(
        self,
        key: str,
        params: Mapping[str, Any] | None = None,
        *,
        tenant: str | None = None,
        connection: Any = OWN,
        **options: Any,
    ) -> Job:
        """Ask for work: priority, scheduled_for (or delay in seconds), dedupe_key, correlation_id, queue, source,
        source_ref, created_by, max_attempts, adhoc. With `connection`, in the caller's own transaction."""
        self._ensure_defined(key, connection)
        given = {} if params is None else params
        chosen = Options(**options) if options else enqueue.DEFAULTS
        return self._for_tenant(
            tenant, lambda tenant_id: enqueue.enqueue(self.ground, tenant_id, key, given, chosen, connection)
        )

    def enqueue_many(
        self,
        key: str,
        many: Iterable[Mapping[str, Any]],
        *,
        tenant: str | None = None,
        connection: Any = OWN,
        **options: Any,
    ) -> list[UUID]:
        """Ask for many at once: all or none, in order. Answers their ids."""
        self._ensure_defined(key, connection)
        given = many if isinstance(many, Sequence) else list(many)
        chosen = Options(**options)
        return self._for_tenant(
            tenant, lambda tenant_id: enqueue.enqueue_many(self.ground, tenant_id, key, given, chosen, connection)
        )

    def _for_tenant(self, slug: str | None, work: Callable[[UUID], R]) -> R:
        """Do it for a tenant by its slug. If that tenant was deleted and there is another one of this slug now, for that one."""
        name = slug or self.tenant
        tenant_id = self.ground.tenant_id(name)
        try:
            return work(tenant_id)
        except UnknownTenant:
            self.ground.forget_tenant(name)
            if self.ground.tenant_id(name) == tenant_id:
                raise
        return work(self.ground.tenant_id(name))

    def emit(
        self, name: str, context: Mapping[str, Any] | None = None, *, connection: Any = OWN, **options: Any
    ) -> Event:
        """Say that something happened; the triggers that answer make their jobs in the same transaction."""
        return self.events.emit(name, context, connection=connection, **options)

    def scheduler(self) -> Scheduler:
        """What fires the schedules: `run()` it, `start()` it, or call its `step()`."""
        return Scheduler(self.ground)

    def reserve(self, wait: float = 0, expires_in: float = 600) -> AbstractContextManager[Reservation]:
        """Hold the tenant's next slot for work outside the queue; Busy if it cannot be had in `wait` seconds."""
        return doors.reserving(self.ground, self.ground.tenant_id(self.tenant), wait, expires_in)

    def add_runner(self, make: Callable[[], Runner]) -> None:
        """Have every worker of this app offer what this runner runs."""
        self._shared.runners.append(make)

    def worker(
        self,
        concurrency: int = 8,
        *,
        queues: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        commands: str | os.PathLike[str] | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        pipelines: Sequence[str] = (),
        grace: float = 30.0,
        lease: float | None = None,
    ) -> Worker:
        """A worker for the registered functions, the commands of a commands file, and the tables of pipeline modules;
        `run()` it, or `start()` it."""
        runners = self.runners(commands, log_dir, pipelines)
        self.sync_definitions()
        defining.create_queues(self.ground, queues or ())
        return Worker(self.ground, runners, concurrency=concurrency, queues=queues, keys=keys, grace=grace, lease=lease)

    def runners(
        self,
        commands: str | os.PathLike[str] | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        pipelines: Sequence[str] = (),
    ) -> list[Runner]:
        """What a worker of this app runs jobs with."""
        password = self.db.engine.url.password
        redactor = Redactor([str(password)] if password else [])
        secrets = ClaimSecrets(self.ground)
        functions = PythonRunner(redactor, secrets=secrets, settings=self.config)
        for name, function in self._shared.functions.items():
            functions.register(name, function.call, function.isolation)
        if pipelines:
            for name in defining.keys_run_by(self.ground, "populate"):
                functions.register(name, populating(pipelines), "thread")
        posts = WebhookRunner(Post(self.ground), self._shared.egress, total_seconds=self.config.webhook_seconds)
        runners: list[Runner] = [functions, posts, *(make() for make in self._shared.runners)]
        if commands is not None:
            # Only here: no other worker needs what they load.
            from penstock.run.command import CommandRunner
            from penstock.run.commands import load_commands
            from penstock.run.exposure import exposures

            found = self._fitting(load_commands(commands))
            self._check_commands(found)
            for message in exposures(found, self.db.file):
                structlog.get_logger("penstock").warning("commands_exposed", message=message)
            runners.append(CommandRunner(found, redactor, log_dir, secrets=secrets))
        return runners

    def use_commands(self, path: str | os.PathLike[str]) -> None:
        """Check the params of these commands when their jobs are enqueued here, by the rules of the worker that runs them.

        A worker of this app with `commands=` does so by itself; a process that only enqueues, a web application for example,
        calls this once. The programs need not be installed here."""
        from penstock.run.commands import load_commands

        self._check_commands(self._fitting(load_commands(path, to_run=False)))

    def _check_commands(self, commands: Mapping[str, Command]) -> None:
        checks = {key: command.faults for key, command in commands.items() if key not in self._shared.functions}
        self.ground.command_checks.update(checks)
        self.ground.forget_definitions()

    def _fitting(self, commands: Mapping[str, Command]) -> Mapping[str, Command]:
        """A placeholder that no payload can ever fill is said now, not when its first job fails."""
        for definition in defining.listed(self.ground, None):
            command = commands.get(definition.key)
            unknown = command.unknown_fields(definition.arg_schema) if command else []
            if unknown:
                raise InvalidInput(
                    f"The command {definition.key!r} asks for {', '.join(unknown)}, which its definition's arg_schema does "
                    "not allow. Correct the commands file or the definition."
                )
        return commands

    def recover(self) -> recover.Recovered:
        """Repair what a crash left behind, and what should not be there at all: runs without a job, jobs in two states or in none, dedupe
        keys of nobody. Idempotent; safe from several processes at once.

        Workers do the first part by themselves when they start. The second looks through all jobs and runs, some thousands at a time,
        so only this call does it."""
        return recover.recover(self.ground, everything=True)

    def doctor(self) -> Health:
        """Look for broken promises in the live database."""
        return observe.doctor(self.ground)

    def prune(self, older_than: timedelta | None = None, statuses: Sequence[str] | None = None) -> dict[str, int]:
        """Forget what ended long ago."""
        tenant_id = None if self.tenant == "default" else self.ground.tenant_id(self.tenant)
        return observe.forget(self.ground, older_than, statuses, tenant_id)

    def close(self) -> None:
        self.db.close()

    def __enter__(self) -> Penstock:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()
