"""Relational algebra as values: a `Source` is a query that can still be restricted, projected, joined and grouped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import FromClause, Select, Table, and_, func, select, true
from sqlalchemy.sql import ColumnElement

Columns = Mapping[str, ColumnElement[Any]]


@dataclass(frozen=True, slots=True)
class Source:
    """FROM, the columns by name, and WHERE. Always embedded under a fresh alias before it meets another."""

    frm: FromClause
    columns: Columns
    where: tuple[ColumnElement[bool], ...] = ()
    distinct: bool = False

    @classmethod
    def of(cls, table: Table) -> Source:
        return _of(table)

    def restrict(self, condition: ColumnElement[bool]) -> Source:
        """Only the rows that meet `condition`. DISTINCT is taken after WHERE, so the order does not matter."""
        return replace(self, where=(*self.where, condition))

    def project(self, columns: Columns, *, distinct: bool = False) -> Source:
        base = self.embed() if self.distinct else self
        return replace(base, columns=dict(columns), distinct=distinct)

    def select(self, names: Iterable[str] | None = None) -> Select[Any]:
        wanted = self.columns if names is None else {name: self.columns[name] for name in names}
        query = (
            select(*(column.label(name) for name, column in wanted.items())).select_from(self.frm).where(*self.where)
        )
        return query.distinct() if self.distinct else query

    def embed(self) -> Source:
        """The same rows as a subquery of their own."""
        inner = self.select().subquery()
        return Source(inner, dict(inner.c))

    def exists(self, pairs: Iterable[tuple[ColumnElement[Any], str]]) -> ColumnElement[bool]:
        """Whether a row here agrees with the outer query's columns: a semijoin, and by NOT an antijoin."""
        matches = [outer == self.columns[name] for outer, name in pairs]
        query = select(1).select_from(self.frm).where(*self.where, *matches)
        return query.correlate_except(*_leaves(self.frm)).exists()

    def count(self) -> Select[Any]:
        if not self.distinct:
            return select(func.count()).select_from(self.frm).where(*self.where)
        return select(func.count()).select_from(self.select().subquery())


@lru_cache(maxsize=2048)
def _of(table: Table) -> Source:
    """One alias serves all: whatever meets another source is embedded under a name of its own first."""
    alias = table.alias()
    return Source(alias, dict(alias.c))


def join(left: Source, right: Source, on: Sequence[str], *, outer: bool = False) -> Source:
    """Rows of both that agree on the attributes `on`; with `outer`, also rows of `left` that meet none."""
    a, b = left.embed(), right.embed()
    condition = and_(true(), *(a.columns[name] == b.columns[name] for name in on))
    columns = {**{name: b.columns[name] for name in right.columns}, **{name: a.columns[name] for name in left.columns}}
    ordered = {name: columns[name] for name in [*left.columns, *(n for n in right.columns if n not in left.columns)]}
    return Source(a.frm.join(b.frm, condition, isouter=outer), ordered)


def group(source: Source, by: Columns, values: Columns) -> Source:
    """One row per value of `by`, with aggregates of the rest."""
    labels = {**by, **values}
    query = (
        select(*(column.label(name) for name, column in labels.items()))
        .select_from(source.frm).where(*source.where).group_by(*by.values())
    )  # fmt: skip
    inner = query.subquery()
    return Source(inner, dict(inner.c))


def top(source: Source, order: Sequence[ColumnElement[Any]], limit: int | None, offset: int | None) -> Source:
    """The first rows in an order, as a relation of their own."""
    inner = source.select().order_by(*order).limit(limit).offset(offset).subquery()
    return Source(inner, dict(inner.c))


def _leaves(frm: FromClause) -> list[FromClause]:
    """What stands in FROM: never to be taken for a reference to the outer query."""
    return [leaf for leaf in frm._from_objects if leaf is not frm] + [frm]
