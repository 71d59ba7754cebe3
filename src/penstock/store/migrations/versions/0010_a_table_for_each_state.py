"""A job's state becomes the table that it is in: `waiting`, `ready` or `running`, or its last row in `runs`.

Every job and run is copied, by ranges of ids, in the one transaction that every upgrade is. One that is killed leaves the tables
as they were, and is run again. Batches with a transaction each could go on where they stopped, but nobody could use the database
in between, neither with this program nor with the one before, and going back would need a second copy. The price is the room:
until the end the disk holds both copies. Memory does not grow with the tables. The indexes are built after the copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from alembic import op

from penstock.store.migrations.frozen import Id, JsonDoc, UtcTime, now

revision = "0010"
down_revision = "0009"

JOBS, DEDUPE, RUNS = "penstock_jobs", "penstock_dedupe", "penstock_runs"
WAITING, READY, RUNNING = "penstock_waiting", "penstock_ready", "penstock_running"

INDEXES: tuple[tuple[str, str, list[str], str | None], ...] = (
    ("ix_penstock_jobs_chain", JOBS, ["root_id"], "retry_of IS NOT NULL"),
    ("ix_penstock_jobs_correlation", JOBS, ["tenant_id", "correlation_id"], "correlation_id IS NOT NULL"),
    ("ix_penstock_jobs_group", JOBS, ["group_id", "group_position", "id"], "group_id IS NOT NULL"),
    ("ix_penstock_jobs_list", JOBS, ["tenant_id", "id"], None),
    ("ix_penstock_jobs_trigger", JOBS, ["trigger_id", "id"], "trigger_id IS NOT NULL"),
    ("uq_penstock_jobs_retry_of", JOBS, ["retry_of"], "retry_of IS NOT NULL"),
    ("uq_penstock_jobs_tick", JOBS, ["trigger_id", "tick_at"], "tick_at IS NOT NULL AND retry_of IS NULL"),
    ("ix_penstock_waiting_due", WAITING, ["until", "job_id"], "reason = 'time'"),
    ("ix_penstock_waiting_group", WAITING, ["group_id"], "group_id IS NOT NULL AND reason <> 'group'"),
    ("ix_penstock_waiting_slot", WAITING, ["definition_key", "tenant_id", "priority", "queued_at", "job_id"], "reason = 'limit'"),
    ("ix_penstock_waiting_trigger", WAITING, ["trigger_id"], "trigger_id IS NOT NULL"),
    ("ix_penstock_waiting_turn", WAITING, ["group_id", "group_position", "job_id"], "reason = 'group'"),
    ("ix_penstock_ready_claim", READY, ["queue", "priority", "position", "queued_at", "job_id", "definition_key"], None),
    ("ix_penstock_ready_group", READY, ["group_id"], "group_id IS NOT NULL"),
    ("ix_penstock_ready_place", READY, ["tenant_id", "priority", "position"], None),
    ("ix_penstock_ready_slots", READY, ["definition_key", "tenant_id"], "slot"),
    ("ix_penstock_ready_trigger", READY, ["trigger_id"], "trigger_id IS NOT NULL"),
    ("ix_penstock_running_group", RUNNING, ["group_id"], "group_id IS NOT NULL"),
    ("ix_penstock_running_to_stop", RUNNING, ["worker_id"], "cancel_requested_at IS NOT NULL"),
    ("ix_penstock_running_trigger", RUNNING, ["trigger_id"], "trigger_id IS NOT NULL"),
    ("ix_penstock_runs_died_in_group", RUNS, ["group_id", "group_position"], "group_id IS NOT NULL AND (job_status = 'canceled' OR job_status = 'dead_letter')"),
    ("ix_penstock_runs_ended", RUNS, ["tenant_id", "job_status", "job_id"], "job_status IS NOT NULL"),
    ("ix_penstock_runs_superseded", RUNS, ["job_id"], "job_status = 'failed'"),
)  # fmt: skip
"""Name, table, columns and condition. Those whose names begin with `uq` are unique."""

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


BATCH = 10_000
"""How many jobs are copied between two reports of how far it is."""
FIRST, LAST = UUID(int=0), UUID(int=2**128 - 1)

_KEPT = (
    "id, tenant_id, root_id, scheduled_for, created_at, priority, max_attempts, queue, definition_key, retry_mode, source, params,"
    " definition_id, source_ref, dedupe_key, correlation_id, retry_of, group_id, group_position, trigger_id, tick_at, created_by, trace"
)
_CARRIED = (
    "tenant_id, queued_at, priority, crashes, interruptions, suspect, queue, definition_key, definition_id, group_id, trigger_id,"
    " dedupe_key"
)
_CARRIED_OF_J = ", ".join(f"j.{name.strip()}" for name in _CARRIED.split(","))
_ENDED = (
    "(r.attempt_no = j.attempt_no AND j.finished_at IS NOT NULL"
    " AND (j.status <> 'canceled' OR r.status = 'running' OR j.finished_at <= r.finished_at))"
)
"""Whether a job ended with this run. One that was canceled while it waited for another attempt ended later than its last run."""


def upgrade() -> None:
    on_postgresql = op.get_bind().dialect.name == "postgresql"
    _set_aside(on_postgresql)
    _make_tables()
    _copy("greatest" if on_postgresql else "max")
    _drop_what_was()
    _make_indexes()
    if on_postgresql:
        op.execute(sa.text(f"ANALYZE {JOBS}, {DEDUPE}, {WAITING}, {READY}, {RUNNING}, {RUNS}"))
    op.execute(sa.text(f"CREATE VIEW penstock_job_view AS {JOB_VIEW}"))


def _set_aside(on_postgresql: bool) -> None:
    """PostgreSQL's primary keys are indexes, whose names are of the whole database. The other indexes go with their tables before
    the new ones are made."""
    if on_postgresql:
        op.execute(sa.text(f"LOCK TABLE {JOBS}, {RUNS} IN ACCESS EXCLUSIVE MODE"))
    for table in (JOBS, RUNS):
        op.rename_table(table, f"{table}_before")
        if on_postgresql:
            op.execute(sa.text(f"ALTER INDEX pk_{table} RENAME TO pk_{table}_before"))


def _copy(largest: str) -> None:
    bind = op.get_bind()
    tell: Callable[[str, int, int], None] | None = op.get_context().opts.get("progress")
    total = bind.execute(sa.text(f"SELECT count(*) FROM {JOBS}_before")).scalar_one()
    ids = [sa.bindparam("after", type_=Id()), sa.bindparam("upto", type_=Id())]
    copies = [sa.text(copy).bindparams(*ids) for copy in (*_of_jobs(largest), *_of_runs(largest))]
    end_of_batch = sa.text(f"SELECT id FROM {JOBS}_before WHERE id > :after ORDER BY id LIMIT 1 OFFSET {BATCH - 1}")
    end_of_batch = end_of_batch.bindparams(ids[0])
    moment = bind.execute(sa.select(now(bind.dialect.name))).scalar_one()
    done, after = 0, FIRST
    while after < LAST:
        if tell is not None:
            tell("jobs", done, total)
        found = bind.execute(end_of_batch, {"after": after}).scalar()
        upto = LAST if found is None else UUID(str(found))
        for copy in copies:
            bind.execute(copy, {"after": after, "upto": upto, "now": moment})
        done, after = min(done + BATCH, total), upto
    if tell is not None:
        tell("jobs", total, total)


def _of_jobs(largest: str) -> tuple[str, ...]:
    """The statements that copy the jobs whose ids are in a range, with their states."""
    batch = "j.id > :after AND j.id <= :upto"
    ready_at = f"{largest}(j.queued_at, j.scheduled_for)"
    max_attempts = f"{largest}(j.max_attempts, j.attempt_no + 1)"
    return (
        f"INSERT INTO {JOBS} ({_KEPT}) SELECT {_KEPT} FROM {JOBS}_before j WHERE {batch} ORDER BY id",
        f"INSERT INTO {WAITING} (job_id, {_CARRIED}, attempt_no, max_attempts, reason, until, group_position)"
        f" SELECT j.id, {_CARRIED_OF_J}, j.attempt_no, {max_attempts}, j.waits_for,"
        " CASE WHEN j.waits_for <> 'group' THEN j.scheduled_for END, CASE WHEN j.waits_for = 'group' THEN j.group_position END"
        f" FROM {JOBS}_before j WHERE {batch} AND j.status = 'queued' AND j.waits_for IS NOT NULL",
        f"INSERT INTO {READY} (job_id, {_CARRIED}, attempt_no, max_attempts, ready_at, position, slot)"
        f" SELECT j.id, {_CARRIED_OF_J}, j.attempt_no, {max_attempts}, {ready_at}, j.position, j.slot"
        f" FROM {JOBS}_before j WHERE {batch} AND j.status = 'queued' AND j.waits_for IS NULL",
        # Should the row of the open run be lost, the job still knows what recovery needs.
        f"INSERT INTO {RUNNING} (job_id, {_CARRIED}, attempt_no, max_attempts, run_id, ready_at, started_at, lease_expires_at,"
        " position, slot, begun, worker_id, pid, cancel_requested_at, progress, stdout_tail, stderr_tail, artifacts)"
        f" SELECT j.id, {_CARRIED_OF_J}, {largest}(j.attempt_no, 1), j.max_attempts, j.run_id, {ready_at},"
        " coalesce(r.started_at, j.started_at), j.lease_expires_at, j.position, j.slot, j.begun, j.claimed_by, r.pid,"
        " j.cancel_requested_at, j.progress, r.stdout_tail, r.stderr_tail, r.artifacts"
        f" FROM {JOBS}_before j LEFT JOIN {RUNS}_before r ON r.job_id = j.id AND r.id = j.run_id"
        f" WHERE {batch} AND j.status = 'running'",
        f"INSERT INTO {DEDUPE} (tenant_id, dedupe_key, job_id) SELECT j.tenant_id, j.dedupe_key, j.id"
        f" FROM {JOBS}_before j WHERE {batch} AND j.dedupe_key IS NOT NULL AND j.status IN ('queued', 'running')",
    )


def _of_runs(largest: str) -> tuple[str, ...]:
    """The statements that copy the closed runs of these jobs. What a job said of itself goes to its last run, or, if it was
    canceled without one, to a row in the place of the next. A job that ended otherwise had a run; should its row be lost, it is
    made again from what the job knows. A run that is open although its job is not running is closed, as its
    job was, or else as recovery would do; what only a broken database holds, a run without a job or after its job's last attempt, is left behind."""
    ended_without = (
        f"FROM {JOBS}_before j WHERE j.id > :after AND j.id <= :upto AND j.finished_at IS NOT NULL"
        f" AND NOT EXISTS (SELECT 1 FROM {RUNS}_before r WHERE r.job_id = j.id AND {_ENDED})"
    )
    return (
        f"INSERT INTO {RUNS} (job_id, tenant_id, finished_at, attempt_no, max_attempts, id, started_at, status, worker_id,"
        " job_status, pid, definition_id, exit_code, error, result, progress, cancel_requested_at, params_snapshot, stdout_tail,"
        " stderr_tail, artifacts, log_path, group_id)"
        f" SELECT r.job_id, r.tenant_id, coalesce(r.finished_at, {largest}(r.started_at, coalesce(j.finished_at, :now))),"
        " r.attempt_no, j.max_attempts, r.id, r.started_at, CASE WHEN r.status <> 'running' THEN r.status"
        f" WHEN {_ENDED} AND j.status IN ('succeeded', 'canceled') THEN j.status ELSE 'failed' END,"
        f" r.worker_id, CASE WHEN {_ENDED} THEN j.status END, r.pid, r.definition_id, r.exit_code,"
        f" CASE WHEN {_ENDED} THEN coalesce(j.last_error, r.error)"
        " WHEN r.status = 'running' THEN 'crash recovery: its job had moved on' ELSE r.error END,"
        f" CASE WHEN {_ENDED} THEN j.result END, CASE WHEN r.attempt_no = j.attempt_no THEN j.progress END,"
        f" CASE WHEN {_ENDED} THEN j.cancel_requested_at END, r.params_snapshot, r.stdout_tail, r.stderr_tail, r.artifacts,"
        f" r.log_path, j.group_id FROM {JOBS}_before j JOIN {RUNS}_before r ON r.job_id = j.id"
        " WHERE j.id > :after AND j.id <= :upto AND r.job_id > :after AND r.job_id <= :upto"
        " AND (r.attempt_no < j.attempt_no OR (r.attempt_no = j.attempt_no AND j.status <> 'running'))",
        f"INSERT INTO {RUNS} (job_id, tenant_id, finished_at, attempt_no, max_attempts, job_status, definition_id, error, result,"
        " progress, cancel_requested_at, group_id, group_position) SELECT j.id, j.tenant_id, j.finished_at, j.attempt_no + 1,"
        " j.max_attempts, j.status, j.definition_id, j.last_error, j.result, j.progress, j.cancel_requested_at, j.group_id, j.group_position"
        f" {ended_without} AND j.status = 'canceled'",
        f"INSERT INTO {RUNS} (job_id, tenant_id, finished_at, attempt_no, max_attempts, id, started_at, status, worker_id,"
        " job_status, definition_id, error, result, progress, cancel_requested_at, group_id)"
        f" SELECT j.id, j.tenant_id, j.finished_at, {largest}(j.attempt_no, 1), j.max_attempts, coalesce(j.run_id, j.id),"
        " coalesce(j.started_at, j.finished_at), CASE j.status WHEN 'succeeded' THEN 'succeeded' ELSE 'failed' END,"
        " coalesce(j.claimed_by, 'unknown'), j.status, j.definition_id, j.last_error, j.result, j.progress,"
        f" j.cancel_requested_at, j.group_id {ended_without} AND j.status <> 'canceled'",
    )


