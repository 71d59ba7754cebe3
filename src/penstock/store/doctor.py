"""Each promise as queries over the live database. A row in the answer is a violation; a clean database answers none.

The same text runs on both databases. `:now` is the clock that rules, `:overdue` is the time before which recovery should
have been there. `:lease_overdue` and `:lease_later` are as far from the time that leases are counted by. P12 is not in the rows: it stands on the indexes, so those are looked for. P13 is held by the place that a
job is given; moves and cancels may put a tenant far from its turn rightfully, so that is a warning.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Integer, bindparam, text

from penstock.core.nouns import Violation, Warning_
from penstock.store.database import WRONG_CLOCK_SECONDS, Tx
from penstock.store.tables import metadata
from penstock.store.types import UtcTime


class Check(NamedTuple):
    name: str
    promise: str
    sql: str


CHECKS = (
    Check(
        "running job without its open run", "P2",
        "SELECT j.id FROM penstock_jobs j LEFT JOIN penstock_runs r ON r.job_id = j.id AND r.id = j.run_id AND r.status = 'running'"
        " WHERE j.status = 'running' AND r.id IS NULL",
    ),
    Check(
        "open run whose job is not running on it", "P2",
        "SELECT r.id FROM penstock_runs r LEFT JOIN penstock_jobs j ON j.id = r.job_id AND j.run_id = r.id AND j.status = 'running'"
        " WHERE r.status = 'running' AND j.id IS NULL",
    ),
    Check(
        "run without a job", "P2",
        "SELECT r.id FROM penstock_runs r LEFT JOIN penstock_jobs j ON j.id = r.job_id WHERE j.id IS NULL",
    ),
    Check(
        "finished run without an end, or that ends before it starts", "P7",
        "SELECT id FROM penstock_runs WHERE (status <> 'running') <> (finished_at IS NOT NULL) OR finished_at < started_at"
        " OR (status = 'running' AND exit_code IS NOT NULL)",
    ),
    Check(
        "more than one open run for a job", "P4",
        "SELECT job_id FROM penstock_runs WHERE status = 'running' GROUP BY job_id HAVING count(*) > 1",
    ),
    Check(
        "chain job that ran more than once", "P4",
        "SELECT j.id FROM penstock_jobs j JOIN penstock_runs r ON r.job_id = j.id WHERE j.retry_mode = 'chain'"
        " GROUP BY j.id HAVING count(*) > 1",
    ),
    Check(
        "more than one success for one request", "P3",
        "SELECT root_id FROM penstock_jobs WHERE status = 'succeeded' AND (retry_of IS NOT NULL OR id IN"
        " (SELECT root_id FROM penstock_jobs WHERE retry_of IS NOT NULL)) GROUP BY root_id HAVING count(*) > 1"
        " UNION ALL SELECT job_id FROM penstock_runs WHERE status IN ('succeeded', 'skipped') AND job_id IN"
        " (SELECT id FROM penstock_jobs WHERE status IN ('succeeded', 'queued', 'running'))"
        " AND status = 'succeeded' GROUP BY job_id HAVING count(*) > 1",
    ),
    Check(
        "job that ended otherwise than its last run", "P2",
        "SELECT j.id FROM penstock_jobs j LEFT JOIN penstock_runs r ON r.job_id = j.id AND r.id = j.run_id"
        " WHERE (j.status = 'succeeded' AND (r.id IS NULL OR r.status NOT IN ('succeeded', 'skipped')))"
        " OR (j.status IN ('failed', 'dead_letter') AND (r.id IS NULL OR r.status IN ('running', 'succeeded')))",
    ),
    Check(
        "lease on a job that is not running, or a running job without one", "P3",
        "SELECT id FROM penstock_jobs WHERE (status = 'running') <> (lease_expires_at IS NOT NULL)"
        " OR (status = 'running' AND (claimed_by IS NULL OR run_id IS NULL))",
    ),
    Check(
        "running past its lease for longer than recovery may take", "P11",
        "SELECT id FROM penstock_jobs WHERE status = 'running' AND lease_expires_at < :lease_overdue",
    ),
    Check(
        # A changed timeout counts from its change on: what ran already began under another one.
        "running for longer than its timeout allows", "P11",
        "SELECT j.id FROM penstock_jobs j JOIN penstock_runs r ON r.job_id = j.id AND r.id = j.run_id"
        " JOIN penstock_definitions d ON d.id = j.definition_id WHERE j.status = 'running'"
        " AND r.started_at + SECONDS(d.timeout_seconds) < :overdue AND d.updated_at + SECONDS(d.timeout_seconds) < :overdue",
    ),
    Check(
        "lease that ends later than any lease may", "P11",
        "SELECT id FROM penstock_jobs WHERE status = 'running' AND lease_expires_at - SECONDS(86400) > :lease_later",
    ),
    Check(
        # A worker says every few seconds how many runs it has in hand. What it held then and still holds must be among them. A worker
        # that comes over HTTP says so only when it claims.
        "worker that holds runs which have ended there", "P11",
        "SELECT w.id FROM penstock_workers w JOIN penstock_jobs j ON j.claimed_by = w.id AND j.status = 'running'"
        " JOIN penstock_runs r ON r.job_id = j.id AND r.id = j.run_id AND r.started_at < :overdue"
        " WHERE w.stopped_at IS NULL AND w.last_seen_at > :overdue AND CAST(w.metadata AS text) NOT LIKE '%\"by\"%\"api\"%'"
        " GROUP BY w.id, w.running_count HAVING count(*) > w.running_count",
    ),
    Check(
        "attempts beyond the maximum", "P4",
        "SELECT id FROM penstock_jobs WHERE attempt_no > max_attempts OR attempt_no < 0",
    ),
    Check(
        "attempts that do not match the runs", "P2",
        "SELECT j.id FROM penstock_jobs j JOIN penstock_runs r ON r.job_id = j.id AND r.id = j.run_id WHERE r.attempt_no <> j.attempt_no"
        " UNION ALL SELECT j.id FROM penstock_jobs j LEFT JOIN penstock_runs r ON r.job_id = j.id WHERE j.retry_mode = 'requeue'"
        " GROUP BY j.id, j.attempt_no HAVING count(r.id) <> j.attempt_no",
    ),
    Check(
        "one run id for two runs", "P3",
        "SELECT id FROM penstock_runs GROUP BY id HAVING count(*) > 1",
    ),
    Check(
        "superseded job without its retry", "P1",
        "SELECT j.id FROM penstock_jobs j LEFT JOIN penstock_jobs n ON n.retry_of = j.id"
        " WHERE j.status = 'failed' AND j.retry_mode = 'chain' AND j.attempt_no < j.max_attempts AND n.id IS NULL",
    ),
    Check(
        "retry chain that forks or changes what it retries", "P4",
        "SELECT retry_of FROM penstock_jobs WHERE retry_of IS NOT NULL GROUP BY retry_of HAVING count(*) > 1"
        " UNION ALL SELECT n.id FROM penstock_jobs n JOIN penstock_jobs p ON p.id = n.retry_of WHERE n.tenant_id <> p.tenant_id"
        " OR n.definition_key <> p.definition_key OR n.root_id <> p.root_id OR n.attempt_no < p.attempt_no"
        " OR p.status IN ('queued', 'running', 'succeeded')",
    ),
    Check(
        "two active jobs of one dedupe key", "P6",
        "SELECT min(CAST(id AS text)) FROM penstock_jobs WHERE dedupe_key IS NOT NULL AND status IN ('queued', 'running')"
        " GROUP BY tenant_id, dedupe_key HAVING count(*) > 1",
    ),
    Check(
        "claimable flag that contradicts the status", "P5",
        "SELECT id FROM penstock_jobs WHERE claimable <> (status = 'queued' AND waits_for IS NULL)"
        " OR (waits_for IS NOT NULL AND status <> 'queued')",
    ),
    Check(
        "due for longer than recovery may take and still waiting for its time", "P5",
        # A member of a group may have waited for its turn long past its time; it is due since its turn came.
        "SELECT id FROM penstock_jobs WHERE waits_for = 'time' AND scheduled_for < :overdue AND group_id IS NULL AND EXISTS"
        " (SELECT 1 FROM penstock_jobs c WHERE c.status = 'running' AND c.started_at > :overdue)",
    ),
    Check(
        "job in a queue that nobody can see", "P5",
        "SELECT j.id FROM penstock_jobs j LEFT JOIN penstock_queues q ON q.name = j.queue WHERE j.status = 'queued' AND q.name IS NULL",
    ),
    Check(
        "started before it was asked for, or ended before it started", "P7",
        "SELECT id FROM penstock_jobs WHERE started_at < created_at OR finished_at < started_at"
        " OR (status IN ('running', 'succeeded', 'failed', 'dead_letter') AND started_at IS NULL)",
    ),
    Check(
        "run that started before its job was due", "P5",
        "SELECT r.id FROM penstock_runs r JOIN penstock_jobs j ON j.id = r.job_id AND j.run_id = r.id"
        # A job that was tried, put back and then canceled has a due time after its last run.
        " WHERE j.status NOT IN ('queued', 'canceled') AND r.started_at < j.scheduled_for",
    ),
    Check(
        "terminal job without its end, or active job with one", "P7",
        "SELECT id FROM penstock_jobs WHERE (finished_at IS NOT NULL) <> (status IN ('succeeded', 'failed', 'canceled', 'dead_letter'))",
    ),
    Check(
        "two members of a sequential group under way at once", "P8",
        "SELECT b.id FROM penstock_jobs a JOIN penstock_jobs b ON b.group_id = a.group_id AND b.group_position > a.group_position"
        " JOIN penstock_groups g ON g.id = a.group_id AND g.mode = 'sequential'"
        " WHERE a.status IN ('queued', 'running') AND coalesce(a.waits_for, '') <> 'group' AND (b.status = 'running' OR b.claimable)",
    ),
    Check(
        "sequential group whose next member was never let go", "P8",
        "SELECT b.id FROM penstock_jobs b JOIN penstock_groups g ON g.id = b.group_id AND g.mode = 'sequential'"
        " WHERE b.waits_for = 'group' AND NOT EXISTS (SELECT 1 FROM penstock_jobs a WHERE a.group_id = b.group_id"
        " AND a.status IN ('queued', 'running') AND coalesce(a.waits_for, '') <> 'group')",
    ),
    Check(
        "two active reservations of one tenant", "P9",
        "SELECT min(CAST(id AS text)) FROM penstock_reservations WHERE status = 'active' GROUP BY tenant_id HAVING count(*) > 1",
    ),
    Check(
        "claimed while its tenant was reserved", "P9",
        "SELECT r.id FROM penstock_runs r JOIN penstock_reservations v ON v.tenant_id = r.tenant_id"
        " WHERE v.status = 'active' AND r.started_at > v.reserved_at AND r.started_at < v.expires_at AND v.expires_at > :now",
    ),
    Check(
        "active reservation past its expiry for longer than recovery may take", "P9",
        "SELECT id FROM penstock_reservations WHERE status = 'active' AND expires_at < :overdue",
    ),
    Check(
        "run of another tenant than its job", "P10",
        "SELECT r.id FROM penstock_runs r JOIN penstock_jobs j ON j.id = r.job_id WHERE r.tenant_id <> j.tenant_id",
    ),
    Check(
        "job, trigger or tick that reaches into another tenant", "P10",
        "SELECT j.id FROM penstock_jobs j JOIN penstock_definitions d ON d.id = j.definition_id"
        " WHERE d.tenant_id IS NOT NULL AND d.tenant_id <> j.tenant_id"
        " UNION ALL SELECT j.id FROM penstock_jobs j JOIN penstock_groups g ON g.id = j.group_id WHERE g.tenant_id <> j.tenant_id"
        " UNION ALL SELECT j.id FROM penstock_jobs j JOIN penstock_triggers t ON t.id = j.trigger_id WHERE t.tenant_id <> j.tenant_id"
        " UNION ALL SELECT t.id FROM penstock_triggers t JOIN penstock_definitions d ON d.id = t.definition_id"
        "  WHERE d.tenant_id IS NOT NULL AND d.tenant_id <> t.tenant_id",
    ),
    Check(
        "job without a tenant", "P10",
        "SELECT j.id FROM penstock_jobs j LEFT JOIN penstock_tenants t ON t.id = j.tenant_id WHERE t.id IS NULL",
    ),
    Check(
        # A fired tick may outlive its job, which is pruned first.
        "tick with more than one job, or a skipped one with a job", "P6",
        "SELECT t.trigger_id FROM penstock_ticks t LEFT JOIN penstock_jobs j ON j.trigger_id = t.trigger_id AND j.tick_at = t.tick_at"
        " AND j.retry_of IS NULL GROUP BY t.trigger_id, t.tick_at, t.outcome, t.job_id"
        " HAVING count(j.id) > 1 OR (t.outcome <> 'fired' AND count(j.id) > 0)",
    ),
    Check(
        "schedule's job without its tick", "P6",
        "SELECT j.id FROM penstock_jobs j LEFT JOIN penstock_ticks t ON t.trigger_id = j.trigger_id AND t.tick_at = j.tick_at"
        " WHERE j.tick_at IS NOT NULL AND t.trigger_id IS NULL",
    ),
    Check(
        "tick that names another job than the one it made", "P6",
        "SELECT t.trigger_id FROM penstock_ticks t JOIN penstock_jobs j ON j.trigger_id = t.trigger_id AND j.tick_at = t.tick_at"
        " AND j.retry_of IS NULL WHERE t.job_id <> j.id",
    ),
    Check(
        "tick from before its trigger existed", "P6",
        "SELECT t.trigger_id FROM penstock_ticks t JOIN penstock_triggers g ON g.id = t.trigger_id WHERE t.tick_at < g.created_at",
    ),
    Check(
        # What ran already when the limit was lowered may go on; nothing may be let through beside it.
        "more jobs let through than a definition's limit", "P5",
        "SELECT d.id FROM penstock_definitions d JOIN penstock_jobs j ON j.definition_id = d.id AND j.slot"
        " LEFT JOIN penstock_runs r ON r.job_id = j.id AND r.id = j.run_id AND r.status = 'running'"
        " WHERE d.max_running IS NOT NULL GROUP BY d.id, d.max_running HAVING count(*) > d.max_running"
        " AND max(CASE WHEN j.claimable OR r.started_at > d.updated_at THEN 1 ELSE 0 END) = 1",
    ),
    Check(
        "job let through although its tenant's limit is reached", "P5",
        "SELECT t.id FROM penstock_tenants t JOIN penstock_jobs j ON j.tenant_id = t.id AND j.slot"
        " WHERE t.max_running IS NOT NULL GROUP BY t.id, t.max_running HAVING count(*) > t.max_running"
        " AND max(CASE WHEN j.claimable THEN 1 ELSE 0 END) = 1",
    ),
    Check(
        "member of a group that is not there", "P8",
        "SELECT j.id FROM penstock_jobs j LEFT JOIN penstock_groups g ON g.id = j.group_id WHERE j.group_id IS NOT NULL AND g.id IS NULL",
    ),
    Check(
        "delivery attempts that skip a number", "P7",
        "SELECT message_id FROM penstock_deliveries GROUP BY webhook_id, message_id HAVING count(*) <> max(attempt)",
    ),
)  # fmt: skip


_INTERVAL = {"postgresql": r"make_interval(secs => \1)", "sqlite": r"(\1 * 1000000)"}
"""`SECONDS(…)` in a check, added to a time: SQLite's times are microseconds."""

