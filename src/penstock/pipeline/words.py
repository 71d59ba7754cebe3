"""Attribute names in text that SQL parsers would take for the beginning of a statement: `start`, `comment`, `begin`."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from penstock.pipeline import extras

OPERATORS = {
    "AND", "OR", "NOT", "XOR", "IS", "NULL", "IN", "LIKE", "BETWEEN", "TRUE", "FALSE", "CASE", "WHEN",
    "THEN", "ELSE", "END", "DIV", "MOD", "REGEXP", "RLIKE", "INTERVAL", "DISTINCT", "ESCAPE", "AS", "ASC",
    "DESC", "BINARY", "SEPARATOR", "FROM",
}  # fmt: skip
"""Words that keep their meaning in an expression, whatever attributes there are. Backticks make a name of any of them."""

TYPED = {"DATE", "TIME", "TIMESTAMP"}
"""Words that stand before a text in quotes: DATE '2026-01-31'."""


def quote_names(text: str, attributes: Container[str]) -> str:
    """Put the attribute names in an expression into backticks, so that none of them is taken for a keyword.

    >>> quote_names("start > 1 and `end` = date(start) + interval 1 day", {"start", "end", "date", "day"})
    '`start` > 1 and `end` = date(`start`) + interval 1 day'
    """
    tokens: list[Any] = extras.sqlglot().tokenize(text, read="mysql")
    made, since = [], 0
    for at, token in enumerate(tokens):
        if _is_name(text, tokens, at) and token.text in attributes:
            made += [text[since : token.start], "`", token.text, "`"]
            since = token.end + 1
    return "".join([*made, text[since:]])


def _is_name(text: str, tokens: list[Any], at: int) -> bool:
    token = tokens[at]
    word = text[token.start : token.end + 1]
    if word != token.text or not (word[:1].isalpha() or word[:1] == "_") or word.upper() in OPERATORS:
        return False
    following = text[tokens[at + 1].start] if at + 1 < len(tokens) else ""
    before = tokens[at - 2].text.upper() if at > 1 else ""
    return not (following == "(" or before == "INTERVAL" or (following in ("'", '"') and word.upper() in TYPED))
