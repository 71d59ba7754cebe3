"""The definition language: text to lines, each with its number. What a line refers to is resolved elsewhere.

# what the table holds
-> Session
trial : int unsigned       # number of the trial
---
-> [nullable] Person.proj(scorer='person_id')
score = null : float
unique index (score, scorer)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.pipeline.errors import DefinitionError
from penstock.pipeline.kinds import parse_kind

NAME = re.compile(r"[a-z][a-z0-9_]*")
SEPARATOR = re.compile(r"(-{3,}|_{3,})\s*(#.*)?")
INDEX = re.compile(r"(?P<unique>unique\s+)?index\s*\((?P<columns>[^)]*)\)\s*(#.*)?", re.IGNORECASE)
OPTIONS = {"nullable", "unique"}
MAX_NAME = 63


@dataclass(frozen=True, slots=True)
class Line:
    number: int
    text: str
    in_key: bool


@dataclass(frozen=True, slots=True)
class AttributeLine(Line):
    name: str
    kind: str
    args: tuple[object, ...]
    default: str | None
    comment: str


@dataclass(frozen=True, slots=True)
class ParentLine(Line):
    parent: str
    renamed: Mapping[str, str]
    """New name by old."""
    nullable: bool
    unique: bool


@dataclass(frozen=True, slots=True)
class IndexLine(Line):
    columns: tuple[str, ...]
    unique: bool


@dataclass(slots=True)
class Definition:
    comment: str = ""
    lines: list[Line] = field(default_factory=list)


def parse(table: str, text: str) -> Definition:
    """Read a definition. Every error names the table and the line."""
    found = Definition()
    in_key = True
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line:
            continue
        try:
            if line.startswith("#"):
                if not found.lines and not found.comment and in_key:
                    found.comment = line.lstrip("#").strip()
            elif SEPARATOR.fullmatch(line):
                if not in_key:
                    raise ValueError("a second '---'; one line separates the primary key from the rest")
                in_key = False
            elif line.startswith("->"):
                found.lines.append(_parent(number, line, in_key))
            elif index := INDEX.fullmatch(line):
                found.lines.append(_index(number, line, in_key, index))
            else:
                found.lines.append(_attribute(number, line, in_key))
        except ValueError as error:
            raise DefinitionError(table, f"{error}.", line=number, text=line) from error
    if not any(line.in_key and not isinstance(line, IndexLine) for line in found.lines):
        raise DefinitionError(
            table, "the primary key is empty; expected at least one attribute or '-> Parent' before '---'."
        )
    return found


def _parent(number: int, line: str, in_key: bool) -> ParentLine:
    body = _without_comment(line[2:])[0].strip()
    options: set[str] = set()
    if bracket := re.match(r"\[([^\]]*)\]", body):
        options = {item.strip().lower() for item in bracket[1].split(",") if item.strip()}
        body = body[bracket.end() :].strip()
    if unknown := options - OPTIONS:
        raise ValueError(f"unknown option {sorted(unknown)[0]!r}; expected [nullable], [unique] or both")
    if in_key and "nullable" in options:
        raise ValueError("a primary key cannot be nullable; move the reference below '---'")
    name, renamed = _reference(body)
    return ParentLine(number, line, in_key, name, renamed, "nullable" in options, "unique" in options)


def _reference(text: str) -> tuple[str, dict[str, str]]:
    expected = "expected '-> Parent', '-> module.Parent' or '-> Parent.proj(new=\"old\")'"
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not a reference; {expected}") from error
    renamed: dict[str, str] = {}
    if isinstance(node, ast.Call):
        if node.args or not isinstance(node.func, ast.Attribute) or node.func.attr != "proj" or not node.keywords:
            raise ValueError(f"{text!r} is not a reference; {expected}")
        for keyword in node.keywords:
            if keyword.arg is None or not isinstance(keyword.value, ast.Constant):
                raise ValueError(f"{text!r} is not a reference; {expected}")
            renamed[str(keyword.value.value)] = _name(keyword.arg)
        node = node.func.value
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        raise ValueError(f"{text!r} is not a reference; {expected}")
    return ".".join([node.id, *reversed(parts)]), renamed


def _index(number: int, line: str, in_key: bool, found: re.Match[str]) -> IndexLine:
    columns = tuple(item.strip() for item in found["columns"].split(",") if item.strip())
    if not columns:
        raise ValueError("an index names at least one attribute: index(a, b)")
    return IndexLine(number, line, in_key, columns, bool(found["unique"]))


def _attribute(number: int, line: str, in_key: bool) -> AttributeLine:
    body, comment = _without_comment(line)
    head, colon, type_text = _split_outside_quotes(body, ":")
    if not colon:
        raise ValueError("expected 'name : type', 'name = default : type', '-> Parent', 'index(…)' or '---'")
    name, equals, default = _split_outside_quotes(head, "=")
    kind, args = parse_kind(type_text)
    value = default.strip() if equals else None
    if value == "":
        raise ValueError("nothing follows '='; expected a default such as 0, \"text\", null or CURRENT_TIMESTAMP")
    if in_key and value is not None and value.lower() == "null":
        raise ValueError("a primary key cannot default to null")
    return AttributeLine(number, line, in_key, _name(name.strip()), kind, args, value, comment)


def _name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not an attribute name; expected lower-case letters, digits and '_'")
    if len(name) > MAX_NAME:
        raise ValueError(f"{name!r} is longer than {MAX_NAME} characters")
    return name


def _without_comment(text: str) -> tuple[str, str]:
    body, _, comment = _split_outside_quotes(text, "#")
    return body, comment.strip()


def _split_outside_quotes(text: str, mark: str) -> tuple[str, str, str]:
    quote = ""
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == mark:
            return text[:at], mark, text[at + 1 :]
    if quote:
        raise ValueError(f"the quote {quote} is not closed")
    return text, "", ""
