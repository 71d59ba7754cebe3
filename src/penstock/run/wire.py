"""The language between the worker and a process of the pool: one JSON object a line."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from penstock.core.outcomes import Canceled, Evidence, Failed, Outcome, Skipped, Snoozed, Succeeded, TimedOut

_KINDS = {kind.__name__: kind for kind in (Succeeded, Failed, TimedOut, Canceled, Skipped, Snoozed)}


class Sender:
    """Writes messages to a pipe; from any thread, each whole."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, **message: Any) -> None:
        data = json.dumps(message, default=repr).encode() + b"\n"
        with self._lock:
            while data:
                data = data[os.write(self._fd, data) :]


class Receiver:
    """Cuts what arrives into messages."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        if b"\n" not in data:
            self._parts.append(data)
            return []
        *lines, rest = (b"".join(self._parts) + data).split(b"\n")
        self._parts = [rest]
        return [json.loads(line) for line in lines]


def pack(outcome: Outcome) -> dict[str, Any]:
    """An outcome as JSON."""
    return {"kind": type(outcome).__name__, **asdict(outcome)}


def unpack(packed: Mapping[str, Any]) -> Outcome:
    """The outcome that `pack` packed."""
    kind = _KINDS[packed["kind"]]
    values = {field.name: packed[field.name] for field in fields(kind)}
    values["evidence"] = Evidence(**values["evidence"])
    outcome: Outcome = kind(**values)
    return outcome
