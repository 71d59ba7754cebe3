"""Which parts of params a schema calls secret: `writeOnly: true`, `x-secret: true` or `format: password`, at any depth.

A mark counts wherever a schema could apply: behind `$ref`, in any branch of `anyOf`, `oneOf`, `allOf` and `if`, in `not`. To mask one value too many is harmless, to show one is not.

A definition keeps the marks of its earlier schemas: params that were given while a field was marked stay masked when a later
version of the definition no longer marks it, and params from before the mark are masked as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import jsonschema_rs

from penstock.core.redact import MASK, MIN_NUMBER, is_secret_schema

_SAME = ("allOf", "anyOf", "oneOf")
_SAME_ONE = ("if", "then", "else", "not")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_ONE = ("additionalProperties", "unevaluatedProperties", "additionalItems", "unevaluatedItems", "contains", *_SAME_ONE)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_VALUES = ("default", "examples", "example", "const", "enum")
_ANCHORS = ("$anchor", "$dynamicAnchor", "$id")


def outline(schema: Any) -> dict[str, Any] | None:
    """What of a schema says which parts are secret; None if it marks nothing. It holds no values: no defaults, no examples."""
    kept = _outlined(schema)
    return kept if _marks_something(kept) else None


def _outlined(node: Any) -> Any:
    if not isinstance(node, Mapping):
        return node if isinstance(node, bool) else {}
    kept: dict[str, Any] = {"x-secret": True} if is_secret_schema(node) else {}
    for key, item in node.items():
        if key in _NAMED and isinstance(item, Mapping):
            kept[key] = {str(name): _outlined(part) for name, part in item.items()}
        elif key in ("prefixItems", "items", *_SAME) and isinstance(item, list | tuple):
            kept[key] = [_outlined(part) for part in item]
        elif key in (*_ONE, "items") and isinstance(item, Mapping):
            kept[key] = _outlined(item)
        elif key in (*_REFERENCES, *_ANCHORS):
            kept[key] = item if isinstance(item, str) else ""
        elif key not in _VALUES and isinstance(item, Mapping):
            kept[key] = _outlined(item)  # a reference may lead into any part of a document
    return kept


def _marks_something(node: Any) -> bool:
    if isinstance(node, list):
        return any(map(_marks_something, node))
    return isinstance(node, dict) and (node.get("x-secret") is True or any(map(_marks_something, node.values())))


def remembered(before: Sequence[Mapping[str, Any]] | None, schema: Any) -> list[Mapping[str, Any]] | None:
    """The marks of a definition that gets this schema: the new ones first, then those it had. None if there never were any."""
    new = outline(schema)
    kept = [each for each in before or () if each != new]
    return ([new] if new is not None else []) + kept or None


class _Node:
    """A schema as far as marks go: what it says of the value itself, of its members, and of its items."""

    __slots__ = ("items", "live", "named", "others", "patterns", "prefix", "same", "secret")

    def __init__(self) -> None:
        self.secret = False
        self.same: list[_Node] = []
        self.named: dict[str, _Node] = {}
        self.patterns: list[tuple[Callable[[str], bool], _Node]] = []
        self.others: list[_Node] = []
        self.items: list[_Node] = []
        self.prefix: list[_Node] = []
        self.live = False
        """Whether a mark can be reached from here."""

    def next(self) -> Iterator[_Node]:
        yield from self.same
        yield from self.named.values()
        yield from (node for _matches, node in self.patterns)
        yield from self.others
        yield from self.items
        yield from self.prefix


class _Reader:
    """Makes nodes of one document."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._made: dict[int, _Node] = {}
        self.root = self._node(document)
        changed = True
        while changed:
            changed = False
            for node in self._made.values():
                if not node.live and (node.secret or any(other.live for other in node.next())):
                    node.live = changed = True

    def _node(self, raw: Any) -> _Node:
        if id(raw) in self._made:
            return self._made[id(raw)]
        node = _Node()
        if not isinstance(raw, Mapping):
            return node
        self._made[id(raw)] = node
        node.secret = is_secret_schema(raw)
        for name in _REFERENCES:
            if isinstance(raw.get(name), str):
                node.same.append(self._node(self._target(raw[name])))
        for name in _SAME:
            node.same += [self._node(part) for part in raw.get(name, ())]
        node.same += [self._node(raw[name]) for name in _SAME_ONE if name in raw]
        node.same += [self._node(part) for part in raw.get("dependentSchemas", {}).values()]
        node.named = {name: self._node(part) for name, part in raw.get("properties", {}).items()}
        node.patterns = [(_matcher(text), self._node(part)) for text, part in raw.get("patternProperties", {}).items()]
        node.others = [self._node(raw[n]) for n in ("additionalProperties", "unevaluatedProperties") if n in raw]
        items = raw.get("items")
        node.prefix = [self._node(part) for part in raw.get("prefixItems", items if isinstance(items, list) else ())]
        after = [raw[n] for n in ("additionalItems", "unevaluatedItems", "contains") if n in raw]
        node.items = [self._node(part) for part in ([items] if isinstance(items, Mapping) else []) + after]
        return node

    def _target(self, reference: str) -> Any:
        where = unquote(reference.partition("#")[2])
        if where and not where.startswith("/"):
            return self._anchored(self._document, where)
        found: Any = self._document
        for step in where.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(step)] if isinstance(found, list) else found[step]
            except (KeyError, IndexError, ValueError, TypeError):
                return None
        return found

    def _anchored(self, node: Any, name: str) -> Any:
        if isinstance(node, Mapping):
            if any(node.get(key) in (name, f"#{name}") for key in _ANCHORS):
                return node
            node = list(node.values())
        found = (self._anchored(part, name) for part in node) if isinstance(node, list) else ()
        return next((each for each in found if each is not None), None)


