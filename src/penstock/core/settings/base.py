"""How a setting is declared, checked and read from the environment.

A group of settings is a frozen dataclass. Each field has a default, its bounds and, below it, the reason for the default;
`tools/reference.py` writes the three into the reference.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, TypeVar

from penstock.core.errors import InvalidInput

PREFIX = "PENSTOCK_"
BOUNDS = "bounds"
SWITCH = ("on", "off")

G = TypeVar("G", bound="Group")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The values that a setting may have."""

    more_than: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[str, ...] = ()

    def fault(self, value: Any) -> str | None:
        """Return what is wrong with the value, if anything is."""
        if self.one_of and value not in self.one_of:
            return f"expected {' or '.join(self.one_of)}."
        if self.more_than is not None and value <= self.more_than:
            return f"it must be more than {self.more_than:g}."
        if self.at_least is not None and value < self.at_least:
            return f"it must be at least {self.at_least:g}."
        if self.at_most is not None and value > self.at_most:
            return f"it must be at most {self.at_most:g}."
        return None

    def __str__(self) -> str:
        """
        >>> str(Bounds(more_than=0, at_most=10))
        'more than 0, at most 10'
        """
        if self.one_of:
            return " or ".join(f"`{each}`" for each in self.one_of)
        given = (("more than", self.more_than), ("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(f"{words} {number:,g}" for words, number in given if number is not None)


def setting(
    default: T,
    *,
    more_than: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    one_of: tuple[str, ...] = (),
    repr: bool = True,
) -> T:
    """Declare a setting with its default and its bounds."""
    bounds = Bounds(more_than, at_least, at_most, one_of)
    made: T = field(default=default, repr=repr, metadata={BOUNDS: bounds})
    return made


@dataclass(frozen=True, kw_only=True)
class Group:
    """Settings that are checked when they are made.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class Oven(Group):
    ...     degrees: int = setting(180, at_least=20, at_most=300)
    >>> Oven.from_environment({"PENSTOCK_DEGREES": "200"}).degrees
    200
    >>> Oven(degrees=400)
    Traceback (most recent call last):
    ...
    penstock.core.errors.InvalidInput: degrees is 400; it must be at most 300.
    """

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            fault = _fault(each, value)
            if fault is not None:
                raise InvalidInput(f"{each.name} is {value!r}; {fault}")

    @classmethod
    def from_environment(cls: type[G], environment: Mapping[str, str] | None = None, **given: Any) -> G:
        """Read PENSTOCK_<NAME IN CAPITALS> for each setting; a value that is given by name wins."""
        source = os.environ if environment is None else environment
        values: dict[str, Any] = {}
        for each in fields(cls):
            variable = PREFIX + each.name.upper()
            text = source.get(variable)
            if not text or each.name in given:
                continue
            value = values[each.name] = _parsed(variable, _kind(each.type), text)
            fault = _fault(each, value)
            if fault is not None:
                raise InvalidInput(f"{variable} is {text}; {fault}")
        return cls(**{**values, **given})


def _fault(declared: Field[Any], value: Any) -> str | None:
    """Return what is wrong with a value, if anything is."""
    fault = _wrong_type(_kind(declared.type), value)
    if fault is not None or value is None:
        return fault
    bounds: Bounds = declared.metadata.get(BOUNDS, Bounds())
    return bounds.fault(value)


def _kind(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else str(annotation.__name__)


def _wrong_type(kind: str, value: Any) -> str | None:
    if value is None and kind.endswith("| None"):
        return None
    kind = kind.removesuffix(" | None")
    if kind == "int" and (not isinstance(value, int) or isinstance(value, bool)):
        return "expected a whole number."
    if kind == "float" and (not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value)):
        return "expected a number."
    if kind == "str" and not isinstance(value, str):
        return "expected text."
    return None


def _parsed(variable: str, kind: str, text: str) -> Any:
    kind = kind.removesuffix(" | None")
    expected = "a whole number" if kind == "int" else "a number"
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
    except ValueError as error:
        raise InvalidInput(f"{variable} is {text!r}; expected {expected}.") from error
    if kind.startswith("tuple"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text
