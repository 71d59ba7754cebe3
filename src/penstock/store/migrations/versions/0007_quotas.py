"""Tenants have quotas and a range of priorities; a tenant's own workers have rows that only that tenant can touch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from penstock.store.migrations.frozen import Id, JsonDoc

revision = "0007"
down_revision = "0006"

TENANTS, WORKERS = "penstock_tenants", "penstock_workers"


def upgrade() -> None:
    op.add_column(TENANTS, sa.Column("quotas", JsonDoc, nullable=True))
    op.add_column(TENANTS, sa.Column("min_priority", sa.Integer(), nullable=True))
    op.add_column(TENANTS, sa.Column("max_priority", sa.Integer(), nullable=True))
    op.add_column(WORKERS, sa.Column("tenant_id", Id(), nullable=True))
    mine = sa.text("tenant_id IS NOT NULL")
    op.create_index(
        "ix_penstock_workers_tenant", WORKERS, ["tenant_id", "last_seen_at"], postgresql_where=mine, sqlite_where=mine
    )
    # Rows of workers that came over HTTP are written anew by their next claim, under names that belong to their tenant.
    op.execute(f"DELETE FROM {WORKERS} WHERE CAST(metadata AS text) LIKE '%tenant_id%'")
