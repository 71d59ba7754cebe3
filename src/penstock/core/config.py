"""One frozen configuration of the engine, checked once at the edge."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.settings.database import DatabaseSettings
from penstock.core.settings.jobs import JobSettings
from penstock.core.settings.retention import RetentionSettings
from penstock.core.settings.triggers import TriggerSettings
from penstock.core.settings.worker import WorkerSettings


@dataclass(frozen=True, kw_only=True)
class Config(WorkerSettings, JobSettings, TriggerSettings, DatabaseSettings, RetentionSettings):
    """What an installation may set. The defaults are good for one machine.

    `Penstock(url)` reads each setting from PENSTOCK_<NAME IN CAPITALS>. A config that is passed is taken as it is; begin it with
    `Config.from_environment(…)` to let the environment set the rest.

    >>> Config(lease_seconds=10).lease_seconds
    10
    >>> Config.from_environment({"PENSTOCK_POLL_SECONDS": "2"}, lease_seconds=10).poll_seconds
    2.0
    """
