"""What the campaign and its workers both know. Importing this opens no database."""

from __future__ import annotations

from typing import Any

PATIENT: dict[str, Any] = {"max_attempts": 60, "retry_policy": {"base": 0.05, "cap": 0.5}}
"""Attempts enough for any number of faults: in the end every job is to succeed."""

CREATE_LEDGER = "CREATE TABLE ledger (job text NOT NULL, run text NOT NULL)"
