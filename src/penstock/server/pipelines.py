"""The pipelines that the operator named: modules with schemas, found once when the service starts."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.errors import InvalidInput, NotFound
from penstock.pipeline.auto import AutoPopulate
from penstock.pipeline.schema import Schema


@dataclass(frozen=True, slots=True)
class Shown:
    """A schema, and the module that declares it."""

    module: str
    schema: Schema


class Pipelines:
    """What the service may show and steer. Code comes from installed modules alone, never over the API."""

    def __init__(self, modules: Sequence[str]) -> None:
        self.schemas: dict[str, Shown] = {}
        for module in modules:
            for schema in _schemas(module):
                self.schemas[schema.name] = Shown(module, schema)

    def table(self, schema: str, name: str) -> AutoPopulate:
        """The auto-populated table of this class name."""
        shown = self.schemas.get(schema)
        for table_name in shown.schema.list_tables() if shown else ():
            assert shown is not None
            found: Any = shown.schema.table(table_name)
            if found.__name__ == name and issubclass(found, AutoPopulate):
                made: AutoPopulate = found()
                return made
        raise NotFound("table", name)


def _schemas(module: str) -> list[Schema]:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InvalidInput(f"The pipeline module {module!r} cannot be imported: {error}.") from error
    found = list(dict.fromkeys(value for value in vars(loaded).values() if isinstance(value, Schema)))
    if not found:
        raise InvalidInput(f"The pipeline module {module!r} has no Schema.")
    return found


def key_of(row: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}
