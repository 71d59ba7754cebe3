"""Ids are UUIDv7, chosen by the client: they grow with time, and survive a lost reply to COMMIT."""

from __future__ import annotations

from uuid import UUID

from uuid_utils.compat import uuid7

DEFAULT_TENANT_ID = UUID("00000000-0000-7000-8000-000000000001")
"""The tenant of embedded use. Made by the first migration; nobody needs to name it."""


def new_id() -> UUID:
    return uuid7()
