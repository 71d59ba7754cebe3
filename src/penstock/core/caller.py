"""Whose transaction a verb works in: its own, or the caller's."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from penstock.core.errors import InvalidInput


class Transaction(Enum):
    """The default of every `connection=`. It is not None: a framework's connection that is not open yet is None too."""

    OWN = "own"

    def __repr__(self) -> str:
        return "OWN"


OWN: Final = Transaction.OWN


def joins(connection: Any) -> bool:
    """Return whether `connection` is the caller's. None is refused, because it is a mistake that nobody would notice: the
    job would be committed although the caller's transaction is rolled back."""
    if connection is None:
        raise InvalidInput(
            "connection is None; expected an open connection. Django's `connection.connection` is None until its first "
            "query: pass `django.db.connection` itself. Leave connection out to enqueue in a transaction of its own."
        )
    return connection is not OWN
