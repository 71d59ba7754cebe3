"""Ids are UUIDv7, chosen by the client: they grow with time, and survive a lost reply to COMMIT."""

from __future__ import annotations

from uuid import UUID, SafeUUID

import uuid_utils

DEFAULT_TENANT_ID = UUID("00000000-0000-7000-8000-000000000001")
"""The tenant of embedded use. Made by the first migration; nobody needs to name it."""

_UNKNOWN = SafeUUID.unknown
_blank = object.__new__
_set_number = UUID.__dict__["int"].__set__
_set_safety = UUID.__dict__["is_safe"].__set__


def new_id() -> UUID:
    return id_of(uuid_utils.uuid7().int)


def id_from(text: str) -> UUID:
    """The UUID of a text that is known to be one, for it was written by us."""
    return id_of(int(text.replace("-", ""), 16))


def id_of(number: int) -> UUID:
    """The UUID of a number that is known to be one: its own constructor takes four times as long, to check."""
    made = _blank(UUID)
    _set_number(made, number)
    _set_safety(made, _UNKNOWN)
    return made
