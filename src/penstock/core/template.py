"""Payload templates: paths looked up in plain JSON, once, and nothing ever evaluated.

A template is JSON whose strings may hold lookups:

- `"{{event.provider_id}}"` alone keeps the value's JSON type: a number stays a number, an object an object.
- Inside text, `"folder {{event.path}}"`, the value becomes text: a string as it is, anything else as its JSON.
- `{{event.items.0.id}}` and `{{event.items[0].id}}` look into lists.
- A missing path is an error, unless the lookup has a default, any JSON: `{{event.depth | default: 5}}`. A path
  that is there with the value null is not missing.
- `\\{{` is a literal `{{`.

Only objects and lists are looked into, by their own keys and indexes. What was looked up is never read as a template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.core.cipher import readable
from penstock.core.errors import InvalidTemplate
from penstock.core.payload import dumps

MAX_BYTES = 64 * 1024
MAX_DEPTH = 32

_PATH = re.compile(r"\s*([A-Za-z_][\w-]*)((?:\.[\w-]+|\[\d{1,9}\])*)\s*", re.ASCII)
_STEP = re.compile(r"[\w-]+", re.ASCII)
_DEFAULT = re.compile(r"\|\s*default\s*:\s*", re.ASCII)
_DECODER = json.JSONDecoder()
_NO_DEFAULT = object()


@dataclass(frozen=True, slots=True)
class Lookup:
    """`{{root.step.step | default: …}}`"""

    root: str
    steps: tuple[str, ...]
    default: Any

    def __str__(self) -> str:
        return ".".join((self.root, *self.steps))

    def find(self, context: Mapping[str, Any], where: str) -> Any:
        value: Any = context
        for step in (self.root, *self.steps):
            if isinstance(value, Mapping) and step in value:
                value = value[step]
            elif isinstance(value, list | tuple) and step.isdigit() and int(step) < len(value):
                value = value[int(step)]
            elif self.default is not _NO_DEFAULT:
                return self.default
            else:
                raise InvalidTemplate(
                    f"The template asks for {self} at {where}, but there is no {step!r}. "
                    f"Give it a default if it may be missing: {{{{{self} | default: null}}}}",
                    where,
                )
        return value


Part = str | Lookup


def check(template: Any, roots: Collection[str]) -> None:
    """Refuse a template that cannot be read, reaches outside `roots`, or is too large or too deep.

    >>> check({"id": "{{event.id}}"}, ["event"])
    """
    for where, text in _strings(template, "$", 0):
        for part in _parts(text, where):
            if isinstance(part, Lookup) and part.root not in roots:
                raise InvalidTemplate(
                    f"The template asks for {part} at {where}; it can only look into {', '.join(sorted(roots))}.", where
                )
    try:
        size = len(dumps(template).encode())
    except (TypeError, ValueError) as error:
        raise InvalidTemplate(f"The template is not JSON: {error}") from error
    if size > MAX_BYTES:
        raise InvalidTemplate(f"The template is larger than {MAX_BYTES // 1024} KiB.")


def render(template: Any, context: Mapping[str, Any]) -> Any:
    """The template with every lookup replaced by what it finds.

    >>> render({"id": "{{event.id}}", "note": "image {{event.id}}"}, {"event": {"id": 7}})
    {'id': 7, 'note': 'image 7'}
    """
    return _Rendering(context).value(readable(template), "$", 0)


class _Rendering:
    """One rendering, with what is left of its budget: a small template must not grow a huge payload."""

    def __init__(self, context: Mapping[str, Any]) -> None:
        self.context = context
        self.left = MAX_BYTES

    def value(self, template: Any, where: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise InvalidTemplate(f"The template is nested over {MAX_DEPTH} levels.", where)
        if isinstance(template, str):
            return self.text(template, where, depth)
        if isinstance(template, Mapping):
            self.spend(sum(len(key) + 4 for key in template) + 2, where)
            return {key: self.value(item, f"{where}.{key}", depth + 1) for key, item in template.items()}
        if isinstance(template, list | tuple):
            self.spend(len(template) + 2, where)
            return [self.value(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(template)]
        self.spend(len(dumps(template)), where)
        return template

    def text(self, template: str, where: str, depth: int) -> Any:
        parts = _parts(template, where)
        if len(parts) == 1 and isinstance(parts[0], Lookup):
            found = parts[0].find(self.context, where)
            _bound_depth(found, depth, where)
            self.spend(len(dumps(found).encode()), where)
            return found
        pieces = []
        for part in parts:
            found = part.find(self.context, where) if isinstance(part, Lookup) else part
            piece = found if isinstance(found, str) else dumps(found)
            self.spend(len(piece.encode()), where)
            pieces.append(piece)
        return "".join(pieces)

    def spend(self, size: int, where: str) -> None:
        self.left -= size
        if self.left < 0:
            raise InvalidTemplate(f"The rendered payload is larger than {MAX_BYTES // 1024} KiB.", where)


def _strings(template: Any, where: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth > MAX_DEPTH:
        raise InvalidTemplate(f"The template is nested over {MAX_DEPTH} levels.", where)
    if isinstance(template, str):
        yield where, template
    elif isinstance(template, Mapping):
        for key, item in template.items():
            if not isinstance(key, str) or "{{" in key:
                raise InvalidTemplate(
                    f"The key {key!r} at {where} must be plain text: only values are templates.", where
                )
            yield from _strings(item, f"{where}.{key}", depth + 1)
    elif isinstance(template, list | tuple):
        for index, item in enumerate(template):
            yield from _strings(item, f"{where}[{index}]", depth + 1)


def _parts(text: str, where: str) -> tuple[Part, ...]:
    try:
        return _read(text)
    except ValueError as error:
        raise InvalidTemplate(f"The template at {where} cannot be read: {error}", where) from None


@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    plain, at = "", 0
    while (start := text.find("{{", at)) >= 0:
        if text[start - 1 : start] == "\\":
            plain += text[at : start - 1] + "{{"
            at = start + 2
            continue
        plain += text[at:start]
        lookup, at = _lookup(text, start)
        parts += [plain, lookup] if plain else [lookup]
        plain = ""
    plain += text[at:]
    return (*parts, plain) if plain or not parts else tuple(parts)


def _lookup(text: str, start: int) -> tuple[Lookup, int]:
    shown = text[start : start + 60]
    path = _PATH.match(text, start + 2)
    if path is None:
        raise ValueError(f"{shown!r} is not a lookup such as {{{{event.id}}}} (write \\{{{{ for a literal brace pair).")
    default, at = _NO_DEFAULT, path.end()
    if given := _DEFAULT.match(text, at):
        try:
            default, at = _DECODER.raw_decode(text, given.end())
        except (ValueError, RecursionError):
            raise ValueError(f"the default in {shown!r} is not JSON; text needs quotes.") from None
        while text[at : at + 1].isspace():
            at += 1
    if text[at : at + 2] != "}}":
        raise ValueError(
            f"{shown!r} is a path and perhaps '| default: JSON', closed by }}}}; nothing else is understood."
        )
    return Lookup(path[1], tuple(_STEP.findall(path[2])), default), at + 2


def _bound_depth(value: Any, depth: int, where: str) -> None:
    level = [value]
    while level := [item for item in level if isinstance(item, Mapping | list | tuple)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise InvalidTemplate(f"The rendered payload is nested over {MAX_DEPTH} levels.", where)
        level = [child for item in level for child in (item.values() if isinstance(item, Mapping) else item)]
