"""What was issued elsewhere and is no longer good here."""

from __future__ import annotations

from sqlalchemy import Column, PrimaryKeyConstraint, Table, Text

from penstock.core.revocations import KINDS
from penstock.store.tables.base import check_filled, check_in, metadata
from penstock.store.types import UtcTime

revocations = Table(
    "penstock_revocations",
    metadata,
    Column("issuer", Text, nullable=False),
    # `jti`: one JWT. `subject`: every JWT issued before `revoked_at`. `used`: what may be used once, and was.
    Column("kind", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("revoked_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),  # nothing that it holds for can be good after this
    Column("created_by", Text),
    PrimaryKeyConstraint("issuer", "kind", "value"),
    check_in("kind", KINDS),
    check_filled("value"),
)
