"""JSON bodies, read strictly: what two parsers might read differently, and what only serves to hurt, is refused."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from fastapi import Request

from penstock.core.errors import Fault
from penstock.server.problems import Problem

MAX_DEPTH = 70
MAX_DIGITS = 400
SMALL_BODY = 32 * 1024
"""Bytes of JSON that are read in less time than a thread takes to begin."""
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.S)  # an unclosed string runs to the end: linear whatever comes
_ODD_NUMBERS = re.compile(rb"[0-9]{300}|[0-9][eE][+]?[0-9]{2}")
"""What a number that is refused has in it: very many digits, or a large exponent."""
_BRACKETS = re.compile(rb"[^\[\]{}]+")


def loads(body: bytes) -> Any:
    """Parse a body; a Problem says what is wrong with it.

    >>> loads(b'{"a": [1, 2]}')
    {'a': [1, 2]}
    """
    _check_depth(body)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        _refuse("The body is not UTF-8.")
    decoder = _decoder if _ODD_NUMBERS.search(body) else _ordinary
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        _refuse(f"The body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.")
    except RecursionError:
        _refuse(f"The body nests deeper than {MAX_DEPTH} levels.")


def _check_depth(body: bytes) -> None:
    """Before the parser sees it: a body of a million brackets must not cost a stack."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for byte in _BRACKETS.sub(b"", _STRINGS.sub(b"", body)):
        if byte in b"[{":
            depth += 1
            if depth > MAX_DEPTH:
                _refuse(f"The body nests deeper than {MAX_DEPTH} levels.")
        else:
            depth -= 1


def _refuse(detail: str, path: str = "$") -> NoReturn:
    raise Problem(400, "invalid_json", detail, [Fault(path, detail)])


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in made if keys.count(key) > 1)
        _refuse(f"The key {twice[:100]!r} occurs twice in one object.")
    return made


def _constant(name: str) -> NoReturn:
    _refuse(f"{name} is not JSON.")


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        _refuse(f"A number of {len(digits)} digits; at most {MAX_DIGITS} are read.")
    return int(digits)


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        _refuse(f"The number {text[:40]} is out of range.")
    return value


_decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer, parse_float=_float)
_ordinary = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)
"""Where no number can be too long or out of range: a call for each number takes ten times as long."""


class StrictRequest(Request):
    """A request whose JSON is read by `loads`: a large body on one of the threads of its tenant, where it keeps nobody waiting."""

    async def json(self) -> Any:
        if not hasattr(self, "_strict_json"):
            body = await self.body()
            call = getattr(self.state, "call", None)
            if len(body) <= SMALL_BODY or call is None:
                self._strict_json = loads(body)
            else:
                self._strict_json = await call.on_thread(lambda: loads(body))
        return self._strict_json
