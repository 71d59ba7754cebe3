"""What is configured: tenants, definitions, queues, groups, reservations, workers, clock."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

from penstock.core.groups import MODES, ON_FAILURE
from penstock.core.status import RetryMode
from penstock.store.tables.base import check_filled, check_in, metadata, where
from penstock.store.types import Id, JsonDoc, UtcTime

tenants = Table(
    "penstock_tenants",
    metadata,
    Column("id", Id, primary_key=True),
    Column("slug", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("timezone", Text, nullable=False, server_default=text("'UTC'")),
    Column("weight", Integer, nullable=False, server_default=text("1")),
    Column("max_running", Integer),
    Column("is_active", Boolean, nullable=False, server_default=text("true")),
    Column("created_at", UtcTime, nullable=False),
    Column("quotas", JsonDoc),  # what the operator has set, by name; NULL: nothing
    Column("min_priority", Integer),
    Column("max_priority", Integer),
    check_filled("slug"),
    check_filled("name"),
    CheckConstraint("weight BETWEEN 1 AND 100", name="weight_bounded"),
    CheckConstraint("max_running IS NULL OR max_running >= 0", name="max_running_positive"),
)

definitions = Table(
    "penstock_definitions",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, ForeignKey("penstock_tenants.id", ondelete="RESTRICT")),  # NULL: offered to every tenant
    Column("key", Text, nullable=False),
    Column("description", Text, nullable=False, server_default=text("''")),
    Column("runner", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("arg_schema", JsonDoc, nullable=False),
    Column("secret_marks", JsonDoc),  # outlines of this and earlier schemas that mark secrets; NULL: none ever did
    Column("default_params", JsonDoc, nullable=False),
    Column("timeout_seconds", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("retry_mode", Text, nullable=False),
    Column("retry_policy", JsonDoc, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("max_running", Integer),
    Column("is_active", Boolean, nullable=False, server_default=text("true")),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("version", Integer, nullable=False, server_default=text("1")),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    check_filled("key"),
    check_in("retry_mode", RetryMode),
    CheckConstraint("timeout_seconds > 0", name="timeout_positive"),
    CheckConstraint("max_attempts >= 1", name="max_attempts_positive"),
    CheckConstraint("max_running IS NULL OR max_running >= 0", name="max_running_positive"),
    # Two indexes because NULLs are distinct: one key for everyone, and one key per tenant.
    Index("uq_penstock_definitions_key_for_all", "key", unique=True, **where("tenant_id IS NULL")),
    Index("uq_penstock_definitions_key", "tenant_id", "key", unique=True, **where("tenant_id IS NOT NULL")),
)

queues = Table(
    "penstock_queues",
    metadata,
    Column("name", Text, primary_key=True),
    Column("paused", Boolean, nullable=False, server_default=text("false")),
    Column("created_at", UtcTime, nullable=False),
    check_filled("name"),
)

floors = Table(
    "penstock_floors",
    metadata,
    # Where the clock of fairness begins in a queue at a priority: below it waits nothing that a worker serves. A row is
    # here only while something waits that nobody serves.
    Column("queue", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("position", BigInteger, nullable=False),
    PrimaryKeyConstraint("queue", "priority"),
)

groups = Table(
    "penstock_groups",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, ForeignKey("penstock_tenants.id", ondelete="RESTRICT"), nullable=False),
    Column("mode", Text, nullable=False),
    Column("on_failure", Text, nullable=False),
    Column("label", Text),
    Column("created_by", Text),
    Column("created_at", UtcTime, nullable=False),
    check_in("mode", MODES),
    check_in("on_failure", ON_FAILURE),
    Index("ix_penstock_groups_tenant", "tenant_id", "id"),
)

reservations = Table(
    "penstock_reservations",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, ForeignKey("penstock_tenants.id", ondelete="RESTRICT"), nullable=False),
    Column("reserved_by", Text, nullable=False),  # host:pid:boot id, so that a dead process's can be told
    Column("reserved_at", UtcTime, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
    Column("ended_at", UtcTime),
    Column("status", Text, nullable=False),
    check_in("status", ("active", "released", "expired")),
    check_filled("reserved_by"),
    CheckConstraint("(status = 'active') = (ended_at IS NULL)", name="ended_exactly_if_not_active"),
    CheckConstraint("expires_at > reserved_at", name="expires_later"),
    Index("uq_penstock_reservations_active", "tenant_id", unique=True, **where("status = 'active'")),
)

workers = Table(
    "penstock_workers",
    metadata,
    Column("id", Text, primary_key=True),  # host:pid:boot-uuid; of a tenant's own worker: tenant-id/ and its name
    Column("hostname", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("version", Text, nullable=False, server_default=text("''")),
    Column("queues", JsonDoc, nullable=False),
    Column("keys", JsonDoc),  # NULL: every key
    Column("concurrency", Integer, nullable=False),
    Column("running_count", Integer, nullable=False, server_default=text("0")),
    Column("started_at", UtcTime, nullable=False),
    Column("last_seen_at", UtcTime, nullable=False),
    Column("stopped_at", UtcTime),
    Column("metadata", JsonDoc, nullable=False),
    Column("tenant_id", Id),  # of a worker that a tenant runs, over HTTP; NULL: the operator's
    check_filled("id"),
    Index("ix_penstock_workers_tenant", "tenant_id", "last_seen_at", **where("tenant_id IS NOT NULL")),
)

clock = Table(
    "penstock_clock",
    metadata,
    # The latest time this database has seen; and for SQLite the boot of the machine that its leases are counted in.
    Column("id", Integer, primary_key=True),
    Column("latest", UtcTime, nullable=False),
    Column("boot_id", Text),
    Column("booted_at", UtcTime),
    CheckConstraint("id = 1", name="one_row"),
)

leaders = Table(
    "penstock_leaders",
    metadata,
    # Who leads, for economy only: correctness never depends on it.
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("expires_at", UtcTime, nullable=False),
)
