"""Penstock: a durable job engine that lives in your own database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.core.version import VERSION

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.client import ApiError, AsyncClient, Client
    from penstock.core.cipher import KeyRing
    from penstock.core.clock import ManualClock
    from penstock.core.config import Config
    from penstock.core.errors import (
        Busy,
        Conflict,
        DatabaseError,
        DefinitionArchived,
        IllegalTransition,
        InvalidInput,
        InvalidPayload,
        KeyMissing,
        LeaseLost,
        NaiveDatetime,
        NotFound,
        PenstockError,
        UnknownDefinition,
        UnknownTenant,
    )
    from penstock.core.nouns import Claim, Definition, Group, Health, Job, Reservation, Run, Tenant, Why
    from penstock.core.outcomes import Canceled, Failed, Fatal, Skip, Skipped, Snooze, Snoozed, Succeeded, TimedOut
    from penstock.run.context import Context

__version__ = VERSION

__all__ = [
    "ApiError",
    "AsyncClient",
    "Busy",
    "Canceled",
    "Claim",
    "Client",
    "Config",
    "Conflict",
    "Context",
    "DatabaseError",
    "Definition",
    "DefinitionArchived",
    "Failed",
    "Fatal",
    "Group",
    "Health",
    "IllegalTransition",
    "InvalidInput",
    "InvalidPayload",
    "Job",
    "KeyMissing",
    "KeyRing",
    "LeaseLost",
    "ManualClock",
    "NaiveDatetime",
    "NotFound",
    "Penstock",
    "PenstockError",
    "Reservation",
    "Run",
    "Skip",
    "Skipped",
    "Snooze",
    "Snoozed",
    "Succeeded",
    "Tenant",
    "TimedOut",
    "UnknownDefinition",
    "UnknownTenant",
    "Why",
]

_ROOMS = (
    "core.errors",
    "core.cipher",
    "core.nouns",
    "core.outcomes",
    "core.clock",
    "core.config",
    "run.context",
    "app",
    "client",
)


def __getattr__(name: str) -> Any:
    """Names are imported when they are first asked for: the pytest plugin is loaded in projects that never use it."""
    if name in __all__:
        from importlib import import_module

        for room in _ROOMS:
            found = vars(import_module(f"penstock.{room}")).get(name)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
