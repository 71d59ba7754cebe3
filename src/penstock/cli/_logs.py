"""Structured logs: for people on a terminal, JSON lines otherwise. To stderr, so that stdout stays the answer.

Only the command line sets logging up, because there the process is ours. What jobs and libraries log by `logging` goes the
same way as Penstock's own lines, with the ids of the run that it was logged in.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any

import structlog

from penstock.core.redact import Redactor
from penstock.core.terminal import printable, printable_json
from penstock.run.context import forwarding, running

_redactor = Redactor()
TALKATIVE = ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore", "alembic", "asyncio", "sqlalchemy")
"""Libraries that Penstock itself uses: of what they do only trouble is worth a line."""


class _Stderr:
    """Whatever stderr is at the moment. One that is gone, a closed pipe for example, is no reason to stop working.

    Both kinds of loggers write whole lines here, one at a time, so that no line of one is inside a line of the other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def write(self, text: str) -> None:
        with self._lock, suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


class _Handler(logging.StreamHandler[Any]):
    """Ours, to be told from others."""


def _add_run(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the ids of the run that this thread or task is in. What the line says itself stays."""
    context = running.get()
    if context is not None:
        for name, value in context.ids.items():
            event.setdefault(name, value)
    return event


def _mask(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Mask what looks like a secret, and the secrets of the run that this thread or task is in."""
    context = running.get()
    mask = _redactor if context is None else context.mask
    for name, value in event.items():
        if name.startswith("_") or name in ("exc_info", "stack_info"):
            continue
        event[name] = mask.redact_json({name: _plain(value)})[name]
    return event


def _plain(value: Any) -> Any:
    """What the line will show of a value, where that is not JSON."""
    return value if isinstance(value, str | int | float | bool | Mapping | list | tuple | None) else str(value)


def _safe(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Show control characters as escapes: what a job or a tenant says must not drive the terminal."""
    for name, value in list(event.items()):
        if not name.startswith("_") and name not in ("exc_info", "stack_info"):
            event[name] = _printable(value)
    return event


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return {_printable(key): _printable(item) for key, item in value.items()}
    return [_printable(item) for item in value] if isinstance(value, list | tuple) else value


def _render_exception(out: Any, exc_info: Any) -> None:
    """A traceback as plain text, masked and without control characters: it quotes what jobs and tenants gave."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    context = running.get()
    mask = _redactor if context is None else context.mask
    out.write(printable(mask.redact_text(text.getvalue())))


def _masked_exception(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    if isinstance(event.get("exception"), str):
        context = running.get()
        mask = _redactor if context is None else context.mask
        event["exception"] = mask.redact_text(event["exception"])
    return event


def _json(value: Any, **options: Any) -> str:
    """One line of JSON, without the control characters that JSON itself lets through."""
    return printable_json(json.dumps(value, **options))


def configure_logs(verbose: bool = False, as_json: bool | None = None) -> None:
    """Set up structlog and `logging` for this process. Every line about a run carries job_id, tenant_id, definition_key,
    attempt_no and worker_id or run_id."""
    for_machines = not sys.stderr.isatty() if as_json is None else as_json
    level = logging.DEBUG if verbose else logging.INFO
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _add_run,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _mask,
    ]
    rendered: list[Any] = (
        [
            structlog.processors.format_exc_info,
            _masked_exception,
            structlog.processors.JSONRenderer(serializer=_json, default=str),
        ]
        if for_machines
        else [_safe, structlog.dev.ConsoleRenderer(exception_formatter=_render_exception)]
    )
    stderr: Any = _Stderr()
    structlog.configure(
        processors=[*shared, *rendered],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(stderr),  # a line and its end in one piece; print() writes two
        cache_logger_on_first_use=True,
    )
    _configure_logging(stderr, level, shared, rendered)


def _configure_logging(stderr: Any, level: int, shared: list[Any], rendered: list[Any]) -> None:
    handler = _Handler(stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, structlog.stdlib.ExtraAdder(), *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [*(other for other in root.handlers if not isinstance(other, _Handler)), handler]
    root.setLevel(level)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.captureWarnings(True)
    forwarding.level = level
