"""Tables: the four tiers and their parts. Class and instance answer alike: `Subject & key` and `Subject() & key`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from sqlalchemy import Table as SqlTable

from penstock.pipeline.connection import Connection
from penstock.pipeline.describe import describe
from penstock.pipeline.encode import encode_rows, encode_some
from penstock.pipeline.errors import AccessError, PipelineError, QueryError
from penstock.pipeline.make import Pending
from penstock.pipeline.point import at
from penstock.pipeline.relation import Relation
from penstock.pipeline.rows import TableRows
from penstock.store.database import Tx
from penstock.store.pipeline import physical, rows
from penstock.store.pipeline.algebra import Source
from penstock.store.pipeline.shape import Attribute, Shape

if TYPE_CHECKING:
    from penstock.pipeline.schema import Schema

FORWARDED = frozenset(
    [
        "connection",
        "heading",
        "attributes",
        "primary_key",
        "source",
        "tables",
        "full_table_name",
        "fetch",
        "fetch1",
        "keys",
        "to_dicts",
        "to_pandas",
        "to_arrays",
        "head",
        "proj",
        "aggr",
        "join",
        "restrict",
        "insert",
        "insert1",
        "update1",
        "delete",
        "delete_quick",
        "delete_preview",
        "drop",
        "drop_quick",
        "alter",
        "describe",
        "populate",
        "progress",
        "jobs",
        "key_source",
        "parents",
        "children",
        "is_declared",
        "_repr_html_",
    ]
)
"""What a class answers by asking an instance of itself."""


class TableMeta(type):
    """Lets a table class stand for its rows."""

    shape: Shape | None

    def __getattribute__(cls, name: str) -> Any:
        if name in FORWARDED:
            if type.__getattribute__(cls, "shape") is not None:
                return getattr(cls(), name)
            if isinstance(type.__getattribute__(cls, "definition"), str):
                cls.declared_shape()
        return super().__getattribute__(name)

    @property
    def table_name(cls) -> str:
        """The table's name in the database."""
        return cls.declared_shape().name

    @property
    def database(cls) -> str:
        return cls.declared_shape().schema

    def declared_shape(cls) -> Shape:
        if cls.shape is None:
            raise PipelineError(f"{cls.__name__} is not declared yet: decorate it with @schema.")
        return cls.shape

    def __and__(cls, restriction: Any) -> Any:
        return cls() & restriction

    def __sub__(cls, restriction: Any) -> Any:
        return cls() - restriction

    def __mul__(cls, other: Any) -> Any:
        return cls() * other

    def __contains__(cls, key: Any) -> bool:
        return key in cls()

    def __len__(cls) -> int:
        return len(cls())

    def __iter__(cls) -> Any:
        return iter(cls())

    def __bool__(cls) -> bool:
        return True if cls.shape is None else bool(cls())

    def __repr__(cls) -> str:
        return super().__repr__() if cls.shape is None else repr(cls())


