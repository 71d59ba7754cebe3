"""A parsed definition and its parents become a shape: attributes inherited, keys bound, faults named by line."""

from __future__ import annotations

import re
from collections.abc import Callable, Container
from dataclasses import replace
from datetime import UTC, datetime

from penstock.pipeline.definition import AttributeLine, Definition, IndexLine, Line, ParentLine, parse
from penstock.pipeline.errors import DefinitionError
from penstock.pipeline.kinds import NOT_IN_KEYS, default_value, encode
from penstock.store.pipeline.shape import Attribute, ForeignKey, Index, Shape

PREFIX = {"manual": "", "lookup": "#", "imported": "_", "computed": "__"}
MAX_TABLE_NAME = 61  # two short of PostgreSQL's limit, for the `~~` of the job table
FindParent = Callable[[str], Shape]


def snake(class_name: str) -> str:
    """
    >>> snake("FilteredImage"), snake("KeyPK")
    ('filtered_image', 'key_p_k')
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


def _former_snake(class_name: str) -> str:
    """The name as Penstock formed it before it followed DataJoint: a run of capitals was one word."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", class_name).lower()


def table_name(class_name: str, tier: str, master: str | None = None, known: Container[str] = ()) -> str:
    """The table's name in the database. A table that is there (`known`) under its former name keeps it."""
    if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", class_name):
        raise DefinitionError(class_name, "a table class is named in CamelCase, for example FilteredImage.")
    prefix = f"{master}__" if master else PREFIX[tier]
    name, former = prefix + snake(class_name), prefix + _former_snake(class_name)
    if former in known and name not in known:
        name = former
    if len(name) > MAX_TABLE_NAME:
        raise DefinitionError(class_name, f"the table name {name!r} is longer than {MAX_TABLE_NAME} characters.")
    return name


def resolve(
    class_name: str,
    definition: str,
    *,
    schema: str,
    tier: str,
    find_parent: FindParent,
    master: str | None = None,
    known: Container[str] = (),
) -> Shape:
    """The shape of a table, or a `DefinitionError` that names the line."""
    parsed = parse(class_name, definition)
    name = table_name(class_name, tier, master, known)
    builder = _Builder(class_name, schema, name, find_parent)
    for line in parsed.lines:
        try:
            builder.add(line)
        except ValueError as error:
            raise DefinitionError(class_name, f"{error}.", line=line.number, text=line.text) from error
    attributes = _key_first(builder.attributes.values())
    return Shape(
        schema, name, tier, attributes, tuple(builder.foreign_keys), tuple(builder.indexes(parsed)),
        parsed.comment, master, class_name,
    )  # fmt: skip


def _key_first(attributes: object) -> tuple[Attribute, ...]:
    return tuple(sorted(attributes, key=lambda attribute: not attribute.in_key))  # type: ignore[call-overload]


class _Builder:
    def __init__(self, class_name: str, schema: str, name: str, find_parent: FindParent) -> None:
        self.class_name, self.schema, self.name, self.find_parent = class_name, schema, name, find_parent
        self.attributes: dict[str, Attribute] = {}
        self.foreign_keys: list[ForeignKey] = []

    def add(self, line: Line) -> None:
        match line:
            case AttributeLine():
                self._attribute(line)
            case ParentLine():
                self._parent(line)
            case _:
                pass  # indexes are resolved last, when every attribute is known

    def _attribute(self, line: AttributeLine) -> None:
        if line.name in self.attributes:
            raise ValueError(f"the attribute {line.name!r} is there already")
        if line.in_key and line.kind in NOT_IN_KEYS:
            raise ValueError(f"{line.kind} cannot be part of a primary key; move {line.name!r} below '---'")
        nullable = line.default is not None and line.default.lower() == "null"
        lineage = f"{self.schema}.{self.name}.{line.name}" if line.in_key else None
        made = Attribute(
            line.name, line.kind, line.args, line.in_key, nullable, line.default, line.comment, lineage
        )  # fmt: skip
        if line.default is not None:
            _check_default(made)
        self.attributes[line.name] = made

    def _parent(self, line: ParentLine) -> None:
        parent = self.find_parent(line.parent)
        if unknown := [old for old in line.renamed if old not in parent.primary_key]:
            raise ValueError(
                f"{unknown[0]!r} is not in the primary key of {line.parent}, which is ({', '.join(parent.primary_key)})"
            )
        near = []
        for attribute in parent.attributes:
            if attribute.in_key:
                near.append(self._inherit(attribute, line))
        self.foreign_keys.append(
            ForeignKey(
                tuple(near), parent.schema, parent.name, parent.primary_key, line.in_key, line.nullable, line.unique
            )
        )

    def _inherit(self, attribute: Attribute, line: ParentLine) -> str:
        name = line.renamed.get(attribute.name, attribute.name)
        inherited = replace(
            attribute, name=name, in_key=line.in_key, from_parent=True, default="null" if line.nullable else None,
            nullable=line.nullable, comment=attribute.comment,
        )  # fmt: skip
        known = self.attributes.get(name)
        if known is None:
            self.attributes[name] = inherited
        elif (known.kind, known.args) != (attribute.kind, attribute.args):
            raise ValueError(
                f"{name!r} is {known.type} here but {attribute.type} in {line.parent}; rename it with "
                f".proj(other_name='{attribute.name}')"
            )
        elif known.lineage != attribute.lineage:
            raise ValueError(
                f"{name!r} here and in {line.parent} mean different things ({known.lineage or 'declared here'}, "
                f"{attribute.lineage}); rename one with .proj(other_name='{attribute.name}')"
            )
        elif known.in_key and not known.from_parent:
            self.attributes[name] = replace(known, from_parent=True)
        return name

    def indexes(self, parsed: Definition) -> list[Index]:
        found = [Index(key.columns, True) for key in self.foreign_keys if key.unique]
        found += [Index(key.columns) for key in self.foreign_keys if not key.unique and self._needs_index(key)]
        for line in parsed.lines:
            if isinstance(line, IndexLine):
                if missing := [item for item in line.columns if item not in self.attributes]:
                    raise DefinitionError(
                        self.class_name, f"the index names {missing[0]!r}, which is no attribute of this table.",
                        line=line.number, text=line.text,
                    )  # fmt: skip
                found.append(Index(line.columns, line.unique))
        return list(dict.fromkeys(found))

    def _needs_index(self, key: ForeignKey) -> bool:
        """A delete in the parent looks for children: without an index, by reading the whole table."""
        primary = [attribute.name for attribute in self.attributes.values() if attribute.in_key]
        return list(key.columns) != primary[: len(key.columns)]


def _check_default(attribute: Attribute) -> None:
    try:
        value = default_value(attribute, lambda: datetime(2026, 1, 1, tzinfo=UTC))
        encode(attribute, value)
    except (ValueError, ArithmeticError) as error:
        raise ValueError(f"the default {attribute.default} does not fit {attribute.type}") from error
    if attribute.kind in ("blob", "json") and value is not None:
        raise ValueError(f"a {attribute.kind} can only default to null")
