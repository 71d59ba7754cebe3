"""The types of attributes: how a definition names them, which values they take, and how values travel."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from penstock.pipeline.blob import pack, unpack
from penstock.store.dialect import user_tables_of
from penstock.store.pipeline.shape import Attribute

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1), "int16": (-(2**15), 2**15 - 1), "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1), "uint8": (0, 2**8 - 1), "uint16": (0, 2**16 - 1), "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}  # fmt: skip

ALIASES = {
    "tinyint": "int8", "smallint": "int16", "mediumint": "int32", "int": "int32", "integer": "int32", "bigint": "int64",
    "float": "float64", "float32": "float64", "double": "float64", "real": "float64", "boolean": "bool",
    "tinyblob": "blob", "mediumblob": "blob", "longblob": "blob", "<blob>": "blob", "<djblob>": "blob",
    "tinytext": "text", "mediumtext": "text", "longtext": "text",
}  # fmt: skip

PLAIN = {*INTEGERS, "float64", "bool", "date", "datetime", "timestamp", "uuid", "json", "blob", "text"}
NOT_IN_KEYS = {"blob", "json", "float64", "text"}


def parse_kind(text: str) -> tuple[str, tuple[Any, ...]]:
    """Read a type. Raises ValueError that says what was expected.

    >>> parse_kind("int unsigned"), parse_kind("varchar(12)"), parse_kind("<djblob>")
    (('uint32', ()), ('varchar', (12,)), ('blob', ()))
    """
    text = " ".join(text.split())
    lowered = text.lower()
    if found := re.fullmatch(r"enum ?\((.*)\)", text, re.IGNORECASE | re.DOTALL):
        return "enum", _enum_values(found[1])
    if found := re.fullmatch(r"(varchar|char) ?\( ?(\d+) ?\)", lowered):
        if not 1 <= int(found[2]) <= 65535:
            raise ValueError(f"{found[1]} takes a length from 1 to 65535, not {found[2]}")
        return found[1], (int(found[2]),)
    if found := re.fullmatch(r"(?:decimal|numeric)(?: ?\( ?(\d+) ?(?:, ?(\d+) ?)?\))?", lowered):
        precision, scale = int(found[1] or 10), int(found[2] or 0)
        if not 1 <= precision <= 18 or scale > precision:
            raise ValueError("decimal takes at most 18 digits, of which at most all are decimals: decimal(9,2)")
        return "decimal", (precision, scale)
    signed, _, unsigned = lowered.partition(" unsigned")
    bare = re.sub(r" ?\( ?\d+ ?\)$", "", signed) if "int" in signed else signed
    kind = ALIASES.get(bare, bare)
    if kind not in PLAIN or ((unsigned or " unsigned" in lowered) and kind not in INTEGERS):
        raise ValueError(
            f"unknown type {text!r}; expected one of int, int unsigned, int8…int64, uint8…uint64, float, float64, "
            "decimal(p,s), bool, char(n), varchar(n), date, datetime, timestamp, enum('a','b'), uuid, json, <blob>"
        )
    if " unsigned" in lowered and not kind.startswith("u"):
        kind = "u" + kind
    return kind, ()


def _enum_values(text: str) -> tuple[str, ...]:
    found = re.findall(r"""\s*(?:'((?:[^']|'')*)'|"((?:[^"]|"")*)")\s*(,|$)""", text)
    values = tuple(single.replace("''", "'") or double.replace('""', '"') for single, double, _ in found)
    rebuilt = re.fullmatch(r"""\s*(?:(?:'(?:[^']|'')*'|"(?:[^"]|"")*")\s*(?:,\s*|$))+""", text)
    if not values or rebuilt is None or len(set(values)) != len(values):
        raise ValueError("an enum lists its values once each, in quotes: enum('left', 'right')")
    return values


def encode(attribute: Attribute, value: Any, backend: str | None = None) -> Any:
    """The value as the database takes it, or some database if none is named. Raises ValueError that says what the attribute takes."""
    value = plain(attribute, value)
    if value is None:
        return None
    kind = attribute.kind
    if kind in INTEGERS:
        return _integer(attribute, value, backend)
    return _ENCODERS[kind](attribute, value)


def plain(attribute: Attribute, value: Any) -> Any:
    """A scalar of NumPy or pandas as Python has it. What DataFrames write where a value is missing (NaN, NaT, NA) is None,
    except that a float keeps its NaN, and a blob keeps what it is given."""
    if value is None or attribute.kind in ("blob", "json"):
        return value
    package = type(value).__module__.partition(".")[0]
    if package == "numpy" and hasattr(value, "item"):
        if getattr(value, "ndim", 0):
            raise ValueError(f"an array; {attribute.type} takes one value")
        if getattr(getattr(value, "dtype", None), "kind", "") == "M":
            value = value.astype("datetime64[us]")  # finer units come out as a number
        value = value.item()
    elif package == "pandas":
        if type(value).__name__ in ("NaTType", "NAType"):
            return None
        value = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
    missing = attribute.kind != "float64" and isinstance(value, float | Decimal) and value != value
    return None if missing else value


def decode(kind: str, value: Any) -> Any:
    """The value as users see it."""
    if value is None or kind != "blob":
        return value
    return unpack(value)


