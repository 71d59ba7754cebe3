"""Penstock: a durable job engine that lives in your own database."""

from penstock.app import Penstock
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
    LeaseLost,
    NaiveDatetime,
    NotFound,
    PenstockError,
    UnknownDefinition,
    UnknownTenant,
)
from penstock.core.nouns import Claim, Definition, Group, Health, Job, Reservation, Run, Tenant, Why
from penstock.core.outcomes import Canceled, Failed, Fatal, Skip, Skipped, Snooze, Snoozed, Succeeded, TimedOut
from penstock.core.version import VERSION
from penstock.run.context import Context

__version__ = VERSION

__all__ = [
    "Busy",
    "Canceled",
    "Claim",
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
