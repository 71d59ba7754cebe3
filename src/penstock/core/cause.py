"""The job that is running here, if one is: what it emits is its doing, and loops are told by that."""

from __future__ import annotations

from contextvars import ContextVar
from uuid import UUID

causing_job: ContextVar[UUID | None] = ContextVar("causing_job", default=None)
"""Set by the Python runner around a job's function."""
