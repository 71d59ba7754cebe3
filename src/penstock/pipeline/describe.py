"""A shape back to the definition language."""

from __future__ import annotations

from penstock.store.pipeline.shape import Attribute, ForeignKey, Shape


def describe(shape: Shape) -> str:
    """The definition that would declare this table again."""
    lines = [f"# {shape.comment}"] if shape.comment else []
    for in_key in (True, False):
        if not in_key:
            lines.append("---")
        covered: set[str] = set()
        for key in shape.foreign_keys:
            if key.in_key == in_key:
                lines.append(_reference(shape, key))
                covered |= set(key.columns)
        for attribute in shape.attributes:
            if attribute.in_key == in_key and attribute.name not in covered:
                lines.append(_attribute(attribute))
    implied = {key.columns for key in shape.foreign_keys}
    for index in shape.indexes:
        if index.columns not in implied:
            lines.append(f"{'unique ' if index.unique else ''}index({', '.join(index.columns)})")
    return "\n".join(lines) + "\n"


def _reference(shape: Shape, key: ForeignKey) -> str:
    options = [name for name, on in (("nullable", key.nullable), ("unique", key.unique)) if on]
    parent = "master" if key.parent_table == shape.master else _class_name(shape, key)
    renamed = [f"{near}='{far}'" for near, far in zip(key.columns, key.parent_columns, strict=True) if near != far]
    projection = f".proj({', '.join(renamed)})" if renamed else ""
    return f"-> {'[' + ', '.join(options) + '] ' if options else ''}{parent}{projection}"


def _class_name(shape: Shape, key: ForeignKey) -> str:
    parts = key.parent_table.lstrip("#_").split("__")
    camel = ".".join("".join(word.capitalize() for word in part.split("_")) for part in parts)
    return camel if key.parent_schema == shape.schema else f"{key.parent_schema}.{camel}"


def _attribute(attribute: Attribute) -> str:
    default = f" = {attribute.default}" if attribute.default is not None else ""
    comment = f"  # {attribute.comment}" if attribute.comment else ""
    return f"{attribute.name}{default} : {attribute.type}{comment}"
