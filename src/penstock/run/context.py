"""How a run speaks to the worker (`Control`), and what a Python job is given of it (`Context`).

A runner takes a claim and a control, and returns an outcome. It never sees the store: what it has to say while it
runs goes through the control, what it has to say at the end is the outcome.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

from penstock.core.errors import InvalidInput
from penstock.core.masking import secrets_of_claim
from penstock.core.nouns import Claim
from penstock.core.outcomes import Canceled, Evidence, Outcome
from penstock.core.payload import plain
from penstock.core.redact import Redactor, secrets_in
from penstock.core.utc_logs import utc_logger

MAX_MESSAGE = 1000


class Control(Protocol):
    """The worker's side of a run. Every method may be called from any thread, and none of them waits for long."""

    timeout: float | None
    """Seconds the run may take from the moment it is handed to the runner; None for no limit."""

    canceled: threading.Event
    """Set when the run is to stop: on request, at shutdown, or because its lease was lost."""

    reason: str
    """Why it is to stop; read once `canceled` is set."""

    by_shutdown: bool
    """Whether the stop comes from the worker's shutdown, so that the retry policy applies."""

    def report_progress(self, done: float, total: float | None, message: str) -> None:
        """Keep the newest progress. The worker decides how often it is written."""

    def report_tails(self, stdout: str, stderr: str) -> None:
        """Keep the newest tails of the output, already redacted."""

    def report_pid(self, pid: int) -> None:
        """Keep the id of the process that the run has of its own, for whoever looks for it while it runs."""

    def add_artifact(self, artifact: Mapping[str, Any]) -> None:
        """Show an artifact while the run goes on. The outcome's evidence lists all of them again."""

    def heartbeat(self) -> None:
        """Extend the lease now, beside the worker's own heartbeats."""

    def open_transaction(self) -> AbstractContextManager[Any]:
        """The database connection in whose transaction the run will also be finished."""


class Runner(Protocol):
    """Runs claims of the keys it offers."""

    @property
    def keys(self) -> frozenset[str]:
        """The definition keys that this runner can run."""

    def run(self, claim: Claim, control: Control) -> Outcome:
        """Run it to its end. Never raises for what the work did; that is in the outcome."""

    def close(self) -> None:
        """Let go of helper processes and threads. No run is under way any more."""


def stopped(control: Control, evidence: Evidence) -> Canceled:
    """The outcome of a run that was told to stop, and did."""
    return Canceled(control.reason or "canceled", by_shutdown=control.by_shutdown, evidence=evidence)


class Context:
    """What a job may know about itself and say to its worker. A parameter annotated with it receives it.

    ```python
    @app.job(key="resize")
    def resize(ctx: Context, image_ids: list[int]) -> int:
        for done, image_id in enumerate(image_ids):
            if ctx.canceled():
                break
            ctx.progress(done, len(image_ids), f"image {image_id}")
            ...
        return done
    ```
    """

    def __init__(
        self,
        *,
        job_id: UUID,
        run_id: UUID,
        tenant: str,
        tenant_id: UUID,
        key: str,
        attempt: int,
        params: Mapping[str, Any],
        control: Control,
        log: Any = None,
        secrets: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.job_id = job_id
        self.run_id = run_id
        self.tenant = tenant
        self.tenant_id = tenant_id
        self.key = key
        self.attempt = attempt
        self.params = params
        self._control = control
        self._deadline = None if control.timeout is None else time.monotonic() + control.timeout
        self._artifacts: tuple[Mapping[str, Any], ...] = ()
        self._log = log
        self._secrets = secrets
        self.told_to_stop = False

    @classmethod
    def of(
        cls, claim: Claim, control: Control, secrets: Callable[[Claim], Iterable[str]] = secrets_of_claim
    ) -> Context:
        """The context of a claim that is about to run. `secrets` says what of its params is to be masked, when that is asked."""
        return cls(
            job_id=claim.job_id,
            run_id=claim.run_id,
            tenant=claim.tenant_slug,
            tenant_id=claim.tenant_id,
            key=claim.key,
            attempt=claim.attempt_no,
            params=claim.params,
            control=control,
            secrets=lambda: secrets(claim),
        )

    @cached_property
    def mask(self) -> Redactor:
        """Masks the secrets among the params, and what looks like one."""
        return Redactor((*secrets_in(self.params), *self._secrets()))

    @cached_property
    def log(self) -> Any:
        """A structlog logger that already carries the ids of this run."""
        logger = utc_logger("penstock.job") if self._log is None else self._log
        return logger.bind(**self.ids)

    @property
    def ids(self) -> dict[str, Any]:
        """What a line of the log about this run carries."""
        return {
            "job_id": str(self.job_id),
            "run_id": str(self.run_id),
            "tenant_id": str(self.tenant_id),
            "definition_key": self.key,
            "attempt_no": self.attempt,
        }

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Say how far the work is. Cheap enough for every item of a loop."""
        if not isfinite(done) or (total is not None and not isfinite(total)):
            raise InvalidInput(f"progress takes finite numbers; got {done!r} of {total!r}.")
        shown = self.mask.redact_text(message[:MAX_MESSAGE].replace("\0", "\ufffd")) if message else ""
        self._control.report_progress(done, total, shown)

    def artifact(self, path: str | os.PathLike[str], **meta: Any) -> None:
        """Put a file that this run made on its record, with whatever else is worth knowing about it (JSON)."""
        artifact = {**meta, **describe_file(path)}
        plain("artifact", artifact)
        self._artifacts += (artifact,)
        self._control.add_artifact(artifact)

    @property
    def artifacts(self) -> tuple[Mapping[str, Any], ...]:
        """What `artifact()` was given so far."""
        return self._artifacts

    def canceled(self) -> bool:
        """Whether to stop: the job was canceled, the worker shuts down, or the time is up.

        A thread cannot be stopped from outside, so a long job has to ask. One that must be stoppable whatever it
        does is registered with `isolation="process"`.
        """
        self.told_to_stop = self.told_to_stop or self._control.canceled.is_set() or self.expired()
        return self.told_to_stop

    def expired(self) -> bool:
        """Whether the job's time is up."""
        return self._deadline is not None and time.monotonic() >= self._deadline

    def heartbeat(self) -> None:
        """Extend the lease now. The worker does it regularly by itself; a job that blocks the process may help."""
        self._control.heartbeat()

    def transaction(self) -> AbstractContextManager[Any]:
        """A connection to Penstock's own database: what is written on it commits together with the job's completion.

        So an effect in that database happens exactly once, however often the job is tried.
        """
        return self._control.open_transaction()


running: ContextVar[Context | None] = ContextVar("penstock_running", default=None)
"""The run that this thread or task is in, so that whatever is logged in it can carry its ids."""


@dataclass(slots=True)
class Forwarding:
    """Whether jobs in processes of their own send what they log to their worker, and from which level on."""

    level: int | None = None


forwarding = Forwarding()
"""Set by the command line, whose log it is. A program that embeds a worker has logging of its own."""


def describe_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Where a file is and how large; refuses what is not a regular file, symbolic links included."""
    absolute = Path(path).absolute()
    try:
        found = os.lstat(absolute)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"The artifact {str(path)!r} cannot be read: {why}.") from error
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInput(f"The artifact {str(path)!r} is not a regular file; links and devices are not taken.")
    return {"path": str(absolute), "name": absolute.name, "size": found.st_size}
