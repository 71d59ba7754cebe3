"""The hot tables. A job's state is the table that it is in, and nothing on the way is updated.

    jobs      what was asked for, written once; its params, priority and time may be edited while it waits
    waiting   a job that cannot run yet: for its time, for its turn in a group, for a slot of a limit
    ready     a job that can be claimed now, at its place
    running   an open run: who has it, until when
    runs      a closed run, inserted once. The last one of a job says what became of the job

Enqueue writes `jobs` and `ready` or `waiting`; a claim moves `ready` to `running`; the end of a run moves `running` to `runs`, and to
`waiting` if the job is tried again. What a job carries from table to table is in `CARRIED`. `job_view` shows a job with its state.

Every index here is paid for by each job; each has its reason. What most jobs do not have (a group, a trigger, a dedupe key) is
NULL and in partial indexes, so it costs the others nothing. No foreign key is checked on this path: the statements copy the tenant and the
definition from rows that they read in the same transaction, and `doctor()` looks for strays.
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
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    literal_column,
)

from penstock.core.status import TERMINAL, RetryMode, RunStatus, Source, WaitsFor
from penstock.store.tables.base import check_filled, check_in, metadata, where
from penstock.store.types import Id, JsonDoc, UtcTime

# First what is never NULL, and of that what has a fixed width: PostgreSQL finds those without walking through the row.
jobs = Table(
    "penstock_jobs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("tenant_id", Id, nullable=False),
    Column("root_id", Id, nullable=False),
    Column("scheduled_for", UtcTime, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("queue", Text, nullable=False),
    Column("definition_key", Text, nullable=False),
    Column("retry_mode", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("params", JsonDoc, nullable=False),
    Column("definition_id", Id),
    Column("source_ref", Text),
    Column("dedupe_key", Text),
    Column("correlation_id", Text),
    Column("retry_of", Id),
    Column("group_id", Id),
    Column("group_position", Integer),
    Column("trigger_id", Id),
    Column("tick_at", UtcTime),
    Column("created_by", Text),
    Column("trace", JsonDoc),
    check_in("source", Source),
    check_in("retry_mode", RetryMode),
    check_filled("definition_key"),
    check_filled("queue"),
    CheckConstraint("max_attempts >= 1", name="max_attempts_positive"),
    CheckConstraint("(group_id IS NULL) = (group_position IS NULL)", name="group_has_position"),
    CheckConstraint("retry_of IS NULL OR retry_of <> id", name="not_its_own_retry"),
)
# A tenant's jobs, newest first (ids grow with time), whatever their state.
Index("ix_penstock_jobs_list", jobs.c.tenant_id, jobs.c.id)
Index("uq_penstock_jobs_retry_of", jobs.c.retry_of, unique=True, **where("retry_of IS NOT NULL"))
Index("ix_penstock_jobs_chain", jobs.c.root_id, **where("retry_of IS NOT NULL"))
Index("ix_penstock_jobs_group", jobs.c.group_id, jobs.c.group_position, jobs.c.id, **where("group_id IS NOT NULL"))
Index(
    "uq_penstock_jobs_tick",
    jobs.c.trigger_id,
    jobs.c.tick_at,
    unique=True,
    **where("tick_at IS NOT NULL AND retry_of IS NULL"),
)
Index("ix_penstock_jobs_trigger", jobs.c.trigger_id, jobs.c.id, **where("trigger_id IS NOT NULL"))
Index("ix_penstock_jobs_correlation", jobs.c.tenant_id, jobs.c.correlation_id, **where("correlation_id IS NOT NULL"))

# The active job of a dedupe key: a row while that job waits, is ready or runs, and only for jobs that have such a key (P6).
dedupe = Table(
    "penstock_dedupe",
    metadata,
    Column("tenant_id", Id, nullable=False),
    Column("dedupe_key", Text, nullable=False),
    Column("job_id", Id, nullable=False),
    PrimaryKeyConstraint("tenant_id", "dedupe_key"),
    sqlite_with_rowid=False,
)


CARRIED = (
    "job_id", "tenant_id", "queued_at", "priority", "attempt_no", "max_attempts", "crashes", "interruptions", "suspect", "queue",
    "definition_key", "definition_id", "group_id", "trigger_id", "dedupe_key",
)  # fmt: skip
"""What a job carries from table to table. `attempt_no` counts the attempts so far, in `running` with the one under way; of them
`interruptions` were cut short by no fault of the job, and `crashes` are those in a row that took their worker with them. A
`suspect` was in a worker's hands when that died."""


