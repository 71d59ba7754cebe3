"""Tokens have a parent, limits and a previous secret; people have a principal; sessions tell where they are used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from penstock.store.migrations.frozen import Id, JsonDoc, UtcTime

revision = "0005"
down_revision = "0004"

PRINCIPALS, SESSIONS = "penstock_principals", "penstock_sessions"


def upgrade() -> None:
    op.add_column(PRINCIPALS, sa.Column("parent_id", Id(), nullable=True))
    for name in ("scopes", "keys", "addresses"):
        op.add_column(PRINCIPALS, sa.Column(name, JsonDoc, nullable=True))
    for name in ("issuer", "subject", "last_used_address", "previous_hash"):
        op.add_column(PRINCIPALS, sa.Column(name, sa.Text(), nullable=True))
    for name in ("previous_expires_at", "rotated_at"):
        op.add_column(PRINCIPALS, sa.Column(name, UtcTime(), nullable=True))
    _index("ix_penstock_principals_parent", PRINCIPALS, ["parent_id"], "parent_id IS NOT NULL")
    _index("uq_penstock_principals_previous", PRINCIPALS, ["previous_hash"], "previous_hash IS NOT NULL", unique=True)
    op.add_column(SESSIONS, sa.Column("last_seen_at", UtcTime(), nullable=True))
    for name in ("address", "user_agent", "issuer", "sid"):
        op.add_column(SESSIONS, sa.Column(name, sa.Text(), nullable=True))
    op.create_index("ix_penstock_sessions_principal", SESSIONS, ["principal_id"])
    _index("ix_penstock_sessions_sid", SESSIONS, ["issuer", "sid"], "sid IS NOT NULL")


def _index(name: str, table: str, columns: list[str], condition: str, *, unique: bool = False) -> None:
    where = sa.text(condition)
    op.create_index(name, table, columns, unique=unique, postgresql_where=where, sqlite_where=where)
