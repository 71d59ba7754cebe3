"""The audit becomes a hash chain for each tenant, and a tenant can be deleted.

The entries that are there already are sealed by whoever looks after the database next, not here: that may take a while.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from penstock.store.migrations.frozen import Id, JsonDoc, UtcTime

revision = "0006"
down_revision = "0005"

AUDIT = "penstock_audit"


def upgrade() -> None:
    op.add_column(AUDIT, sa.Column("address", sa.Text(), nullable=True))
    op.add_column(AUDIT, sa.Column("seq", sa.BigInteger(), nullable=True))
    op.add_column(AUDIT, sa.Column("prev_hash", sa.Text(), nullable=True))
    op.add_column(AUDIT, sa.Column("hash", sa.Text(), nullable=True))
    _index("ix_penstock_audit_unsealed", ["tenant_id", "id"], "seq IS NULL", unique=False)
    _index("uq_penstock_audit_chain", ["tenant_id", "seq"], "tenant_id IS NOT NULL AND seq IS NOT NULL", unique=True)
    _index("uq_penstock_audit_operator", ["seq"], "tenant_id IS NULL AND seq IS NOT NULL", unique=True)
    op.create_table(
        "penstock_audit_heads",
        sa.Column("chain", Id(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False),
        sa.Column("at", UtcTime(), nullable=False),
        sa.Column("anchor_seq", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("anchor_hash", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "seq >= anchor_seq AND anchor_seq >= 0", name=op.f("ck_penstock_audit_heads_anchor_before_head")
        ),
        sa.PrimaryKeyConstraint("chain", name=op.f("pk_penstock_audit_heads")),
    )
    op.create_table(
        "penstock_erasures",
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("requested_at", UtcTime(), nullable=False),
        sa.Column("drain_until", UtcTime(), nullable=False),
        sa.Column("horizon", sa.Text(), nullable=True),
        sa.Column("counts", JsonDoc, nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["penstock_tenants.id"], name=op.f("fk_penstock_erasures_tenant_id_penstock_tenants"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("tenant_id", name=op.f("pk_penstock_erasures")),
    )  # fmt: skip


def _index(name: str, columns: list[str], condition: str, *, unique: bool) -> None:
    where = sa.text(condition)
    op.create_index(name, AUDIT, columns, unique=unique, postgresql_where=where, sqlite_where=where)
