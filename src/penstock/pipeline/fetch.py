"""Getting rows out of a relation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy.sql import ColumnElement

from penstock.pipeline import extras, kinds, show
from penstock.pipeline.errors import QueryError
from penstock.store.pipeline.algebra import Source
from penstock.store.pipeline.shape import Attribute

if TYPE_CHECKING:
    from penstock.pipeline.connection import Connection

Order = str | Sequence[str] | None


class Fetchable:
    """What every relation can be asked for."""

    connection: Connection
    attributes: Mapping[str, Attribute]
    source: Source
    tables: frozenset[str]
    order: Order = None
    """The order that a `Top` gave the rows."""

    def fetch(
        self,
        *attrs: str,
        as_dict: bool | None = None,
        order_by: Order = None,
        limit: int | None = None,
        offset: int | None = None,
        format: str | None = None,
    ) -> Any:
        """Rows as a list of dicts; `fetch("KEY")` the keys alone; `fetch("a", "b")` one numpy array per attribute."""  # fmt: skip
        if format == "frame":
            return self.to_pandas(order_by=order_by, limit=limit, offset=offset)
        if not attrs:
            return self._dicts(list(self.attributes), order_by, limit, offset)
        names = list(dict.fromkeys(name for attr in attrs for name in self._expand(attr)))
        found = self._dicts(names, order_by, limit, offset)
        if as_dict:
            return found
        columns = [self._as_array(found, attr) for attr in attrs]
        return columns[0] if len(columns) == 1 else tuple(columns)

    def fetch1(self, *attrs: str) -> Any:
        """The one row there is, as a dict, or its attributes asked for. Any other number of rows raises."""
        names = list(dict.fromkeys(name for attr in attrs for name in self._expand(attr))) or list(self.attributes)
        found = self._dicts(names, None, 2, None)
        if len(found) != 1:
            raise QueryError(f"fetch1() expects exactly one row; there {'are several' if found else 'is none'}.")
        row = found[0]
        if not attrs:
            return row
        values = [{name: row[name] for name in self.primary_key} if attr == "KEY" else row[attr] for attr in attrs]
        return values[0] if len(values) == 1 else tuple(values)

    def keys(
        self, *, order_by: Order = None, limit: int | None = None, offset: int | None = None
    ) -> list[dict[str, Any]]:
        """The primary keys, one dict each."""
        return self._dicts(list(self.primary_key), order_by, limit, offset)

    def to_dicts(
        self, *, order_by: Order = None, limit: int | None = None, offset: int | None = None
    ) -> list[dict[str, Any]]:
        """The rows, one dict each."""
        return self._dicts(list(self.attributes), order_by, limit, offset)

    def to_arrays(self, *attrs: str, order_by: Order = None, limit: int | None = None) -> Any:
        """One numpy array per attribute."""
        return self.fetch(*(attrs or tuple(self.attributes)), order_by=order_by, limit=limit)

    def to_pandas(self, *, order_by: Order = None, limit: int | None = None, offset: int | None = None) -> Any:
        """The rows as a DataFrame indexed by the primary key."""
        pandas = extras.pandas("to_pandas()")
        frame = pandas.DataFrame(
            self._dicts(list(self.attributes), order_by, limit, offset), columns=list(self.attributes)
        )
        return frame.set_index(list(self.primary_key)) if self.primary_key else frame

    def head(self, limit: int = 25) -> list[dict[str, Any]]:
        """The first rows by key."""
        return self._dicts(list(self.attributes), None, limit, None)

    @property
    def primary_key(self) -> list[str]:
        """The names of the key attributes."""
        return [attribute.name for attribute in self.attributes.values() if attribute.in_key]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._dicts(list(self.attributes), None, None, None))

    def __len__(self) -> int:
        statement = self.source.count()
        return int(self.connection.read(lambda conn: conn.execute(statement).scalar_one(), self.tables))

    def __bool__(self) -> bool:
        statement = self.source.select(list(self.attributes)[:1]).limit(1)
        return self.connection.read(lambda conn: conn.execute(statement).first(), self.tables) is not None

    def __repr__(self) -> str:
        return show.as_text(self)

    def _repr_html_(self) -> str:
        return show.as_html(self)

    def _rows(self, names: list[str], order_by: Order, limit: int | None, offset: int | None) -> Sequence[Any]:
        statement = self.source.select(names)
        order_by = self.order if order_by is None else order_by
        if order_by is not None:
            statement = statement.order_by(*self.ordering(order_by))
        elif limit is not None or offset is not None:
            statement = statement.order_by(*self.ordering("KEY"))
        for what, number in (("limit", limit), ("offset", offset)):
            if number is not None and (not isinstance(number, int) or number < 0):
                raise QueryError(f"{what} takes a whole number from 0, not {number!r}.")
        statement = statement.limit(limit).offset(offset)
        return self.connection.read(lambda conn: conn.execute(statement).all(), self.tables)

    def _dicts(self, names: list[str], order_by: Order, limit: int | None, offset: int | None) -> list[dict[str, Any]]:
        found = self._rows(names, order_by, limit, offset)
        blobs = [at for at, name in enumerate(names) if self.attributes[name].kind == "blob"]
        if not blobs:
            return [dict(zip(names, row, strict=True)) for row in found]
        return [
            {name: kinds.decode(self.attributes[name].kind, value) for name, value in zip(names, row, strict=True)}
            for row in found
        ]

    def ordering(self, order_by: str | Sequence[str]) -> list[ColumnElement[Any]]:
        """`'priority ASC, scheduled_time DESC'`, a list of such, or `KEY`. NULL comes first, as in the seeds' MySQL."""
        items = order_by.split(",") if isinstance(order_by, str) else list(order_by)
        made: list[ColumnElement[Any]] = []
        for item in items:
            name, _, direction = item.strip().strip("`").partition(" ")
            direction = direction.strip().lower()
            if direction not in ("", "asc", "desc"):
                raise QueryError(f"{item.strip()!r} is no order; expected an attribute, and ASC or DESC after it.")
            for found in self._expand(name):
                column = self.source.columns[found]
                made.append(self._ordered(self.attributes[found], column, direction == "desc"))
        return made

    def _ordered_by(self) -> list[str]:
        """The names of the attributes that `order` names."""
        items = self.order.split(",") if isinstance(self.order, str) else list(self.order or ())
        return [name for item in items for name in self._expand(item.strip().strip("`").partition(" ")[0])]

    def _ordered(self, attribute: Attribute, column: ColumnElement[Any], down: bool) -> ColumnElement[Any]:
        ordered = column.desc() if down else column.asc()
        if not attribute.nullable:
            return ordered
        return ordered.nulls_last() if down else ordered.nulls_first()

    def _expand(self, name: str) -> list[str]:
        if name == "KEY":
            return list(self.primary_key)
        if name not in self.attributes:
            raise QueryError(f"There is no attribute {name!r}; there are {', '.join(self.attributes)}.")
        return [name]

    def _as_array(self, found: list[dict[str, Any]], attr: str) -> Any:
        if attr == "KEY":
            return [{name: row[name] for name in self.primary_key} for row in found]
        np = extras.numpy("Fetching an attribute as an array")
        values = [row[attr] for row in found]
        kind = self.attributes[attr].kind
        if kind in kinds.INTEGERS or kind in ("float64", "bool"):
            if all(value is not None for value in values):
                return np.array(values, dtype={"float64": "f8", "bool": "?", "uint64": "u8"}.get(kind, "i8"))
            if kind == "float64":
                return np.array([float("nan") if value is None else value for value in values])
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return array
