from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InvalidTemplate
from penstock.core.template import check, render

EVENT: dict[str, Any] = {
    "event": {
        "provider_id": 7,
        "path": "/a b",
        "flag": True,
        "none": None,
        "ratio": 0.5,
        "items": [{"id": "x"}, {"id": "y"}],
        "dash-ed": 1,
        "nested": {"0": "zero"},
        "default": "d",
    }
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{event.provider_id}}", 7),
        ("{{ event.provider_id }}", 7),
        ("{{event.flag}}", True),
        ("{{event.none}}", None),
        ("{{event.ratio}}", 0.5),
        ("{{event.items}}", [{"id": "x"}, {"id": "y"}]),
        ("{{event.items.1.id}}", "y"),
        ("{{event.items[1].id}}", "y"),
        ("{{event.nested.0}}", "zero"),
        ("{{event.dash-ed}}", 1),
        ("{{event.default}}", "d"),
        ("id {{event.provider_id}}", "id 7"),
        (" {{event.provider_id}}", " 7"),
        ("{{event.provider_id}}{{event.provider_id}}", "77"),
        ("{{event.flag}}/{{event.none}}/{{event.path}}", "true/null//a b"),
        ("{{event.items}}!", '[{"id":"x"},{"id":"y"}]!'),
        ("{{event.gone | default: 5}}", 5),
        ('{{event.gone | default: "a"}}', "a"),
        ('{{event.gone|default:{"a":{"b":[]}}}}', {"a": {"b": []}}),
        ("{{event.gone.deeper | default: null}}", None),
        ("{{event.none | default: 5}}", None),
        ("{{event.provider_id | default: 5}}", 7),
        ("{{event.items.9 | default: 5}}", 5),
        ("\\{{event.provider_id}}", "{{event.provider_id}}"),
        ("a \\{{ b {{event.provider_id}}", "a {{ b 7"),
        ("{ {event} }", "{ {event} }"),
        ("", ""),
        (5, 5),
        (None, None),
        ({"a": ["{{event.provider_id}}", 1.5]}, {"a": [7, 1.5]}),
    ],
)
def test_lookups(template: Any, expected: Any) -> None:
    check(template, ["event"])
    assert render(template, EVENT) == expected
    assert type(render(template, EVENT)) is type(expected)


@pytest.mark.parametrize(
    "template",
    [
        "{{event.gone}}",
        "{{event.items.2}}",
        "{{event.items.x}}",
        "{{event.provider_id.__class__}}",
        "{{event.__class__.__mro__}}",
        "{{event.path.0}}",
        "{{event.items.-1}}",
        "{{event.items.keys}}",
    ],
)
def test_a_missing_path_is_an_error_that_names_it(template: str) -> None:
    check({"a": [template]}, ["event"])
    with pytest.raises(InvalidTemplate, match=r"asks for event\.") as refused:
        render({"a": [template]}, EVENT)
    assert refused.value.path == "$.a[0]"


@pytest.mark.parametrize(
    "template",
    [
        "{{env.HOME}}",
        "{{cycler.__init__.__globals__}}",
        "{{self}}",
        {"deep": [{"er": "{{tenant.id}}"}]},
    ],
)
def test_a_root_outside_the_context_is_refused_at_creation(template: Any) -> None:
    with pytest.raises(InvalidTemplate, match="can only look into event"):
        check(template, ["event"])


@pytest.mark.parametrize(
    "template",
    [
        "{{",
        "{{}}",
        "{{event.id",
        "{{event.id}",
        "{{event..id}}",
        "{{event.id | upper}}",
        "{{event.id()}}",
        "{{event['id']}}",
        "{{1 + 1}}",
        "{{event.id | default: five}}",
        "{{event.id | default: 5 | default: 6}}",
        "{{event.id | default:" + "[" * 100_000,
        "{{event.items[99999999999]}}",
        {"{{event.id}}": 1},
        {1: 2},
        object(),
        {"a": float("nan")},
    ],
)
def test_what_cannot_be_read_is_refused(template: Any) -> None:
    with pytest.raises(InvalidTemplate):
        check(template, ["event"])


def test_what_was_looked_up_is_never_read_as_a_template() -> None:
    context = {"event": {"a": "{{event.secret}}", "secret": "no", "b": "{{"}}
    assert render("{{event.a}}", context) == "{{event.secret}}"
    assert render("x{{event.a}}", context) == "x{{event.secret}}"
    assert render("{{event.b}}event.secret}}", context) == "{{event.secret}}"


def test_sizes_are_bounded_before_they_are_built() -> None:
    big = {"event": {"text": "x" * 1_000_000, "list": [1] * 300_000}}
    began = time.thread_time()
    for template in ("{{event.text}}", "a{{event.text}}", ["{{event.list}}"] * 1000, "{{event.text}}" * 4000):
        with pytest.raises(InvalidTemplate, match="larger than 64 KiB"):
            render(template, big)
    with pytest.raises(InvalidTemplate, match="larger than 64 KiB"):
        check("x" * 70_000, ["event"])
    assert time.thread_time() - began < 2


def test_depth_is_bounded() -> None:
    deep: Any = "{{event.x}}"
    for _ in range(33):
        deep = [deep]
    with pytest.raises(InvalidTemplate, match="nested over 32"):
        check(deep, ["event"])
    found: Any = 1
    for _ in range(60):
        found = {"a": found}
    with pytest.raises(InvalidTemplate, match="nested over 32"):
        render({"x": "{{event}}"}, {"event": found})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)


@given(json_values)
def test_a_whole_value_comes_back_as_it_was(value: Any) -> None:
    assert render({"v": "{{event.v}}"}, {"event": {"v": value}}) == {"v": value}


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_and_never_crashes(text: str) -> None:
    try:
        check(text, ["event"])
        render(text, {"event": {}})
    except InvalidTemplate:
        return
    if "{{" not in text:
        assert render(text, {}) == text
