"""Checks of what callers hand in: each says what was wrong and what was expected."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final
from uuid import UUID

from penstock.core.errors import InvalidInput


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET
"""The default of an argument for which None has a meaning of its own."""

MIN_INT32, MAX_INT32 = -(2**31), 2**31 - 1


def text(name: str, value: Any, longest: int = 200, *, empty: bool = False) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{name} is {type(value).__name__}; expected a string.")
    if not value.strip() and not empty:
        raise InvalidInput(f"{name} is empty.")
    if len(value) > longest:
        raise InvalidInput(f"{name} is {len(value)} characters long; at most {longest} are allowed.")
    if any(ord(char) < 32 or 0xD800 <= ord(char) <= 0xDFFF for char in value):
        raise InvalidInput(f"{name} contains a control character.")
    return value


def maybe_text(name: str, value: Any, longest: int = 500) -> str | None:
    return None if value is None else text(name, value, longest)


def integer(name: str, value: Any, least: int = MIN_INT32, most: int = MAX_INT32) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{name} is {value!r}; expected a whole number.")
    if not least <= value <= most:
        raise InvalidInput(f"{name} is {value}; expected a number from {least} to {most}.")
    return value


def seconds(name: str, value: Any, least: float = 0.0, most: float = 100 * 365 * 86400.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidInput(f"{name} is {value!r}; expected a number of seconds from {least:g} to {most:g}.")
    return float(value)


def identifier(name: str, value: Any) -> UUID:
    if isinstance(value, UUID):
        return value
    try:
        return UUID(str(value))
    except ValueError as error:
        raise InvalidInput(f"{name} is {value!r}; expected a UUID.") from error
