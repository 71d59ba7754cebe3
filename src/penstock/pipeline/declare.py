"""From a decorated class to a table in the database, all or nothing."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

from penstock.pipeline.config import config
from penstock.pipeline.errors import DefinitionError
from penstock.pipeline.resolve import resolve
from penstock.pipeline.table import Lookup, Part, Table, TableMeta
from penstock.store.database import Tx
from penstock.store.pipeline import catalog
from penstock.store.pipeline.jobs import COLUMNS
from penstock.store.pipeline.shape import Shape

if TYPE_CHECKING:
    from penstock.pipeline.schema import Schema

logger = logging.getLogger("penstock.pipeline")
AUTO = ("imported", "computed")
JOB_COLUMNS = {attribute.name for attribute in COLUMNS}


class DefinitionChanged(UserWarning):
    """The class and the table in the database differ; the database rules until `alter()`."""


def declare(schema: Schema, cls: type[Table], context: Mapping[str, Any]) -> None:
    """Declare a class and its parts."""
    family = [cls, *parts_of(cls)]
    known = schema.known or schema.connection.look(lambda tx: catalog.shapes(tx, schema.name))
    schema.known = known
    wanted = wanted_shapes(schema, cls, context, known)
    if any(shape.name not in known for shape in wanted):
        _check_new(schema, wanted[0])
        schema.known = known = schema.connection.apart(lambda tx: _create(tx, schema.name, wanted))
    for member, shape in zip(family, wanted, strict=True):
        stored = known[shape.name]
        if stored != shape:
            warnings.warn(
                DefinitionChanged(
                    f"{shape.class_name} differs from the table in the database, which rules until you run "
                    f"{shape.class_name}.alter()."
                ),
                stacklevel=4,
            )
        bind(schema, member, stored)
    _warn_of_extra_key(known[wanted[0].name])
    if isinstance(cls, TableMeta) and issubclass(cls, Lookup):
        _fill(cls)


def bind(schema: Schema, cls: type[Table], shape: Shape) -> None:
    cls.schema, cls.shape, cls._sql = schema, shape, None
    schema.classes[cls.__qualname__.split(".<locals>.")[-1]] = cls
    schema.by_table[shape.name] = cls


def parts_of(cls: type[Table]) -> list[type[Part]]:
    """The part classes nested in a class, in the order of their declaration."""
    found = [value for value in vars(cls).values() if isinstance(value, type) and issubclass(value, Part)]
    for part in found:
        part.master = cls
    return found


def wanted_shapes(schema: Schema, cls: type[Table], context: Mapping[str, Any], known: Container[str]) -> list[Shape]:
    """What the class and its parts ask for, given the names of the tables that are there."""
    master = _shape_of(schema, cls, cls.tier, {**context}, None, known)
    scope = {**context, cls.__name__: master, "master": master}
    return [master, *(_shape_of(schema, part, cls.tier, scope, master, known) for part in parts_of(cls))]


def _shape_of(
    schema: Schema,
    cls: type[Table],
    tier: str,
    context: Mapping[str, Any],
    master: Shape | None,
    known: Container[str],
) -> Shape:
    definition = cls.definition
    if isinstance(definition, property):
        definition = definition.fget(cls) if definition.fget else None
    if not isinstance(definition, str):
        raise DefinitionError(cls.__name__, "a table class needs a `definition`, a string.")

    def find_parent(name: str) -> Shape:
        found: Any = context.get(name.split(".")[0], schema.classes.get(name.split(".")[0]))
        for part in name.split(".")[1:]:
            found = vars(found).get(part) if found is not None and not isinstance(found, Shape) else None
        if found is cls:
            raise ValueError(f"{name} refers to itself")
        if isinstance(found, Shape):
            return found
        if not (isinstance(found, TableMeta) and found.shape is not None):
            raise ValueError(f"the parent {name} is not declared; declare it with @schema before this table")
        if found.schema.connection is not schema.connection:
            raise ValueError(f"the parent {name} lives in another database")
        return found.shape

    shape = resolve(
        cls.__name__, definition, schema=schema.name, tier=tier, find_parent=find_parent,
        master=master.name if master else None, known=known,
    )  # fmt: skip
    if master is not None and not any(key.parent_table == master.name and key.in_key for key in shape.foreign_keys):
        raise DefinitionError(cls.__name__, "a part needs '-> master' in its primary key.")
    return shape


def _check_new(schema: Schema, shape: Shape) -> None:
    if shape.tier not in AUTO:
        return
    if not shape.job_key:
        raise DefinitionError(
            shape.class_name, "a computed table takes its key from other tables; expected '-> Parent' before '---'."
        )
    extra = [a.name for a in shape.attributes if a.in_key and not a.from_parent]
    if extra and not config["jobs.allow_new_pk_fields"]:
        raise DefinitionError(
            shape.class_name,
            f"the key of a computed table comes from its parents alone, but {', '.join(extra)} does not. Move it below "
            "'---', reference a lookup table, or set dj.config['jobs.allow_new_pk_fields'] = True.",
        )
    check_job_key(shape)
    namesake = shape.name.lstrip("_")
    for other in schema.known.values():
        if other.tier in AUTO and other.name != shape.name and not other.master and other.name.lstrip("_") == namesake:
            raise DefinitionError(shape.class_name, f"{other.name} would share the job table ~~{namesake} with it.")


def check_job_key(shape: Shape) -> None:
    """Raise if a key attribute has the name of one of the columns that every job table has."""
    if clash := [a.name for a in shape.job_key if a.name in JOB_COLUMNS]:
        raise DefinitionError(
            shape.class_name,
            f"its key attribute {clash[0]!r} has the name of a column of job tables. Rename it: "
            f"-> Parent.proj(other_name='{clash[0]}').",
        )


def _create(tx: Tx, schema: str, wanted: list[Shape]) -> dict[str, Shape]:
    catalog.lock(tx)
    catalog.ensure_schema(tx, schema)
    there = catalog.shapes(tx, schema)
    new = [shape for shape in wanted if shape.name not in there]
    catalog.create(tx, new)
    return {**there, **{shape.name: shape for shape in new}}


def _warn_of_extra_key(shape: Shape) -> None:
    if shape.tier in AUTO and len(shape.job_key) < len(shape.primary_key) and not config["jobs.allow_new_pk_fields"]:
        logger.warning(
            "%s has key attributes of its own: one job covers all rows that share (%s).",
            shape.full_name, ", ".join(a.name for a in shape.job_key),
        )  # fmt: skip


def _fill(cls: type[Lookup]) -> None:
    contents = list(cls().contents)
    if contents:
        table = cls()
        if len(table) < len(contents):
            table.insert(contents, skip_duplicates=True)