def _drop_what_was() -> None:
    for table in (JOBS, RUNS):
        op.drop_table(f"{table}_before")


def _make_indexes() -> None:
    for name, table, columns, condition in INDEXES:
        where: dict[str, Any] = (
            {} if condition is None else dict.fromkeys(("postgresql_where", "sqlite_where"), sa.text(condition))
        )
        op.create_index(name, table, columns, unique=name.startswith("uq"), **where)


def _make_tables() -> None:
    op.create_table(
        JOBS,
        sa.Column("id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("root_id", Id(), nullable=False),
        sa.Column("scheduled_for", UtcTime(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("definition_key", sa.Text(), nullable=False),
        sa.Column("retry_mode", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("params", JsonDoc, nullable=False),
        sa.Column("definition_id", Id(), nullable=True),
        sa.Column("source_ref", sa.Text(), nullable=True),
        sa.Column("dedupe_key", sa.Text(), nullable=True),
        sa.Column("correlation_id", sa.Text(), nullable=True),
        sa.Column("retry_of", Id(), nullable=True),
        sa.Column("group_id", Id(), nullable=True),
        sa.Column("group_position", sa.Integer(), nullable=True),
        sa.Column("trigger_id", Id(), nullable=True),
        sa.Column("tick_at", UtcTime(), nullable=True),
        sa.Column("created_by", sa.Text(), nullable=True),
        sa.Column("trace", JsonDoc, nullable=True),
        sa.CheckConstraint(
            "retry_mode = 'requeue' OR retry_mode = 'chain'", name=op.f("ck_penstock_jobs_retry_mode_known")
        ),
        sa.CheckConstraint(
            "source = 'manual' OR source = 'event' OR source = 'schedule' OR source = 'system'",
            name=op.f("ck_penstock_jobs_source_known"),
        ),
        sa.CheckConstraint(
            "(group_id IS NULL) = (group_position IS NULL)", name=op.f("ck_penstock_jobs_group_has_position")
        ),
        sa.CheckConstraint("length(definition_key) > 0", name=op.f("ck_penstock_jobs_definition_key_filled")),
        sa.CheckConstraint("length(queue) > 0", name=op.f("ck_penstock_jobs_queue_filled")),
        sa.CheckConstraint("max_attempts >= 1", name=op.f("ck_penstock_jobs_max_attempts_positive")),
        sa.CheckConstraint("retry_of IS NULL OR retry_of <> id", name=op.f("ck_penstock_jobs_not_its_own_retry")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_penstock_jobs")),
    )
    op.create_table(
        DEDUPE,
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("dedupe_key", sa.Text(), nullable=False),
        sa.Column("job_id", Id(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "dedupe_key", name=op.f("pk_penstock_dedupe")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        WAITING,
        sa.Column("job_id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("queued_at", UtcTime(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempt_no", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("crashes", sa.Integer(), nullable=False),
        sa.Column("interruptions", sa.Integer(), nullable=False),
        sa.Column("suspect", sa.Boolean(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("definition_key", sa.Text(), nullable=False),
        sa.Column("definition_id", Id(), nullable=True),
        sa.Column("group_id", Id(), nullable=True),
        sa.Column("trigger_id", Id(), nullable=True),
        sa.Column("dedupe_key", sa.Text(), nullable=True),
        sa.Column("until", UtcTime(), nullable=True),
        sa.Column("group_position", sa.Integer(), nullable=True),
        sa.CheckConstraint("reason <> 'time' OR until IS NOT NULL", name=op.f("ck_penstock_waiting_until_if_time")),
        sa.CheckConstraint(
            "reason <> 'group' OR (group_id IS NOT NULL AND group_position IS NOT NULL)",
            name=op.f("ck_penstock_waiting_group_is_known"),
        ),
        sa.CheckConstraint(
            "reason = 'time' OR reason = 'group' OR reason = 'limit'", name=op.f("ck_penstock_waiting_reason_known")
        ),
        sa.CheckConstraint(
            "attempt_no >= 0 AND attempt_no < max_attempts", name=op.f("ck_penstock_waiting_attempts_left")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "job_id", name=op.f("pk_penstock_waiting")),
    )
    op.create_table(
        READY,
        sa.Column("job_id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("queued_at", UtcTime(), nullable=False),
        sa.Column("ready_at", UtcTime(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempt_no", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("crashes", sa.Integer(), nullable=False),
        sa.Column("interruptions", sa.Integer(), nullable=False),
        sa.Column("suspect", sa.Boolean(), nullable=False),
        sa.Column("slot", sa.Boolean(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("definition_key", sa.Text(), nullable=False),
        sa.Column("definition_id", Id(), nullable=True),
        sa.Column("group_id", Id(), nullable=True),
        sa.Column("trigger_id", Id(), nullable=True),
        sa.Column("dedupe_key", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "attempt_no >= 0 AND attempt_no < max_attempts", name=op.f("ck_penstock_ready_attempts_left")
        ),
        sa.PrimaryKeyConstraint("tenant_id", "job_id", name=op.f("pk_penstock_ready")),
    )
    op.create_table(
        RUNNING,
        sa.Column("job_id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("queued_at", UtcTime(), nullable=False),
        sa.Column("run_id", Id(), nullable=False),
        sa.Column("ready_at", UtcTime(), nullable=False),
        sa.Column("started_at", UtcTime(), nullable=False),
        sa.Column("lease_expires_at", UtcTime(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("attempt_no", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("crashes", sa.Integer(), nullable=False),
        sa.Column("interruptions", sa.Integer(), nullable=False),
        sa.Column("suspect", sa.Boolean(), nullable=False),
        sa.Column("slot", sa.Boolean(), nullable=False),
        sa.Column("begun", sa.Boolean(), nullable=False),
        sa.Column("worker_id", sa.Text(), nullable=False),
        sa.Column("queue", sa.Text(), nullable=False),
        sa.Column("definition_key", sa.Text(), nullable=False),
        sa.Column("definition_id", Id(), nullable=True),
        sa.Column("group_id", Id(), nullable=True),
        sa.Column("trigger_id", Id(), nullable=True),
        sa.Column("dedupe_key", sa.Text(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("cancel_requested_at", UtcTime(), nullable=True),
        sa.Column("progress", JsonDoc, nullable=True),
        sa.Column("stdout_tail", sa.Text(), nullable=True),
        sa.Column("stderr_tail", sa.Text(), nullable=True),
        sa.Column("artifacts", JsonDoc, nullable=True),
        sa.CheckConstraint(
            "attempt_no >= 1 AND attempt_no <= max_attempts", name=op.f("ck_penstock_running_attempts_bounded")
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_penstock_running")),
        postgresql_with={"fillfactor": "80"},
    )
    op.create_table(
        RUNS,
        sa.Column("job_id", Id(), nullable=False),
        sa.Column("tenant_id", Id(), nullable=False),
        sa.Column("finished_at", UtcTime(), nullable=False),
        sa.Column("attempt_no", sa.Integer(), nullable=False),
        sa.Column("max_attempts", sa.Integer(), nullable=False),
        sa.Column("id", Id(), nullable=True),
        sa.Column("started_at", UtcTime(), nullable=True),
        sa.Column("status", sa.Text(), nullable=True),
        sa.Column("worker_id", sa.Text(), nullable=True),
        sa.Column("job_status", sa.Text(), nullable=True),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("definition_id", Id(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("result", JsonDoc, nullable=True),
        sa.Column("progress", JsonDoc, nullable=True),
        sa.Column("cancel_requested_at", UtcTime(), nullable=True),
        sa.Column("params_snapshot", JsonDoc, nullable=True),
        sa.Column("stdout_tail", sa.Text(), nullable=True),
        sa.Column("stderr_tail", sa.Text(), nullable=True),
        sa.Column("artifacts", JsonDoc, nullable=True),
        sa.Column("log_path", sa.Text(), nullable=True),
        sa.Column("group_id", Id(), nullable=True),
        sa.Column("group_position", sa.Integer(), nullable=True),
        sa.CheckConstraint(
            "job_status = 'succeeded' OR job_status = 'canceled' OR job_status = 'dead_letter' OR job_status = 'failed'",
            name=op.f("ck_penstock_runs_job_status_known"),
        ),
        sa.CheckConstraint(
            "status = 'succeeded' OR status = 'failed' OR status = 'timeout' OR status = 'canceled' OR status = 'skipped'",
            name=op.f("ck_penstock_runs_status_known"),
        ),
        sa.CheckConstraint(
            "(id IS NULL) = (started_at IS NULL) AND (id IS NULL) = (status IS NULL) AND (id IS NULL) = (worker_id IS NULL)",
            name=op.f("ck_penstock_runs_whole_or_no_run"),
        ),
        sa.CheckConstraint("attempt_no >= 1", name=op.f("ck_penstock_runs_attempt_no_positive")),
        sa.CheckConstraint("finished_at >= started_at", name=op.f("ck_penstock_runs_ends_after_start")),
        sa.CheckConstraint(
            "id IS NOT NULL OR coalesce(job_status, '') = 'canceled'",
            name=op.f("ck_penstock_runs_without_a_run_only_canceled"),
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt_no", name=op.f("pk_penstock_runs")),
    )
