"""The populate runner: what a job with `runner="populate"` does. A plain callable, registered by the app."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol

from penstock.pipeline.auto import AutoPopulate
from penstock.pipeline.errors import PipelineError
from penstock.store.pipeline.history import plain

ARG_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["table"],
    "additionalProperties": False,
    "properties": {
        "table": {"type": "string", "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", "description": "module:Class"},
        "restriction": {
            "description": "a key, or a list of keys, to make and no others",
            "type": ["object", "array", "null"],
        },
        "max_calls": {"type": ["integer", "null"], "minimum": 0},
        "priority": {"type": ["integer", "null"], "minimum": 0},
        "batch": {"type": "integer", "minimum": 1, "default": 100},
    },
}
"""The parameters, as a JSON schema. A restriction is keys only: text does not come in through a payload."""

ERRORS_SHOWN = 20


class Context(Protocol):
    """What the worker lets a job do."""

    def progress(self, done: float, total: float | None = None, message: str = "") -> Any: ...

    def canceled(self) -> Any: ...


def find_table(name: str) -> type[AutoPopulate]:
    """The class that `module:Class` names. Importing the module declares its tables."""
    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name.isidentifier():
        raise PipelineError(f"{name!r} names no table; expected module:Class, for example lab.pipeline:FilteredImage.")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name != module_name and not module_name.startswith(f"{error.name}."):
            raise
        raise PipelineError(f"There is no module {module_name!r} here. Is its directory on PYTHONPATH?") from error
    found = getattr(module, class_name, None)
    if not (isinstance(found, type) and issubclass(found, AutoPopulate)):
        raise PipelineError(f"{name!r} is not an Imported or Computed table.")
    return found


def populate_job(params: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Refresh and populate one table, reporting progress and heeding cancellation between batches."""
    if unknown := sorted(set(params) - set(ARG_SCHEMA["properties"])):
        raise PipelineError(f"Unknown parameter {unknown[0]!r}; expected {', '.join(ARG_SCHEMA['properties'])}.")
    table = find_table(str(params.get("table", "")))()
    restriction = params.get("restriction")
    if restriction is not None and not isinstance(restriction, Mapping | list):
        raise PipelineError("A restriction in a payload is a key, or a list of keys.")
    restrictions = [restriction] if restriction is not None else []
    left, batch = params.get("max_calls"), int(params.get("batch") or 100)
    refreshed = table.jobs.add_missing(*restrictions, priority=params.get("priority"))
    total = table.progress(*restrictions)[0]
    made, errors, error_count = 0, [], 0
    while left is None or left > 0:
        if context.canceled():
            break
        calls = batch if left is None else min(batch, left)
        outcome = table.populate(
            *restrictions, reserve_jobs=True, suppress_errors=True, max_calls=calls, priority=params.get("priority"),
        )  # fmt: skip
        done = outcome["success_count"] + len(outcome["error_list"])
        made += outcome["success_count"]
        error_count += len(outcome["error_list"])
        errors += [{"key": plain(key), "error": message} for key, message in outcome["error_list"]][:ERRORS_SHOWN]
        context.progress(min(made + error_count, total), total, f"{made} made, {error_count} failed")
        left = None if left is None else left - done
        if done == 0:
            break
    return {
        "made": made, "failed": error_count, "errors": errors[:ERRORS_SHOWN], "refreshed": refreshed,
        "remaining": table.progress(*restrictions)[0],
    }  # fmt: skip
