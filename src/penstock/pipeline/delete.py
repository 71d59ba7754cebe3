"""Delete with everything that depends on it: one transaction, children first, and a preview before."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from sqlalchemy import or_
from sqlalchemy.sql import ColumnElement

from penstock.pipeline.config import config
from penstock.pipeline.errors import AccessError
from penstock.pipeline.graph import Graph
from penstock.store.database import Tx
from penstock.store.pipeline import physical, rows
from penstock.store.pipeline.algebra import Source
from penstock.store.pipeline.shape import Shape

if TYPE_CHECKING:
    from penstock.pipeline.relation import Relation

Plan = list[tuple[Shape, Source]]


def preview(relation: Relation, base: Shape) -> dict[str, int]:
    """How many rows of which tables would go, children last. Changes nothing."""

    def count(tx: Tx) -> dict[str, int]:
        found = {shape.full_name: int(tx.scalar(source.count())) for shape, source in _plan(tx, relation, base)}
        return {name: number for name, number in found.items() if number}

    return relation.connection.look(count)


def cascade(relation: Relation, base: Shape, *, prompt: bool | None, force_parts: bool) -> int:
    """Delete the rows and all that depend on them; answers how many of the relation's own rows went."""
    if base.master is not None and not force_parts:
        raise AccessError(f"{base.class_name} is a part: delete from its master, or pass force_parts=True.")
    ask = config["safemode"] and sys.stdin is not None and sys.stdin.isatty() if prompt is None else prompt
    if ask:
        gone = preview(relation, base)
        listed = "\n".join(f"  {name}: {number}" for name, number in gone.items()) or "  nothing"
        if input(f"This would delete:\n{listed}\nProceed? [yes, no] ").strip().lower() not in ("y", "yes"):
            return 0

    def run(tx: Tx) -> int:
        plan = _plan(tx, relation, base)
        _keep_parts_whole(tx, plan, force_parts)
        if relation.tables == {base.full_name}:
            gone = 0
            for shape, source in reversed(plan):
                table = physical.table(tx.dialect.name, shape)
                gone = rows.delete_matching(tx, table, shape.primary_key, source.select(shape.primary_key))
            return gone
        # A restriction by a child would mean something else once the child's rows are gone: settle the keys first.
        settled = [(shape, tx.rows(source.select(shape.primary_key))) for shape, source in plan]
        for shape, keys in reversed(settled):
            rows.delete_keys(tx, physical.table(tx.dialect.name, shape), shape.primary_key, keys)
        return len(settled[0][1])

    return relation.connection.write(run)


def quick(relation: Relation, base: Shape) -> int:
    """Delete just these rows."""

    def run(tx: Tx) -> int:
        table = physical.table(tx.dialect.name, base)
        return rows.delete_matching(tx, table, base.primary_key, relation.source.select(base.primary_key))

    return relation.connection.write(run)


def _plan(tx: Tx, relation: Relation, base: Shape) -> Plan:
    """What goes from each table, parents before children. A child's rows go if they refer to a row that goes."""
    graph = Graph.load(tx)
    chosen: dict[str, Source] = {base.full_name: relation.source}
    plan: Plan = [(base, relation.source)]
    for shape in graph.descendants(base)[1:]:
        source = Source.of(physical.table(tx.dialect.name, shape))
        ways: list[ColumnElement[bool]] = []
        for key in shape.foreign_keys:
            parent = chosen.get(f"{key.parent_schema}.{key.parent_table}")
            if parent is not None:
                pairs = zip(key.columns, key.parent_columns, strict=True)
                ways.append(parent.embed().exists([(source.columns[near], far) for near, far in pairs]))
        chosen[shape.full_name] = source.restrict(or_(*ways))
        plan.append((shape, chosen[shape.full_name]))
    return plan


def _keep_parts_whole(tx: Tx, plan: Plan, force_parts: bool) -> None:
    """A master without some of its parts would be a result that nobody computed."""
    if force_parts:
        return
    reached = {shape.full_name for shape, _ in plan}
    for shape, source in plan:
        if shape.master and f"{shape.schema}.{shape.master}" not in reached and tx.first(source.select().limit(1)):
            raise AccessError(
                f"This would delete rows of the part {shape.full_name} but not of its master {shape.schema}.{shape.master}. "
                "Delete from the master first, or pass force_parts=True."
            )
