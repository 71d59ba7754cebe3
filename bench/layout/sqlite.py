"""The next layout on SQLite: a job's state is the table it is in, and tables refer to each other by the job's row number.

Each statement whole, with every feature of today's. Run by `python -m bench.layout`.
"""

from __future__ import annotations

import json
import sqlite3
import time
import uuid

TABLES = """
CREATE TABLE jobs (
  n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, tenant_id TEXT NOT NULL, root_id TEXT NOT NULL, scheduled_for INTEGER NOT NULL,
  created_at INTEGER NOT NULL, priority INTEGER NOT NULL, max_attempts INTEGER NOT NULL CHECK (max_attempts >= 1),
  queue TEXT NOT NULL CHECK (length(queue) > 0), definition_key TEXT NOT NULL CHECK (length(definition_key) > 0),
  retry_mode TEXT NOT NULL CHECK (retry_mode = 'requeue' OR retry_mode = 'chain'), source TEXT NOT NULL, params TEXT NOT NULL,
  definition_id TEXT, source_ref TEXT, dedupe_key TEXT, correlation_id TEXT, retry_of TEXT CHECK (retry_of <> id), group_id TEXT,
  group_position INTEGER, trigger_id TEXT, tick_at INTEGER, created_by TEXT, trace TEXT,
  CHECK ((group_id IS NULL) = (group_position IS NULL)));
CREATE INDEX jobs_list ON jobs (tenant_id);
CREATE UNIQUE INDEX jobs_retry_of ON jobs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX jobs_chain ON jobs (root_id) WHERE retry_of IS NOT NULL;
CREATE INDEX jobs_group ON jobs (group_id, group_position) WHERE group_id IS NOT NULL;
CREATE UNIQUE INDEX jobs_tick ON jobs (trigger_id, tick_at) WHERE tick_at IS NOT NULL AND retry_of IS NULL;
CREATE INDEX jobs_trigger ON jobs (trigger_id) WHERE trigger_id IS NOT NULL;
CREATE INDEX jobs_correlation ON jobs (tenant_id, correlation_id) WHERE correlation_id IS NOT NULL;
CREATE TABLE dedupe (tenant_id TEXT NOT NULL, dedupe_key TEXT NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (tenant_id, dedupe_key)) WITHOUT ROWID;
CREATE TABLE waiting (
  n INTEGER PRIMARY KEY, tenant_id TEXT NOT NULL, until INTEGER, queued_at INTEGER NOT NULL, priority INTEGER NOT NULL, attempt_no INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL, crashes INTEGER NOT NULL, interruptions INTEGER NOT NULL, suspect INTEGER NOT NULL, tied INTEGER NOT NULL,
  reason TEXT NOT NULL, queue TEXT NOT NULL, key TEXT NOT NULL, definition_id TEXT, group_id TEXT, group_position INTEGER,
  CHECK ((reason = 'time') = (until IS NOT NULL)));
CREATE INDEX waiting_list ON waiting (tenant_id);
CREATE INDEX waiting_due ON waiting (until) WHERE reason = 'time';
CREATE INDEX waiting_slot ON waiting (key, tenant_id, priority, queued_at) WHERE reason = 'limit';
CREATE INDEX waiting_group ON waiting (group_id, group_position) WHERE reason = 'group';
CREATE TABLE ready (
  n INTEGER PRIMARY KEY, tenant_id TEXT NOT NULL, queued_at INTEGER NOT NULL, ready_at INTEGER NOT NULL, position INTEGER NOT NULL,
  priority INTEGER NOT NULL, attempt_no INTEGER NOT NULL, max_attempts INTEGER NOT NULL, crashes INTEGER NOT NULL, interruptions INTEGER NOT NULL,
  suspect INTEGER NOT NULL, slot INTEGER NOT NULL, tied INTEGER NOT NULL, queue TEXT NOT NULL, key TEXT NOT NULL, definition_id TEXT);
CREATE INDEX ready_claim ON ready (queue, priority, position, queued_at, n, key);
CREATE INDEX ready_place ON ready (tenant_id, priority, position);
CREATE INDEX ready_list ON ready (tenant_id);
CREATE INDEX ready_slots ON ready (key, tenant_id) WHERE slot;
CREATE TABLE running (
  n INTEGER PRIMARY KEY, run_id TEXT NOT NULL, tenant_id TEXT NOT NULL, started_at INTEGER NOT NULL, lease_expires_at INTEGER NOT NULL,
  queued_at INTEGER NOT NULL, ready_at INTEGER NOT NULL, position INTEGER NOT NULL, priority INTEGER NOT NULL, attempt_no INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL, crashes INTEGER NOT NULL, interruptions INTEGER NOT NULL, suspect INTEGER NOT NULL, slot INTEGER NOT NULL,
  tied INTEGER NOT NULL, begun INTEGER NOT NULL, worker_id TEXT NOT NULL, queue TEXT NOT NULL, key TEXT NOT NULL, definition_id TEXT, pid INTEGER,
  cancel_requested_at INTEGER, progress TEXT, stdout_tail TEXT, stderr_tail TEXT, artifacts TEXT, CHECK (attempt_no BETWEEN 1 AND max_attempts));
CREATE INDEX running_to_stop ON running (worker_id) WHERE cancel_requested_at IS NOT NULL;
CREATE INDEX running_slots ON running (key, tenant_id) WHERE slot;
CREATE TABLE runs (
  n INTEGER NOT NULL, attempt_no INTEGER NOT NULL, id TEXT NOT NULL, tenant_id TEXT NOT NULL, started_at INTEGER NOT NULL,
  finished_at INTEGER NOT NULL, status TEXT NOT NULL, worker_id TEXT NOT NULL, pid INTEGER, definition_id TEXT, exit_code INTEGER, job_status TEXT,
  error TEXT, result TEXT, params_snapshot TEXT, stdout_tail TEXT, stderr_tail TEXT, artifacts TEXT, log_path TEXT,
  PRIMARY KEY (n, attempt_no), CHECK (finished_at >= started_at), CHECK (attempt_no >= 1)) WITHOUT ROWID;
CREATE INDEX runs_ended ON runs (tenant_id, job_status, n) WHERE job_status IS NOT NULL;
"""