MISSING_INDEX = "index that is missing or invalid"


OLD_TRANSACTION_SECONDS = 60.0
LARGE_WAL_BYTES = 64 * 1024 * 1024


def violations(tx: Tx, grace: float, most: int = 20) -> list[Violation]:
    now = tx.time()
    lease_now, span = tx.lease_time() or now, timedelta(seconds=grace)
    moments = {"now": now, "overdue": now - span, "lease_overdue": lease_now - span, "lease_later": lease_now + span}
    found = []
    for check in CHECKS:
        params = {name: moment for name, moment in moments.items() if f":{name}" in check.sql}
        binds = [bindparam(name, type_=UtcTime()) for name in params]
        sql = re.sub(r"SECONDS\((.*?)\)", _INTERVAL[tx.dialect.name], check.sql)
        rows = tx.rows(text(f"{sql} LIMIT {most}").bindparams(*binds), params)
        if rows:
            found.append(Violation(check.name, check.promise, tuple(str(row[0]) for row in rows)))
    missing = _missing_indexes(tx)
    if missing:
        found.append(Violation(MISSING_INDEX, "P12", tuple(missing[:most])))
    return found


def _missing_indexes(tx: Tx) -> list[str]:
    """Without its indexes a claim reads the whole backlog. PostgreSQL leaves an invalid one when building it failed."""
    there = (
        "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indisvalid AND i.indisready"
        if tx.dialect.name == "postgresql"
        else "SELECT name FROM sqlite_master WHERE type = 'index'"
    )
    present = {row[0] for row in tx.rows(text(there))}
    return sorted({str(index.name) for table in metadata.tables.values() for index in table.indexes} - present)


