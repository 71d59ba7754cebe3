"""The audit as files: JSON Lines for programs, CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from penstock.core.access import AuditEntry

COLUMNS = (
    "at", "tenant_id", "seq", "actor", "action", "subject_type", "subject_id", "address", "request_id", "before", "after",
    "id", "prev_hash", "hash",
)  # fmt: skip
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH PLUS SIGN}",
            "\N{FULLWIDTH HYPHEN-MINUS}", "\N{FULLWIDTH COMMERCIAL AT}")  # fmt: skip


def plain(entry: AuditEntry) -> dict[str, Any]:
    return {name: _plain(getattr(entry, name)) for name in COLUMNS}


def json_lines(entries: Iterable[AuditEntry]) -> Iterator[str]:
    for entry in entries:
        yield json.dumps(plain(entry), ensure_ascii=False) + "\n"


def csv_lines(entries: Iterable[AuditEntry]) -> Iterator[str]:
    """A header, then a line for each entry. A spreadsheet takes no cell for a formula."""
    yield _line(COLUMNS)
    for entry in entries:
        yield _line([_cell(value) for value in plain(entry).values()])


def _line(cells: Iterable[str]) -> str:
    file = io.StringIO()
    csv.writer(file).writerow(cells)
    return file.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, UUID) else value