GATE = (
    "SELECT (SELECT until FROM waiting WHERE reason = 'time' ORDER BY until LIMIT 1) <= :now,"
    " EXISTS (SELECT 1 FROM waiting WHERE reason = 'limit'),"
    " EXISTS (SELECT 1 FROM penstock_reservations WHERE status = 'active'),"
    " (SELECT group_concat(name, char(10)) FROM penstock_queues WHERE NOT paused)"
)
FIND = """
SELECT json_group_array(f.n), json_group_array(json_array(j.id, r.tenant_id, t.slug, r.definition_id, r.key, r.queue,
    CASE WHEN length(j.params) <= 4096 THEN j.params END, r.attempt_no + 1, r.max_attempts, j.retry_mode, j.root_id, j.group_id, j.trace,
    j.correlation_id, max(:now, r.queued_at), d.timeout_seconds, CASE WHEN r.suspect THEN r.crashes + 1 ELSE 0 END)),
  sum(length(j.params) > 4096), sum(r.suspect)
FROM (SELECT n FROM ready WHERE queue = :queue AND key IN (SELECT value FROM json_each(:keys))
      ORDER BY priority, position, queued_at, n LIMIT :limit) AS f
CROSS JOIN ready r ON r.n = f.n CROSS JOIN jobs j ON j.n = f.n CROSS JOIN penstock_tenants t ON t.id = r.tenant_id
LEFT JOIN penstock_definitions d ON d.id = r.definition_id
"""
TAKE = """
INSERT INTO running (n, run_id, tenant_id, started_at, lease_expires_at, queued_at, ready_at, position, priority, attempt_no, max_attempts,
  crashes, interruptions, suspect, slot, tied, begun, worker_id, queue, key, definition_id, pid)
SELECT r.n, json_extract(f.value, '$[1]'), r.tenant_id, max(:now, r.queued_at), :lease, r.queued_at, r.ready_at, r.position, r.priority,
  r.attempt_no + 1, r.max_attempts, r.crashes, r.interruptions, r.suspect, r.slot, r.tied,
  f.key < CASE WHEN r.suspect THEN :apart ELSE :starting END, :worker, r.queue, r.key, r.definition_id, :pid
FROM json_each(:pairs) f CROSS JOIN ready r ON r.n = json_extract(f.value, '$[0]')
"""
TAKEN = "DELETE FROM ready WHERE n IN (SELECT value FROM json_each(:numbers))"
# Found to be ours under the write lock; what was read of it still holds.
SUCCESSES = """
SELECT count(*), json_group_array(r.n), json_group_array(r.run_id),
  json_group_array(json_array(r.tenant_id, r.key, r.queue, 'succeeded', r.started_at, r.ready_at))
FROM json_each(:given) f CROSS JOIN running r ON r.n = json_extract(f.value, '$[0]')
WHERE r.run_id = json_extract(f.value, '$[1]') AND NOT r.tied
  AND r.tenant_id NOT IN (SELECT tenant_id FROM penstock_webhooks WHERE is_enabled)
"""
CLOSE_SUCCESSES = """
INSERT INTO runs (n, attempt_no, id, tenant_id, started_at, finished_at, status, worker_id, pid, definition_id, job_status, stdout_tail,
  stderr_tail, artifacts)
SELECT r.n, r.attempt_no, r.run_id, r.tenant_id, r.started_at, max(:now, r.started_at), 'succeeded', r.worker_id, r.pid, r.definition_id,
  'succeeded', r.stdout_tail, r.stderr_tail, r.artifacts
FROM json_each(:numbers) f CROSS JOIN running r ON r.n = f.value
"""
CLOSED = "DELETE FROM running WHERE n IN (SELECT value FROM json_each(:numbers))"


