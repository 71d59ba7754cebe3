"""Remember of a job how many of its attempts were given back, whether it is a suspect, and whether its run has begun."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

JOBS = "penstock_jobs"


def upgrade() -> None:
    op.add_column(JOBS, sa.Column("interruptions", sa.Integer(), server_default=sa.text("0"), nullable=False))
    op.add_column(JOBS, sa.Column("suspect", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column(JOBS, sa.Column("begun", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    # What an older program has claimed counts as begun, as it always did.
    op.execute(f"UPDATE {JOBS} SET begun = true WHERE status = 'running'")
