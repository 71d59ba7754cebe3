"""A function's signature is its contract: the JSON Schema that params must fit, and the arguments made from them."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin, get_type_hints

import pydantic_core
from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from penstock.core.errors import Fault, InvalidInput, InvalidPayload

Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes: read once when it is registered, used for every run."""

    name: str
    schema: Mapping[str, Any]
    injected: tuple[str, ...]
    _arguments: TypeAdapter[dict[str, Any]]

    def bind(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The params as keyword arguments of the types that the function asks for."""
        try:
            return self._arguments.validate_python(params)
        except ValidationError as error:
            faults = [Fault(_path(fault["loc"]), fault["msg"]) for fault in error.errors(include_url=False)[:20]]
            raise InvalidPayload(f"The params do not fit {self.name}()", faults) from None


def read(function: Function, injected: tuple[type, ...] = ()) -> Signature:
    """Read a function's signature. Parameters annotated with an `injected` type are not params."""
    name = getattr(function, "__qualname__", None) or repr(function)
    fields: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    skipped: list[str] = []
    extra: typing.Literal["allow", "forbid"] = "forbid"
    hints = _hints(function, name)
    for parameter in _parameters(function, name):
        annotation = hints.get(parameter.name, Any)
        if _is_injected(annotation, injected):
            skipped.append(parameter.name)
        elif parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            shown = f"*{parameter.name}" if parameter.kind is parameter.VAR_POSITIONAL else f"{parameter.name}, /"
            raise InvalidInput(
                f"{name}() takes positional arguments ({shown}), but params are named. "
                f"Give each a name of its own, or take **{parameter.name}."
            )
        elif parameter.default is parameter.empty:
            fields[parameter.name] = annotation
        else:
            fields[parameter.name] = NotRequired[annotation]
            defaults[parameter.name] = parameter.default
    arguments = _adapter(name, fields, extra)
    return Signature(name, _schema(arguments, defaults, extra, name), tuple(skipped), arguments)


def arg_schema(function: Function, injected: tuple[type, ...] = ()) -> dict[str, Any]:
    """The JSON Schema of a function's params.

    >>> def resize(image_id: int, width: int = 800): ...
    >>> arg_schema(resize)["required"], arg_schema(resize)["properties"]["width"]
    (['image_id'], {'type': 'integer', 'default': 800})
    """
    return dict(read(function, injected).schema)


def bind(function: Function, params: Mapping[str, Any], injected: tuple[type, ...] = ()) -> dict[str, Any]:
    """The params as keyword arguments for the function, converted and checked; raises InvalidPayload."""
    return read(function, injected).bind(params)


def _parameters(function: Function, name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"The signature of {name} cannot be read: {error}.") from error


def _hints(function: Function, name: str) -> dict[str, Any]:
    target = getattr(function, "func", function)
    if not (inspect.isfunction(target) or inspect.ismethod(target)) and callable(target):
        target = getattr(target, "__call__", target)  # noqa: B004 - an object's hints are those of its __call__
    try:
        return get_type_hints(target, include_extras=True)
    except NameError as error:
        raise InvalidInput(
            f"An annotation of {name}() cannot be resolved: {error}. Import that name where {name} is defined."
        ) from error
    except TypeError:
        return {}


def _is_injected(annotation: Any, injected: tuple[type, ...]) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_injected(get_args(annotation)[0], injected)
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_injected(part, injected) for part in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, injected)


def _adapter(
    name: str, fields: dict[str, Any], extra: typing.Literal["allow", "forbid"]
) -> TypeAdapter[dict[str, Any]]:
    # A TypedDict, not a model: parameters may be called `schema`, `json` or `_private`, and absent ones stay absent
    make_typed_dict: Any = TypedDict
    arguments = make_typed_dict("Arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra=extra, arbitrary_types_allowed=False)
    try:
        return TypeAdapter(arguments)
    except PydanticUserError as error:
        raise InvalidInput(
            f"{name}() has a parameter whose type cannot come from JSON: {str(error).splitlines()[0]} "
            "Take a JSON type, a dataclass or a pydantic model instead."
        ) from error


def _schema(
    arguments: TypeAdapter[dict[str, Any]], defaults: Mapping[str, Any], extra: str, name: str
) -> dict[str, Any]:
    try:
        schema = arguments.json_schema(mode="validation")
    except PydanticUserError as error:
        raise InvalidInput(
            f"{name}() has a parameter that JSON Schema cannot describe: {str(error).splitlines()[0]}"
        ) from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    schema["additionalProperties"] = extra == "allow"
    for field in schema["properties"].values():
        field.pop("title", None)
    for field_name, default in defaults.items():
        try:
            schema["properties"][field_name]["default"] = pydantic_core.to_jsonable_python(default)
        except pydantic_core.PydanticSerializationError:
            continue
    return schema


def _path(location: tuple[int | str, ...]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
