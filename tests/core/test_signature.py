"""A function's signature becomes its schema, and params become its arguments."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from penstock.core.errors import InvalidInput, InvalidPayload
from penstock.core.payload import compile_schema
from penstock.core.signature import arg_schema, bind


class Injected:
    pass


class Color(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int = 0


class Box(BaseModel):
    corner: Point
    label: str | None = None


def plain_job(image_id: int, width: int = 800, *, note: str | None = None) -> None: ...


def rich_job(
    ctx: Injected, who: UUID, when: datetime, color: Color, point: Point, box: Box, also: Injected | None = None
) -> None: ...


def test_schema_of_plain_parameters() -> None:
    schema = arg_schema(plain_job)
    assert schema["type"] == "object"
    assert schema["required"] == ["image_id"]
    assert schema["properties"]["image_id"] == {"type": "integer"}
    assert schema["properties"]["width"] == {"type": "integer", "default": 800}
    assert schema["properties"]["note"]["default"] is None
    assert schema["additionalProperties"] is False


def test_the_schema_is_one_that_payloads_are_checked_against() -> None:
    check = compile_schema(arg_schema(rich_job, (Injected,)))
    good = {
        "who": "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09",
        "when": "2026-02-16T10:30:00Z",
        "color": "red",
        "point": {"x": 1},
        "box": {"corner": {"x": 1, "y": 2}},
    }
    assert check(good) == []
    assert check({**good, "who": "nobody"}) and check({**good, "color": "blue"}) and check({**good, "more": 1})


def test_params_arrive_as_the_types_asked_for() -> None:
    bound = bind(
        rich_job,
        {
            "who": "6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09",
            "when": "2026-02-16T10:30:00Z",
            "color": "red",
            "point": {"x": 1},
            "box": {"corner": {"x": 1, "y": 2}},
        },
        (Injected,),
    )
    assert bound == {
        "who": UUID("6f46a1d8-6e2b-4ecf-8b46-9ec2e6a37f09"),
        "when": datetime(2026, 2, 16, 10, 30, tzinfo=UTC),
        "color": Color.RED,
        "point": Point(1, 0),
        "box": Box(corner=Point(1, 2)),
    }


def test_absent_optional_params_are_left_to_the_function() -> None:
    assert bind(plain_job, {"image_id": 1}) == {"image_id": 1}


def test_a_fault_names_its_path() -> None:
    with pytest.raises(InvalidPayload) as caught:
        bind(plain_job, {"image_id": "seven", "hight": 3})
    assert {fault.path for fault in caught.value.faults} == {"$.image_id", "$.hight"}
    assert "plain_job()" in str(caught.value)


def test_keyword_rest_takes_anything() -> None:
    def job(a: int, **rest: Any) -> None: ...

    assert arg_schema(job)["additionalProperties"] is True
    assert bind(job, {"a": 1, "b": [2]}) == {"a": 1, "b": [2]}


def test_positional_parameters_are_refused() -> None:
    def many(*images: int) -> None: ...
    def first(image: int, /) -> None: ...

    with pytest.raises(InvalidInput, match=r"many\(\) takes positional arguments \(\*images\)"):
        arg_schema(many)
    with pytest.raises(InvalidInput, match=r"first\(\) takes positional arguments \(image, /\)"):
        arg_schema(first)


def test_awkward_names_constraints_and_unannotated_parameters() -> None:
    def job(schema, json: int, copy: Annotated[int, Field(ge=1)] = 1, _x: bool = True) -> None:  # type: ignore[no-untyped-def]
        ...

    assert bind(job, {"schema": {"a": 1}, "json": 2, "copy": 3}) == {"schema": {"a": 1}, "json": 2, "copy": 3}
    with pytest.raises(InvalidPayload, match="greater than or equal to 1"):
        bind(job, {"schema": None, "json": 2, "copy": 0})


def test_types_that_json_cannot_carry_are_refused_at_registration() -> None:
    def job(thing: Injected) -> None: ...

    with pytest.raises(InvalidInput, match="cannot come from JSON"):
        arg_schema(job)


def test_names_that_do_not_resolve_are_explained() -> None:
    def job(thing: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(InvalidInput, match="'Nowhere' is not defined"):
        arg_schema(job)


def test_methods_partials_and_callable_objects() -> None:
    class Worker:
        def run(self, a: int) -> None: ...
        def __call__(self, b: UUID) -> None: ...

    assert list(arg_schema(Worker().run)["properties"]) == ["a"]
    assert arg_schema(Worker())["properties"]["b"]["format"] == "uuid"
    assert arg_schema(partial(plain_job, width=3))["required"] == ["image_id"]
