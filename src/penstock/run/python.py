"""The Python runner: registered functions, in the calling thread, on the shared loop, or in a process of their own.

A thread cannot be stopped from outside. A job in a thread that overruns is told so by `ctx.canceled()`, and its run
ends as timed out once it returns; a job that must be stoppable is registered with `isolation="process"`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.core.errors import InvalidInput, InvalidPayload
from penstock.core.masking import secrets_of_claim
from penstock.core.nouns import Claim
from penstock.core.outcomes import Outcome
from penstock.core.redact import Redactor
from penstock.core.settings.worker import WorkerSettings
from penstock.core.signature import Signature, read
from penstock.run.context import Context, Control
from penstock.run.loop import LoopThread
from penstock.run.perform import misfit, perform
from penstock.run.pool import Pool
from penstock.run.target import Target

Isolation = Literal["thread", "process"]


@dataclass(frozen=True, slots=True)
class _Job:
    function: Callable[..., Any]
    signature: Signature
    is_async: bool
    target: Target | None


class PythonRunner:
    """Runs registered functions.

    ```python
    runner = PythonRunner()
    runner.register("resize", resize)
    outcome = runner.run(claim, control)
    ```
    """

    def __init__(
        self,
        redactor: Redactor | None = None,
        kill_grace: float = 5.0,
        secrets: Callable[[Claim], Iterable[str]] = secrets_of_claim,
        settings: WorkerSettings | None = None,
    ) -> None:
        """`kill_grace` is what a canceled job in a process of its own has to end by itself; `secrets` finds those of a claim."""
        self._redactor = redactor or Redactor()
        self._secrets = secrets
        self._jobs: dict[str, _Job] = {}
        self._loop = LoopThread()
        self._pool = Pool(kill_grace, settings or WorkerSettings())

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self._jobs)

    def register(self, key: str, function: Callable[..., Any], isolation: Isolation = "thread") -> Signature:
        """Offer a function under a key. Its signature is read now, so that what cannot work is said now."""
        if isolation not in ("thread", "process"):
            raise InvalidInput(f"isolation is {isolation!r}; expected 'thread' or 'process'.")
        signature = read(function, (Context,))
        target = Target.of(function) if isolation == "process" else None
        self._jobs[key] = _Job(function, signature, _is_async(function), target)
        return signature

    def run(self, claim: Claim, control: Control) -> Outcome:
        """Run a claim's function to its end."""
        job = self._jobs[claim.key]
        if job.target is not None:
            return self._pool.run(job.target, claim, control, self._redactor.extended(self._secrets(claim)))
        context = Context.of(claim, control, self._secrets)
        try:
            arguments = job.signature.bind(claim.params)
        except InvalidPayload as error:
            return misfit(error, context, self._redactor)
        for name in job.signature.injected:
            arguments[name] = context
        if job.is_async:
            return perform(
                lambda: self._loop.run(lambda: job.function(**arguments), context.canceled),
                context,
                control,
                self._redactor,
            )
        return perform(lambda: job.function(**arguments), context, control, self._redactor)

    def close(self) -> None:
        """End the loop's thread and the child processes."""
        self._loop.close()
        self._pool.close()


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
