"""Optional packages, asked for when needed and named when missing."""

from __future__ import annotations

import importlib
from typing import Any

from penstock.pipeline.errors import MissingExtra


def numpy(purpose: str = "This") -> Any:
    return _need("numpy", purpose)


def pandas(purpose: str = "This") -> Any:
    return _need("pandas", purpose)


def sqlglot(purpose: str = "A restriction by string") -> Any:
    return _need("sqlglot", purpose)


def _need(package: str, purpose: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise MissingExtra(package, purpose) from error