def _id_and_times() -> list[Column[object]]:
    return [
        Column("job_id", Id, nullable=False),
        Column("tenant_id", Id, nullable=False),
        Column("queued_at", UtcTime, nullable=False),
    ]


def _counts() -> list[Column[object]]:
    return [
        Column("priority", Integer, nullable=False),
        Column("attempt_no", Integer, nullable=False),
        Column("max_attempts", Integer, nullable=False),
        Column("crashes", Integer, nullable=False),
        Column("interruptions", Integer, nullable=False),
        Column("suspect", Boolean, nullable=False),
    ]


def _names() -> list[Column[object]]:
    return [
        Column("queue", Text, nullable=False),
        Column("definition_key", Text, nullable=False),
        Column("definition_id", Id),
        Column("group_id", Id),
        Column("trigger_id", Id),
        Column("dedupe_key", Text),
    ]


waiting = Table(
    "penstock_waiting",
    metadata,
    *_id_and_times(),
    *_counts(),
    Column("reason", Text, nullable=False),
    *_names(),
    # When a job that waits for its time is due, or was, if it waits for a slot now.
    Column("until", UtcTime),
    # Its turn in the group that it waits for.
    Column("group_position", Integer),
    PrimaryKeyConstraint("tenant_id", "job_id"),
    check_in("reason", WaitsFor),
    CheckConstraint("reason <> 'time' OR until IS NOT NULL", name="until_if_time"),
    CheckConstraint(
        "reason <> 'group' OR (group_id IS NOT NULL AND group_position IS NOT NULL)", name="group_is_known"
    ),
    CheckConstraint("attempt_no >= 0 AND attempt_no < max_attempts", name="attempts_left"),
)
# What waits for its time, so that the future is never scanned.
Index("ix_penstock_waiting_due", waiting.c.until, waiting.c.job_id, **where("reason = 'time'"))
# What waits for a slot or for a resume, in the order it will get one.
Index(
    "ix_penstock_waiting_slot",
    waiting.c.definition_key,
    waiting.c.tenant_id,
    waiting.c.priority,
    waiting.c.queued_at,
    waiting.c.job_id,
    **where("reason = 'limit'"),
)
# A group's next member.
Index(
    "ix_penstock_waiting_turn",
    waiting.c.group_id,
    waiting.c.group_position,
    waiting.c.job_id,
    **where("reason = 'group'"),
)


# Whether a member of a group is on the move: waits for something other than its turn.
def _moves(of: str = "") -> str:
    return f"{of}group_id IS NOT NULL AND {of}reason <> 'group'"


Index("ix_penstock_waiting_group", waiting.c.group_id, **where(_moves()))
# What overlap asks: what a schedule made and is not done yet.
Index("ix_penstock_waiting_trigger", waiting.c.trigger_id, **where("trigger_id IS NOT NULL"))

ready = Table(
    "penstock_ready",
    metadata,
    *_id_and_times(),
    # Since when it could have run.
    Column("ready_at", UtcTime, nullable=False),
    Column("position", BigInteger, nullable=False),
    *_counts(),
    # Whether it holds a slot of a limit.
    Column("slot", Boolean, nullable=False),
    *_names(),
    PrimaryKeyConstraint("tenant_id", "job_id"),
    CheckConstraint("attempt_no >= 0 AND attempt_no < max_attempts", name="attempts_left"),
)
# What a claim reads, in exactly its order; the key comes last so that a worker's filter is answered in the index.
Index(
    "ix_penstock_ready_claim",
    ready.c.queue,
    ready.c.priority,
    ready.c.position,
    ready.c.queued_at,
    ready.c.job_id,
    ready.c.definition_key,
)
# A tenant's last place in the queue, for the next enqueue.
Index("ix_penstock_ready_place", ready.c.tenant_id, ready.c.priority, ready.c.position)
# Who holds a slot of a limit.
Index("ix_penstock_ready_slots", ready.c.definition_key, ready.c.tenant_id, **where("slot"))
Index("ix_penstock_ready_group", ready.c.group_id, **where("group_id IS NOT NULL"))
Index("ix_penstock_ready_trigger", ready.c.trigger_id, **where("trigger_id IS NOT NULL"))

