"""`dj.Diagram`: a pipeline at a glance, as text, mermaid or SVG, with counts on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.pipeline import drawing
from penstock.pipeline.connection import Connection
from penstock.pipeline.drawing import Edge, Node
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.graph import Graph
from penstock.pipeline.schema import Schema
from penstock.pipeline.table import TableMeta
from penstock.store.database import Tx
from penstock.store.pipeline import physical, rows
from penstock.store.pipeline.jobs import JobStore
from penstock.store.pipeline.shape import Shape

AUTO = ("imported", "computed")


@dataclass(frozen=True, slots=True)
class _Picture:
    layers: list[list[Node]]
    edges: list[Edge]


class Diagram:
    """The tables of a schema, or a table with all it depends on and all that depends on it.

    `print(dj.Diagram(schema))`, `dj.Diagram(schema).mermaid()`, `dj.Diagram(schema).save("pipeline.svg")`;
    in a notebook it draws itself. `dj.Diagram(one) + dj.Diagram(other)` shows both.
    """

    def __init__(self, source: Any) -> None:
        self.connection: Connection
        self.wanted: set[str]
        if isinstance(source, Schema):
            self.connection = source.connection
            graph = source.graph()
            self.wanted = {name for name, shape in graph.shapes.items() if shape.schema == source.name}
        elif isinstance(source, TableMeta) or isinstance(type(source), TableMeta):
            cls: Any = source if isinstance(source, TableMeta) else type(source)
            shape: Shape = cls.declared_shape()
            self.connection = cls.schema.connection
            graph = cls.schema.graph()
            self.wanted = {item.full_name for item in [*graph.descendants(shape), *_ancestors(graph, shape)]}
        else:
            raise PipelineError(f"A diagram takes a schema or a table, not {source!r}.")

    def __add__(self, other: Diagram) -> Diagram:
        both = object.__new__(Diagram)
        both.connection, both.wanted = self.connection, self.wanted | other.wanted
        return both

    def text(self) -> str:
        """Layer by layer, each table with its parents and counts."""
        picture = self._picture()
        return drawing.as_text(picture.layers, picture.edges)

    def mermaid(self) -> str:
        """A mermaid flowchart, for Markdown."""
        picture = self._picture()
        return drawing.as_mermaid(picture.layers, picture.edges)

    def svg(self) -> str:
        """A drawing that stands by itself."""
        picture = self._picture()
        return drawing.as_svg(picture.layers, picture.edges)

    def save(self, path: str | Path) -> Path:
        """Write it as the ending of `path` says: .svg, .mmd or .txt."""
        target = Path(path)
        makers = {".svg": self.svg, ".mmd": self.mermaid, ".txt": self.text}
        if target.suffix not in makers:
            raise PipelineError(f"{target.name!r} should end in {', '.join(makers)}.")
        target.write_text(makers[target.suffix](), encoding="utf-8")
        return target

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        return self.svg()

    def _picture(self) -> _Picture:
        return self.connection.look(self._draw)

    def _draw(self, tx: Tx) -> _Picture:
        graph = Graph.load(tx)
        shown = Graph(shape for name, shape in graph.shapes.items() if name in self.wanted)
        one_schema = len({shape.schema for shape in shown.shapes.values()}) == 1
        layers = [[_node(tx, shape, one_schema) for shape in layer] for layer in shown.layers()]
        edges = [
            Edge(parent.full_name, shape.full_name, any(k.in_key and (k.parent_schema, k.parent_table) == (parent.schema, parent.name) for k in shape.foreign_keys))
            for shape in shown.shapes.values()
            for parent in shown.parents(shape)
        ]  # fmt: skip
        return _Picture(layers, edges)


def _node(tx: Tx, shape: Shape, one_schema: bool) -> Node:
    master = shape.master or ""
    name = f"{_camel(master)}.{shape.class_name}" if master else shape.class_name
    counts = rows.counts(tx.conn, [physical.table(tx.dialect.name, shape)])[0]
    jobs: dict[str, int] = {}
    if shape.tier in AUTO and not master and shape.job_key:
        store = JobStore(tx.dialect.name, shape)
        if store.is_there(tx):
            found = store.progress(tx)
            jobs = {status: found[status] for status in ("pending", "reserved", "error", "ignore") if found[status]}
    label = name if one_schema else f"{shape.schema}.{name}"
    return Node(shape.full_name, label, "part" if master else shape.tier, counts, jobs)


def _ancestors(graph: Graph, shape: Shape) -> list[Shape]:
    found: dict[str, Shape] = {}

    def visit(node: Shape) -> None:
        for parent in graph.parents(node):
            if parent.full_name not in found:
                found[parent.full_name] = parent
                visit(parent)

    visit(shape)
    return list(found.values())


def _camel(table_name: str) -> str:
    return "".join(word.capitalize() for word in table_name.lstrip("#_").split("_"))
