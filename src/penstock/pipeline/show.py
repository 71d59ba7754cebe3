"""How a relation looks: as text in a terminal, as HTML in a notebook."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from penstock.pipeline.config import config

if TYPE_CHECKING:
    from penstock.pipeline.fetch import Fetchable

WIDTH = 24


def as_text(relation: Fetchable) -> str:
    names, rows, total = _preview(relation)
    key = set(relation.primary_key)
    heads = [f"*{name}" if name in key else name for name in names]
    widths = [min(WIDTH, max([len(head), *(len(row[at]) for row in rows)])) for at, head in enumerate(heads)]
    lines = ["  ".join(_fit(head, width) for head, width in zip(heads, widths, strict=True))]
    lines.append("  ".join("-" * width for width in widths))
    lines += ["  ".join(_fit(cell, width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    if len(rows) < total:
        lines.append("...")
    return "\n".join(line.rstrip() for line in lines) + f"\n({total} row{'' if total == 1 else 's'})"


def as_html(relation: Fetchable) -> str:
    names, rows, total = _preview(relation)
    key = set(relation.primary_key)
    head = "".join(
        f'<th style="text-align:left" title="{escape(relation.attributes[name].comment)}">'
        + (f"<b>{escape(name)}</b>" if name in key else f"<i>{escape(name)}</i>")
        + "</th>"
        for name in names
    )
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    more = "<p>…</p>" if len(rows) < total else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}<p>{total} rows</p>"


def _preview(relation: Fetchable) -> tuple[list[str], list[list[str]], int]:
    names = list(relation.attributes)
    plain = [name for name in names if relation.attributes[name].kind != "blob"]
    found = relation._dicts(plain, None, config["display.limit"], None)
    rows = [[_cell(row[name]) if name in row else "=BLOB=" for name in names] for row in found]
    return names, rows, len(relation)


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if hasattr(value, "isoformat"):
        return str(value.isoformat(" ") if hasattr(value, "hour") else value.isoformat())
    return " ".join(str(value).split())


def _fit(text: str, width: int) -> str:
    return text.ljust(width) if len(text) <= width else text[: width - 1] + "…"
