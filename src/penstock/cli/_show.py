"""How answers look: tables for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any
from uuid import UUID

from rich import box
from rich.markup import escape
from rich.table import Table

from penstock.cli._common import out
from penstock.core.marks import marks_of_schema
from penstock.core.masking import hidden_params
from penstock.core.nouns import Definition
from penstock.core.redact import Redactor, redact_schema
from penstock.core.terminal import printable, printable_json

STYLES = {
    "queued": "cyan", "running": "yellow", "succeeded": "green", "failed": "red", "timeout": "red", "canceled": "magenta",
    "dead_letter": "bold red", "skipped": "dim",
}  # fmt: skip


def as_plain(value: Any) -> Any:
    """Return nouns as JSON values, with what looks like a secret masked."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        if isinstance(value, Definition):
            value = dataclasses.replace(
                value, default_params=hidden_params(value.default_params, marks_of_schema(value.arg_schema))
            )
        plain = {field.name: as_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {name: _shown(name, item) for name, item in plain.items()}
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    return value


def _shown(name: str, item: Any) -> Any:
    if name == "arg_schema":
        return redact_schema(item)
    return Redactor().redact_json(item) if name in ("params", "default_params", "payload_template", "context") else item


def print_json(value: Any) -> None:
    sys.stdout.write(printable_json(json.dumps(as_plain(value), ensure_ascii=False, indent=2)) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str) -> None:
    """A table on a terminal; lines of tab-separated values in a pipe."""
    lines = [[_text(value) for value in row] for row in rows]
    if not sys.stdout.isatty():
        for line in lines:
            sys.stdout.write("\t".join(line) + "\n")
        return
    if not lines:
        out().print(empty, style="dim")
        return
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False)
    for line in lines:
        table.add_row(*map(styled, line))
    out().print(table)


def print_facts(facts: Iterable[tuple[str, Any]]) -> None:
    """Name and value, one a line; what is empty is left out."""
    shown = [(name, _text(value)) for name, value in facts if value not in (None, "", [], {}, ())]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        if sys.stdout.isatty():
            out().print(f"[dim]{name:>{width}}[/]  {styled(value)}")
        else:
            sys.stdout.write(f"{name}\t{value}\n")


def styled(text: str) -> str:
    style = STYLES.get(text)
    return f"[{style}]{text}[/]" if style else cell(text)


def cell(text: str) -> str:
    """Return a text as it may stand in a table: neither markup nor control characters have an effect."""
    return escape(printable(text))


def _text(value: Any) -> str:
    if value is None:
        return "" if not sys.stdout.isatty() else "–"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + "Z"
    if isinstance(value, dict | list | tuple):
        return printable(json.dumps(as_plain(value), ensure_ascii=False))
    return printable(str(value))


def age(moment: datetime | None, now: datetime | None = None) -> str:
    """How long ago, in one unit."""
    if moment is None:
        return ""
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    return span(seconds)


def span(seconds: float) -> str:
    """A length of time, in one unit.

    >>> span(0.25), span(90), span(7200)
    ('250 ms', '90 s', '120 min')
    """
    for limit, divisor, unit in ((1, 0.001, "ms"), (120, 1, "s"), (7201, 60, "min"), (172_800, 3600, "h")):
        if abs(seconds) < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"
