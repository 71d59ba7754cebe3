"""`dj.Schema`: a named set of tables in one database."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from penstock.pipeline import alter
from penstock.pipeline.config import config, database_url
from penstock.pipeline.connection import Connection, connection_to
from penstock.pipeline.declare import AUTO, bind, declare, wanted_shapes
from penstock.pipeline.errors import AccessError, PipelineError
from penstock.pipeline.graph import Graph
from penstock.pipeline.rows import TableRows
from penstock.pipeline.table import Lookup, Manual, Part, Table, TableMeta
from penstock.store.database import Tx
from penstock.store.pipeline import catalog, physical
from penstock.store.pipeline import jobs as job_statements
from penstock.store.pipeline.algebra import Source
from penstock.store.pipeline.shape import Shape

if TYPE_CHECKING:
    from penstock.pipeline.jobs import JobsTable

C = TypeVar("C", bound=type[Table])
RESERVED = {"public", "main", "temp", "information_schema"}


class Schema:
    """A decorator that declares table classes, and a handle on what it declared.

    `dj.Schema("lab")` lives where `dj.config["database.url"]` says; `dj.Schema("lab", app)` in the app's database.
    """

    def __init__(self, name: str, app: Any = None, *, context: Mapping[str, Any] | None = None) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,47}", name) or name in RESERVED or name.startswith(("pg_", "penstock")):
            raise PipelineError(
                f"{name!r} cannot name a schema: expected up to 48 lower-case letters, digits and '_', and not a name that "
                "the database or Penstock keeps for itself."
            )
        self.name = name
        self.connection: Connection = connection_to(app, database_url())
        self.classes: dict[str, type[Table]] = {}
        self.by_table: dict[str, type[Table]] = {}
        self.known: dict[str, Shape] = {}
        self._context = dict(context or {})
        self._contexts: dict[str, Mapping[str, Any]] = {}

    @property
    def database(self) -> str:
        return self.name

    @overload
    def __call__(self, cls: str) -> type[Table]: ...

    @overload
    def __call__(self, cls: C, *, context: Mapping[str, Any] | None = None) -> C: ...

    def __call__(self, cls: C | str, *, context: Mapping[str, Any] | None = None) -> C | type[Table]:
        """Declare a table class: create the table unless it is there, and bind the class to it. With the name of a
        table, answers its class."""
        if isinstance(cls, str):
            return self.table(cls)
        if not (isinstance(cls, TableMeta) and cls.tier and not issubclass(cls, Part)):
            raise PipelineError(
                f"@schema takes a class derived from Manual, Lookup, Imported or Computed, not {cls!r}. Parts are nested in "
                "their master's class."
            )
        caller = sys._getframe(1)
        scope = {**caller.f_globals, **caller.f_locals, **self._context, **(context or {})}
        self.known = {}
        declare(self, cls, scope)
        self._contexts[cls.__name__] = {**self._context, **(context or {}), **scope}
        return cls

    def list_tables(self) -> list[str]:
        """The tables in the database, in the order of their declaration; hidden ones are left out."""
        return list(self._shapes())

    def table(self, name: str) -> type[Table]:
        """The class of a table; made up from the catalog if no class was declared in this process."""
        if name not in self.by_table:
            shape = self._shapes().get(name)
            if shape is None:
                raise PipelineError(
                    f"There is no table {name!r} in {self.name}; there are {', '.join(self._shapes())}."
                )
            base = TIERS["part" if shape.master else shape.tier]
            made: Any = TableMeta(shape.class_name, (base,), {"__qualname__": shape.class_name})
            bind(self, made, shape)
        return self.by_table[name]

    def relation_of(self, schema: str, name: str) -> TableRows:
        """A table of this or another schema of the same database, as a relation."""
        if schema == self.name and name in self.by_table:
            return self.by_table[name]()
        shape = self.connection.look(lambda tx: catalog.shapes(tx, schema)).get(name)
        if shape is None:
            raise PipelineError(f"There is no table {schema}.{name}; was it dropped?")
        source = Source.of(physical.table(self.connection.backend, shape))
        return TableRows(self.connection, shape, source, frozenset((shape.full_name,)))

    @property
    def jobs(self) -> list[JobsTable]:
        """The job table of every auto-populated table, whether its class was declared here or not."""
        names = [shape.name for shape in self._shapes().values() if shape.tier in AUTO and not shape.master]
        return [self.table(name)().jobs for name in names]  # type: ignore[attr-defined]

    def graph(self) -> Graph:
        """Every table of the database and what it refers to."""
        return self.connection.look(Graph.load)

    def drop(self, *, prompt: bool | None = None) -> None:
        """Drop every table of the schema. Tables of other schemas that depend on them stand in the way."""
        if not _agreed(prompt, f"Drop the schema {self.name} with all its tables?"):
            return

        def run(tx: Tx) -> None:
            catalog.lock(tx)
            if not catalog.has_catalog(tx, self.name):
                return
            graph = Graph.load(tx)
            _refuse_strangers(tx, self.name)
            gone = [shape for level in graph.layers() for shape in level if shape.schema == self.name]
            _refuse_orphans(graph, gone)
            hidden = [
                name for name in catalog.table_names(tx, self.name) if name.startswith("~") and name != catalog.CATALOG
            ]
            catalog.drop(tx, reversed(gone))
            catalog.drop_schema(tx, self.name, hidden)

        self.connection.write(run)
        for cls in self.by_table.values():
            _unbind(cls)
        self.by_table, self.classes, self.known = {}, {}, {}

    def drop_table(self, cls: type[Table], *, cascade: bool, prompt: bool | None) -> None:
        """Drop one table, its parts and job table; what depends on it only with `cascade`."""
        shape = cls.declared_shape()
        if not _agreed(prompt, f"Drop {shape.full_name} with all its rows?"):
            return

        def run(tx: Tx) -> list[Shape]:
            catalog.lock(tx)
            graph = Graph.load(tx)
            gone = graph.descendants(graph.shapes.get(shape.full_name, shape))
            own = [item for item in gone if item.name == shape.name or item.master == shape.name]
            if not cascade:
                _refuse_orphans(graph, own)
                gone = own
            for item in gone:
                if item.tier in AUTO and not item.master:
                    job_statements.drop(tx, item)
            catalog.drop(tx, reversed(gone))
            return gone

        for item in self.connection.write(run):
            dropped = self.by_table.pop(item.name, None) if item.schema == self.name else None
            if dropped is not None:
                self.classes = {name: known for name, known in self.classes.items() if known is not dropped}
                _unbind(dropped)
        self.known = {}

    def alter_table(self, cls: type[Table]) -> None:
        shapes = wanted_shapes(self, cls, {**self._contexts.get(cls.__name__, {}), **self.classes}, self._shapes())
        members = [
            cls,
            *(part for part in vars(cls).values() if isinstance(part, TableMeta) and issubclass(part, Part)),
        ]

        def run(tx: Tx) -> None:
            catalog.lock(tx)
            known = catalog.shapes(tx, self.name)
            for shape in shapes:
                alter.alter(tx, Graph.load(tx), known.get(shape.name), shape)

        self.connection.write(run)
        for member, shape in zip(members, shapes, strict=True):
            bind(self, member, shape)
        self.known = {}

    def _shapes(self) -> dict[str, Shape]:
        return self.connection.look(lambda tx: catalog.shapes(tx, self.name))

    def __repr__(self) -> str:
        return f"Schema({self.name!r})\n" + "\n".join(self.list_tables())


TIERS: dict[str, type[Table]] = {"manual": Manual, "lookup": Lookup, "part": Part}
"""The base class of each tier; the auto-populated ones add themselves."""


def _unbind(cls: type[Table]) -> None:
    cls.shape, cls._sql, cls._job_state = None, None, None


def _refuse_orphans(graph: Graph, gone: list[Shape]) -> None:
    names = {shape.full_name for shape in gone}
    for shape in gone:
        for child, _ in graph.edges_into(shape):
            if child.full_name not in names:
                raise AccessError(
                    f"{child.full_name} depends on {shape.full_name}. Drop it first, or pass cascade=True to drop both."
                )


def _refuse_strangers(tx: Tx, schema: str) -> None:
    """Refuse to drop a schema that holds what no pipeline declared: a view, or a table of another program."""
    known = catalog.shapes(tx, schema)
    strangers = [name for name in catalog.relation_names(tx, schema) if name not in known and not name.startswith("~")]
    if strangers:
        raise AccessError(
            f"The schema {schema} also holds {', '.join(strangers)}, which no pipeline declared. Drop or move "
            f"{'it' if len(strangers) == 1 else 'them'} first; nothing was dropped."
        )


def _agreed(prompt: bool | None, question: str) -> bool:
    ask = config["safemode"] and sys.stdin is not None and sys.stdin.isatty() if prompt is None else prompt
    return not ask or input(f"{question} [yes, no] ").strip().lower() in ("y", "yes")
