"""Whether every promise holds, and what an operator should look at. The promises are in `checks`.

P12 is not in the rows: it stands on the indexes, so those are looked for. P13 is held by the place that a job is given; moves and
cancels may put a tenant far from its turn rightfully, so that is a warning.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from sqlalchemy import Integer, bindparam, text

from penstock.core.nouns import Violation, Warning_
from penstock.store.checks import CHECKS
from penstock.store.database import WRONG_CLOCK_SECONDS, Tx
from penstock.store.tables import metadata
from penstock.store.types import UtcTime

_INTERVAL = {"postgresql": r"make_interval(secs => \1)", "sqlite": r"(\1 * 1000000)"}
"""`SECONDS(…)` in a check: SQLite's times are microseconds."""

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
    expected = {str(index.name) for table in metadata.tables.values() for index in table.indexes}
    if (
        tx.dialect.name == "postgresql"
    ):  # where a key can be dropped; that of `running` is what keeps a job from running twice
        expected |= {str(table.primary_key.name) for table in metadata.tables.values()}
    return sorted(expected - present)


def warnings(tx: Tx) -> list[Warning_]:
    of_dialect = _postgres_warnings(tx) if tx.dialect.name == "postgresql" else _sqlite_warnings(tx)
    return [*of_dialect, *_far_from_their_turn(tx)]


def _far_from_their_turn(tx: Tx) -> list[Warning_]:
    """Tenants whose first waiting job comes long after everybody else's (P13)."""
    query = text(
        "SELECT t.slug, a.priority, (a.first - c.clock) / 100 AS turns FROM"
        " (SELECT tenant_id, priority, min(position) AS first FROM penstock_ready GROUP BY tenant_id, priority) a"
        " JOIN (SELECT priority, min(position) AS clock FROM penstock_ready GROUP BY priority) c"
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
        "SELECT count(DISTINCT id) AS count, max(at) AS latest FROM (SELECT id, created_at AS at FROM penstock_jobs"
        " UNION ALL SELECT job_id, max(coalesce(started_at, 0), finished_at) FROM penstock_runs"
        " UNION ALL SELECT job_id, queued_at FROM penstock_waiting UNION ALL SELECT job_id, queued_at FROM penstock_ready"
        " UNION ALL SELECT job_id, max(queued_at, started_at) FROM penstock_running) WHERE at > :soon"
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
