"""Log lines of a program that has not set up structlog: their times are UTC, as every other time of ours."""

from __future__ import annotations

from typing import Any

import structlog
from structlog.processors import TimeStamper


class UtcLog:
    """A logger that is found anew for each line: the program may set up structlog at any time, and then has its way. Nothing of
    structlog's own setup is changed, because that is the program's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        return getattr(utc_logger(self._name), method)


def utc_logger(name: str) -> Any:
    """Return the logger as the program has set it up; if it has not, structlog's usual one with times in UTC."""
    if structlog.is_configured():
        return structlog.get_logger(name)
    utc = TimeStamper(fmt="iso", utc=True)
    found = [utc if isinstance(each, TimeStamper) else each for each in structlog.get_config()["processors"]]
    return structlog.wrap_logger(None, processors=found, logger_factory_args=(name,))


worker_log: Any = UtcLog("penstock.worker")