def warnings(tx: Tx) -> list[Warning_]:
    of_dialect = _postgres_warnings(tx) if tx.dialect.name == "postgresql" else _sqlite_warnings(tx)
    return [*of_dialect, *_far_from_their_turn(tx)]


def _far_from_their_turn(tx: Tx) -> list[Warning_]:
    """Tenants whose first waiting job comes long after everybody else's (P13)."""
    query = text(
        "SELECT t.slug, a.priority, (a.first - c.clock) / 100 AS turns FROM"
        " (SELECT tenant_id, priority, min(position) AS first FROM penstock_jobs WHERE claimable GROUP BY tenant_id, priority) a"
        " JOIN (SELECT priority, min(position) AS clock FROM penstock_jobs WHERE claimable GROUP BY priority) c"
        " ON c.priority = a.priority JOIN penstock_tenants t ON t.id = a.tenant_id"
        " WHERE a.first - c.clock > 100000 ORDER BY 3 DESC LIMIT 5"
    )
    return [
        Warning_(
            "tenant far from its turn",
            f"The first waiting job of {row.slug!r} at priority {row.priority} comes about {row.turns} turns after another "
            "tenant's: look for a queue or a key that no worker serves, or for jobs that were canceled in bulk.",
        )
        for row in tx.rows(query)
    ]


