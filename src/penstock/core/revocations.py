"""JSON Web Tokens that were issued elsewhere and are revoked here."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

KINDS = ("jti", "subject", "used")


@dataclass(frozen=True, slots=True)
class Revocation:
    """One JWT by its `jti`, or every JWT of a subject that was issued up to `revoked_at`.

    It is forgotten at `expires_at`, when nothing that it holds for can be accepted any more.
    """

    issuer: str
    kind: str
    value: str
    revoked_at: datetime
    expires_at: datetime
    created_by: str | None
