"""What reaches in and out: triggers, ticks, events, webhooks, deliveries, principals, sessions, audit, erasures."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from penstock.store.tables.base import check_filled, check_in, metadata, where
from penstock.store.types import Id, JsonDoc, UtcTime

triggers = Table(
    "penstock_triggers",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, ForeignKey("penstock_tenants.id", ondelete="RESTRICT"), nullable=False),
    Column("label", Text, nullable=False),
    Column("is_enabled", Boolean, nullable=False, server_default=text("true")),
    Column("disabled_reason", Text),
    Column("trigger_type", Text, nullable=False),
    Column("event_name", Text),
    Column("cron_expr", Text),
    Column("timezone", Text),
    Column("definition_id", Id, ForeignKey("penstock_definitions.id", ondelete="RESTRICT"), nullable=False),
    Column("definition_key", Text, nullable=False),
    Column("payload_template", JsonDoc, nullable=False),
    Column("priority", Integer),
    Column("dedupe_window_seconds", Integer, nullable=False, server_default=text("0")),
    Column("catch_up", Text, nullable=False, server_default=text("'latest'")),
    Column("catch_up_window_seconds", Integer, nullable=False, server_default=text("86400")),
    Column("overlap", Text, nullable=False, server_default=text("'allow'")),
    Column("jitter_seconds", Integer, nullable=False, server_default=text("0")),
    Column("dst_gap", Text, nullable=False, server_default=text("'shift'")),
    Column("dst_overlap", Text, nullable=False, server_default=text("'first'")),
    Column("next_trigger_at", UtcTime),
    Column("last_triggered_at", UtcTime),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("created_by", Text),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    Column("deleted_at", UtcTime),
    UniqueConstraint("tenant_id", "id"),
    check_filled("label"),
    check_in("trigger_type", ("event", "schedule")),
    check_in("catch_up", ("skip", "latest", "all")),
    check_in("overlap", ("allow", "skip", "buffer_one", "cancel_running")),
    check_in("dst_gap", ("shift", "skip")),
    check_in("dst_overlap", ("first", "both")),
    CheckConstraint(
        "(trigger_type = 'event' AND event_name IS NOT NULL AND cron_expr IS NULL)"
        " OR (trigger_type = 'schedule' AND cron_expr IS NOT NULL AND timezone IS NOT NULL AND event_name IS NULL)",
        name="event_or_schedule",
    ),
    CheckConstraint("dedupe_window_seconds >= 0 AND jitter_seconds >= 0", name="windows_positive"),
    Index(
        "ix_penstock_triggers_due",
        "next_trigger_at",
        **where("trigger_type = 'schedule' AND is_enabled AND deleted_at IS NULL"),
    ),
    Index(
        "ix_penstock_triggers_due_disabled",
        "next_trigger_at",
        **where("trigger_type = 'schedule' AND NOT is_enabled AND deleted_at IS NULL"),
    ),
    Index(
        "ix_penstock_triggers_event",
        "tenant_id",
        "event_name",
        **where("trigger_type = 'event' AND deleted_at IS NULL"),
    ),
    Index("ix_penstock_triggers_definition", "definition_id"),
    Index("uq_penstock_triggers_label", "tenant_id", "label", unique=True, **where("deleted_at IS NULL")),
)

ticks = Table(
    "penstock_ticks",
    metadata,
    Column("trigger_id", Id, nullable=False),
    Column("tick_at", UtcTime, nullable=False),
    Column("tenant_id", Id, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason", Text),
    Column("job_id", Id),
    Column("created_at", UtcTime, nullable=False),
    PrimaryKeyConstraint("trigger_id", "tick_at"),
    ForeignKeyConstraint(
        ["tenant_id", "trigger_id"], ["penstock_triggers.tenant_id", "penstock_triggers.id"], ondelete="RESTRICT"
    ),
    check_in("outcome", ("fired", "skipped", "error")),
    CheckConstraint("(outcome = 'fired') = (job_id IS NOT NULL)", name="job_exactly_if_fired"),
    CheckConstraint("outcome = 'fired' OR reason IS NOT NULL", name="reason_unless_fired"),
)

events = Table(
    "penstock_events",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, ForeignKey("penstock_tenants.id", ondelete="RESTRICT"), nullable=False),
    Column("name", Text, nullable=False),
    Column("context", JsonDoc, nullable=False),
    Column("depth", Integer, nullable=False, server_default=text("0")),
    Column("emitted_by", Text),
    Column("outcomes", JsonDoc, nullable=False),  # one entry per matching trigger: job, dedupe or error
    Column("created_at", UtcTime, nullable=False),
    check_filled("name"),
    Index("ix_penstock_events_tenant", "tenant_id", "id"),
)

trigger_fires = Table(
    "penstock_trigger_fires",
    metadata,
    # The last time a trigger fired with a payload: what a dedupe window compares with, whatever became of the job.
    Column("trigger_id", Id, nullable=False),
    Column("payload_hash", Text, nullable=False),
    Column("fired_at", UtcTime, nullable=False),
    Column("job_id", Id, nullable=False),
    PrimaryKeyConstraint("trigger_id", "payload_hash"),
)

webhooks = Table(
    "penstock_webhooks",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, ForeignKey("penstock_tenants.id", ondelete="RESTRICT"), nullable=False),
    Column("url", Text, nullable=False),
    Column("description", Text, nullable=False, server_default=text("''")),
    Column("event_types", JsonDoc, nullable=False),
    Column("secret", Text, nullable=False),
    Column("previous_secret", Text),
    Column("previous_secret_expires_at", UtcTime),
    Column("is_enabled", Boolean, nullable=False, server_default=text("true")),
    Column("created_by", Text),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    UniqueConstraint("tenant_id", "id"),
    check_filled("url"),
    # Whose jobs' ends are to be told, which every finish asks. It must have an index even where a table of one page would do.
    Index("ix_penstock_webhooks_enabled", "tenant_id", **where("is_enabled")),
)

deliveries = Table(
    "penstock_deliveries",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, nullable=False),
    Column("webhook_id", Id, nullable=False),
    Column("message_id", Id, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("subject_id", Id),  # the job or group it tells of
    Column("job_id", Id, nullable=False),  # the job that delivers it
    Column("attempt", Integer, nullable=False),
    Column("status", Text, nullable=False),
    Column("response_status", Integer),
    Column("response_excerpt", Text),
    Column("error", Text),
    Column("duration_ms", Integer),
    Column("created_at", UtcTime, nullable=False),
    ForeignKeyConstraint(
        ["tenant_id", "webhook_id"], ["penstock_webhooks.tenant_id", "penstock_webhooks.id"], ondelete="CASCADE"
    ),
    UniqueConstraint("webhook_id", "message_id", "attempt"),
    check_in("status", ("delivered", "failed")),
    Index("ix_penstock_deliveries_webhook", "tenant_id", "webhook_id", "id"),
)

principals = Table(
    "penstock_principals",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, ForeignKey("penstock_tenants.id", ondelete="RESTRICT")),  # NULL: the whole installation
    Column("role", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("token_prefix", Text, nullable=False),
    Column("token_hash", Text, nullable=False, unique=True),
    Column("queues", JsonDoc),  # a worker's token may be bound to queues
    Column("created_by", Text),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime),
    Column("revoked_at", UtcTime),
    Column("last_used_at", UtcTime),
    # Who created it. No foreign key: a tenant's principals are erased in any order.
    Column("parent_id", Id),
    Column("scopes", JsonDoc),
    Column("keys", JsonDoc),
    Column("addresses", JsonDoc),
    Column("issuer", Text),
    Column("subject", Text),
    Column("last_used_address", Text),
    Column("previous_hash", Text),
    Column("previous_expires_at", UtcTime),
    Column("rotated_at", UtcTime),
    check_in("role", ("super_admin", "tenant_admin", "operator", "viewer", "worker")),
    check_filled("label"),
    CheckConstraint("role IN ('super_admin', 'worker') OR tenant_id IS NOT NULL", name="tenant_unless_global"),
    CheckConstraint("role <> 'super_admin' OR tenant_id IS NULL", name="super_admin_is_global"),
    Index("ix_penstock_principals_tenant", "tenant_id"),
    Index("ix_penstock_principals_parent", "parent_id", **where("parent_id IS NOT NULL")),
    Index("uq_penstock_principals_previous", "previous_hash", unique=True, **where("previous_hash IS NOT NULL")),
)

sessions = Table(
    "penstock_sessions",
    metadata,
    Column("id", Id, primary_key=True),
    Column("principal_id", Id, ForeignKey("penstock_principals.id", ondelete="CASCADE"), nullable=False),
    Column("secret_hash", Text, nullable=False, unique=True),
    Column("csrf_hash", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Column("last_seen_at", UtcTime),
    Column("address", Text),
    Column("user_agent", Text),
    Column("issuer", Text),  # the identity provider's own session, which it may end
    Column("sid", Text),
    Index("ix_penstock_sessions_principal", "principal_id"),
    Index("ix_penstock_sessions_sid", "issuer", "sid", **where("sid IS NOT NULL")),
)

idempotency_keys = Table(
    "penstock_idempotency_keys",
    metadata,
    Column("tenant_id", Id, nullable=False),
    Column("key", Text, nullable=False),
    Column("request_hash", Text, nullable=False),
    Column("response_status", Integer),
    Column("response_body", JsonDoc),
    Column("created_at", UtcTime, nullable=False),
    PrimaryKeyConstraint("tenant_id", "key"),
)

audit = Table(
    "penstock_audit",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id),  # no foreign key: the audit outlives what it tells of
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject_type", Text, nullable=False),
    Column("subject_id", Text),
    Column("before", JsonDoc),
    Column("after", JsonDoc),
    Column("request_id", Text),
    Column("at", UtcTime, nullable=False),
    Column("address", Text),
    # Its place in the chain of its tenant, or of the operator: NULL until it is sealed. A writer takes no lock for it.
    Column("seq", BigInteger),
    Column("prev_hash", Text),
    Column("hash", Text),
    Index("ix_penstock_audit_tenant", "tenant_id", "id"),
    Index("ix_penstock_audit_unsealed", "tenant_id", "id", **where("seq IS NULL")),
    # Two indexes because NULLs are distinct: the chain of each tenant, and the operator's.
    Index(
        "uq_penstock_audit_chain", "tenant_id", "seq", unique=True, **where("tenant_id IS NOT NULL AND seq IS NOT NULL")
    ),
    Index("uq_penstock_audit_operator", "seq", unique=True, **where("tenant_id IS NULL AND seq IS NOT NULL")),
)

audit_heads = Table(
    "penstock_audit_heads",
    metadata,
    # The last entry of each chain, and up to where the chain was pruned. Locked by whoever seals.
    Column("chain", Id, primary_key=True),  # the tenant's id; all zeros for the operator's
    Column("seq", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
    Column("at", UtcTime, nullable=False),
    Column("anchor_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("anchor_hash", Text, nullable=False),
    CheckConstraint("seq >= anchor_seq AND anchor_seq >= 0", name="anchor_before_head"),
)

erasures = Table(
    "penstock_erasures",
    metadata,
    # Tenants that are being deleted, and how far that is. The row goes with the tenant's own.
    Column("tenant_id", Id, ForeignKey("penstock_tenants.id", ondelete="RESTRICT"), primary_key=True),
    Column("requested_by", Text, nullable=False),
    Column("request_id", Text),
    Column("requested_at", UtcTime, nullable=False),
    Column(
        "drain_until", UtcTime, nullable=False
    ),  # until then runs under way may end by themselves; by the lease clock
    Column("horizon", Text),  # PostgreSQL: transactions that began before this one may still write rows of the tenant
    Column("counts", JsonDoc, nullable=False),  # rows erased so far, by table
)
