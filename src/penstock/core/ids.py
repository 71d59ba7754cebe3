"""Ids are UUIDv7, chosen by the client: they grow with time, and survive a lost reply to COMMIT."""

from __future__ import annotations

from hashlib import sha256
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


def derived_id(parent: UUID, name: bytes) -> UUID:
    """An id that follows from another and a name: the same for the same, begins with the parent's time, and cannot be
    guessed without the parent.

    >>> parent = UUID("01a1ead5-7c90-75ac-bb88-2dc4953448d3")
    >>> derived_id(parent, b"1") == derived_id(parent, b"1") != derived_id(parent, b"2")
    True
    >>> derived_id(parent, b"1").version, str(derived_id(parent, b"1"))[:13]
    (7, '01a1ead5-7c90')
    """
    noise = int.from_bytes(sha256(parent.bytes + name).digest()[:10], "big")
    noise = noise & ~(0xF << 76) | 0x7 << 76  # the version
    noise = noise & ~(0x3 << 62) | 0x2 << 62  # the variant
    return UUID(int=parent.int >> 80 << 80 | noise)


def id_from(text: str) -> UUID:
    """The UUID of a text that is known to be one, for it was written by us."""
    return id_of(int(text.replace("-", ""), 16))


def id_of(number: int) -> UUID:
    """The UUID of a number that is known to be one: its own constructor takes four times as long, to check."""
    made = _blank(UUID)
    _set_number(made, number)
    _set_safety(made, _UNKNOWN)
    return made
