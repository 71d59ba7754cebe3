"""Rows on their way in: any shape a user may have them in, checked against the table, one error for what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.pipeline.errors import BlobError, InvalidRow
from penstock.pipeline.kinds import default_value, encode
from penstock.store.pipeline.shape import Attribute, Shape

Row = dict[str, Any]


def encode_rows(
    shape: Shape, given: Any, backend: str, now: Callable[[], datetime], *, ignore_extra_fields: bool = False
) -> list[Row]:
    """Every row with every column, as the database takes them. The first row that does not fit raises."""
    return [
        _row(shape, _as_mapping(shape, item, number), backend, now, ignore_extra_fields, number)
        for number, item in enumerate(_as_rows(given), start=1)
    ]


def encode_some(shape: Shape, values: Mapping[str, Any], backend: str) -> Row:
    """Some attributes of a row, for update1."""
    if unknown := [name for name in values if name not in {a.name for a in shape.attributes}]:
        raise InvalidRow(f"{shape.class_name} has no attribute {unknown[0]!r}.")
    return {name: _value(shape, shape.attribute(name), value, backend, 1) for name, value in values.items()}


def _as_rows(given: Any) -> Iterable[Any]:
    if isinstance(given, Mapping | str | bytes):
        raise InvalidRow("insert() takes an iterable of rows; use insert1() for one.")
    if hasattr(given, "reset_index") and hasattr(given, "to_dict"):
        frame = given.reset_index() if any(name is not None for name in given.index.names) else given
        records: list[Any] = frame.to_dict("records")
        return records
    if not isinstance(given, Iterable):
        raise InvalidRow(f"insert() takes an iterable of rows, not {given!r}.")
    return given


def _as_mapping(shape: Shape, item: Any, number: int) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return item
    names = getattr(getattr(item, "dtype", None), "names", None)
    if names:
        return {name: item[name] for name in names}
    if (isinstance(item, Sequence) and not isinstance(item, str | bytes)) or hasattr(item, "tolist"):
        values = list(item)
        if len(values) != len(shape.attributes):
            raise InvalidRow(
                f"Row {number} has {len(values)} values, but {shape.class_name} has {len(shape.attributes)} attributes: "
                f"{', '.join(attribute.name for attribute in shape.attributes)}."
            )
        return {attribute.name: value for attribute, value in zip(shape.attributes, values, strict=True)}
    raise InvalidRow(f"Row {number} is {item!r}; expected a mapping or a sequence of values.")


def _row(
    shape: Shape, given: Mapping[str, Any], backend: str, now: Callable[[], datetime], ignore_extra: bool, number: int
) -> Row:
    names = {attribute.name for attribute in shape.attributes}
    if not ignore_extra and (extra := [name for name in given if name not in names]):
        raise InvalidRow(
            f"Row {number} has {extra[0]!r}, which is no attribute of {shape.class_name} ({', '.join(sorted(names))}). "
            "Pass ignore_extra_fields=True to leave it out."
        )
    row: Row = {}
    for attribute in shape.attributes:
        if attribute.name in given:
            row[attribute.name] = _value(shape, attribute, given[attribute.name], backend, number)
            continue
        try:
            value = default_value(attribute, now)
        except ValueError as error:
            raise InvalidRow(f"Row {number} for {shape.class_name}: {error}.") from error
        row[attribute.name] = encode(attribute, value, backend)
    return row


def _value(shape: Shape, attribute: Attribute, value: Any, backend: str, number: int) -> Any:
    name = attribute.name
    try:
        if value is not None:
            value = encode(attribute, value, backend)
    except BlobError as error:
        raise InvalidRow(f"Row {number} for {shape.class_name}: {name}: {error}") from error
    except (ValueError, TypeError, ArithmeticError) as error:
        raise InvalidRow(f"Row {number} for {shape.class_name}: {name} is {error}.") from error
    if value is None and not attribute.nullable:
        raise InvalidRow(f"Row {number} for {shape.class_name}: {name} is None, but is not nullable.")
    return value
