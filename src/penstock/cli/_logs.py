"""Structured logs: for people on a terminal, JSON lines otherwise. To stderr, so that stdout stays the answer."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from typing import Any

import structlog


class _Stderr:
    """Whatever stderr is at the moment. One that is gone, a closed pipe for example, is no reason to stop working."""

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.flush()


def configure_logs(verbose: bool = False, as_json: bool | None = None) -> None:
    """Set up structlog for this process. Every line about a run carries job_id, tenant_id, definition_key, attempt_no
    and worker_id."""
    for_machines = not sys.stderr.isatty() if as_json is None else as_json
    renderer: list[Any] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        if for_machines
        else [structlog.dev.ConsoleRenderer()]
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if verbose else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(_Stderr()),  # type: ignore[arg-type]
        cache_logger_on_first_use=True,
    )
