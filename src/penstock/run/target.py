"""Where a function is to be found by another process: a module to import, or a script to run, and a name in it."""

from __future__ import annotations

import importlib
import inspect
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from penstock.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Target:
    """`module` is a module's name, or `script` the path of the program whose `__main__` defined the function."""

    name: str
    module: str | None = None
    script: str | None = None

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Target:
        """The address of a function; raises InvalidInput when another process could not find it."""
        function = inspect.unwrap(function)
        name = getattr(function, "__qualname__", "")
        module = getattr(function, "__module__", None)
        if not name or "<" in name or module is None:
            raise InvalidInput(
                f"{name or function!r} cannot run with isolation='process': another process has to import it. "
                "Define it at the top level of a module."
            )
        if module != "__main__":
            return cls(name, module=module)
        main = sys.modules["__main__"]
        spec = getattr(main, "__spec__", None)
        if spec is not None:
            return cls(name, module=spec.name)
        path = getattr(main, "__file__", None)
        if path is None:
            raise InvalidInput(f"{name} was defined at a prompt; isolation='process' needs it in a file.")
        return cls(name, script=str(Path(path).absolute()))

    def load(self) -> Callable[..., Any]:
        """The function, imported here."""
        found: Any = _script(self.script) if self.script else importlib.import_module(str(self.module))
        for step in self.name.split("."):
            found = found[step] if isinstance(found, dict) else getattr(found, step)
        function: Callable[..., Any] = inspect.unwrap(found)
        return function


@lru_cache
def _script(path: str) -> dict[str, Any]:
    # Not as __main__: what the program does when it is started is not to be done here
    return runpy.run_path(path, run_name="__penstock_main__")
