"""Definitions remember which params their schemas marked as secret, so that a later schema does not unmask old params."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from penstock.store.migrations.frozen import JsonDoc

revision = "0009"
down_revision = "0008"

DEFINITIONS = "penstock_definitions"


def upgrade() -> None:
    op.add_column(DEFINITIONS, sa.Column("secret_marks", JsonDoc, nullable=True))
    whole = (
        "json_array(json(arg_schema))" if op.get_bind().dialect.name == "sqlite" else "jsonb_build_array(arg_schema)"
    )
    marked = " OR ".join(
        f"CAST(arg_schema AS text) LIKE '%\"{word}\"%'" for word in ("x-secret", "writeOnly", "password")
    )
    op.execute(sa.text(f"UPDATE {DEFINITIONS} SET secret_marks = {whole} WHERE {marked}"))
