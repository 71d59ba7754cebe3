"""Relations: restrict `&`, exclude `-`, join `*`, project, aggregate. A relation is a value; nothing runs until asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import not_

from penstock.pipeline.errors import QueryError
from penstock.pipeline.expressions import Expressions
from penstock.pipeline.fetch import Fetchable, Order
from penstock.pipeline.restrict import AndList, condition, shared
from penstock.store.pipeline import algebra
from penstock.store.pipeline.algebra import Source
from penstock.store.pipeline.shape import Attribute

if TYPE_CHECKING:
    from penstock.pipeline.connection import Connection


class Heading(Mapping[str, Attribute]):
    """The attributes of a relation by name."""

    def __init__(self, attributes: Mapping[str, Attribute]) -> None:
        self._attributes = attributes

    def __getitem__(self, name: str) -> Attribute:
        return self._attributes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    @property
    def names(self) -> list[str]:
        return list(self._attributes)

    @property
    def primary_key(self) -> list[str]:
        return [name for name, attribute in self._attributes.items() if attribute.in_key]

    @property
    def secondary_attributes(self) -> list[str]:
        return [name for name, attribute in self._attributes.items() if not attribute.in_key]

    def __repr__(self) -> str:
        lines = [f"{a.name:<20} : {a.type:<20} # {a.comment}" for a in self.values() if a.in_key]
        rest = [f"{a.name:<20} : {a.type:<20} # {a.comment}" for a in self.values() if not a.in_key]
        return "\n".join([*lines, "---", *rest])


class Relation(Fetchable):
    """A set of rows: a table, or what becomes of it."""

    def __init__(
        self,
        connection: Connection,
        attributes: Mapping[str, Attribute],
        source: Source,
        tables: frozenset[str],
        order: Order = None,
    ) -> None:
        self.connection = connection
        self.attributes = attributes
        self.source = source
        self.tables = tables
        self.order = order

    @property
    def heading(self) -> Heading:
        """The attributes, with types and comments."""
        return Heading(self.attributes)

    def fresh_source(self) -> Source:
        """The same rows under names of their own, so that a query may hold them twice."""
        return self.source.embed()

    def __and__(self, restriction: Any) -> Relation:
        if isinstance(restriction, Top):
            return restriction.of(self)
        return self._restricted(self.source.restrict(condition(self, restriction)), restriction)

    def __sub__(self, restriction: Any) -> Relation:
        return self._restricted(self.source.restrict(not_(condition(self, restriction))), restriction)

    def restrict(self, *restrictions: Any) -> Relation:
        """The rows that meet every one of the restrictions."""
        return self & AndList(restrictions) if restrictions else self

    def __contains__(self, key: Any) -> bool:
        return bool(self & key)

    def __mul__(self, other: Any) -> Relation:
        return self.join(other)

    def join(self, other: Any) -> Relation:
        """Every pair of rows that agree on the attributes the two share."""
        right = as_relation(other)
        on = shared(self, right)
        if clash := [name for name in self.attributes if name in right.attributes and name not in on]:
            raise QueryError(
                f"Both relations have an attribute {clash[0]!r} that does not mean the same; rename one with "
                f"proj(other_name='{clash[0]}'), or leave it out with proj()."
            )
        attributes = {**self.attributes}
        for name, attribute in right.attributes.items():
            mine = attributes.get(name)
            attributes[name] = replace(mine, in_key=mine.in_key or attribute.in_key) if mine else attribute
        source = algebra.join(self.source, right.source, on)
        return Relation(self.connection, attributes, source, self.tables | right.tables)

    def proj(self, *attrs: Any, **named: str) -> Relation:
        """The key and the attributes named; `...` keeps all, `'-name'` leaves one out, `new='old'` renames, and
        `new='a + b'` computes."""
        kept = dict.fromkeys(self.primary_key)
        attrs = tuple(attr.strip() if isinstance(attr, str) else attr for attr in attrs)
        dropped = {attr[1:].strip() for attr in attrs if isinstance(attr, str) and attr.startswith("-")}
        wanted = [attr for attr in attrs if attr is not ... and not str(attr).startswith("-")]
        for attr in wanted:
            kept.update(dict.fromkeys(self._expand(attr)))
        if ... in attrs:
            kept.update(dict.fromkeys(self.attributes))
        if bad := dropped - {name for name, a in self.attributes.items() if not a.in_key}:
            raise QueryError(f"proj() cannot leave out {sorted(bad)[0]!r}: it is no secondary attribute.")
        renamed = {old: new for new, old in named.items() if old in self.attributes}
        attributes, columns = {}, {}
        for name in kept:
            if name not in dropped:
                new = renamed.pop(name, name)
                attributes[new], columns[new] = self.attributes[name].renamed(new), self.source.columns[name]
        for old, new in renamed.items():
            attributes[new], columns[new] = self.attributes[old].renamed(new), self.source.columns[old]
        reader = Expressions(self.attributes, self.source.columns, self.connection.moments) if named else None
        for new, text in named.items():
            if text not in self.attributes and reader is not None:
                if new in attributes:
                    raise QueryError(f"proj() would give {new!r} twice.")
                attributes[new], columns[new] = reader.value(new, text)
        kept_order = self.order if all(attributes.get(n) == self.attributes[n] for n in self._ordered_by()) else None
        return Relation(self.connection, attributes, self.source.project(columns), self.tables, kept_order)

    def aggr(self, group: Any, *attrs: Any, keep_all_rows: bool = False, **named: str) -> Relation:
        """One row for each row here, with aggregates over the rows of `group` that belong to it:
        `Subject.aggr(Session, n='count(*)')`."""
        mine = self.proj(*attrs)
        theirs = as_relation(group)
        on = shared(mine, theirs)
        if not on:
            raise QueryError("aggr() takes a relation that shares a key attribute with this one.")
        slim = theirs.proj(*(name for name in theirs.attributes if name in on or name not in mine.attributes))
        joined = algebra.join(mine.source, slim.source, on, outer=keep_all_rows)
        attributes = dict(mine.attributes)
        reader = Expressions({**slim.attributes, **mine.attributes}, joined.columns, self.connection.moments)
        values = {}
        for name, text in named.items():
            if name in attributes:
                raise QueryError(f"aggr() would give {name!r} twice.")
            attributes[name], values[name] = reader.value(name, text, aggregates=True)
        by = {name: joined.columns[name] for name in mine.attributes}
        return Relation(self.connection, attributes, algebra.group(joined, by, values), self.tables | theirs.tables)

    def _restricted(self, source: Source, restriction: Any) -> Relation:
        return Relation(self.connection, self.attributes, source, self.tables | tables_of(restriction), self.order)


class Top:
    """The first rows in an order, as a restriction: `Table & dj.Top(3, order_by='score DESC')`.

    The rows come in that order until another is asked for. With `order_by=None` it keeps the order of an earlier `Top`;
    with `limit=None` it only orders.
    """

    def __init__(self, limit: int | None = 1, order_by: Order = "KEY", offset: int = 0) -> None:
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise TypeError(f"Top takes a whole number from 0 or None as its limit, not {limit!r}.")
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise TypeError(f"Top takes a whole number from 0 as its offset, not {offset!r}.")
        listed = (order_by,) if order_by is None or isinstance(order_by, str) else order_by
        if not isinstance(listed, Sequence) or not all(item is None or isinstance(item, str) for item in listed):
            raise TypeError(f"Top takes text or a list of texts as its order_by, not {order_by!r}.")
        self.limit, self.order_by, self.offset = limit, order_by, offset

    def of(self, relation: Relation) -> Relation:
        order = self.order_by or relation.order or "KEY"
        source = algebra.top(relation.source, relation.ordering(order), self.limit, self.offset)
        return Relation(relation.connection, relation.attributes, source, relation.tables, order)


def as_relation(value: Any) -> Relation:
    """A table class or a relation, as a relation."""
    if isinstance(value, type) and issubclass(value, Relation):
        value = value()  # type: ignore[call-arg]
    if not isinstance(value, Relation):
        raise QueryError(f"Expected a table or a relation, not {value!r}.")
    return value


def tables_of(item: Any) -> frozenset[str]:
    """The tables that a restriction reads."""
    if isinstance(item, type) and issubclass(item, Relation):
        item = item()  # type: ignore[call-arg]
    if isinstance(item, Relation):
        return item.tables
    if isinstance(item, list | tuple | set):
        return frozenset().union(*(tables_of(each) for each in item))
    return frozenset()
