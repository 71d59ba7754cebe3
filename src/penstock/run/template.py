"""Arguments with placeholders: `{name}` from the payload, `{tenant.id}` and the like from the claim.

A value can never become an option, a second argument or a shell word: it fills a whole argument, where a leading dash
is refused, or what follows `--flag=` or other literal text. What does not fit into an argument, several lines or a list,
goes by stdin, where a value is taken as it is, or by a file: `{params_file}` is the path of one with all params as JSON.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import InvalidInput
from penstock.core.nouns import Claim
from penstock.core.payload import dumps

MAX_ARGUMENT = 128 * 1024 - 1
"""The kernel refuses longer arguments."""

_OURS: Mapping[str, Callable[[Claim], object]] = {
    "tenant.id": lambda claim: claim.tenant_id,
    "tenant.slug": lambda claim: claim.tenant_slug,
    "job.id": lambda claim: claim.job_id,
    "run.id": lambda claim: claim.run_id,
}
PARAMS_FILE = "params_file"
_RESERVED = frozenset({PARAMS_FILE, *(name.split(".")[0] for name in _OURS)})
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_NAME = re.compile(r"[A-Za-z_][\w-]*(?:\.[\w-]+)*")
_DASHES = "-\u00ad\u058a\u1806\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"
_OPENERS = _DASHES + "@\uff20\ufe6b"
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


class Misfit(Exception):
    """The payload does not fit the template; trying again is of no use."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Placeholder:
    name: str
    optional: bool

    @property
    def is_ours(self) -> bool:
        return self.name in _OURS or self.name == PARAMS_FILE


@dataclass(frozen=True, slots=True)
class Template:
    """One argument: literal texts and placeholders in turn.

    >>> Template.parse("--path={path?}").fields
    ('path',)
    """

    parts: tuple[str | Placeholder, ...]

    @classmethod
    def parse(cls, text: str, *, argument: bool = True) -> Template:
        """Read a template of the commands file, an argument or the text of stdin; raises InvalidInput with what is wrong."""
        parts: list[str | Placeholder] = []
        at = 0
        literal = ""
        for token in _TOKEN.finditer(text):
            literal += text[at : token.start()]
            at = token.end()
            if token[0] in ("{{", "}}"):
                literal += token[0][0]
            elif token[1] is None:
                raise InvalidInput(
                    f"{text!r} has a single {token[0]!r}; write {token[0] * 2!r} for the character itself"
                )
            else:
                parts += [literal, _placeholder(token[1], text)] if literal else [_placeholder(token[1], text)]
                literal = ""
        literal += text[at:]
        if literal or not parts:
            parts.append(literal)
        if argument:
            _require_safe_shape(parts, text)
        return cls(tuple(parts))

    @property
    def fields(self) -> tuple[str, ...]:
        """The payload fields that it names, as dotted paths."""
        return tuple(part.name for part in self.parts if isinstance(part, Placeholder) and not part.is_ours)

    @property
    def names_params_file(self) -> bool:
        return any(isinstance(part, Placeholder) and part.name == PARAMS_FILE for part in self.parts)

    def render(self, claim: Claim, params_file: str = "") -> str | None:
        """The argument for a claim; None when an optional field is absent. Raises Misfit."""
        texts = []
        for part in self.parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            if part.name == PARAMS_FILE:
                value: Any = params_file
            else:
                value = _OURS[part.name](claim) if part.is_ours else _look_up(claim.params, part)
            if value is None:
                return None
            texts.append(_as_text(part.name, str(value) if part.is_ours else value))
        return "".join(texts)

    def render_input(self, claim: Claim) -> str:
        """The text of stdin for a claim: values as they are, lists and objects as JSON. Raises Misfit."""
        texts = []
        for part in self.parts:
            if isinstance(part, str):
                texts.append(part)
                continue
            value = _OURS[part.name](claim) if part.is_ours else _look_up(claim.params, part)
            if isinstance(value, str) or part.is_ours:
                texts.append(str(value))
            elif value is not None:
                texts.append(dumps(value))
        return "".join(texts)

    @property
    def leads_with_value(self) -> bool:
        return isinstance(self.parts[0], Placeholder)


def render_arguments(templates: Sequence[Template], claim: Claim, params_file: str = "") -> list[str]:
    """The arguments for a claim. Raises Misfit, naming the field and the reason."""
    arguments: list[str] = []
    for template in templates:
        argument = template.render(claim, params_file)
        if argument is None:
            continue
        if template.leads_with_value and "--" not in arguments:
            _require_operand(argument, template)
        if len(argument.encode("utf-8", "replace")) > MAX_ARGUMENT:
            raise Misfit(f"{_shown(template)} is longer than {MAX_ARGUMENT // 1024} KiB", _field(template))
        arguments.append(argument)
    return arguments


def _placeholder(inside: str, text: str) -> Placeholder:
    name, optional = (inside[:-1], True) if inside.endswith("?") else (inside, False)
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{text!r} has the placeholder {{{inside}}}; expected a payload field such as {{path}} or {{options.size?}}, "
            f"or one of {_ours()}"
        )
    if name.split(".")[0] in _RESERVED and name not in (*_OURS, PARAMS_FILE):
        raise InvalidInput(f"{text!r} has the unknown placeholder {{{inside}}}; known are {_ours()} and payload fields")
    return Placeholder(name, optional)


def _require_safe_shape(parts: Sequence[str | Placeholder], text: str) -> None:
    first = parts[0]
    if isinstance(first, str) and len(parts) > 1 and first[:1] in _DASHES and first and "=" not in first:
        raise InvalidInput(
            f"in {text!r} a value could become an option's name; write it as --flag={{value}}, or as an argument of its own"
        )
    if "\0" in text:
        raise InvalidInput(f"{text!r} has a NUL character")


def _look_up(params: Mapping[str, Any], placeholder: Placeholder) -> Any:
    value: Any = params
    for step in placeholder.name.split("."):
        if not isinstance(value, Mapping) or step not in value:
            value = None
            break
        value = value[step]
    if value is None and not placeholder.optional:
        raise Misfit(f"the params have no field {placeholder.name!r}", placeholder.name)
    return value


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise Misfit(
            f"the field {name!r} is of type {type(value).__name__}; an argument takes text, a number, true or false",
            name,
        )
    for char in value:
        if _is_control(char):
            raise Misfit(f"the field {name!r} has the control character U+{ord(char):04X}", name)
    return value


def _is_control(char: str) -> bool:
    return char in _BIDI or unicodedata.category(char) in ("Cc", "Zl", "Zp", "Cs")


def _require_operand(argument: str, template: Template) -> None:
    if not argument:
        raise Misfit(f"{_shown(template)} is empty", _field(template))
    if argument[0] in _OPENERS:
        raise Misfit(
            f"{_shown(template)} starts with {argument[0]!r} and could be taken for an option; "
            "put '--' before it in the commands file, or write it as --flag={value}",
            _field(template),
        )


def _field(template: Template) -> str | None:
    return template.fields[0] if template.fields else None


def _shown(template: Template) -> str:
    names = [part.name for part in template.parts if isinstance(part, Placeholder)]
    return "the argument of " + " and ".join(repr(name) for name in names) if names else "an argument"


def _ours() -> str:
    return ", ".join(f"{{{name}}}" for name in (*_OURS, PARAMS_FILE))