# One open run per job is the primary key (P4). As small as what the workers hold.
running = Table(
    "penstock_running",
    metadata,
    *_id_and_times(),
    Column("run_id", Id, nullable=False),
    Column("ready_at", UtcTime, nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("lease_expires_at", UtcTime, nullable=False),
    Column("position", BigInteger, nullable=False),
    *_counts(),
    Column("slot", Boolean, nullable=False),
    # Whether the run is known to have begun: a claim may wait in its worker's buffer. Said with writes that happen anyway.
    Column("begun", Boolean, nullable=False),
    Column("worker_id", Text, nullable=False),
    *_names(),
    Column("pid", Integer),
    Column("cancel_requested_at", UtcTime),
    Column("progress", JsonDoc),
    Column("stdout_tail", Text),
    Column("stderr_tail", Text),
    Column("artifacts", JsonDoc),
    PrimaryKeyConstraint("job_id"),
    CheckConstraint("attempt_no >= 1 AND attempt_no <= max_attempts", name="attempts_bounded"),
    # Room for a heartbeat's new row on the same page, so that no index is written.
    postgresql_with={"fillfactor": "80"},
)
# What is to stop, which every worker asks for each second. Most often empty.
Index("ix_penstock_running_to_stop", running.c.worker_id, **where("cancel_requested_at IS NOT NULL"))
Index("ix_penstock_running_group", running.c.group_id, **where("group_id IS NOT NULL"))
Index("ix_penstock_running_trigger", running.c.trigger_id, **where("trigger_id IS NOT NULL"))

# What most end as comes first: a check looks no further.
_ENDED = sorted((status.value for status in TERMINAL), key=lambda status: (status != "succeeded", status))
runs = Table(
    "penstock_runs",
    metadata,
    Column("job_id", Id, nullable=False),
    Column("tenant_id", Id, nullable=False),
    Column("finished_at", UtcTime, nullable=False),
    Column("attempt_no", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    # NULL where a job ended without a run, canceled before an attempt: this row only says so, in the place of that attempt.
    Column("id", Id),
    Column("started_at", UtcTime),
    Column("status", Text),
    Column("worker_id", Text),
    # What became of the job, in the row of its last run; NULL in those before it.
    Column("job_status", Text),
    Column("pid", Integer),
    Column("definition_id", Id),
    Column("exit_code", Integer),
    Column("error", Text),
    Column("result", JsonDoc),
    Column("progress", JsonDoc),
    Column("cancel_requested_at", UtcTime),
    # NULL means: as the job's params now. Written before a queued job with earlier runs is changed.
    Column("params_snapshot", JsonDoc),
    Column("stdout_tail", Text),
    Column("stderr_tail", Text),
    Column("artifacts", JsonDoc),
    Column("log_path", Text),
    Column("group_id", Id),
    # Of a member that ended without a run: there may be many of those behind the one whose turn it is.
    Column("group_position", Integer),
    PrimaryKeyConstraint("job_id", "attempt_no"),
    check_in("status", tuple(status.value for status in RunStatus if status is not RunStatus.RUNNING)),
    check_in("job_status", tuple(_ENDED)),
    CheckConstraint("attempt_no >= 1", name="attempt_no_positive"),
    CheckConstraint("finished_at >= started_at", name="ends_after_start"),
    CheckConstraint(
        "(id IS NULL) = (started_at IS NULL) AND (id IS NULL) = (status IS NULL) AND (id IS NULL) = (worker_id IS NULL)",
        name="whole_or_no_run",
    ),
    CheckConstraint("id IS NOT NULL OR coalesce(job_status, '') = 'canceled'", name="without_a_run_only_canceled"),
)
# What has ended: lists, newest first, and counts, by status.
Index("ix_penstock_runs_ended", runs.c.tenant_id, runs.c.job_status, runs.c.job_id, **where("job_status IS NOT NULL"))
# Jobs that a retry took over from, so that recovery can look for one whose retry is missing. Chains only.
Index("ix_penstock_runs_superseded", runs.c.job_id, **where("job_status = 'failed'"))


# Whether a member of a group died: read when a member ends, whatever the group's size.
def _died(of: str = "") -> str:
    return f"{of}group_id IS NOT NULL AND ({of}job_status = 'canceled' OR {of}job_status = 'dead_letter')"


Index("ix_penstock_runs_died_in_group", runs.c.group_id, runs.c.group_position, **where(_died()))

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


# A job with its state, as the Job noun has it. Made by the migrations; not a table.
job_view = Table(
    "penstock_job_view",
    MetaData(),
    *(
        Column(column.name, column.type, primary_key=column.primary_key)
        for column in jobs.columns
        if column.name not in ("max_attempts", "scheduled_for")
    ),
    Column("max_attempts", Integer),
    Column("scheduled_for", UtcTime),
    Column("status", Text),
    Column("waits_for", Text),
    Column("queued_at", UtcTime),
    Column("position", BigInteger),
    Column("attempt_no", Integer),
    Column("started_at", UtcTime),
    Column("finished_at", UtcTime),
    Column("run_id", Id),
    Column("claimed_by", Text),
    Column("lease_expires_at", UtcTime),
    Column("cancel_requested_at", UtcTime),
    Column("progress", JsonDoc),
    Column("result", JsonDoc),
    Column("last_error", Text),
)
JOB_VIEW = """
SELECT j.id, j.tenant_id, j.root_id, j.created_at, j.priority, j.queue, j.definition_key, j.retry_mode, j.source, j.params, j.definition_id,
  j.source_ref, j.dedupe_key, j.correlation_id, j.retry_of, j.group_id, j.group_position, j.trigger_id, j.tick_at, j.created_by, j.trace,
  coalesce(w.max_attempts, r.max_attempts, o.max_attempts, e.max_attempts, j.max_attempts) AS max_attempts,
  coalesce(w.until, CASE WHEN r.attempt_no > 0 THEN r.ready_at END, CASE WHEN o.attempt_no > 1 THEN o.ready_at END, j.scheduled_for)
    AS scheduled_for,
  CASE WHEN o.job_id IS NOT NULL THEN 'running' WHEN w.job_id IS NOT NULL OR r.job_id IS NOT NULL THEN 'queued' ELSE e.job_status END AS status,
  w.reason AS waits_for, coalesce(w.queued_at, r.queued_at, o.queued_at, j.created_at) AS queued_at,
  coalesce(r.position, o.position, 0) AS position,
  coalesce(w.attempt_no, r.attempt_no, o.attempt_no, CASE WHEN e.id IS NULL THEN e.attempt_no - 1 ELSE e.attempt_no END, 0) AS attempt_no,
  coalesce((SELECT f.started_at FROM penstock_runs f WHERE f.job_id = j.id AND f.id IS NOT NULL ORDER BY f.attempt_no LIMIT 1), o.started_at)
    AS started_at,
  CASE WHEN e.job_status IS NOT NULL THEN e.finished_at END AS finished_at,
  coalesce(o.run_id, e.id, l.id) AS run_id, coalesce(o.worker_id, e.worker_id, l.worker_id) AS claimed_by, o.lease_expires_at,
  CASE WHEN o.job_id IS NOT NULL THEN o.cancel_requested_at WHEN e.job_status IS NOT NULL THEN e.cancel_requested_at END AS cancel_requested_at,
  coalesce(o.progress, e.progress) AS progress, CASE WHEN e.job_status IS NOT NULL THEN e.result END AS result, e.error AS last_error
FROM penstock_jobs j
LEFT JOIN penstock_waiting w ON w.tenant_id = j.tenant_id AND w.job_id = j.id
LEFT JOIN penstock_ready r ON r.tenant_id = j.tenant_id AND r.job_id = j.id
LEFT JOIN penstock_running o ON o.job_id = j.id
LEFT JOIN penstock_runs e ON e.job_id = j.id
  AND e.attempt_no = (SELECT x.attempt_no FROM penstock_runs x WHERE x.job_id = j.id ORDER BY x.attempt_no DESC LIMIT 1)
LEFT JOIN penstock_runs l ON l.job_id = e.job_id AND e.id IS NULL AND l.attempt_no = e.attempt_no - 1
"""


def waiting_for(what: WaitsFor) -> ColumnElement[bool]:
    """Written into the statement, not bound to it: else the planner cannot see that a partial index fits."""
    return waiting.c.reason == literal_column(f"'{what.value}'")


def moves_in_group() -> ColumnElement[bool]:
    """Whether a job in `waiting` waits for something other than its turn in its group."""
    return literal_column(_moves("penstock_waiting."))


def died_in_group() -> ColumnElement[bool]:
    return literal_column(_died("penstock_runs."))


def holds_slot() -> ColumnElement[bool]:
    """Of a job in `ready`; written as its partial index has it."""
    return literal_column("penstock_ready.slot")


def ended_as(status: str) -> ColumnElement[bool]:
    """Of a row in `runs`: that its job ended so. Written so that the index of what has ended fits."""
    known = runs.c.job_status == literal_column(f"'{status}'")
    return known & runs.c.job_status.is_not(None)
