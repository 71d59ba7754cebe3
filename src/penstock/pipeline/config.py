"""`dj.config`: the settings of pipelines in this process. Unknown names and wrong types are refused at once."""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.pipeline.errors import PipelineError


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of pipelines: its default, the types it takes, what it is for, and its least value."""

    default: Any
    kinds: tuple[type, ...]
    meaning: str
    at_least: float | None = None


BOOL, TEXT, WHOLE, NUMBER = (bool,), (str, type(None)), (int,), (int, float)

SETTINGS: dict[str, Setting] = {
    "database.url": Setting(
        None, TEXT, "where schemas live; else `PENSTOCK_DATABASE_URL`, else `sqlite:///penstock.db`"
    ),
    "safemode": Setting(True, BOOL, "ask before `delete` and `drop` at a terminal"),
    "display.limit": Setting(12, WHOLE, "rows shown of a relation", 1),
    "jobs.auto_refresh": Setting(True, BOOL, "`populate(reserve_jobs=True)` refreshes when nothing is pending"),
    "jobs.keep_completed": Setting(
        False, BOOL, "keep completed jobs as `success`; clear them now and then with `jobs.completed.delete()`"
    ),
    "jobs.stale_timeout": Setting(3600, NUMBER, "seconds before a pending job whose source is gone is removed", 0),
    "jobs.default_priority": Setting(5, WHOLE, "priority of new jobs; lower is more urgent", 0),
    "jobs.version": Setting(None, TEXT, 'what job rows carry as version: any text, or `"git"` for the commit'),
    "jobs.lease_seconds": Setting(60, NUMBER, "how long a reservation lives without a heartbeat", 0.1),
    "jobs.batch_seconds": Setting(
        0.5, NUMBER, "how much work a worker claims at once; of a batch that takes twice as long the rest goes back", 0
    ),
    "jobs.batch_limit": Setting(100, WHOLE, "how many keys a worker claims at once, at most", 1),
    "jobs.commit_seconds": Setting(
        0.25,
        NUMBER,
        "how long finished keys wait for others before they are committed together; 0 commits each alone",
        0,
    ),
    "jobs.commit_limit": Setting(200, WHOLE, "how many finished keys one transaction writes, at most", 1),
    "jobs.read_ahead_seconds": Setting(
        0.5, NUMBER, "how old a parent's row may be that was read ahead for the next keys; 0 reads nothing ahead", 0
    ),
    "jobs.read_ahead_limit": Setting(100, WHOLE, "for how many keys parents' rows are read ahead, at most", 1),
    "jobs.recheck_seconds": Setting(
        1.0,
        NUMBER,
        "how often `populate()` without a job table looks which keys others have made; 0 looks before each",
        0,
    ),
    "jobs.max_attempts": Setting(3, WHOLE, "tries of a key with transient errors", 1),
    "jobs.retry_delay": Setting(1.0, NUMBER, "seconds before the second try; doubles with each", 0),
    "jobs.retry_patience": Setting(
        30.0,
        NUMBER,
        "how long `populate(reserve_jobs=True)` waits at its end for the retry of a key that it failed itself",
        0,
    ),
    "jobs.max_crashes": Setting(5, WHOLE, "vanished workers after which a key becomes an error", 1),
    "jobs.end_on_sigterm": Setting(
        True, BOOL, "SIGTERM ends `populate()` as an exception, unless the program has a handler of its own"
    ),
    "jobs.allow_new_pk_fields": Setting(False, BOOL, "let computed tables have key attributes of their own"),
}
"""Every setting. `docs/pipelines/settings.md` and the reference are held to this table by tests."""


class Config(MutableMapping[str, Any]):
    """A mapping that knows its keys.

    >>> config = Config()
    >>> config["jobs.keep_completed"]
    False
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {name: each.default for name, each in SETTINGS.items()}

    def __getitem__(self, name: str) -> Any:
        self._require_known(name)
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._require_known(name)
        known = SETTINGS[name]
        allowed = known.kinds
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in allowed)
            raise PipelineError(f"The setting {name!r} takes {names}, not {value!r}.")
        if isinstance(value, float) and not math.isfinite(value):
            raise PipelineError(f"The setting {name!r} takes a number, not {value!r}.")
        if known.at_least is not None and isinstance(value, int | float) and value < known.at_least:
            raise PipelineError(f"The setting {name!r} must be at least {known.at_least:g}, not {value!r}.")
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        """Back to the default."""
        self._require_known(name)
        self._values[name] = SETTINGS[name].default

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shown = {**self._values, "database.url": "…" if self._values["database.url"] else None}
        return "\n".join(f"{name} = {value!r}" for name, value in shown.items())

    @contextmanager
    def override(self, settings: dict[str, Any]) -> Iterator[Config]:
        """Other settings for the length of a block: `with dj.config.override({"jobs.keep_completed": True}): …`"""
        before = dict(self._values)
        try:
            for name, value in settings.items():
                self[name] = value
            yield self
        finally:
            self._values = before

    def _require_known(self, name: str) -> None:
        if name not in SETTINGS:
            raise PipelineError(f"There is no setting {name!r}. Known: {', '.join(SETTINGS)}.")


config = Config()


def database_url() -> str:
    """Where pipelines live unless told otherwise."""
    return str(config["database.url"] or os.environ.get("PENSTOCK_DATABASE_URL") or "sqlite:///penstock.db")


def job_version() -> str:
    """The version that job rows carry: `jobs.version`, or the commit if that is "git"."""
    version = config["jobs.version"]
    return _git_commit() if version == "git" else str(version or "")[:255]


@lru_cache(maxsize=1)
def _git_commit() -> str:
    try:
        found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
