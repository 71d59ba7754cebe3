"""One call of a job's function, and the outcome of it. Whatever the function does, this returns."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from math import isfinite
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from penstock.core.cause import causing_job
from penstock.core.errors import (
    DatabaseFull,
    DatabaseLocked,
    DatabaseReadOnly,
    DatabaseUnavailable,
    InvalidPayload,
)
from penstock.core.outcomes import (
    NOTHING,
    Evidence,
    Failed,
    Fatal,
    Outcome,
    Skip,
    Skipped,
    Snooze,
    Snoozed,
    Succeeded,
    TimedOut,
)
from penstock.core.payload import plain
from penstock.core.redact import Redactor
from penstock.core.utc_logs import worker_log
from penstock.run.context import Context, Control, running, stopped
from penstock.run.output import TAIL_BYTES

MAX_ERROR = 2000
AWAY = (DatabaseUnavailable, DatabaseLocked, DatabaseFull, DatabaseReadOnly)
"""What Penstock itself raises in a job while its database cannot be used: no fault of the job."""


def perform(call: Callable[[], Any], context: Context, control: Control, redactor: Redactor) -> Outcome:
    """Call it. Every exception is contained, `SystemExit` and `KeyboardInterrupt` too: a job cannot end its worker."""
    before, outside = causing_job.set(context.job_id), running.set(context)
    try:
        result = call()
    except Skip as skip:
        return Skipped(_masked(str(skip), context, redactor), _evidence(context))
    except Snooze as snooze:
        return _snoozed(snooze, context, redactor)
    except BaseException as error:
        return _raised(error, context, control, redactor)
    finally:
        running.reset(outside)
        causing_job.reset(before)
    if context.expired():
        return TimedOut(f"timed out after {control.timeout:g} s", _evidence(context))
    if control.canceled.is_set() and context.told_to_stop:
        return stopped(control, _evidence(context))
    return _returned(result, context)


def misfit(error: InvalidPayload, context: Context, redactor: Redactor) -> Failed:
    """The outcome of a job whose params its function does not take; it never started."""
    return Failed(_masked(str(error), context, redactor), fatal=True)


def _snoozed(snooze: Snooze, context: Context, redactor: Redactor) -> Outcome:
    seconds: object = snooze.seconds
    if not isinstance(seconds, int | float) or not isfinite(seconds):
        return Failed(
            f"Snooze takes a number of seconds or a timedelta; got {seconds!r}.",
            fatal=True,
            evidence=_evidence(context),
        )
    return Snoozed(seconds, _masked(str(snooze.reason), context, redactor), _evidence(context))


def _returned(result: Any, context: Context) -> Outcome:
    """The work is done, so it has succeeded, also if what it returned cannot be stored: then the run says so."""
    if result is None:
        return Succeeded(None, _evidence(context))
    try:
        plain("The result", result)
        return Succeeded(result, _evidence(context))
    except (InvalidPayload, RecursionError):
        pass  # not JSON as it is: a datetime, a UUID, a dataclass, a pydantic model, …
    try:
        encoded = to_jsonable_python(result)
        plain("The result", encoded)
        return Succeeded(encoded, _evidence(context))
    except InvalidPayload as error:
        why = "; ".join(str(fault) for fault in error.faults)
    except Exception as error:
        why = str(error) if isinstance(error, PydanticSerializationError | ValueError) else type(error).__name__
    note = f"The job succeeded, but its result could not be stored: {why}. Return JSON of at most 1 MiB, or keep it as an artifact."
    worker_log.warning("result_not_stored", job_id=str(context.job_id), definition_key=context.key, reason=why)
    return Succeeded(None, _evidence(context, f"[penstock] {note}\n"))


def _raised(error: BaseException, context: Context, control: Control, redactor: Redactor) -> Outcome:
    # The first frame is ours
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    text = _masked("".join(traceback.format_exception(type(error), error, frames)), context, redactor)
    evidence = _evidence(context, text.encode("utf-8", "replace")[-TAIL_BYTES:].decode("utf-8", "ignore"))
    if isinstance(error, Fatal):
        return Failed(_masked(str(error) or "Fatal", context, redactor), fatal=True, evidence=evidence)
    if context.expired():
        return TimedOut(f"timed out after {control.timeout:g} s", evidence)
    if control.canceled.is_set():
        return stopped(control, evidence)
    summary = "".join(traceback.format_exception_only(type(error), error)).strip()
    away = isinstance(error, AWAY)
    return Failed(_masked(summary, context, redactor)[:MAX_ERROR], evidence=evidence, blameless=away)


def _masked(text: str, context: Context, redactor: Redactor) -> str:
    clean = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return context.mask.extended(redactor.secrets, redactor.patterns).redact_text(clean)


def _evidence(context: Context, stderr_tail: str | None = None) -> Evidence:
    if stderr_tail is None and not context.artifacts:
        return NOTHING
    artifacts = context.artifacts
    return Evidence(stderr_tail=stderr_tail, artifacts=artifacts) if stderr_tail or artifacts else NOTHING
