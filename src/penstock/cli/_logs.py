"""Structured logs: for people on a terminal, JSON lines otherwise. To stderr, so that stdout stays the answer.

Only the command line sets logging up, because there the process is ours. What jobs and libraries log by `logging` goes the
same way as Penstock's own lines, with the ids of the run that it was logged in.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

import structlog

from penstock.run.context import forwarding, running

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
    ]
    rendered: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
        if for_machines
        else [structlog.dev.ConsoleRenderer()]
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
