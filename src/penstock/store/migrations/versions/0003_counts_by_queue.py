"""Tallies know the queue, and the clock of fairness passes by what no worker serves."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from penstock.store.migrations.frozen import Id, UtcTime

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    _tally_by_queue()
    op.create_table(
        "penstock_floors",
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("queue", "priority", name=op.f("pk_penstock_floors")),
    )


def _tally_by_queue() -> None:
    """The queue becomes part of the key. The counts so far are taken to be of the definition's own queue."""
    op.execute("CREATE TEMPORARY TABLE penstock_tallies_before AS SELECT * FROM penstock_tallies")
    op.drop_table("penstock_tallies")
    op.create_table(
        "penstock_tallies",
        sa.Column("minute", UtcTime(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("definition_key", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "minute", "tenant_id", "definition_key", "queue", "measure", "bucket", "shard",
            name=op.f("pk_penstock_tallies"),
        ),
    )  # fmt: skip
    op.execute(
        "INSERT INTO penstock_tallies (minute, tenant_id, definition_key, queue, measure, bucket, shard, n)"
        " SELECT minute, tenant_id, definition_key, coalesce((SELECT min(d.queue) FROM penstock_definitions d"
        " WHERE d.key = t.definition_key), 'default'), measure, bucket, shard, n FROM penstock_tallies_before t"
    )
    op.execute("DROP TABLE penstock_tallies_before")
