from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidInput, InvalidPayload
from penstock.core.payload import MAX_DEPTH, compile_schema, merge, plain, storable, validate

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
documents = st.dictionaries(
    texts, st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20)
)
anything = st.recursive(
    leaves | st.text() | st.floats() | st.integers() | st.binary(),
    lambda i: st.lists(i) | st.dictionaries(st.text(), i),
    max_leaves=20,
)


@given(documents)
def test_what_is_json_is_kept_as_it_is(document: dict[str, Any]) -> None:
    assert json.loads(plain("params", document)) == document
    assert storable(document) == document


@given(anything)
def test_whatever_is_said_can_be_made_storable(value: Any) -> None:
    try:
        plain("said", storable(value))
    except InvalidPayload as refused:
        assert {fault.message for fault in refused.faults} == {"an integer over 64 bits"}


@given(st.dictionaries(texts, leaves), st.dictionaries(texts, leaves))
def test_the_given_wins_over_the_default(defaults: dict[str, Any], given_params: dict[str, Any]) -> None:
    merged = merge(defaults, given_params)
    assert set(merged) == set(defaults) | set(given_params)
    assert all(merged[key] == value for key, value in given_params.items())


def test_faults_are_many_but_bounded() -> None:
    with pytest.raises(InvalidPayload) as refused:
        plain("params", {str(n): float("nan") for n in range(100)})
    assert len(refused.value.faults) == 20


def test_depth() -> None:
    value: Any = {}
    for _ in range(MAX_DEPTH):
        value = {"x": value}
    plain("params", value)
    with pytest.raises(InvalidPayload, match="64 levels"):
        plain("params", {"x": value})


@pytest.mark.parametrize(
    "schema",
    [{"$ref": "https://example.org/schema"}, {"properties": {"a": {"$ref": "file:///etc/passwd"}}}, {"type": 5},
     {"pattern": "("}, {"$ref": "other.json"}],
)  # fmt: skip
def test_schemas_that_reach_out_or_make_no_sense(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="arg_schema"):
        compile_schema(schema)


def test_a_hostile_pattern_costs_nothing() -> None:
    check = compile_schema({"properties": {"a": {"pattern": "^(a+)+$"}}})
    assert check({"a": "a" * 5_000 + "!"})


def test_every_fault_has_its_path() -> None:
    check = compile_schema({"properties": {"a": {"items": {"type": "integer"}}}, "required": ["b"]})
    with pytest.raises(InvalidPayload, match="'resize'") as refused:
        validate("resize", check, {"a": [1, "x"]})
    assert {fault.path for fault in refused.value.faults} == {"$", "$.a[1]"}
    validate("resize", check, {"a": [1], "b": 0})
    assert compile_schema({})({"anything": 1}) == []
