"""Params are plain JSON, bounded in size and depth, and fit the definition's schema before anything is written.

Both databases must agree on what they can hold, so what only one of them refuses (NUL, lone surrogates,
NaN) is refused here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import jsonschema_rs

from penstock.core.cipher import readable
from penstock.core.errors import Fault, InvalidInput, InvalidPayload
from penstock.core.marks import Marks, marks_of_schema
from penstock.core.outside import outside, outside_if_large
from penstock.core.redact import is_secret_name, secrets_in
from penstock.core.schema_cost import Cost, size_of

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 64
MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_NODES = 2_000
MAX_COMPILED = 1024
MAX_INT = 2**63 - 1

USUAL_DEPTH = 8
MAX_STEPS_PER_PATH = 20_000
"""What a schema may cost along one path of a value as deep as values usually are; told when the schema is saved."""

MAX_STEPS = 30_000_000
"""What a validation may cost: about half a second. Larger params are refused before they are looked at."""

MAX_STEPS_DESCRIBED = 20_000
"""Describing a fault costs a thousand times what finding it does: at most this many steps are described."""

MAX_FAULTS = 20

JsonObject = Mapping[str, Any]


def _as_dict(value: Any) -> dict[str, Any]:
    """Any mapping is an object, not only a dict."""
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_as_dict).encode


def plain(name: str, value: Any) -> str:
    """Check that `value` is JSON that both databases can hold, and return it as text."""
    faults: list[Fault] = []
    _walk(value, "$", 0, faults)
    if faults:
        raise InvalidPayload(f"{name} cannot be stored", faults)
    text = dumps(value)
    if len(text) > MAX_BYTES or len(text.encode()) > MAX_BYTES:
        raise InvalidPayload(f"{name} cannot be stored", [Fault("$", f"larger than {MAX_BYTES // 1024} KiB")])
    return text


def _walk(value: Any, path: str, depth: int, faults: list[Fault]) -> None:
    if len(faults) >= MAX_FAULTS:
        return
    if depth > MAX_DEPTH:
        faults.append(Fault(path, f"nested over {MAX_DEPTH} levels"))
    elif value is None or value is True or value is False:
        return
    elif isinstance(value, str):
        _check_text(value, path, faults)
    elif isinstance(value, int):
        if abs(value) > MAX_INT:
            faults.append(Fault(path, "an integer over 64 bits"))
    elif isinstance(value, float):
        if not math.isfinite(value):
            faults.append(Fault(path, f"{value} is not JSON"))
    elif type(value) is dict or isinstance(value, Mapping):  # the one is told at once, the other is looked up
        for key, item in value.items():
            if not isinstance(key, str):
                faults.append(Fault(path, f"the key {key!r} is not a string"))
                continue
            _check_text(key, path, faults)
            _walk(item, f"{path}.{key}", depth + 1, faults)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _walk(item, f"{path}[{index}]", depth + 1, faults)
    else:
        faults.append(Fault(path, f"{type(value).__name__} is not JSON"))


def _check_text(text: str, path: str, faults: list[Fault]) -> None:
    if text.isascii():
        if "\0" in text:
            faults.append(Fault(path, "contains a NUL character"))
        return
    if "\0" in text:
        faults.append(Fault(path, "contains a NUL character"))
    if any("\ud800" <= char <= "\udfff" for char in text):
        faults.append(Fault(path, "contains half of a surrogate pair"))


def storable(value: Any) -> Any:
    """What a job said, such that both databases can hold it: its words must never keep its run from being closed."""
    return outside_if_large("storable", value, lambda: _storable(value))


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()
    if isinstance(value, Mapping):
        return {_storable(str(key)): _storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return _storable(str(value))


def merge(defaults: JsonObject, given: JsonObject) -> dict[str, Any]:
    """The definition's defaults under the given params; the last word on each top-level key is the caller's."""
    return {**readable(defaults), **given}


def require_object(name: str, value: Any) -> JsonObject:
    if not isinstance(value, Mapping):
        raise InvalidPayload(name, [Fault("$", f"expected an object, got {type(value).__name__}")])
    return value


Validator = Callable[[Any], list[Fault]]


def compile_schema(schema: JsonObject) -> Validator:
    """A validator for `schema`; raises InvalidInput if the schema itself is not acceptable."""
    require_object("arg_schema", schema)
    try:
        known = _compiled.get(dumps(schema))
    except (TypeError, ValueError, RecursionError):
        known = None  # told below
    return outside("compile", schema, lambda: _remembered(plain("arg_schema", schema))) if known is None else known


_compiled: dict[str, Validator] = {}
"""The latest schemas, by their text."""


def _remembered(text: str) -> Validator:
    made = _compile(text)
    if len(_compiled) >= MAX_COMPILED:
        _compiled.clear()
    _compiled[text] = made
    return made


def _compile(text: str) -> Validator:
    schema = json.loads(text)
    if not schema:
        return lambda _value: []
    _bound_schema(schema, text)
    cost = _bounded_cost(schema)
    try:
        validator = jsonschema_rs.validator_for(
            schema, validate_formats=True, retriever=_no_remote_references, pattern_options=jsonschema_rs.RegexOptions()
        )
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(f"arg_schema is not a usable JSON Schema: {str(error).splitlines()[0]}") from error

    def check(value: Any) -> list[Fault]:
        parts, depth = size_of(value)
        per_path = cost.per_path(depth)
        if parts * per_path > MAX_STEPS:
            return [Fault("$", f"too large for this schema: {parts:,} parts, {depth} levels deep")]
        if validator.is_valid(value):
            return []
        return _described(validator, value, parts, per_path, marks_of_schema(schema))

    return check


def _bounded_cost(schema: JsonObject) -> Cost:
    cost = Cost(schema)
    cost.per_path(MAX_DEPTH)  # raises where references lead in a circle, however deep that lies
    if cost.per_path(USUAL_DEPTH) > MAX_STEPS_PER_PATH:
        raise InvalidInput(
            "arg_schema is too expensive to check: its anyOf, oneOf, allOf and $ref multiply to more than"
            f" {MAX_STEPS_PER_PATH:,} steps for one value. Use fewer alternatives, or tell them apart by type or const."
        )
    return cost


def _described(validator: Any, value: Any, parts: int, per_path: int, marks: Marks) -> list[Fault]:
    """Describe what does not fit, as fully as is cheap: every fault, the first one, or that there is one."""
    if per_path > MAX_STEPS_DESCRIBED:
        return [Fault("$", "does not fit the schema")]
    if parts * per_path > MAX_STEPS_DESCRIBED:
        try:
            validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [_fault(error, value, marks), Fault("$", "only the first fault is described")]
    return [_fault(error, value, marks) for error in islice(validator.iter_errors(value), MAX_FAULTS)]


def _fault(error: Any, value: Any, marks: Marks) -> Fault:
    """One fault. A message that would quote a secret, or something that holds one, says only which rule was broken."""
    path = list(error.instance_path)
    rule = next((str(step) for step in reversed(error.schema_path) if isinstance(step, str)), "schema")
    if rule not in _NAMES_ONLY and (_named_secret(path) or marks.covers(path, value) or secrets_in(_at(path, value))):
        return Fault(_path(path), f"does not fit the rule {rule!r} of the schema; the value is a secret, or holds one")
    return Fault(_path(path), error.message[:500])


_NAMES_ONLY = frozenset(
    {"required", "additionalProperties", "unevaluatedProperties", "dependentRequired", "minProperties"}
)
"""Rules whose messages quote names alone."""


def _named_secret(path: list[Any]) -> bool:
    return any(isinstance(step, str) and is_secret_name(step) for step in path)


def _at(path: list[Any], value: Any) -> Any:
    for step in path:
        value = value[step]
    return value


def _no_remote_references(uri: str) -> Any:
    raise InvalidInput(f"arg_schema refers to {uri!r}; only references within the schema (#/…) are followed.")


def _bound_schema(schema: Any, text: str) -> None:
    if len(text) > MAX_SCHEMA_BYTES:
        raise InvalidInput(f"arg_schema is larger than {MAX_SCHEMA_BYTES // 1024} KiB.")
    nodes = 0
    stack = [schema]
    while stack:
        node = stack.pop()
        nodes += 1
        if nodes > MAX_SCHEMA_NODES:
            raise InvalidInput(f"arg_schema has more than {MAX_SCHEMA_NODES} parts.")
        if isinstance(node, dict):
            reference = node.get("$ref")
            if isinstance(reference, str) and reference and not reference.startswith("#"):
                _no_remote_references(reference)
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def _path(parts: list[Any]) -> str:
    return "$" + "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts)


def validate(key: str, check: Validator, params: JsonObject) -> None:
    faults = check(params)
    if faults:
        raise InvalidPayload(f"The params do not fit the definition {key!r}", faults)
