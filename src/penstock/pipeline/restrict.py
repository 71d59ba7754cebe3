"""Restrictions: text, mappings, relations and combinations of them become one condition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, case, false, literal, not_, or_, true
from sqlalchemy.sql import ColumnElement

from penstock.pipeline import kinds
from penstock.pipeline.errors import RestrictionError
from penstock.pipeline.expressions import Expressions
from penstock.store.pipeline.shape import Attribute
from penstock.store.pipeline.types import column_type

if TYPE_CHECKING:
    from penstock.pipeline.relation import Relation


NESTED = 400
"""How many conditions may stand in a chain of ORs. SQLite's parser goes a thousand levels deep, one for each."""


class AndList(list[Any]):
    """Restrictions that must all hold; a plain list means that any may.

    >>> AndList(["a = 1", "b = 2"])
    ['a = 1', 'b = 2']
    """


class Not:
    """The opposite of a restriction: `Table & dj.Not('score > 3')`."""

    def __init__(self, restriction: Any) -> None:
        self.restriction = restriction


def condition(relation: Relation, restriction: Any) -> ColumnElement[bool]:
    """What a row of `relation` must meet. A restriction that means nothing raises; it never means everything."""
    restriction = _as_relation(restriction)
    if isinstance(restriction, bool):
        return true() if restriction else false()
    if isinstance(restriction, Not):
        return not_(condition(relation, restriction.restriction))
    if isinstance(restriction, AndList):
        return and_(true(), *(condition(relation, item) for item in restriction))
    if isinstance(restriction, str):
        return Expressions(relation.attributes, relation.source.columns, relation.connection.moments).condition(
            restriction
        )
    if hasattr(restriction, "attributes") and hasattr(restriction, "source"):
        return semijoin(relation, restriction)
    if isinstance(restriction, Mapping):
        return _mapping(relation, restriction)
    if (record := _record(restriction)) is not None:
        return _mapping(relation, record)
    if hasattr(restriction, "to_dict") and hasattr(restriction, "columns"):
        return _any_of(relation, restriction.to_dict("records"))
    if isinstance(restriction, Iterable):
        return _any_of(relation, restriction)
    raise RestrictionError(
        f"{restriction!r} is no restriction. Expected text, a mapping, a table or relation, a list of those, AndList or Not."
    )


def semijoin(relation: Relation, other: Relation) -> ColumnElement[bool]:
    """Rows that meet a row of `other` on the attributes that mean the same in both."""
    names = shared(relation, other)
    if not names:
        raise RestrictionError(
            f"The relations share no key attribute: ({', '.join(relation.attributes)}) and ({', '.join(other.attributes)}). "
            "Attributes match when they come from the same table; rename with proj() if they should."
        )
    inner = other.source.embed() if other.source.distinct else other.fresh_source()
    return inner.exists([(relation.source.columns[name], name) for name in names])


def shared(left: Relation, right: Relation) -> list[str]:
    """Names that mean the same in both: key attributes born in the same table. Namesakes of other birth are a mistake
    if both are keys, and strangers otherwise."""
    names = []
    for name, mine in left.attributes.items():
        theirs = right.attributes.get(name)
        if theirs is None or mine.lineage is None or theirs.lineage is None:
            continue
        if mine.lineage == theirs.lineage:
            names.append(name)
        elif mine.in_key and theirs.in_key:
            raise RestrictionError(
                f"{name!r} means different things: {mine.lineage} here, {theirs.lineage} there. Rename one with "
                f"proj(other_name='{name}')."
            )
    return names


def compare(attribute: Attribute, column: ColumnElement[Any], value: Any, backend: str) -> ColumnElement[bool]:
    """Whether an attribute equals a value; NULL equals NULL here."""
    if value is None:
        return column.is_(None)
    return column == literal(comparable(attribute, value, backend), column_type(attribute.kind, attribute.args))


def comparable(attribute: Attribute, value: Any, backend: str) -> Any:
    """A value as the database compares it with the attribute."""
    if attribute.kind in ("blob", "json"):
        raise RestrictionError(f"{attribute.name!r} is a {attribute.kind}, which cannot be compared.")
    try:
        return kinds.encode(attribute, value, backend)
    except (ValueError, TypeError, ArithmeticError):
        try:
            return kinds.literal(attribute, str(value))
        except (ValueError, TypeError, ArithmeticError) as error:
            raise RestrictionError(f"{value!r} does not fit {attribute.name!r}, which is {attribute.type}.") from error


def known_values(attributes: Mapping[str, Attribute], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a mapping says of these attributes. Blobs and JSON say nothing, unless they are asked for alone or for NULL."""
    known = {name: value for name, value in given.items() if name in attributes}
    if given and not known:
        raise RestrictionError(
            f"None of {', '.join(map(str, given))} is an attribute here; there are {', '.join(attributes)}."
        )
    return {
        name: value
        for name, value in known.items()
        if attributes[name].kind not in ("blob", "json") or value is None or len(known) == 1
    }


def _mapping(relation: Relation, given: Mapping[str, Any]) -> ColumnElement[bool]:
    backend = relation.connection.backend
    return and_(
        true(),
        *(
            compare(relation.attributes[name], relation.source.columns[name], value, backend)
            for name, value in known_values(relation.attributes, given).items()
        ),
    )


def _any_of(relation: Relation, items: Iterable[Any]) -> ColumnElement[bool]:
    """Rows that meet one of many restrictions. Mappings that name the same attributes become one condition, however many
    they are: each database has its limits to a chain of ORs."""
    backend = relation.connection.backend
    alike: dict[tuple[str, ...], dict[tuple[Any, ...], None]] = {}
    ways: list[ColumnElement[bool]] = []
    for item in items:
        given = item if isinstance(item, Mapping) else _record(item)
        known = None if given is None else known_values(relation.attributes, given)
        if not known or any(value is None or relation.attributes[n].kind == "float64" for n, value in known.items()):
            ways.append(condition(relation, item))
            continue
        values = tuple(comparable(relation.attributes[name], value, backend) for name, value in known.items())
        if any(isinstance(value, float) for value in values):  # 1.5 for a whole number, which no row can equal
            ways.append(condition(relation, item))
        else:
            alike.setdefault(tuple(known), {})[values] = None
    user_tables = relation.connection.db.dialect.user_tables
    for names, rows in alike.items():
        ways.append(user_tables.one_of([relation.source.columns[name] for name in names], list(rows)))
    if len(ways) > NESTED:
        return case(*((way, 1) for way in ways), else_=0) == 1
    return or_(false(), *ways)


def _record(value: Any) -> dict[str, Any] | None:
    names = getattr(getattr(value, "dtype", None), "names", None)
    if names and getattr(value, "ndim", 1) == 0:
        return {name: value[name] for name in names}
    return None


def _as_relation(value: Any) -> Any:
    return value() if isinstance(value, type) and hasattr(value, "attributes") else value
