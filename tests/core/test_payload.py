from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidInput, InvalidPayload
from penstock.core.payload import MAX_DEPTH, compile_schema, merge, plain, storable, validate
from penstock.core.schema_cost import size_of

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


def doubling(times: int) -> dict[str, Any]:
    """A schema of a few hundred bytes that applies 2 ** times parts to one value."""
    twice = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(times)}
    return {"$defs": {**twice, f"d{times}": {"type": "string"}}, "properties": {"x": {"$ref": "#/$defs/d0"}}}


def two_kinds_of_node() -> dict[str, Any]:
    kinds = [
        {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}}, "required": [name]} for name in ("a", "b")
    ]
    return {"$defs": {"node": {"anyOf": kinds}}, "$ref": "#/$defs/node"}


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"left": value}
    return value


@pytest.mark.parametrize("times", [14, 22, 60])
def test_a_schema_that_multiplies_is_refused_when_it_is_saved(times: int) -> None:
    with pytest.raises(InvalidInput, match="too expensive to check"):
        compile_schema(doubling(times))


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"properties": {"a": {"$ref": "#/properties/a"}}},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "items": {"$ref": "#/$defs/a"}},
        {"$defs": {"a": {"$anchor": "here", "not": {"$ref": "#here"}}}, "$ref": "#/$defs/a"},
    ],
)
def test_references_in_a_circle_are_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="in a circle"):
        compile_schema(schema)


def test_a_recursive_schema_takes_values_of_a_usual_depth() -> None:
    tree = compile_schema({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}})
    assert tree(nested(60)) == []
    check = compile_schema(two_kinds_of_node())
    assert check({"a": 1, "left": {"b": 2, "left": {"a": 3}}}) == []
    assert [fault.path for fault in check(nested(3))] == ["$"]


@pytest.mark.parametrize("depth", [20, 40, 63])
def test_a_value_that_would_take_for_ever_is_refused_unseen(depth: int) -> None:
    [fault] = compile_schema(two_kinds_of_node())(nested(depth))
    assert "too large for this schema" in fault.message


STRINGS = {"properties": {"tags": {"type": "array", "items": {"type": "string"}}}}
ONE_OF_A_HUNDRED = {"properties": {"tags": {"items": {"anyOf": [{"const": f"{n}"} for n in range(100)]}}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [(STRINGS, {"tags": [1] * 200_000}), (ONE_OF_A_HUNDRED, {"tags": ["other"] * 9_000})],
)
def test_of_a_large_value_only_the_first_fault_is_described(schema: dict[str, Any], value: Any) -> None:
    first, rest = compile_schema(schema)(value)
    assert first.path == "$.tags[0]"
    assert rest.message == "only the first fault is described"


def test_of_an_ordinary_value_every_fault_is_described() -> None:
    form = {"properties": {f"field{n}": {"type": ["string", "null"], "maxLength": 10} for n in range(30)}}
    assert len(compile_schema(form)({f"field{n}": n for n in range(12)})) == 12


@given(documents)
def test_size_counts_every_part(document: dict[str, Any]) -> None:
    def parts(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + sum(map(parts, inner))

    def depth(value: Any) -> int:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return max((1 + depth(each) for each in inner), default=0)

    assert size_of(document) == (parts(document), depth(document))
