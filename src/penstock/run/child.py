"""A process of the pool: takes one job after another from its worker, and ends when the worker does."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any
from uuid import UUID

import structlog

from penstock.core.errors import InvalidInput, InvalidPayload
from penstock.core.outcomes import Failed, Outcome
from penstock.core.redact import Redactor
from penstock.core.signature import Signature, read
from penstock.run.context import Context
from penstock.run.perform import misfit, perform
from penstock.run.shield import receive
from penstock.run.target import Target
from penstock.run.wire import Receiver, Sender, pack

PROGRESS_SECONDS = 0.05


class ChildControl:
    """What a job in this process says, sent on to the worker."""

    def __init__(self, sender: Sender, timeout: float | None) -> None:
        self.timeout = timeout
        self.canceled = threading.Event()
        self.reason = ""
        self.by_shutdown = False
        self._sender = sender
        self._progress: tuple[float, float | None, str] | None = None
        self._next_progress = 0.0

    def report_progress(self, done: float, total: float | None, message: str) -> None:
        self._progress = (done, total, message)
        if time.monotonic() >= self._next_progress:
            self.flush()

    def flush(self) -> None:
        if self._progress is not None:
            self._next_progress = time.monotonic() + PROGRESS_SECONDS
            progress, self._progress = self._progress, None
            self._sender.send(progress=progress)

    def report_tails(self, stdout: str, stderr: str) -> None:
        """The worker reads this process's output itself."""

    def report_pid(self, pid: int) -> None:
        """The worker knows this process already."""

    def add_artifact(self, artifact: Mapping[str, Any]) -> None:
        self._sender.send(artifact=artifact)

    def heartbeat(self) -> None:
        self._sender.send(heartbeat=True)

    def open_transaction(self) -> AbstractContextManager[Any]:
        raise InvalidInput(
            "ctx.transaction() shares the worker's connection, which a process of its own does not have. "
            "Register the job with isolation='thread'."
        )

    def forward_log(self, _logger: Any, method: str, event: Mapping[str, Any]) -> Any:
        self._sender.send(log=[method, dict(event)])
        raise structlog.DropEvent


class Child:
    """Serves jobs one at a time; a thread of its own hears cancellations and the worker's end."""

    def __init__(self, requests: int, messages: int) -> None:
        self._requests = requests
        self._sender = Sender(messages)
        self._jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._control: ChildControl | None = None

    def serve(self) -> None:
        threading.Thread(target=self._listen, name="penstock-requests", daemon=True).start()
        while True:
            job = self._jobs.get()
            outcome = self._run(job)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            self._sender.send(done=pack(outcome))

    def _listen(self) -> None:
        receiver = Receiver()
        while data := os.read(self._requests, 65536):
            for request in receiver.feed(data):
                if "job" in request:
                    self._control = ChildControl(self._sender, request["timeout"])
                    self._jobs.put(request)
                elif self._control is not None:
                    self._control.reason = request["cancel"]
                    self._control.by_shutdown = request["by_shutdown"]
                    self._control.canceled.set()
        os._exit(0)

    def _forward_logging(self, level: int) -> None:
        """Have what the job logs by `logging` reach the worker's log, and its own output. After the job's module was
        imported: handlers that it has set up stay."""
        root = logging.getLogger()
        if any(isinstance(handler, _Forwarder) for handler in root.handlers):
            return
        if not root.handlers:
            shown = logging.StreamHandler()
            shown.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
            root.addHandler(shown)
        root.addHandler(_Forwarder(self._sender, level))
        root.setLevel(min(root.level or level, level))

    def _run(self, request: Mapping[str, Any]) -> Outcome:
        control = self._control
        assert control is not None
        redactor = Redactor(request["secrets"], request["patterns"])
        job = request["job"]
        try:
            function, signature = _load(Target(**request["target"]))
        except BaseException as error:
            return Failed(redactor.redact_text(f"{job['key']} could not be loaded: {type(error).__name__}: {error}"))
        self._sender.send(started=True)
        if request["log_level"] is not None:
            self._forward_logging(request["log_level"])
        context = _context(job, control, request["secrets"])
        try:
            arguments = signature.bind(context.params)
        except InvalidPayload as error:
            return misfit(error, context, redactor)
        for name in signature.injected:
            arguments[name] = context
        try:
            return perform(_call(function, arguments), context, control, redactor)
        finally:
            control.flush()


class _Forwarder(logging.Handler):
    """Sends records to the worker, whose log they belong in."""

    def __init__(self, sender: Sender, level: int) -> None:
        super().__init__(level)
        self._sender = sender

    def emit(self, record: logging.LogRecord) -> None:
        try:
            event = {"event": record.getMessage(), "logger": record.name}
            if record.exc_info:
                event["exception"] = logging.Formatter().formatException(record.exc_info)
            self._sender.send(log=[record.levelname.lower(), event])
        except Exception:
            self.handleError(record)


def _context(job: Mapping[str, Any], control: ChildControl, secrets: Sequence[str]) -> Context:
    return Context(
        job_id=UUID(job["job_id"]),
        run_id=UUID(job["run_id"]),
        tenant=job["tenant"],
        tenant_id=UUID(job["tenant_id"]),
        key=job["key"],
        attempt=job["attempt"],
        params=job["params"],
        control=control,
        log=structlog.wrap_logger(None, [control.forward_log], structlog.make_filtering_bound_logger(0)),
        secrets=lambda: secrets,
    )


def _call(function: Callable[..., Any], arguments: dict[str, Any]) -> Callable[[], Any]:
    if inspect.iscoroutinefunction(function):
        return lambda: asyncio.run(function(**arguments))
    return lambda: function(**arguments)


@lru_cache
def _load(target: Target) -> tuple[Callable[..., Any], Signature]:
    function = target.load()
    return function, read(function, (Context,))


def main(requests: int, messages: int) -> None:
    """The child's program, started by the pool."""
    receive()
    for fd in (requests, messages):
        os.set_inheritable(fd, False)
    Child(requests, messages).serve()