class Table(TableRows, metaclass=TableMeta):
    """Base of every table class. Declare one with a tier, a `definition`, and `@schema`."""

    definition: ClassVar[Any] = None
    tier: ClassVar[str] = ""
    shape: ClassVar[Any] = None
    schema: ClassVar[Schema | None] = None
    _sql: ClassVar[SqlTable | None] = None
    _job_state: ClassVar[Any] = None
    _names: ClassVar[frozenset[str]]
    _attributes: ClassVar[dict[str, Attribute]]

    def __init__(self) -> None:
        # By way of the instance, here and below: what is asked of the class passes through __getattribute__ above.
        schema = self.schema
        if self._sql is None or schema is None:
            schema = self._get_ready()
        connection: Connection = schema.connection
        self.connection = connection
        self.tables = self._names
        self.base = self.shape

    @classmethod
    def _get_ready(cls) -> Schema:
        shape, schema = cls.declared_shape(), cls.schema
        assert schema is not None
        cls._names = frozenset((shape.full_name,))
        cls._attributes = {attribute.name: attribute for attribute in shape.attributes}
        cls._sql = physical.table(schema.connection.backend, shape)
        return schema

    @property
    def attributes(self) -> dict[str, Attribute]:  # type: ignore[override]
        return self._attributes

    @cached_property
    def source(self) -> Source:  # type: ignore[override]
        """The table under a name of its own; made when asked for, since an insert does not ask."""
        assert self._sql is not None
        return Source.of(self._sql)

    def __and__(self, restriction: Any) -> Relation:
        if isinstance(restriction, Mapping) and self._sql is not None:
            point = at(self, self._sql, restriction)
            if point is not None:
                return point
        return super().__and__(restriction)

    @property
    def table_name(self) -> str:
        """The table's name in the database, with the mark of its tier: `__filtered_image`."""
        return type(self).declared_shape().name

    @property
    def database(self) -> str:
        """The schema's name."""
        return type(self).declared_shape().schema

    @property
    def full_table_name(self) -> str:
        """Schema and name."""
        return type(self).declared_shape().full_name

    @property
    def is_declared(self) -> bool:
        """Whether the table is in the database."""
        return type(self).shape is not None

    def insert1(self, row: Any, **options: Any) -> None:
        """Insert one row; takes the options of `insert`."""
        self.insert((row,), **options)

    def insert(
        self,
        rows: Any,
        *,
        replace: bool = False,
        skip_duplicates: bool = False,
        ignore_extra_fields: bool = False,
        allow_direct_insert: bool = False,
    ) -> None:
        """Insert rows: mappings, sequences in the order of the attributes, a numpy record array, a DataFrame or a
        relation. All of them go in, or none."""  # fmt: skip
        shape: Shape = self.shape or type(self).declared_shape()
        self._admit_insert(shape, allow_direct_insert)
        given = rows() if isinstance(rows, type) and issubclass(rows, TableRows) else rows  # type: ignore[call-arg]
        encoded = encode_rows(
            shape, given, self.connection.backend, self._now, ignore_extra_fields=ignore_extra_fields
        )  # fmt: skip
        if not encoded:
            return
        sql = self._sql
        assert sql is not None
        pending = Pending(shape, sql, encoded, skip_duplicates, replace)
        scope = self.connection.scope
        if scope is not None and not self.connection.in_transaction:
            scope.insert(pending, scope.key)
        else:
            self.connection.write(lambda tx: _insert(tx, pending))

    def update1(self, row: Mapping[str, Any]) -> None:
        """Change secondary attributes of the one row with this key."""
        shape = type(self).declared_shape()
        missing = [name for name in shape.primary_key if name not in row]
        if missing:
            raise QueryError(f"update1() needs the whole key; {missing[0]!r} is missing.")
        encoded = encode_some(shape, row, self.connection.backend)
        key = {name: encoded[name] for name in shape.primary_key}
        values = {name: value for name, value in encoded.items() if name not in key}
        if not values:
            raise QueryError("update1() needs an attribute to change besides the key.")
        if shape.tier in ("imported", "computed") or shape.master:
            self._admit_insert(shape, self.connection.scope is None)
        sql = type(self)._sql
        assert sql is not None
        table = sql
        if self.connection.write(lambda tx: rows.update_row(tx, table, key, values)) != 1:
            raise QueryError(f"update1() expects one row with the key {key}; there is none.")

    def describe(self) -> str:
        """The definition as the database has it; `print(Subject.describe())`."""
        return describe(type(self).declared_shape())

    def drop(self, *, cascade: bool = False, prompt: bool | None = None) -> None:
        """Drop the table with its parts and its job table. Others that depend on it go only with `cascade=True`."""
        schema = type(self).schema
        assert schema is not None
        schema.drop_table(type(self), cascade=cascade, prompt=prompt)

    def drop_quick(self) -> None:
        """Drop without asking."""
        self.drop(prompt=False)

    def alter(self) -> None:
        """Bring the table in the database up to the class's definition: attributes added and dropped, indexes, comments.
        A changed key needs an empty table; its job table is dropped and comes back by itself."""
        schema = type(self).schema
        assert schema is not None
        schema.alter_table(type(self))

    def parents(self) -> list[str]:
        """The tables this one refers to."""
        keys = type(self).declared_shape().foreign_keys
        return list(dict.fromkeys(f"{key.parent_schema}.{key.parent_table}" for key in keys))

    def children(self) -> list[str]:
        """The tables that refer to this one."""
        schema = type(self).schema
        assert schema is not None
        return list(
            dict.fromkeys(child.full_name for child, _ in schema.graph().edges_into(type(self).declared_shape()))
        )

    def _now(self) -> datetime:
        return self.connection.moments.value()

    def _admit_insert(self, shape: Shape, allowed: bool) -> None:
        computed = shape.tier in ("imported", "computed")
        scope = self.connection.scope
        if not computed or allowed or (scope is not None and scope.admits(shape)):
            return
        raise AccessError(
            f"{shape.class_name} fills itself: rows go in from its own make(), called by populate(). "
            "Pass allow_direct_insert=True if you must."
        )


def _insert(tx: Tx, pending: Pending) -> None:
    rows.insert_rows(tx, pending.table, pending.rows, skip_duplicates=pending.skip_duplicates, replace=pending.replace)


class Manual(Table):
    """Filled by hand or by other programs."""

    tier = "manual"


class Lookup(Table):
    """Small and known beforehand: the rows in `contents` are there once the class is declared."""

    tier = "lookup"
    contents: ClassVar[Iterable[Any]] = ()


class Part(Table):
    """Rows that belong to a master row, written and deleted with it; nested in the master's class, with `-> master`."""

    tier = "part"
    master: ClassVar[Any] = None
