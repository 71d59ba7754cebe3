"""The hot tables: jobs and runs. Every index here is paid for by each job; each has its reason.

No foreign key is checked on this path: `runs` and `jobs` are written by statements that copy the tenant and
the definition from rows they read in the same transaction, and `doctor()` looks for strays.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Index,
    Integer,
    PrimaryKeyConstraint,
    Table,
    Text,
    literal_column,
    text,
)

from penstock.core.status import JobStatus, RetryMode, RunStatus, Source, WaitsFor
from penstock.store.tables.base import check_filled, check_in, metadata, one_of, where
from penstock.store.types import Id, JsonDoc, UtcTime

jobs = Table(
    "penstock_jobs",
    metadata,
    # First what is never NULL, and of that what has a fixed width: PostgreSQL finds those without walking through the row, which
    # every update does for all that is in an index.
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, nullable=False),
    Column("root_id", Id, nullable=False),
    Column("scheduled_for", UtcTime, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("queued_at", UtcTime, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("attempt_no", Integer, nullable=False, server_default=text("0")),
    Column("max_attempts", Integer, nullable=False),
    Column("crashes", Integer, nullable=False, server_default=text("0")),
    Column("claimable", Boolean, nullable=False),
    Column("slot", Boolean, nullable=False, server_default=text("false")),
    # How many of its attempts were given back, whether it was in a worker's hands when that died, and, while it runs, whether
    # that run is known to have begun: a claim may wait in its worker's buffer. Said with writes that happen anyway.
    Column("interruptions", Integer, nullable=False, server_default=text("0")),
    Column("suspect", Boolean, nullable=False, server_default=text("false")),
    Column("begun", Boolean, nullable=False, server_default=text("false")),
    Column("status", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("definition_key", Text, nullable=False),
    Column("retry_mode", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("params", JsonDoc, nullable=False),
    Column("definition_id", Id),
    Column("waits_for", Text),
    Column("source_ref", Text),
    Column("dedupe_key", Text),
    Column("correlation_id", Text),
    Column("started_at", UtcTime),
    Column("finished_at", UtcTime),
    Column("retry_of", Id),
    Column("group_id", Id),
    Column("group_position", Integer),
    Column("trigger_id", Id),
    Column("tick_at", UtcTime),
    Column("run_id", Id),
    Column("claimed_by", Text),
    Column("lease_expires_at", UtcTime),
    Column("cancel_requested_at", UtcTime),
    Column("progress", JsonDoc),
    Column("result", JsonDoc),
    Column("last_error", Text),
    Column("created_by", Text),
    Column("trace", JsonDoc),
    check_in("status", JobStatus),
    check_in("source", Source),
    check_in("retry_mode", RetryMode),
    check_in("waits_for", WaitsFor),
    check_filled("definition_key"),
    check_filled("queue"),
    CheckConstraint("claimable = (status = 'queued' AND waits_for IS NULL)", name="claimable_is_queued_and_free"),
    CheckConstraint("waits_for IS NULL OR status = 'queued'", name="only_queued_jobs_wait"),
    CheckConstraint(
        f"(finished_at IS NOT NULL) = ({one_of('status', 'succeeded', 'failed', 'canceled', 'dead_letter')})",
        name="finished_exactly_if_terminal",
    ),
    CheckConstraint(
        "(status = 'running') = (lease_expires_at IS NOT NULL) AND (status <> 'running' OR claimed_by IS NOT NULL)",
        name="lease_exactly_if_running",
    ),
    CheckConstraint("status <> 'running' OR (run_id IS NOT NULL AND started_at IS NOT NULL)", name="running_has_a_run"),
    CheckConstraint("attempt_no >= 0 AND attempt_no <= max_attempts", name="attempts_bounded"),
    CheckConstraint("max_attempts >= 1", name="max_attempts_positive"),
    CheckConstraint("(group_id IS NULL) = (group_position IS NULL)", name="group_has_position"),
    CheckConstraint("finished_at IS NULL OR started_at IS NULL OR finished_at >= started_at", name="ends_after_start"),
    CheckConstraint("retry_of IS NULL OR retry_of <> id", name="not_its_own_retry"),
    CheckConstraint("NOT slot OR status IN ('queued', 'running')", name="slot_only_while_active"),
    postgresql_with={"fillfactor": "70"},
)

_claimable = where("claimable")


# What a claim reads, in exactly its order; the key comes last so that a worker's filter is answered in the index.
Index(
    "ix_penstock_jobs_claim",
    jobs.c.queue,
    jobs.c.priority,
    jobs.c.position,
    jobs.c.queued_at,
    jobs.c.id,
    jobs.c.definition_key,
    **_claimable,
)
# A tenant's last place in the queue, for the next enqueue.
Index("ix_penstock_jobs_place", jobs.c.tenant_id, jobs.c.priority, jobs.c.position, **_claimable)
# Lists: a tenant's jobs, newest first (ids grow with time), by status. What runs has an index of its own, and none here: a job
# would come and go in both. `in_status` says what fits which.
Index("ix_penstock_jobs_list", jobs.c.tenant_id, jobs.c.status, jobs.c.id, **where("status <> 'running'"))
# What is running: lists, leases to check, and counts. As small as what the workers hold.
Index("ix_penstock_jobs_running", jobs.c.tenant_id, jobs.c.id, **where("status = 'running'"))
# What runs and is to stop, which every worker asks for each second. Most often empty.
Index("ix_penstock_jobs_to_stop", jobs.c.claimed_by, **where("status = 'running' AND cancel_requested_at IS NOT NULL"))
# What waits for its time, so that the future is never scanned.
Index("ix_penstock_jobs_due", jobs.c.scheduled_for, jobs.c.id, **where("waits_for = 'time'"))
# What waits for a slot or for a resume, in the order it will get one.
Index(
    "ix_penstock_jobs_waiting_for_slot",
    jobs.c.definition_key,
    jobs.c.tenant_id,
    jobs.c.priority,
    jobs.c.queued_at,
    jobs.c.id,
    **where("waits_for = 'limit'"),
)
# Who holds a slot of a limit.
Index("ix_penstock_jobs_slots", jobs.c.definition_key, jobs.c.tenant_id, **where("slot"))
Index(
    "uq_penstock_jobs_active_dedupe",
    jobs.c.tenant_id,
    jobs.c.dedupe_key,
    unique=True,
    **where("dedupe_key IS NOT NULL AND status IN ('queued', 'running')"),
)
Index("uq_penstock_jobs_retry_of", jobs.c.retry_of, unique=True, **where("retry_of IS NOT NULL"))
# Jobs that a retry took over from, so that recovery can look for one whose retry is missing. Chains only.
Index("ix_penstock_jobs_superseded", jobs.c.id, **where("status = 'failed'"))
Index("ix_penstock_jobs_chain", jobs.c.root_id, jobs.c.attempt_no, **where("retry_of IS NOT NULL"))
Index("ix_penstock_jobs_group", jobs.c.group_id, jobs.c.group_position, jobs.c.id, **where("group_id IS NOT NULL"))
# A group's next member, whether one is under way, and whether one died: read when a member ends, whatever the group's size.
Index(
    "ix_penstock_jobs_waiting_for_group",
    jobs.c.group_id,
    jobs.c.group_position,
    jobs.c.id,
    **where("waits_for = 'group'"),
)
_MOVES_IN_GROUP = "group_id IS NOT NULL AND status IN ('queued', 'running') AND coalesce(waits_for, '') <> 'group'"
_DIED_IN_GROUP = "group_id IS NOT NULL AND status IN ('canceled', 'dead_letter')"
Index("ix_penstock_jobs_moves_in_group", jobs.c.group_id, **where(_MOVES_IN_GROUP))
Index("ix_penstock_jobs_died_in_group", jobs.c.group_id, jobs.c.group_position, **where(_DIED_IN_GROUP))
Index(
    "uq_penstock_jobs_tick",
    jobs.c.trigger_id,
    jobs.c.tick_at,
    unique=True,
    **where("tick_at IS NOT NULL AND retry_of IS NULL"),
)
Index("ix_penstock_jobs_trigger", jobs.c.trigger_id, jobs.c.id, **where("trigger_id IS NOT NULL"))
# What overlap asks: what a schedule made and is not done yet.
_ACTIVE_OF_TRIGGER = "trigger_id IS NOT NULL AND status IN ('queued', 'running')"
Index("ix_penstock_jobs_active_of_trigger", jobs.c.trigger_id, **where(_ACTIVE_OF_TRIGGER))
Index("ix_penstock_jobs_correlation", jobs.c.tenant_id, jobs.c.correlation_id, **where("correlation_id IS NOT NULL"))

runs = Table(
    "penstock_runs",
    metadata,
    Column("job_id", Id, nullable=False),
    Column("attempt_no", Integer, nullable=False),
    Column("id", Id, nullable=False),
    Column("tenant_id", Id, nullable=False),
    Column("status", Text, nullable=False),
    Column("worker_id", Text, nullable=False),
    Column("pid", Integer),
    Column("definition_id", Id),
    Column("started_at", UtcTime, nullable=False),
    Column("finished_at", UtcTime),
    Column("exit_code", Integer),
    Column("error", Text),
    # NULL means: as the job's params now. Written before a queued job with earlier runs is changed.
    Column("params_snapshot", JsonDoc),
    Column("stdout_tail", Text),
    Column("stderr_tail", Text),
    Column("artifacts", JsonDoc),
    Column("log_path", Text),
    PrimaryKeyConstraint("job_id", "attempt_no"),
    check_in("status", RunStatus),
    CheckConstraint("(status = 'running') = (finished_at IS NULL)", name="finished_exactly_if_ended"),
    CheckConstraint("finished_at IS NULL OR finished_at >= started_at", name="ends_after_start"),
    CheckConstraint("status <> 'running' OR exit_code IS NULL", name="running_has_no_exit_code"),
    CheckConstraint("attempt_no >= 1", name="attempt_no_positive"),
    postgresql_with={"fillfactor": "70"},
)
# At most one open run per job (P4), and the open runs alone.
Index("uq_penstock_runs_open", runs.c.job_id, unique=True, **where("status = 'running'"))

tallies = Table(
    "penstock_tallies",
    metadata,
    # Counts of ended runs by minute, so that charts and metrics never scan history: by how they ended, with the waits before
    # them, and of those after which the job is tried again or is a dead letter. Sharded by worker so that two workers do not
    # wait for each other's row.
    Column("minute", UtcTime, nullable=False),
    Column("tenant_id", Id, nullable=False),
    Column("definition_key", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("measure", Text, nullable=False),
    Column("bucket", Integer, nullable=False),
    Column("shard", Integer, nullable=False),
    Column("n", BigInteger, nullable=False),
    PrimaryKeyConstraint("minute", "tenant_id", "definition_key", "queue", "measure", "bucket", "shard"),
)


def waiting_for(what: WaitsFor) -> ColumnElement[bool]:
    """Written into the statement, not bound to it: else the planner cannot see that a partial index fits."""
    return jobs.c.waits_for == literal_column(f"'{what.value}'")


def is_claimable() -> ColumnElement[bool]:
    """Written as the partial indexes write it: SQLite does not see that `claimable = 1` fits them."""
    return literal_column("penstock_jobs.claimable")


def is_active() -> ColumnElement[bool]:
    return literal_column("penstock_jobs.status IN ('queued', 'running')")


def holds_slot() -> ColumnElement[bool]:
    return literal_column("penstock_jobs.slot")


def moves_in_group() -> ColumnElement[bool]:
    return literal_column(_MOVES_IN_GROUP)


def died_in_group() -> ColumnElement[bool]:
    return literal_column(_DIED_IN_GROUP)


def is_active_of_trigger() -> ColumnElement[bool]:
    return literal_column(_ACTIVE_OF_TRIGGER)


def in_status(status: JobStatus) -> ColumnElement[bool]:
    """Written so that the list's index fits, or the one of what runs: SQLite does not see that what is queued is not running."""
    known = jobs.c.status == literal_column(f"'{status.value}'")
    return known if status is JobStatus.RUNNING else known & (jobs.c.status != literal_column("'running'"))


def run_in_status(status: RunStatus) -> ColumnElement[bool]:
    return runs.c.status == literal_column(f"'{status.value}'")