def default_value(attribute: Attribute, now: Callable[[], datetime]) -> Any:
    """What a row holds that does not say; ValueError if it must say."""
    text = attribute.default
    if text is None:
        if attribute.nullable:
            return None
        raise ValueError(f"{attribute.name} is missing and has no default")
    if text.lower() == "null":
        return None
    if text.upper().rstrip("()") in ("CURRENT_TIMESTAMP", "NOW"):
        return now() if attribute.kind == "timestamp" else wall(now())
    return literal(attribute, _unquoted(text))


def literal(attribute: Attribute, text: str) -> Any:
    """A value written as text in a definition or a restriction. Raises ValueError."""
    kind = attribute.kind
    if kind in INTEGERS:
        return int(Decimal(text)) if Decimal(text) == int(Decimal(text)) else float(text)
    if kind == "float64":
        return float(text)
    if kind == "decimal":
        return Decimal(text)
    if kind == "bool":
        return _flag(text)
    if kind == "date":
        return date.fromisoformat(text[:10])
    if kind == "datetime":
        return datetime.fromisoformat(text)
    if kind == "timestamp":
        return instant(datetime.fromisoformat(text))
    if kind == "uuid":
        return UUID(text)
    if kind == "json":
        return json.loads(text)
    if kind == "blob":
        raise ValueError("a blob cannot be written as text")
    return text


def instant(moment: datetime) -> datetime:
    """A moment in UTC. Without a zone it is taken as this machine's local time."""
    return moment.astimezone(UTC)


def wall(moment: datetime) -> datetime:
    """The same moment as the clock on this machine's wall shows it."""
    return moment.astimezone().replace(tzinfo=None)


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _flag(text: str) -> bool:
    if text.lower() in ("1", "true"):
        return True
    if text.lower() in ("0", "false"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _integer(attribute: Attribute, value: Any, backend: str | None) -> int:
    if isinstance(value, bool | int) or (isinstance(value, float | Decimal) and value == int(value)):
        number = int(value)
    else:
        raise ValueError(f"{value!r}; {attribute.type} takes a whole number")
    low, high = INTEGERS[attribute.kind]
    largest = high if backend is None else user_tables_of(backend).largest_integer
    if attribute.kind == "uint64" and largest < number <= high:
        raise ValueError(f"{number}; SQLite's integers end at {largest}. Use PostgreSQL, or store it as varchar")
    if not low <= number <= high:
        raise ValueError(f"{number}; {attribute.type} takes {low} to {high}")
    return number


def _real(attribute: Attribute, value: Any) -> float:
    if isinstance(value, str | bytes):
        raise ValueError(f"{value!r}; {attribute.type} takes a number")
    return float(value)


def _decimal(attribute: Attribute, value: Any) -> Decimal:
    precision, scale = attribute.args
    try:
        exact = Decimal(str(value)) if isinstance(value, float) else Decimal(value)
        rounded = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_EVEN)
    except (InvalidOperation, TypeError, ValueError) as error:
        raise ValueError(f"{value!r}; {attribute.type} takes a number") from error
    if len(rounded.as_tuple().digits) > precision:
        raise ValueError(f"{value!r} has more digits than {attribute.type} takes")
    return rounded


def _bool(attribute: Attribute, value: Any) -> bool:
    if isinstance(value, bool) or value in (0, 1):
        return bool(value)
    raise ValueError(f"{value!r}; bool takes True or False")


def _text(attribute: Attribute, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r}; {attribute.type} takes text")
    if attribute.args and len(value) > attribute.args[0]:
        raise ValueError(f"{len(value)} characters long; {attribute.type} takes at most {attribute.args[0]}")
    if "\x00" in value:
        raise ValueError("text with a NUL character; store it as <blob>")
    return value


def _enum(attribute: Attribute, value: Any) -> str:
    if value not in attribute.args:
        raise ValueError(f"{value!r}; expected one of {', '.join(map(repr, attribute.args))}")
    return str(value)


def _date(attribute: Attribute, value: Any) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(value, datetime):
        return value.date()
    if not isinstance(value, date):
        raise ValueError(f"{value!r}; date takes a date or 'YYYY-MM-DD'")
    return value


def _datetime(attribute: Attribute, value: Any) -> datetime:
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001
    if not isinstance(moment, datetime):
        raise ValueError(f"{value!r}; {attribute.type} takes a datetime or 'YYYY-MM-DD HH:MM:SS'")
    if attribute.kind == "timestamp":
        return instant(moment)
    if moment.tzinfo is not None:
        raise ValueError(f"{value!r} has a time zone, which datetime does not keep; declare it as timestamp")
    return moment


def _uuid(attribute: Attribute, value: Any) -> UUID:
    return value if isinstance(value, UUID) else UUID(str(value))


def _json(attribute: Attribute, value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"not JSON ({error})") from error
    return value


_ENCODERS: dict[str, Callable[[Attribute, Any], Any]] = {
    "float64": _real, "decimal": _decimal, "bool": _bool, "varchar": _text, "char": _text, "text": _text, "enum": _enum,
    "date": _date, "datetime": _datetime, "timestamp": _datetime, "uuid": _uuid, "json": _json,
    "blob": lambda attribute, value: pack(value),
}  # fmt: skip
