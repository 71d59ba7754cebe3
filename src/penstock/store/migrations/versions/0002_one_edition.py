"""Bring every edition of the first schema to one.

Before its first release the first migration was changed in place six times, and databases of all its editions call
themselves 0001. They have the same tables and columns, but not the same indexes. What differs is replaced here, and only
that: a database of the last edition keeps its indexes as they are. The order of columns and the spelling of CHECK
constraints differ, too; they mean the same, and stay.

`penstock_clock` gets the place where SQLite notes which boot of the machine its leases are counted in.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from penstock.store.migrations.frozen import UtcTime

revision = "0002"
down_revision = "0001"

JOBS, TRIGGERS, WEBHOOKS = "penstock_jobs", "penstock_triggers", "penstock_webhooks"

INDEXES: tuple[tuple[str, str, list[str], str], ...] = (
    ("ix_penstock_jobs_superseded", JOBS, ["id"], "status = 'failed'"),
    ("ix_penstock_jobs_died_in_group", JOBS, ["group_id", "group_position"],
     "group_id IS NOT NULL AND status IN ('canceled', 'dead_letter')"),
    ("ix_penstock_jobs_moves_in_group", JOBS, ["group_id"],
     "group_id IS NOT NULL AND status IN ('queued', 'running') AND coalesce(waits_for, '') <> 'group'"),
    ("ix_penstock_jobs_waiting_for_group", JOBS, ["group_id", "group_position", "id"], "waits_for = 'group'"),
    ("ix_penstock_jobs_active_of_trigger", JOBS, ["trigger_id"],
     "trigger_id IS NOT NULL AND status IN ('queued', 'running')"),
    ("ix_penstock_jobs_list", JOBS, ["tenant_id", "status", "id"], "status <> 'running'"),
    ("ix_penstock_jobs_running", JOBS, ["tenant_id", "id"], "status = 'running'"),
    ("ix_penstock_jobs_to_stop", JOBS, ["claimed_by"], "status = 'running' AND cancel_requested_at IS NOT NULL"),
    ("ix_penstock_triggers_due_disabled", TRIGGERS, ["next_trigger_at"],
     "trigger_type = 'schedule' AND NOT is_enabled AND deleted_at IS NULL"),
    ("ix_penstock_webhooks_enabled", WEBHOOKS, ["tenant_id"], "is_enabled"),
)  # fmt: skip
"""The indexes that some edition lacks or has otherwise: name, table, columns, condition."""


def upgrade() -> None:
    present = _indexes()
    for name, table, columns, condition in INDEXES:
        if name in present:
            if present[name] == columns:
                continue
            op.drop_index(name, table_name=table)
        where = sa.text(condition)
        op.create_index(name, table, columns, postgresql_where=where, sqlite_where=where)
    op.add_column("penstock_clock", sa.Column("boot_id", sa.Text(), nullable=True))
    op.add_column("penstock_clock", sa.Column("booted_at", UtcTime(), nullable=True))


def _indexes() -> dict[str, list[str | None]]:
    """The columns of the partial indexes there are. One without a condition is of an older edition: it has no columns
    here, so that it is replaced."""
    inspector = sa.inspect(op.get_bind())
    found: dict[str, list[str | None]] = {}
    for table in (JOBS, TRIGGERS, WEBHOOKS):
        for index in inspector.get_indexes(table):
            options = index.get("dialect_options", {})
            partial = "postgresql_where" in options or "sqlite_where" in options
            found[index["name"] or ""] = index["column_names"] if partial else []
    return found
