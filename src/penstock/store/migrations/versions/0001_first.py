"""The first schema, as it was: it does not look at today's tables, which later migrations bring it to."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa
from alembic import op

from penstock.store.migrations.frozen import Id, JsonDoc, UtcTime, now

revision = "0001"
down_revision = None

DEFAULT_TENANT_ID = UUID("00000000-0000-7000-8000-000000000001")


def _where(condition: str) -> dict[str, Any]:
    return {"postgresql_where": sa.text(condition), "sqlite_where": sa.text(condition)}


def upgrade() -> None:
    _create_tables()
    _fill()


def _create_tables() -> None:
    op.create_table(
        "penstock_audit",
        sa.Column("id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject_type", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.Text(), nullable=True),
        sa.Column("before", JsonDoc, nullable=True),
        sa.Column("after", JsonDoc, nullable=True),
        sa.Column("request_id", sa.Text(), nullable=True),
        sa.Column("at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_audit")),
    )
    op.create_index("ix_penstock_audit_tenant", "penstock_audit", ["tenant_id", "id"], unique=False)
    op.create_table(
        "penstock_clock",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("latest", UtcTime(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_penstock_clock_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_clock")),
    )
    op.create_table(
        "penstock_idempotency_keys",
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("request_hash", sa.Text(), nullable=False),
        sa.Column("response_status", sa.Integer(), nullable=True),
        sa.Column("response_body", JsonDoc, nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "key", name=op.f("pk_penstock_idempotency_keys")),
    )
    op.create_table(
        "penstock_jobs",
        sa.Column("id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("root_id", Id(), nullable=False),
        sa.Column("scheduled_for", UtcTime(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("queued_at", UtcTime(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempt_no", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("crashes", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("claimable", sa.Boolean(), nullable=False),
        sa.Column("slot", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("definition_key", sa.Text(), nullable=False),
        sa.Column("retry_mode", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("params", JsonDoc, nullable=False),
        sa.Column("definition_id", Id(), nullable=True),
        sa.Column("waits_for", sa.Text(), nullable=True),
        sa.Column("source_ref", sa.Text(), nullable=True),
        sa.Column("dedupe_key", sa.Text(), nullable=True),
        sa.Column("correlation_id", sa.Text(), nullable=True),
        sa.Column("started_at", UtcTime(), nullable=True),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.Column("retry_of", Id(), nullable=True),
        sa.Column("group_id", Id(), nullable=True),
        sa.Column("group_position", sa.Integer(), nullable=True),
        sa.Column("trigger_id", Id(), nullable=True),
        sa.Column("tick_at", UtcTime(), nullable=True),
        sa.Column("run_id", Id(), nullable=True),
        sa.Column("claimed_by", sa.Text(), nullable=True),
        sa.Column("lease_expires_at", UtcTime(), nullable=True),
        sa.Column("cancel_requested_at", UtcTime(), nullable=True),
        sa.Column("progress", JsonDoc, nullable=True),
        sa.Column("result", JsonDoc, nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("trace", JsonDoc, nullable=True),
        sa.CheckConstraint(
            "(finished_at IS NOT NULL) = (status = 'succeeded' OR status = 'failed' OR status = 'canceled' OR status = 'dead_letter')",
            name=op.f("ck_penstock_jobs_finished_exactly_if_terminal"),
        ),
        sa.CheckConstraint(
            "(status = 'running') = (lease_expires_at IS NOT NULL) AND (status <> 'running' OR claimed_by IS NOT NULL)",
            name=op.f("ck_penstock_jobs_lease_exactly_if_running"),
        ),
        sa.CheckConstraint(
            "NOT slot OR status IN ('queued', 'running')", name=op.f("ck_penstock_jobs_slot_only_while_active")
        ),
        sa.CheckConstraint(
            "claimable = (status = 'queued' AND waits_for IS NULL)",
            name=op.f("ck_penstock_jobs_claimable_is_queued_and_free"),
        ),
        sa.CheckConstraint(
            "retry_mode = 'requeue' OR retry_mode = 'chain'", name=op.f("ck_penstock_jobs_retry_mode_known")
        ),
        sa.CheckConstraint(
            "source = 'manual' OR source = 'event' OR source = 'schedule' OR source = 'system'",
            name=op.f("ck_penstock_jobs_source_known"),
        ),
        sa.CheckConstraint(
            "status <> 'running' OR (run_id IS NOT NULL AND started_at IS NOT NULL)",
            name=op.f("ck_penstock_jobs_running_has_a_run"),
        ),
        sa.CheckConstraint(
            "status = 'queued' OR status = 'running' OR status = 'succeeded' OR status = 'failed' OR status = 'canceled' OR status = 'dead_letter'",
            name=op.f("ck_penstock_jobs_status_known"),
        ),
        sa.CheckConstraint(
            "waits_for = 'time' OR waits_for = 'group' OR waits_for = 'limit'",
            name=op.f("ck_penstock_jobs_waits_for_known"),
        ),
        sa.CheckConstraint(
            "waits_for IS NULL OR status = 'queued'", name=op.f("ck_penstock_jobs_only_queued_jobs_wait")
        ),
        sa.CheckConstraint(
            "(group_id IS NULL) = (group_position IS NULL)", name=op.f("ck_penstock_jobs_group_has_position")
        ),
        sa.CheckConstraint(
            "attempt_no >= 0 AND attempt_no <= max_attempts", name=op.f("ck_penstock_jobs_attempts_bounded")
        ),
        sa.CheckConstraint(
            "finished_at IS NULL OR started_at IS NULL OR finished_at >= started_at",
            name=op.f("ck_penstock_jobs_ends_after_start"),
        ),
        sa.CheckConstraint("length(definition_key) > 0", name=op.f("ck_penstock_jobs_definition_key_filled")),
        sa.CheckConstraint("length(queue) > 0", name=op.f("ck_penstock_jobs_queue_filled")),
        sa.CheckConstraint("max_attempts >= 1", name=op.f("ck_penstock_jobs_max_attempts_positive")),
        sa.CheckConstraint("retry_of IS NULL OR retry_of <> id", name=op.f("ck_penstock_jobs_not_its_own_retry")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_jobs")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index(
        "ix_penstock_jobs_chain",
        "penstock_jobs",
        ["root_id", "attempt_no"],
        unique=False,
        **_where("retry_of IS NOT NULL"),
    )
    op.create_index(
        "ix_penstock_jobs_claim",
        "penstock_jobs",
        ["queue", "priority", "position", "queued_at", "id", "definition_key"],
        unique=False,
        **_where("claimable"),
    )
    op.create_index(
        "ix_penstock_jobs_correlation",
        "penstock_jobs",
        ["tenant_id", "correlation_id"],
        unique=False,
        **_where("correlation_id IS NOT NULL"),
    )
    op.create_index(
        "ix_penstock_jobs_due", "penstock_jobs", ["scheduled_for", "id"], unique=False, **_where("waits_for = 'time'")
    )
    op.create_index(
        "ix_penstock_jobs_group",
        "penstock_jobs",
        ["group_id", "group_position", "id"],
        unique=False,
        **_where("group_id IS NOT NULL"),
    )
    op.create_index(
        "ix_penstock_jobs_list",
        "penstock_jobs",
        ["tenant_id", "status", "id"],
        unique=False,
        **_where("status <> 'running'"),
    )
    op.create_index(
        "ix_penstock_jobs_place",
        "penstock_jobs",
        ["tenant_id", "priority", "position"],
        unique=False,
        **_where("claimable"),
    )
    op.create_index(
        "ix_penstock_jobs_moves_in_group",
        "penstock_jobs",
        ["group_id"],
        unique=False,
        **_where("group_id IS NOT NULL AND status IN ('queued', 'running') AND coalesce(waits_for, '') <> 'group'"),
    )
    op.create_index(
        "ix_penstock_jobs_died_in_group",
        "penstock_jobs",
        ["group_id", "group_position"],
        unique=False,
        **_where("group_id IS NOT NULL AND status IN ('canceled', 'dead_letter')"),
    )
    op.create_index(
        "ix_penstock_jobs_running",
        "penstock_jobs",
        ["tenant_id", "id"],
        unique=False,
        **_where("status = 'running'"),
    )
    op.create_index(
        "ix_penstock_jobs_to_stop",
        "penstock_jobs",
        ["claimed_by"],
        unique=False,
        **_where("status = 'running' AND cancel_requested_at IS NOT NULL"),
    )
    op.create_index(
        "ix_penstock_jobs_slots", "penstock_jobs", ["definition_key", "tenant_id"], unique=False, **_where("slot")
    )
    op.create_index("ix_penstock_jobs_superseded", "penstock_jobs", ["id"], unique=False, **_where("status = 'failed'"))
    op.create_index(
        "ix_penstock_jobs_trigger",
        "penstock_jobs",
        ["trigger_id", "id"],
        unique=False,
        **_where("trigger_id IS NOT NULL"),
    )
    op.create_index(
        "ix_penstock_jobs_active_of_trigger",
        "penstock_jobs",
        ["trigger_id"],
        unique=False,
        **_where("trigger_id IS NOT NULL AND status IN ('queued', 'running')"),
    )
    op.create_index(
        "ix_penstock_jobs_waiting_for_group",
        "penstock_jobs",
        ["group_id", "group_position", "id"],
        unique=False,
        **_where("waits_for = 'group'"),
    )
    op.create_index(
        "ix_penstock_jobs_waiting_for_slot",
        "penstock_jobs",
        ["definition_key", "tenant_id", "priority", "queued_at", "id"],
        unique=False,
        **_where("waits_for = 'limit'"),
    )
    op.create_index(
        "uq_penstock_jobs_active_dedupe",
        "penstock_jobs",
        ["tenant_id", "dedupe_key"],
        unique=True,
        **_where("dedupe_key IS NOT NULL AND status IN ('queued', 'running')"),
    )
    op.create_index(
        "uq_penstock_jobs_retry_of", "penstock_jobs", ["retry_of"], unique=True, **_where("retry_of IS NOT NULL")
    )
    op.create_index(
        "uq_penstock_jobs_tick",
        "penstock_jobs",
        ["trigger_id", "tick_at"],
        unique=True,
        **_where("tick_at IS NOT NULL AND retry_of IS NULL"),
    )
    op.create_table(
        "penstock_leaders",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_penstock_leaders")),
    )
    op.create_table(
        "penstock_queues",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.CheckConstraint("length(name) > 0", name=op.f("ck_penstock_queues_name_filled")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_penstock_queues")),
    )
    op.create_table(
        "penstock_runs",
        sa.Column("job_id", Id(), nullable=False),
        sa.Column("attempt_no", sa.Integer(), nullable=False),
        sa.Column("id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("definition_id", Id(), nullable=True),
        sa.Column("started_at", UtcTime(), nullable=False),
        sa.Column("finished_at", UtcTime(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("params_snapshot", JsonDoc, nullable=True),
        sa.Column("stdout_tail", sa.Text(), nullable=True),
        sa.Column("stderr_tail", sa.Text(), nullable=True),
        sa.Column("artifacts", JsonDoc, nullable=True),
        sa.Column("log_path", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "(status = 'running') = (finished_at IS NULL)", name=op.f("ck_penstock_runs_finished_exactly_if_ended")
        ),
        sa.CheckConstraint(
            "status <> 'running' OR exit_code IS NULL", name=op.f("ck_penstock_runs_running_has_no_exit_code")
        ),
        sa.CheckConstraint(
            "status = 'running' OR status = 'succeeded' OR status = 'failed' OR status = 'timeout' OR status = 'canceled' OR status = 'skipped'",
            name=op.f("ck_penstock_runs_status_known"),
        ),
        sa.CheckConstraint("attempt_no >= 1", name=op.f("ck_penstock_runs_attempt_no_positive")),
        sa.CheckConstraint(
            "finished_at IS NULL OR finished_at >= started_at", name=op.f("ck_penstock_runs_ends_after_start")
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt_no", name=op.f("pk_penstock_runs")),
        postgresql_with={"fillfactor": "70"},
    )
    op.create_index("uq_penstock_runs_open", "penstock_runs", ["job_id"], unique=True, **_where("status = 'running'"))
    op.create_table(
        "penstock_tallies",
        sa.Column("minute", UtcTime(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("definition_key", sa.Text(), nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("bucket", sa.Integer(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "minute", "tenant_id", "definition_key", "measure", "bucket", "shard", name=op.f("pk_penstock_tallies")
        ),
    )
    op.create_table(
        "penstock_tenants",
        sa.Column("id", Id(), nullable=False),
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("timezone", sa.Text(), server_default=sa.text("'UTC'"), nullable=False),
        sa.Column("weight", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("max_running", sa.Integer(), nullable=True),
        sa.Column("is_active", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.CheckConstraint("length(name) > 0", name=op.f("ck_penstock_tenants_name_filled")),
        sa.CheckConstraint("length(slug) > 0", name=op.f("ck_penstock_tenants_slug_filled")),
        sa.CheckConstraint(
            "max_running IS NULL OR max_running >= 0", name=op.f("ck_penstock_tenants_max_running_positive")
        ),
        sa.CheckConstraint("weight BETWEEN 1 AND 100", name=op.f("ck_penstock_tenants_weight_bounded")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_tenants")),
        sa.UniqueConstraint("slug", name=op.f("uq_penstock_tenants_slug")),
    )
    op.create_table(
        "penstock_trigger_fires",
        sa.Column("trigger_id", Id(), nullable=False),
        sa.Column("payload_hash", sa.Text(), nullable=False),
        sa.Column("fired_at", UtcTime(), nullable=False),
        sa.Column("job_id", Id(), nullable=False),
        sa.PrimaryKeyConstraint("trigger_id", "payload_hash", name=op.f("pk_penstock_trigger_fires")),
    )
    op.create_table(
        "penstock_workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("hostname", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("queues", JsonDoc, nullable=False),
        sa.Column("keys", JsonDoc, nullable=True),
        sa.Column("concurrency", sa.Integer(), nullable=False),
        sa.Column("running_count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=False),
        sa.Column("last_seen_at", UtcTime(), nullable=False),
        sa.Column("stopped_at", UtcTime(), nullable=True),
        sa.Column("metadata", JsonDoc, nullable=False),
        sa.CheckConstraint("length(id) > 0", name=op.f("ck_penstock_workers_id_filled")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_workers")),
    )
    op.create_table(
        "penstock_definitions",
        sa.Column("id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("runner", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("arg_schema", JsonDoc, nullable=False),
        sa.Column("default_params", JsonDoc, nullable=False),
        sa.Column("timeout_seconds", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("retry_mode", sa.Text(), nullable=False),
        sa.Column("retry_policy", JsonDoc, nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("max_running", sa.Integer(), nullable=True),
        sa.Column("is_active", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.CheckConstraint(
            "retry_mode = 'requeue' OR retry_mode = 'chain'", name=op.f("ck_penstock_definitions_retry_mode_known")
        ),
        sa.CheckConstraint("length(key) > 0", name=op.f("ck_penstock_definitions_key_filled")),
        sa.CheckConstraint("max_attempts >= 1", name=op.f("ck_penstock_definitions_max_attempts_positive")),
        sa.CheckConstraint(
            "max_running IS NULL OR max_running >= 0", name=op.f("ck_penstock_definitions_max_running_positive")
        ),
        sa.CheckConstraint("timeout_seconds > 0", name=op.f("ck_penstock_definitions_timeout_positive")),
        sa.ForeignKeyConstraint(
            ["tenant_id"],
            ["penstock_tenants.id"],
            name=op.f("fk_penstock_definitions_tenant_id_penstock_tenants"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_definitions")),
    )
    op.create_index(
        "uq_penstock_definitions_key",
        "penstock_definitions",
        ["tenant_id", "key"],
        unique=True,
        **_where("tenant_id IS NOT NULL"),
    )
    op.create_index(
        "uq_penstock_definitions_key_for_all",
        "penstock_definitions",
        ["key"],
        unique=True,
        **_where("tenant_id IS NULL"),
    )
    op.create_table(
        "penstock_events",
        sa.Column("id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("context", JsonDoc, nullable=False),
        sa.Column("depth", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("emitted_by", sa.Text(), nullable=True),
        sa.Column("outcomes", JsonDoc, nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.CheckConstraint("length(name) > 0", name=op.f("ck_penstock_events_name_filled")),
        sa.ForeignKeyConstraint(
            ["tenant_id"],
            ["penstock_tenants.id"],
            name=op.f("fk_penstock_events_tenant_id_penstock_tenants"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_events")),
    )
    op.create_index("ix_penstock_events_tenant", "penstock_events", ["tenant_id", "id"], unique=False)
    op.create_table(
        "penstock_groups",
        sa.Column("id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("on_failure", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.CheckConstraint("mode = 'sequential' OR mode = 'parallel'", name=op.f("ck_penstock_groups_mode_known")),
        sa.CheckConstraint(
            "on_failure = 'stop' OR on_failure = 'continue' OR on_failure = 'skip'",
            name=op.f("ck_penstock_groups_on_failure_known"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"],
            ["penstock_tenants.id"],
            name=op.f("fk_penstock_groups_tenant_id_penstock_tenants"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_groups")),
    )
    op.create_index("ix_penstock_groups_tenant", "penstock_groups", ["tenant_id", "id"], unique=False)
    op.create_table(
        "penstock_principals",
        sa.Column("id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=True),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("token_prefix", sa.Text(), nullable=False),
        sa.Column("token_hash", sa.Text(), nullable=False),
        sa.Column("queues", JsonDoc, nullable=True),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=True),
        sa.Column("revoked_at", UtcTime(), nullable=True),
        sa.Column("last_used_at", UtcTime(), nullable=True),
        sa.CheckConstraint(
            "role <> 'super_admin' OR tenant_id IS NULL", name=op.f("ck_penstock_principals_super_admin_is_global")
        ),
        sa.CheckConstraint(
            "role = 'super_admin' OR role = 'tenant_admin' OR role = 'operator' OR role = 'viewer' OR role = 'worker'",
            name=op.f("ck_penstock_principals_role_known"),
        ),
        sa.CheckConstraint(
            "role IN ('super_admin', 'worker') OR tenant_id IS NOT NULL",
            name=op.f("ck_penstock_principals_tenant_unless_global"),
        ),
        sa.CheckConstraint("length(label) > 0", name=op.f("ck_penstock_principals_label_filled")),
        sa.ForeignKeyConstraint(
            ["tenant_id"],
            ["penstock_tenants.id"],
            name=op.f("fk_penstock_principals_tenant_id_penstock_tenants"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_principals")),
        sa.UniqueConstraint("token_hash", name=op.f("uq_penstock_principals_token_hash")),
    )
    op.create_index("ix_penstock_principals_tenant", "penstock_principals", ["tenant_id"], unique=False)
    op.create_table(
        "penstock_reservations",
        sa.Column("id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("reserved_by", sa.Text(), nullable=False),
        sa.Column("reserved_at", UtcTime(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        sa.Column("ended_at", UtcTime(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "(status = 'active') = (ended_at IS NULL)",
            name=op.f("ck_penstock_reservations_ended_exactly_if_not_active"),
        ),
        sa.CheckConstraint(
            "status = 'active' OR status = 'released' OR status = 'expired'",
            name=op.f("ck_penstock_reservations_status_known"),
        ),
        sa.CheckConstraint("expires_at > reserved_at", name=op.f("ck_penstock_reservations_expires_later")),
        sa.CheckConstraint("length(reserved_by) > 0", name=op.f("ck_penstock_reservations_reserved_by_filled")),
        sa.ForeignKeyConstraint(
            ["tenant_id"],
            ["penstock_tenants.id"],
            name=op.f("fk_penstock_reservations_tenant_id_penstock_tenants"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_reservations")),
    )
    op.create_index(
        "uq_penstock_reservations_active",
        "penstock_reservations",
        ["tenant_id"],
        unique=True,
        **_where("status = 'active'"),
    )
    op.create_table(
        "penstock_webhooks",
        sa.Column("id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("event_types", JsonDoc, nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("previous_secret", sa.Text(), nullable=True),
        sa.Column("previous_secret_expires_at", UtcTime(), nullable=True),
        sa.Column("is_enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.CheckConstraint("length(url) > 0", name=op.f("ck_penstock_webhooks_url_filled")),
        sa.ForeignKeyConstraint(
            ["tenant_id"],
            ["penstock_tenants.id"],
            name=op.f("fk_penstock_webhooks_tenant_id_penstock_tenants"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_webhooks")),
        sa.UniqueConstraint("tenant_id", "id", name=op.f("uq_penstock_webhooks_tenant_id_id")),
    )
    op.create_index(
        "ix_penstock_webhooks_enabled", "penstock_webhooks", ["tenant_id"], unique=False, **_where("is_enabled")
    )
    op.create_table(
        "penstock_deliveries",
        sa.Column("id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("webhook_id", Id(), nullable=False),
        sa.Column("message_id", Id(), nullable=False),
        sa.Column("event_type", sa.Text(), nullable=False),
        sa.Column("subject_id", Id(), nullable=True),
        sa.Column("job_id", Id(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("response_status", sa.Integer(), nullable=True),
        sa.Column("response_excerpt", sa.Text(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("duration_ms", sa.Integer(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.CheckConstraint(
            "status = 'delivered' OR status = 'failed'", name=op.f("ck_penstock_deliveries_status_known")
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "webhook_id"],
            ["penstock_webhooks.tenant_id", "penstock_webhooks.id"],
            name=op.f("fk_penstock_deliveries_tenant_id_penstock_webhooks"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_deliveries")),
        sa.UniqueConstraint(
            "webhook_id", "message_id", "attempt", name=op.f("uq_penstock_deliveries_webhook_id_message_id_attempt")
        ),
    )
    op.create_index(
        "ix_penstock_deliveries_webhook", "penstock_deliveries", ["tenant_id", "webhook_id", "id"], unique=False
    )
    op.create_table(
        "penstock_sessions",
        sa.Column("id", Id(), nullable=False),
        sa.Column("principal_id", Id(), nullable=False),
        sa.Column("secret_hash", sa.Text(), nullable=False),
        sa.Column("csrf_hash", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("expires_at", UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["principal_id"],
            ["penstock_principals.id"],
            name=op.f("fk_penstock_sessions_principal_id_penstock_principals"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_sessions")),
        sa.UniqueConstraint("secret_hash", name=op.f("uq_penstock_sessions_secret_hash")),
    )
    op.create_table(
        "penstock_triggers",
        sa.Column("id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("is_enabled", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("trigger_type", sa.Text(), nullable=False),
        sa.Column("event_name", sa.Text(), nullable=True),
        sa.Column("cron_expr", sa.Text(), nullable=True),
        sa.Column("timezone", sa.Text(), nullable=True),
        sa.Column("definition_id", Id(), nullable=False),
        sa.Column("definition_key", sa.Text(), nullable=False),
        sa.Column("payload_template", JsonDoc, nullable=False),
        sa.Column("priority", sa.Integer(), nullable=True),
        sa.Column("dedupe_window_seconds", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("catch_up", sa.Text(), server_default=sa.text("'latest'"), nullable=False),
        sa.Column("catch_up_window_seconds", sa.Integer(), server_default=sa.text("86400"), nullable=False),
        sa.Column("overlap", sa.Text(), server_default=sa.text("'allow'"), nullable=False),
        sa.Column("jitter_seconds", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("dst_gap", sa.Text(), server_default=sa.text("'shift'"), nullable=False),
        sa.Column("dst_overlap", sa.Text(), server_default=sa.text("'first'"), nullable=False),
        sa.Column("next_trigger_at", UtcTime(), nullable=True),
        sa.Column("last_triggered_at", UtcTime(), nullable=True),
        sa.Column("version", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("updated_at", UtcTime(), nullable=False),
        sa.Column("deleted_at", UtcTime(), nullable=True),
        sa.CheckConstraint(
            "(trigger_type = 'event' AND event_name IS NOT NULL AND cron_expr IS NULL) OR (trigger_type = 'schedule' AND cron_expr IS NOT NULL AND timezone IS NOT NULL AND event_name IS NULL)",
            name=op.f("ck_penstock_triggers_event_or_schedule"),
        ),
        sa.CheckConstraint(
            "catch_up = 'skip' OR catch_up = 'latest' OR catch_up = 'all'",
            name=op.f("ck_penstock_triggers_catch_up_known"),
        ),
        sa.CheckConstraint("dst_gap = 'shift' OR dst_gap = 'skip'", name=op.f("ck_penstock_triggers_dst_gap_known")),
        sa.CheckConstraint(
            "dst_overlap = 'first' OR dst_overlap = 'both'", name=op.f("ck_penstock_triggers_dst_overlap_known")
        ),
        sa.CheckConstraint(
            "overlap = 'allow' OR overlap = 'skip' OR overlap = 'buffer_one' OR overlap = 'cancel_running'",
            name=op.f("ck_penstock_triggers_overlap_known"),
        ),
        sa.CheckConstraint(
            "trigger_type = 'event' OR trigger_type = 'schedule'", name=op.f("ck_penstock_triggers_trigger_type_known")
        ),
        sa.CheckConstraint(
            "dedupe_window_seconds >= 0 AND jitter_seconds >= 0", name=op.f("ck_penstock_triggers_windows_positive")
        ),
        sa.CheckConstraint("length(label) > 0", name=op.f("ck_penstock_triggers_label_filled")),
        sa.ForeignKeyConstraint(
            ["definition_id"],
            ["penstock_definitions.id"],
            name=op.f("fk_penstock_triggers_definition_id_penstock_definitions"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"],
            ["penstock_tenants.id"],
            name=op.f("fk_penstock_triggers_tenant_id_penstock_tenants"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_triggers")),
        sa.UniqueConstraint("tenant_id", "id", name=op.f("uq_penstock_triggers_tenant_id_id")),
    )
    op.create_index("ix_penstock_triggers_definition", "penstock_triggers", ["definition_id"], unique=False)
    op.create_index(
        "ix_penstock_triggers_due",
        "penstock_triggers",
        ["next_trigger_at"],
        unique=False,
        **_where("trigger_type = 'schedule' AND is_enabled AND deleted_at IS NULL"),
    )
    op.create_index(
        "ix_penstock_triggers_due_disabled",
        "penstock_triggers",
        ["next_trigger_at"],
        unique=False,
        **_where("trigger_type = 'schedule' AND NOT is_enabled AND deleted_at IS NULL"),
    )
    op.create_index(
        "ix_penstock_triggers_event",
        "penstock_triggers",
        ["tenant_id", "event_name"],
        unique=False,
        **_where("trigger_type = 'event' AND deleted_at IS NULL"),
    )
    op.create_index(
        "uq_penstock_triggers_label",
        "penstock_triggers",
        ["tenant_id", "label"],
        unique=True,
        **_where("deleted_at IS NULL"),
    )
    op.create_table(
        "penstock_ticks",
        sa.Column("trigger_id", Id(), nullable=False),
        sa.Column("tick_at", UtcTime(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("job_id", Id(), nullable=True),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.CheckConstraint(
            "(outcome = 'fired') = (job_id IS NOT NULL)", name=op.f("ck_penstock_ticks_job_exactly_if_fired")
        ),
        sa.CheckConstraint(
            "outcome = 'fired' OR reason IS NOT NULL", name=op.f("ck_penstock_ticks_reason_unless_fired")
        ),
        sa.CheckConstraint(
            "outcome = 'fired' OR outcome = 'skipped' OR outcome = 'error'",
            name=op.f("ck_penstock_ticks_outcome_known"),
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id", "trigger_id"],
            ["penstock_triggers.tenant_id", "penstock_triggers.id"],
            name=op.f("fk_penstock_ticks_tenant_id_penstock_triggers"),
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("trigger_id", "tick_at", name=op.f("pk_penstock_ticks")),
    )


def _fill() -> None:
    """The tenant and the queue that nobody needs to name, and the clock's one row."""
    moment = now(op.get_bind().dialect.name)
    tenants = sa.table("penstock_tenants", sa.column("id", Id()), *map(sa.column, ("slug", "name", "created_at")))
    queues = sa.table("penstock_queues", *map(sa.column, ("name", "created_at")))
    clock = sa.table("penstock_clock", *map(sa.column, ("id", "latest")))
    op.execute(sa.insert(tenants).values(id=DEFAULT_TENANT_ID, slug="default", name="Default", created_at=moment))
    op.execute(sa.insert(queues).values(name="default", created_at=moment))
    op.execute(sa.insert(clock).values(id=1, latest=moment))