def _postgres_warnings(tx: Tx) -> list[Warning_]:
    found = []
    old = tx.rows(
        text(
            "SELECT pid, round(extract(epoch FROM now() - xact_start)) AS age FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            " AND xact_start < now() - make_interval(secs => :old) ORDER BY xact_start LIMIT 5"
        ),
        {"old": OLD_TRANSACTION_SECONDS},
    )
    for row in old:
        message = f"The transaction of backend {row.pid} has been open for {row.age} s: the queue slows down while it is. End it."
        found.append(Warning_("old open transaction", message))
    asynchronous = tx.rows(text("SELECT application_name FROM pg_stat_replication WHERE sync_state = 'async'"))
    for row in asynchronous:
        message = (
            f"The standby {row.application_name} is asynchronous: jobs acknowledged just before a failover can be lost."
        )
        found.append(Warning_("asynchronous standby", message))
    if tx.scalar(text("SELECT current_setting('synchronous_commit')")) == "off":
        found.append(
            Warning_("asynchronous commit", "synchronous_commit is off: acknowledged jobs can be lost in a crash.")
        )
    if tx.scalar(text("SELECT current_setting('fsync')")) == "off":
        found.append(Warning_("no fsync", "fsync is off: a power cut can lose or corrupt everything."))
    return found


