"""`dj.config`: the settings of pipelines in this process. Unknown names and wrong types are refused at once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from penstock.pipeline.errors import PipelineError

DEFAULTS: dict[str, tuple[Any, tuple[type, ...]]] = {
    "database.url": (None, (str, type(None))),
    "safemode": (True, (bool,)),
    "display.limit": (12, (int,)),
    "jobs.auto_refresh": (True, (bool,)),
    "jobs.keep_completed": (False, (bool,)),
    "jobs.stale_timeout": (3600, (int, float)),
    "jobs.default_priority": (5, (int,)),
    "jobs.version": (None, (str, type(None))),
    "jobs.lease_seconds": (60, (int, float)),
    "jobs.batch_seconds": (0.5, (int, float)),
    "jobs.batch_limit": (100, (int,)),
    "jobs.max_attempts": (3, (int,)),
    "jobs.retry_delay": (1.0, (int, float)),
    "jobs.max_crashes": (5, (int,)),
    "jobs.allow_new_pk_fields": (False, (bool,)),
}
"""Every setting: its default, and the types it takes. `docs/pipelines/settings.md` says what each does."""

AT_LEAST: dict[str, float] = {
    "display.limit": 1, "jobs.stale_timeout": 0, "jobs.lease_seconds": 0.1, "jobs.batch_seconds": 0,
    "jobs.batch_limit": 1, "jobs.max_attempts": 1, "jobs.retry_delay": 0, "jobs.max_crashes": 1,
    "jobs.default_priority": 0,
}  # fmt: skip


class Config(MutableMapping[str, Any]):
    """A mapping that knows its keys.

    >>> config = Config()
    >>> config["jobs.keep_completed"]
    False
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {name: default for name, (default, _) in DEFAULTS.items()}

    def __getitem__(self, name: str) -> Any:
        self._require_known(name)
        return self._values[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._require_known(name)
        allowed = DEFAULTS[name][1]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            names = " or ".join("None" if kind is type(None) else kind.__name__ for kind in allowed)
            raise PipelineError(f"The setting {name!r} takes {names}, not {value!r}.")
        least: float | None = AT_LEAST.get(name)
        if least is not None and isinstance(value, int | float) and value < least:
            raise PipelineError(f"The setting {name!r} must be at least {least}, not {value!r}.")
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        """Back to the default."""
        self._require_known(name)
        self._values[name] = DEFAULTS[name][0]

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
        if name not in DEFAULTS:
            raise PipelineError(f"There is no setting {name!r}. Known: {', '.join(DEFAULTS)}.")


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