def drain(path: str, jobs: int, batch: int) -> tuple[float, float]:
    """On a file that has Penstock's tables and the definition `noop`: seconds by the clock and by the processor."""
    conn = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-16000"):
        conn.execute(f"PRAGMA {pragma}")
    conn.executescript(TABLES)
    ((tenant,),) = conn.execute("SELECT id FROM penstock_tenants").fetchall()
    ((definition,),) = conn.execute("SELECT id FROM penstock_definitions WHERE key = 'noop'").fetchall()
    now = time.time_ns() // 1000
    conn.execute("BEGIN")
    conn.executemany(
        "INSERT INTO jobs (id, tenant_id, root_id, scheduled_for, created_at, priority, max_attempts, queue, definition_key, retry_mode, source,"
        " params, definition_id) VALUES (?1, ?2, ?1, ?3, ?3, 100, 3, 'default', 'noop', 'requeue', 'manual', '{}', ?4)",
        ((str(uuid.UUID(int=(now // 1000 << 80) + (7 << 76) + i)), tenant, now, definition) for i in range(jobs)),
    )
    conn.execute(
        "INSERT INTO ready SELECT n, tenant_id, created_at, created_at, 100 * n, 100, 0, 3, 0, 0, 0, 0, 0, queue, definition_key, definition_id"
        " FROM jobs"
    )
    conn.execute("COMMIT")
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    run_ids = [str(uuid.uuid4()) for _ in range(batch)]
    keys, given = json.dumps(["noop"]), None
    started, used = time.perf_counter(), time.process_time()
    while True:
        now = time.time_ns() // 1000
        conn.execute("BEGIN IMMEDIATE")
        conn.execute(GATE, {"now": now}).fetchall()
        if given is not None:
            [(_, numbers, *_)] = conn.execute(SUCCESSES, {"given": given}).fetchall()
            conn.execute(CLOSE_SUCCESSES, {"numbers": numbers, "now": now})
            conn.execute(CLOSED, {"numbers": numbers})
        [(numbers, rows, *_)] = conn.execute(
            FIND, {"queue": "default", "keys": keys, "limit": batch, "now": now}
        ).fetchall()
        found = json.loads(numbers)
        json.loads(rows)  # as a worker does, and the loop beside this one
        if found:
            given = json.dumps(list(zip(found, run_ids, strict=False)))
            conn.execute(
                TAKE,
                {
                    "pairs": given,
                    "now": now,
                    "lease": now + 60_000_000,
                    "worker": "limit",
                    "pid": 1,
                    "starting": 8,
                    "apart": 0,
                },
            )
            conn.execute(TAKEN, {"numbers": numbers})
        conn.execute("COMMIT")
        if not found:
            break
    took, used = time.perf_counter() - started, time.process_time() - used
    assert conn.execute("SELECT count(*) FROM runs").fetchone() == (jobs,)
    conn.close()
    return took, used