def _sqlite_warnings(tx: Tx) -> list[Warning_]:
    found = []
    path = tx.conn.engine.url.database
    wal = Path(f"{path}-wal")
    if path and wal.exists() and wal.stat().st_size > LARGE_WAL_BYTES:
        size = wal.stat().st_size // (1024 * 1024)
        message = f"The write-ahead log has grown to {size} MiB: some reader keeps a transaction open. Find and end it."
        found.append(Warning_("large write-ahead log", message))
    if path and _open_to_all(Path(path).absolute()):
        message = (
            f"Every user of this machine can read {path}, with the params and results of every job. Set its mode to 600 (and that "
            "of the files -wal and -shm beside it), or that of its directory to 700."
        )
        found.append(Warning_("database file open to all", message))
    return [*found, *_clock_warnings(tx)]


def _open_to_all(path: Path) -> bool:
    """Whether any user of this machine may open the file, by its permissions and those of the directories above it."""
    try:
        return bool(path.stat().st_mode & stat.S_IROTH) and all(
            folder.stat().st_mode & stat.S_IXOTH for folder in path.parents
        )
    except OSError:
        return False


def _clock_warnings(tx: Tx) -> Iterator[Warning_]:
    """What a machine whose time was set leaves behind. All compared with the machine's time as it is now."""
    now = tx.time()
    soon = now + timedelta(seconds=WRONG_CLOCK_SECONDS)
    latest = tx.scalar(text("SELECT latest FROM penstock_clock").columns(latest=UtcTime()))
    if latest is not None and latest > soon:
        yield Warning_(
            "clock that ran backwards",
            f"The machine's clock is {_span(latest - now)} behind the latest time this database has seen. Check its time service. "
            "If it is right now, `penstock recover` forgets the other time.",
        )
    query = (
        "SELECT count(*), max(max(created_at, queued_at, coalesce(started_at, 0), coalesce(finished_at, 0))) AS latest"
        " FROM penstock_jobs WHERE max(created_at, queued_at, coalesce(started_at, 0), coalesce(finished_at, 0)) > :soon"
    )
    count, latest = tx.first(
        text(query).bindparams(bindparam("soon", type_=UtcTime())).columns(count=Integer(), latest=UtcTime()),
        {"soon": soon},
    )
    if count:
        yield Warning_(
            "times in the future",
            f"{count:,} jobs were stamped while the machine's clock was ahead, by up to {_span(latest - now)}. They run as others "
            "do, but a retry or a delay that was counted from such a time comes that much too late.",
        )
    apart = (tx.lease_time() or now) - now
    if abs(apart) > timedelta(seconds=WRONG_CLOCK_SECONDS):
        yield Warning_(
            "lease clock apart from the machine's",
            f"Leases are shown {_span(apart)} {'later' if apart > timedelta() else 'earlier'} than they end, because the machine's "
            "clock was set since it booted. They hold as long as they should. `penstock recover` sets them right while no worker runs.",
        )


def _span(apart: timedelta) -> str:
    seconds = abs(apart.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size or (seconds >= size and seconds % size < 1):
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
