"""Who depends on whom, from the catalogs of every schema in the database."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.store.database import Tx
from penstock.store.pipeline import catalog
from penstock.store.pipeline.shape import ForeignKey, Shape


class Graph:
    """All declared tables and their foreign keys."""

    def __init__(self, shapes: Iterable[Shape]) -> None:
        self.shapes = {shape.full_name: shape for shape in shapes}

    @classmethod
    def load(cls, tx: Tx) -> Graph:
        return cls(shape for schema in catalog.schemas(tx) for shape in catalog.shapes(tx, schema).values())

    def parents(self, shape: Shape) -> list[Shape]:
        names = dict.fromkeys(f"{key.parent_schema}.{key.parent_table}" for key in shape.foreign_keys)
        return [self.shapes[name] for name in names if name in self.shapes]

    def edges_into(self, shape: Shape) -> list[tuple[Shape, ForeignKey]]:
        """Children of a table, with the key by which each refers to it."""
        return [
            (child, key)
            for child in self.shapes.values()
            for key in child.foreign_keys
            if (key.parent_schema, key.parent_table) == (shape.schema, shape.name)
        ]

    def descendants(self, shape: Shape) -> list[Shape]:
        """The table and all that depend on it, parents before children."""
        seen: set[str] = set()
        ordered: list[Shape] = []

        def visit(node: Shape) -> None:
            if node.full_name in seen:
                return
            seen.add(node.full_name)
            for child, _ in self.edges_into(node):
                visit(child)
            ordered.append(node)

        visit(shape)
        return ordered[::-1]

    def layers(self) -> list[list[Shape]]:
        """Tables by depth: those without parents first."""
        depth: dict[str, int] = {}

        def measure(shape: Shape) -> int:
            name = shape.full_name
            if name not in depth:
                depth[name] = 1 + max((measure(parent) for parent in self.parents(shape)), default=-1)
            return depth[name]

        for shape in self.shapes.values():
            measure(shape)
        levels: list[list[Shape]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
        for name, level in depth.items():
            levels[level].append(self.shapes[name])
        return levels
