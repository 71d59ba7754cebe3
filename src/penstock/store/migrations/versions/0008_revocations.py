"""Remember JSON Web Tokens that were revoked, and sign-ins that were used."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from penstock.store.migrations.frozen import UtcTime

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.create_table(
        "penstock_revocations",
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("revoked_at", UtcTime(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "kind = 'jti' OR kind = 'subject' OR kind = 'used'", name=op.f("ck_penstock_revocations_kind_known")
        ),
        sa.CheckConstraint("length(value) > 0", name=op.f("ck_penstock_revocations_value_filled")),
        sa.PrimaryKeyConstraint("issuer", "kind", "value", name=op.f("pk_penstock_revocations")),
    )
