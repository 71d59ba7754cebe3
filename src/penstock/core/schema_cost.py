"""How much work a JSON Schema may cost, told before anything is validated.

A schema applies several of its parts to the same value (`anyOf`, `allOf`, `$ref` …), and through recursion the number of
parts can double with each level of the value. `Cost.per_path` counts the parts that may be applied along one path from the
root of a value to a leaf. A value of n parts is therefore validated in at most `n * per_path(depth)` steps, whatever it
holds, and that product is what callers bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.core.errors import InvalidInput

MAX_REFERENCES_IN_PLACE = 64
"""How many references may lead to each other without a step into the value."""

TOO_MUCH = 10**12
"""Costs are counted up to here; nothing near it is ever accepted."""

_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
_IN_PLACE = ("not", "if", "then", "else")
_CHILDREN = ("items", "additionalItems", "contains", "additionalProperties", "propertyNames")
_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")


class Cost:
    """Counts what a schema may cost for values of a given depth.

    >>> Cost({"anyOf": [{"type": "string"}, {"type": "null"}]}).per_path(0)
    3
    """

    def __init__(self, schema: Any) -> None:
        self._root = schema
        self._named = {anchor: node for node in _every(schema) for anchor in _anchors(node)}
        self._known: dict[tuple[int, int], int] = {}

    def per_path(self, depth: int) -> int:
        """Return how many parts of the schema may be applied along one path of a value that is `depth` levels deep."""
        try:
            return self._of(self._root, depth, 0)
        except RecursionError:
            return TOO_MUCH

    def _of(self, schema: Any, depth: int, references: int) -> int:
        if not isinstance(schema, dict):
            return 1
        key = (id(schema), depth)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = min(TOO_MUCH, self._count(schema, depth, references))
        return known

    def _count(self, schema: dict[str, Any], depth: int, references: int) -> int:
        here = 1 + _compared(schema) + sum(self._of(part, depth, references) for part in _in_place(schema))
        for name in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(target := schema.get(name), str):
                if references >= MAX_REFERENCES_IN_PLACE:
                    raise InvalidInput(
                        f"arg_schema has references that lead in a circle, or more than {MAX_REFERENCES_IN_PLACE} in a row."
                    )
                here += self._of(self._followed(target), depth, references + 1)
        if any(name in schema for name in _UNEVALUATED):
            here *= 2  # what was evaluated is found out by evaluating it again
        return here + (self._of_children(schema, depth - 1) if depth else 0)

    def _of_children(self, schema: dict[str, Any], depth: int) -> int:
        """A child meets one property's schema by name, and every pattern and catch-all besides."""
        named = [self._of(part, depth, 0) for part in _values(schema, "properties")]
        placed = [self._of(part, depth, 0) for part in _listed(schema, "prefixItems") + _listed(schema, "items")]
        others = [self._of(part, depth, 0) for part in _values(schema, "patternProperties")]
        others += [self._of(schema[name], depth, 0) for name in (*_CHILDREN, *_UNEVALUATED) if name in schema]
        return max(named, default=0) + max(placed, default=0) + sum(others)

    def _followed(self, reference: str) -> Any:
        if reference in self._named:
            return self._named[reference]
        node = self._root
        for step in reference.removeprefix("#").split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(node, dict) and name in node:
                node = node[name]
            elif isinstance(node, list) and name.isdigit() and int(name) < len(node):
                node = node[int(name)]
            else:
                return True  # the validator itself refuses a reference that leads nowhere
        return node


def size_of(value: Any) -> tuple[int, int]:
    """Return how many parts a JSON value has, and how deep it is."""
    parts, depth, level = 0, -1, [value]
    while level:
        parts += len(level)
        depth += 1
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
            elif isinstance(each, list | tuple):
                below.extend(each)
        level = below
    return parts, depth


def _in_place(schema: dict[str, Any]) -> Iterator[Any]:
    for name in _IN_PLACE_LISTS:
        yield from _listed(schema, name)
    for name in _IN_PLACE:
        if name in schema:
            yield schema[name]
    yield from _values(schema, "dependentSchemas")
    yield from _values(schema, "dependencies")


def _compared(schema: dict[str, Any]) -> int:
    """What `enum` and `const` compare a value with, part by part."""
    compared = [*_listed(schema, "enum"), *([schema["const"]] if "const" in schema else [])]
    return sum(size_of(value)[0] for value in compared)


def _listed(schema: dict[str, Any], name: str) -> list[Any]:
    found = schema.get(name)
    return found if isinstance(found, list) else []


def _values(schema: dict[str, Any], name: str) -> list[Any]:
    found = schema.get(name)
    return list(found.values()) if isinstance(found, dict) else []


def _every(schema: Any) -> Iterator[dict[str, Any]]:
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield node
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def _anchors(node: dict[str, Any]) -> Iterator[str]:
    for name in ("$anchor", "$dynamicAnchor"):
        if isinstance(anchor := node.get(name), str):
            yield f"#{anchor}"
    if isinstance(identity := node.get("$id"), str):
        yield identity