class Marks:
    """The marks of a definition.

    >>> marks = marks_of([{"properties": {"pin": {"x-secret": True}}}])
    >>> marks.masked({"pin": "1234", "n": 1}), marks.texts({"pin": "1234"}), marks.pointers({"pin": "1234"})
    ({'pin': '***', 'n': 1}, ['1234'], ['/pin'])
    """

    def __init__(self, documents: Iterable[Mapping[str, Any]] = ()) -> None:
        self._roots = [root for document in documents if (root := _Reader(document).root).live]

    def __bool__(self) -> bool:
        return bool(self._roots)

    def masked(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """A copy with what is marked masked; the params themselves if nothing is."""
        if not self._roots:
            return params
        roots = _all_of(self._roots)
        if any(node.secret for node in roots):
            return {key: None if value is None else MASK for key, value in params.items()}
        return {key: _masked(_member(roots, key), value) for key, value in params.items()}

    def texts(self, params: Any) -> list[str]:
        """The secrets themselves, as far as they can be looked for in a text."""
        return [text for _path, value in self._found(params) for text in _leaves(value)]

    def pointers(self, params: Any) -> list[str]:
        """Where they stand, as JSON pointers."""
        return ["".join(f"/{_escaped(step)}" for step in path) for path, _value in self._found(params)]

    def covers(self, path: Sequence[str | int], params: Any) -> bool:
        """Whether what stands at this path is a secret, holds one, or is part of one."""
        return any(path[: len(found)] == found[: len(path)] for found in map(list, self.paths(params)))

    def paths(self, params: Any) -> list[tuple[str | int, ...]]:
        return [path for path, _value in self._found(params)]

    def _found(self, params: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
        return _walk(self._roots, params, ()) if self._roots else iter(())


NO_MARKS = Marks()


def marks_of(documents: Sequence[Mapping[str, Any]] | None) -> Marks:
    """The marks of these outlines or schemas; made once for the same ones."""
    return _made(json.dumps(documents, sort_keys=True)) if documents else NO_MARKS


@lru_cache(maxsize=512)
def _made(documents: str) -> Marks:
    return Marks(json.loads(documents))


@lru_cache(maxsize=512)
def _made_of_schema(schema: str) -> Marks:
    found = outline(json.loads(schema))
    return NO_MARKS if found is None else Marks([found])


def marks_of_schema(schema: Any) -> Marks:
    """The marks of one schema as it was given."""
    return _made_of_schema(json.dumps(schema, sort_keys=True)) if schema else NO_MARKS


def at_pointers(params: Any, pointers: Iterable[str]) -> list[str]:
    """The texts at these JSON pointers: how a worker that got a claim over HTTP knows its secrets."""
    found: list[str] = []
    for pointer in pointers:
        value = params
        try:
            for step in pointer.split("/")[1:]:
                step = step.replace("~1", "/").replace("~0", "~")
                value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, ValueError, TypeError):
            continue
        found += _leaves(value)
    return found


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a key matches, asked of the same engine that validates params: its time is bounded."""
    try:
        found: Callable[[str], bool] = jsonschema_rs.Draft202012Validator(
            {"pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions()
        ).is_valid
    except (ValueError, jsonschema_rs.ValidationError):
        return lambda _key: True
    return found


def _all_of(nodes: Iterable[_Node]) -> list[_Node]:
    """These and all that apply to the same value, each once; those that lead to no mark are left out."""
    found: dict[int, _Node] = {}
    todo = [node for node in nodes if node.live]
    while todo:
        node = todo.pop()
        if id(node) not in found:
            found[id(node)] = node
            todo += [other for other in node.same if other.live]
    return list(found.values())


def _member(nodes: Sequence[_Node], key: str) -> list[_Node]:
    found: list[_Node] = []
    for node in nodes:
        named = node.named.get(key)
        found += node.others if named is None else [named]
        found += [other for matches, other in node.patterns if other.live and matches(key)]
    return _all_of(found)


def _item(nodes: Sequence[_Node], index: int) -> list[_Node]:
    found: list[_Node] = []
    for node in nodes:
        found += node.prefix[index : index + 1]
        found += node.items
    return _all_of(found)


def _masked(nodes: Sequence[_Node], value: Any) -> Any:
    if not nodes or value is None:
        return value
    if any(node.secret for node in nodes):
        return MASK
    if isinstance(value, Mapping):
        return {key: _masked(_member(nodes, key), item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(_item(nodes, index), item) for index, item in enumerate(value)]
    return value


def _walk(
    given: Iterable[_Node], value: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    nodes = _all_of(given)
    if not nodes or value is None:
        return
    if any(node.secret for node in nodes):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(_member(nodes, key), item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _walk(_item(nodes, index), item, (*path, index))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) >= MIN_NUMBER:
        yield str(value)


def _escaped(step: str | int) -> str:
    return str(step).replace("~", "~0").replace("/", "~1")
