"""The times of a worker's log lines, in a program that has not set up structlog."""

from __future__ import annotations

import structlog
from structlog.processors import TimeStamper


def stamp_in_utc() -> None:
    """Let log lines carry UTC, as every other time of ours does. A program that has configured structlog is left alone, and
    one that does so later has its way."""
    if structlog.is_configured():
        return
    found = structlog.get_config()["processors"]
    utc = TimeStamper(fmt="iso", utc=True)
    structlog.configure(processors=[utc if isinstance(each, TimeStamper) else each for each in found])
