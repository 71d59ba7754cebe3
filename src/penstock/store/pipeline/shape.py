"""What a declared table is, as plain values: enough to create it, to query it, and to remember it in the catalog."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute of a table or of a relation.

    `lineage` names the table and attribute in which a key attribute was born. It travels with foreign keys, and two
    attributes are matched by joins and restrictions only if name and lineage agree.
    """

    name: str
    kind: str
    args: tuple[Any, ...] = ()
    in_key: bool = False
    nullable: bool = False
    default: str | None = None
    comment: str = ""
    lineage: str | None = None
    from_parent: bool = False

    @property
    def type(self) -> str:
        """The type as the definition language writes it.

        >>> Attribute("name", "varchar", (12,)).type
        'varchar(12)'
        """
        if self.kind == "enum":
            return "enum(" + ", ".join("'" + str(item).replace("'", "''") + "'" for item in self.args) + ")"
        if self.kind == "blob":
            return "<blob>"
        return f"{self.kind}({','.join(map(str, self.args))})" if self.args else self.kind

    def renamed(self, name: str) -> Attribute:
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """`columns` of this table point at the primary key of a parent."""

    columns: tuple[str, ...]
    parent_schema: str
    parent_table: str
    parent_columns: tuple[str, ...]
    in_key: bool
    nullable: bool = False
    unique: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index."""

    columns: tuple[str, ...]
    unique: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """A table: where it lives, its attributes in order, and what binds it to others."""

    schema: str
    name: str
    tier: str
    attributes: tuple[Attribute, ...]
    foreign_keys: tuple[ForeignKey, ...] = ()
    indexes: tuple[Index, ...] = ()
    comment: str = ""
    master: str | None = None
    class_name: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def primary_key(self) -> tuple[str, ...]:
        return tuple(attribute.name for attribute in self.attributes if attribute.in_key)

    @property
    def job_key(self) -> tuple[Attribute, ...]:
        """The primary-key attributes that came through foreign keys: the identity of a job."""
        return tuple(attribute for attribute in self.attributes if attribute.in_key and attribute.from_parent)

    def attribute(self, name: str) -> Attribute:
        return next(attribute for attribute in self.attributes if attribute.name == name)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Shape:
        data: dict[str, Any] = json.loads(text)
        data["attributes"] = tuple(Attribute(**{**item, "args": tuple(item["args"])}) for item in data["attributes"])
        data["foreign_keys"] = tuple(ForeignKey(**_with_tuples(item)) for item in data["foreign_keys"])
        data["indexes"] = tuple(Index(**_with_tuples(item)) for item in data["indexes"])
        return cls(**data)


def _with_tuples(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in item.items()}
