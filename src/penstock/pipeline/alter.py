"""Bring a table in the database up to its definition."""

from __future__ import annotations

from penstock.pipeline.errors import DefinitionError
from penstock.pipeline.graph import Graph
from penstock.store.database import Tx
from penstock.store.pipeline import catalog, changes, jobs
from penstock.store.pipeline.shape import Attribute, Shape


def alter(tx: Tx, graph: Graph, old: Shape | None, new: Shape) -> None:
    """Change `old` into `new`, or raise and change nothing."""
    if old is None:
        catalog.create(tx, [new])
        return
    if old == new:
        return
    if _bones(old) != _bones(new):
        _remake(tx, graph, old, new)
    else:
        _change_columns(tx, old, new)
    catalog.remember(tx, new)


def _bones(shape: Shape) -> object:
    """What cannot be changed in place: the key and the references."""
    key = tuple((a.name, a.kind, a.args, a.from_parent) for a in shape.attributes if a.in_key)
    return key, frozenset(shape.foreign_keys)


def _remake(tx: Tx, graph: Graph, old: Shape, new: Shape) -> None:
    """A new key is a new table: only where no row and no other table holds on to the old one."""
    dependents = [child.full_name for child, _ in graph.edges_into(old) if child.full_name != old.full_name]
    if dependents:
        raise DefinitionError(new.class_name, f"its key cannot change while {', '.join(dependents)} depends on it.")
    if changes.has_rows(tx, old):
        raise DefinitionError(
            new.class_name, "its key or references cannot change while it holds rows. Delete them first, then alter()."
        )
    catalog.drop(tx, [old])
    catalog.create(tx, [new])
    if old.tier in ("imported", "computed") and not old.master:
        jobs.drop(tx, old)


def _change_columns(tx: Tx, old: Shape, new: Shape) -> None:
    before = {attribute.name: attribute for attribute in old.attributes}
    after = {attribute.name: attribute for attribute in new.attributes}
    for name, attribute in after.items():
        known = before.get(name)
        if known is not None and _column(known) != _column(attribute):
            raise DefinitionError(
                new.class_name, f"{name} cannot change from {known.type} to {attribute.type} in place. Add a new attribute "
                "and copy the values.",
            )  # fmt: skip
        if known is None and not attribute.nullable and attribute.default is None and changes.has_rows(tx, old):
            raise DefinitionError(
                new.class_name, f"the new attribute {name} needs a default, for the rows that are there."
            )
    changes.drop_indexes(tx, old)
    for name in before.keys() - after.keys():
        changes.drop_column(tx, old, name)
    for attribute in new.attributes:
        if attribute.name not in before:
            changes.add_column(tx, new, attribute)
    changes.create_indexes(tx, new)


def _column(attribute: Attribute) -> object:
    return attribute.kind, attribute.args, attribute.nullable
