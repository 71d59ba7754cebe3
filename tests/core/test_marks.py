"""The words by which a schema marks secrets are found wherever they can stand."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.marks import at_pointers, marks_of, marks_of_schema, outline, remembered
from penstock.core.masking import refuse_masks
from penstock.core.payload import compile_schema

S = {"type": "string", "x-secret": True}


@pytest.mark.parametrize(
    ("schema", "params", "shown"),
    [
        ({"properties": {"a": {"writeOnly": True}}}, {"a": "x", "b": "x"}, {"a": "***", "b": "x"}),
        ({"properties": {"a": {"x-secret": True}}}, {"a": 5}, {"a": "***"}),
        ({"properties": {"a": {"format": "password"}}}, {"a": ["x", {"y": 1}]}, {"a": "***"}),
        ({"properties": {"a": S}}, {"a": None}, {"a": None}),
        ({"properties": {"a": {"writeOnly": False, "format": "uuid"}}}, {"a": "x"}, {"a": "x"}),
        ({"properties": {"a": {"properties": {"b": S}}}}, {"a": {"b": "x", "c": 1}}, {"a": {"b": "***", "c": 1}}),
        ({"properties": {"a": {"items": S}}}, {"a": ["x", "y"]}, {"a": ["***", "***"]}),
        ({"properties": {"a": {"prefixItems": [{}, S]}}}, {"a": ["x", "y", "z"]}, {"a": ["x", "***", "z"]}),
        ({"properties": {"a": {"items": [{}, S]}}}, {"a": ["x", "y", "z"]}, {"a": ["x", "***", "z"]}),
        ({"properties": {"a": {"$ref": "#/$defs/s"}}, "$defs": {"s": S}}, {"a": "x"}, {"a": "***"}),
        ({"properties": {"a": {"$ref": "#/parts/s~1x"}}, "parts": {"s/x": S}}, {"a": "x"}, {"a": "***"}),
        ({"properties": {"a": {"$ref": "#s"}}, "$defs": {"x": {**S, "$anchor": "s"}}}, {"a": "x"}, {"a": "***"}),
        *(
            ({"properties": {"a": {word: [{"type": "null"}, S]}}}, {"a": "x"}, {"a": "***"})
            for word in ("anyOf", "oneOf", "allOf")
        ),
        ({"if": {"required": ["a"]}, "then": {"properties": {"a": S}}}, {"a": "x"}, {"a": "***"}),
        ({"properties": {"a": {}}, "allOf": [{"properties": {"a": S}}]}, {"a": "x"}, {"a": "***"}),
        ({"additionalProperties": S, "properties": {"n": {}}}, {"n": 1, "a": "x"}, {"n": 1, "a": "***"}),
        ({"patternProperties": {"^s_": S}, "properties": {"n": {}}}, {"n": 1, "s_a": "x", "t": "x"}, {"n": 1, "s_a": "***", "t": "x"}),
        ({"x-secret": True}, {"a": 1, "b": None}, {"a": "***", "b": None}),
        (
            {"$ref": "#/$defs/tree", "$defs": {"tree": {"properties": {"key": S, "kids": {"items": {"$ref": "#/$defs/tree"}}}}}},
            {"kids": [{"kids": [{"key": "x", "n": 1}]}]},
            {"kids": [{"kids": [{"key": "***", "n": 1}]}]},
        ),
    ],
)  # fmt: skip
def test_marks_are_found(schema: dict[str, Any], params: dict[str, Any], shown: dict[str, Any]) -> None:
    marks = marks_of_schema(schema)
    assert marks.masked(params) == shown
    kept = outline(schema)
    assert marks_of([kept] if kept else None).masked(params) == shown, "the outline says the same"
    assert at_pointers(params, marks.pointers(params)) == marks.texts(params)


def test_an_outline_holds_no_values() -> None:
    schema = {
        "properties": {"a": {**S, "default": "v4lue", "examples": ["v4lue"], "const": "v4lue", "enum": ["v4lue"]}}
    }
    assert "v4lue" not in str(outline(schema))
    assert outline({"properties": {"a": {"default": 1}}}) is None


def test_a_mark_is_never_forgotten() -> None:
    first = remembered(None, {"properties": {"a": S}})
    second = remembered(first, {"properties": {"b": S}})
    third = remembered(second, {"properties": {}})
    assert marks_of(third).masked({"a": "x", "b": "x", "c": "x"}) == {"a": "***", "b": "***", "c": "x"}
    assert remembered(third, {"properties": {"a": S}}) == remembered(
        remembered(third, {"properties": {"a": S}}), {"properties": {"a": S}}
    )
    assert remembered(None, {}) is None


def test_what_cannot_hold_a_mark_costs_nothing() -> None:
    marks = marks_of_schema({"properties": {"pin": S, "rows": {"items": {"anyOf": [{"type": "integer"}] * 50}}}})
    params = {"pin": "x", "rows": list(range(200_000))}
    started = time.thread_time()
    assert marks.texts(params) == ["x"]
    assert time.thread_time() - started < 1


@pytest.mark.parametrize(
    ("schema", "params"),
    [
        ({"properties": {"code": {"type": "integer", "x-secret": True}}}, {"code": "hunter2-x"}),
        ({"properties": {"password": {"type": "integer"}}}, {"password": "hunter2-x"}),
        ({"properties": {"db": {"type": "array", "properties": {"code": S}}}}, {"db": {"code": "hunter2-x"}}),
        ({"properties": {"db": {"type": "string"}}}, {"db": {"password": "hunter2-x"}}),
        ({"properties": {"codes": {"items": {"maxLength": 2, "writeOnly": True}}}}, {"codes": ["hunter2-x"]}),
        ({"properties": {"code": {"anyOf": [{"type": "null"}, {"type": "integer", "format": "password"}]}}}, {"code": "hunter2-x"}),
        ({"properties": {"code": {"enum": ["a"], "x-secret": True}}}, {"code": "hunter2-x"}),
    ],
)  # fmt: skip
def test_a_refusal_quotes_no_secret(schema: dict[str, Any], params: dict[str, Any]) -> None:
    faults = compile_schema(schema)(params)
    assert faults and "hunter2" not in str(faults)
    assert all(fault.path.startswith("$.") for fault in faults)


def test_a_refusal_still_says_what_is_no_secret() -> None:
    schema = {"properties": {"n": {"type": "integer"}, "code": S}, "required": ["m"], "additionalProperties": False}
    told = str(compile_schema(schema)({"n": "seven", "code": "hunter2-x", "zzz": 1}))
    assert "seven" in told and "zzz" in told and '"m" is a required property' in told and "hunter2" not in told


def test_a_mask_is_not_taken_for_a_secret() -> None:
    marks = marks_of_schema({"properties": {"code": S, "list": {"items": S}}})
    for params in ({"code": "***"}, {"password": "***"}, {"list": ["a-secret", "***"]}):
        with pytest.raises(InvalidInput, match=r"is '\*\*\*', which is shown in place of a secret"):
            refuse_masks(params, marks)
    refuse_masks({"code": "real", "note": "***", "list": []}, marks)
