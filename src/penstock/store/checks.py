"""Each promise as queries over the live database. A row in the answer is a violation; a clean database answers none.

The same text runs on both databases. `:now` is the clock that rules, `:overdue` is the time before which recovery should have been
there. `:lease_overdue` and `:lease_later` are as far from the time that leases are counted by. `SECONDS(…)` is added to a time. What a
column cannot hold is not looked for: a running job has a lease because its row has one, and its row is its open run.
"""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    name: str
    promise: str
    sql: str


QUEUED = (
    "(SELECT job_id, tenant_id, attempt_no, max_attempts, queue, definition_key, definition_id, group_id, trigger_id, dedupe_key, priority"
    " FROM penstock_waiting UNION ALL SELECT job_id, tenant_id, attempt_no, max_attempts, queue, definition_key, definition_id, group_id,"
    " trigger_id, dedupe_key, priority FROM penstock_ready)"
)
"""Jobs that are queued."""
ENDED = "(SELECT * FROM penstock_runs WHERE job_status IS NOT NULL)"
"""How jobs ended."""
STATES = (
    f"(SELECT * FROM {QUEUED} q UNION ALL SELECT job_id, tenant_id, attempt_no, max_attempts, queue, definition_key, definition_id,"
    " group_id, trigger_id, dedupe_key, priority FROM penstock_running)"
)
"""Jobs that are queued or running."""
MOVES = (
    "(SELECT job_id, group_id, 0 AS started FROM penstock_waiting WHERE group_id IS NOT NULL AND reason <> 'group'"
    " UNION ALL SELECT job_id, group_id, 1 FROM penstock_ready WHERE group_id IS NOT NULL"
    " UNION ALL SELECT job_id, group_id, 1 FROM penstock_running WHERE group_id IS NOT NULL)"
)
"""Members of groups whose turn has come, and whether they could start or have."""
SLOTS = (
    "(SELECT definition_id, tenant_id, 1 AS ready, NULL AS started_at FROM penstock_ready WHERE slot"
    " UNION ALL SELECT definition_id, tenant_id, 0, started_at FROM penstock_running WHERE slot)"
)
"""Who holds a slot of a limit."""

CHECKS = (
    Check(
        "job in two states at once", "P4",
        f"SELECT job_id FROM {STATES} s GROUP BY job_id HAVING count(*) > 1",
    ),
    Check(
        "job that is in no state and has not ended", "P1",
        f"SELECT j.id FROM penstock_jobs j LEFT JOIN penstock_running o ON o.job_id = j.id LEFT JOIN {ENDED} e ON e.job_id = j.id"
        " LEFT JOIN penstock_ready r ON r.tenant_id = j.tenant_id AND r.job_id = j.id"
        " LEFT JOIN penstock_waiting w ON w.tenant_id = j.tenant_id AND w.job_id = j.id"
        " WHERE o.job_id IS NULL AND e.job_id IS NULL AND r.job_id IS NULL AND w.job_id IS NULL",
    ),
    Check(
        "job that has ended and is still queued or running", "P2",
        f"SELECT s.job_id FROM {STATES} s JOIN {ENDED} e ON e.job_id = s.job_id",
    ),
    Check(
        "state of a job that is not there", "P2",
        f"SELECT s.job_id FROM {STATES} s LEFT JOIN penstock_jobs j ON j.id = s.job_id WHERE j.id IS NULL",
    ),
    Check(
        "open run that is written as closed", "P2",
        "SELECT o.run_id FROM penstock_running o JOIN penstock_runs r ON r.job_id = o.job_id"
        " WHERE r.id = o.run_id OR r.attempt_no >= o.attempt_no",
    ),
    Check(
        "run without a job", "P2",
        "SELECT r.job_id FROM penstock_runs r LEFT JOIN penstock_jobs j ON j.id = r.job_id WHERE j.id IS NULL",
    ),
    Check(
        "run that ends before it starts, or is half a run", "P7",
        "SELECT job_id FROM penstock_runs WHERE finished_at < started_at OR (id IS NULL AND job_status IS NULL)"
        " OR (id IS NULL) <> (started_at IS NULL) OR (id IS NULL) <> (status IS NULL) OR (id IS NULL) <> (worker_id IS NULL)",
    ),
    Check(
        "chain job that ran more than once", "P4",
        "SELECT j.id FROM penstock_jobs j JOIN (SELECT job_id FROM penstock_runs WHERE id IS NOT NULL"
        " UNION ALL SELECT job_id FROM penstock_running) r ON r.job_id = j.id WHERE j.retry_mode = 'chain'"
        " GROUP BY j.id HAVING count(*) > 1",
    ),
    Check(
        "more than one success for one request", "P3",
        f"SELECT j.root_id FROM penstock_jobs j JOIN {ENDED} e ON e.job_id = j.id WHERE e.job_status = 'succeeded' AND j.root_id IN"
        " (SELECT root_id FROM penstock_jobs WHERE retry_of IS NOT NULL) GROUP BY j.root_id HAVING count(*) > 1"
        " UNION ALL SELECT job_id FROM penstock_runs WHERE status = 'succeeded' GROUP BY job_id HAVING count(*) > 1",
    ),
    Check(
        "job that ended otherwise than its last run", "P2",
        "SELECT job_id FROM penstock_runs WHERE"
        " (job_status = 'succeeded' AND (id IS NULL OR status NOT IN ('succeeded', 'skipped')))"
        " OR (job_status IN ('failed', 'dead_letter') AND (id IS NULL OR status = 'succeeded'))"
        " OR (job_status IS NULL AND status = 'succeeded')",
    ),
    Check(
        "job that ended before its last run", "P2",
        f"SELECT e.job_id FROM {ENDED} e JOIN penstock_runs r ON r.job_id = e.job_id AND r.attempt_no > e.attempt_no",
    ),
    Check(
        "running past its lease for longer than recovery may take", "P11",
        "SELECT job_id FROM penstock_running WHERE lease_expires_at < :lease_overdue",
    ),
    Check(
        # A changed timeout counts from its change on: what ran already began under another one.
        "running for longer than its timeout allows", "P11",
        "SELECT o.job_id FROM penstock_running o JOIN penstock_definitions d ON d.id = o.definition_id"
        " WHERE o.started_at + SECONDS(d.timeout_seconds) < :overdue AND d.updated_at + SECONDS(d.timeout_seconds) < :overdue",
    ),
    Check(
        "lease that ends later than any lease may", "P11",
        "SELECT job_id FROM penstock_running WHERE lease_expires_at - SECONDS(86400) > :lease_later",
    ),
    Check(
        # A worker says every few seconds how many runs it has in hand. What it held then and still holds must be among them. A worker
        # that comes over HTTP says so only when it claims.
        "worker that holds runs which have ended there", "P11",
        "SELECT w.id FROM penstock_workers w JOIN penstock_running o ON o.worker_id = w.id AND o.started_at < :overdue"
        " WHERE w.stopped_at IS NULL AND w.last_seen_at > :overdue AND CAST(w.metadata AS text) NOT LIKE '%\"by\"%\"api\"%'"
        " GROUP BY w.id, w.running_count HAVING count(*) > w.running_count",
    ),
    Check(
        "attempts beyond the maximum", "P4",
        "SELECT job_id FROM penstock_running WHERE attempt_no > max_attempts OR attempt_no < 1"
        f" UNION ALL SELECT job_id FROM {QUEUED} q WHERE attempt_no >= max_attempts OR attempt_no < 0"
        " UNION ALL SELECT job_id FROM penstock_runs WHERE attempt_no > max_attempts OR attempt_no < 1",
    ),
    Check(
        # A job in chain mode goes on counting where the one before it ended.
        "attempts that do not match the runs", "P2",
        "SELECT r.job_id FROM penstock_runs r JOIN penstock_jobs j ON j.id = r.job_id AND j.retry_mode = 'requeue'"
        " GROUP BY r.job_id HAVING count(*) <> max(r.attempt_no)"
        " UNION ALL SELECT s.job_id FROM (SELECT job_id, attempt_no AS made FROM penstock_waiting"
        " UNION ALL SELECT job_id, attempt_no FROM penstock_ready UNION ALL SELECT job_id, attempt_no - 1 FROM penstock_running) s"
        " JOIN penstock_jobs j ON j.id = s.job_id AND j.retry_mode = 'requeue'"
        " LEFT JOIN penstock_runs r ON r.job_id = s.job_id AND r.attempt_no = s.made"
        " LEFT JOIN penstock_runs n ON n.job_id = s.job_id AND n.attempt_no = s.made + 1"
        " WHERE (s.made > 0 AND r.job_id IS NULL) OR n.job_id IS NOT NULL",
    ),
    Check(
        "one run id for two runs", "P3",
        "SELECT id FROM (SELECT id FROM penstock_runs WHERE id IS NOT NULL UNION ALL SELECT run_id FROM penstock_running) r"
        " GROUP BY id HAVING count(*) > 1",
    ),
    Check(
        "superseded job without its retry", "P1",
        "SELECT j.id FROM penstock_runs e JOIN penstock_jobs j ON j.id = e.job_id AND j.retry_mode = 'chain'"
        " LEFT JOIN penstock_jobs n ON n.retry_of = j.id"
        " WHERE e.job_status = 'failed' AND e.attempt_no < e.max_attempts AND n.id IS NULL",
    ),
    Check(
        "retry chain that forks or changes what it retries", "P4",
        "SELECT retry_of FROM penstock_jobs WHERE retry_of IS NOT NULL GROUP BY retry_of HAVING count(*) > 1"
        " UNION ALL SELECT n.id FROM penstock_jobs n JOIN penstock_jobs p ON p.id = n.retry_of"
        f" LEFT JOIN {ENDED} e ON e.job_id = p.id LEFT JOIN {STATES} s ON s.job_id = n.id AND s.tenant_id = n.tenant_id"
        " LEFT JOIN penstock_runs r ON r.job_id = n.id"
        " WHERE n.tenant_id <> p.tenant_id OR n.definition_key <> p.definition_key OR n.root_id <> p.root_id"
        " OR coalesce(s.attempt_no, r.attempt_no) < e.attempt_no OR e.job_id IS NULL OR e.job_status = 'succeeded'",
    ),
    Check(
        "two active jobs of one dedupe key", "P6",
        f"SELECT min(CAST(job_id AS text)) FROM {STATES} s WHERE dedupe_key IS NOT NULL"
        " GROUP BY tenant_id, dedupe_key HAVING count(*) > 1",
    ),
    Check(
        "active job that does not hold its dedupe key", "P6",
        f"SELECT s.job_id FROM {STATES} s LEFT JOIN penstock_dedupe k ON k.tenant_id = s.tenant_id AND k.dedupe_key = s.dedupe_key"
        " AND k.job_id = s.job_id WHERE s.dedupe_key IS NOT NULL AND k.job_id IS NULL",
    ),
    Check(
        "dedupe key of a job that is not active", "P6",
        f"SELECT k.job_id FROM penstock_dedupe k LEFT JOIN {STATES} s ON s.job_id = k.job_id AND s.tenant_id = k.tenant_id"
        " AND s.dedupe_key = k.dedupe_key WHERE s.job_id IS NULL",
    ),
    Check(
        # What a job carries from table to table is as it was asked for, or as it was edited in both places.
        "state that says otherwise than its job", "P5",
        f"SELECT s.job_id FROM {STATES} s JOIN penstock_jobs j ON j.id = s.job_id WHERE s.queue <> j.queue"
        " OR s.definition_key <> j.definition_key OR s.priority <> j.priority"
        " OR coalesce(CAST(s.definition_id AS text), '') <> coalesce(CAST(j.definition_id AS text), '')"
        " OR coalesce(CAST(s.group_id AS text), '') <> coalesce(CAST(j.group_id AS text), '')"
        " OR coalesce(CAST(s.trigger_id AS text), '') <> coalesce(CAST(j.trigger_id AS text), '')"
        " OR coalesce(s.dedupe_key, '') <> coalesce(j.dedupe_key, '')",
    ),
    Check(
        "due for longer than recovery may take and still waiting for its time", "P5",
        # A member of a group may have waited for its turn long past its time; it is due since its turn came.
        "SELECT job_id FROM penstock_waiting WHERE reason = 'time' AND until < :overdue AND group_id IS NULL AND EXISTS"
        " (SELECT 1 FROM penstock_running c WHERE c.started_at > :overdue)",
    ),
    Check(
        "job in a queue that nobody can see", "P5",
        f"SELECT q.job_id FROM {QUEUED} q LEFT JOIN penstock_queues n ON n.name = q.queue WHERE n.name IS NULL",
    ),
    Check(
        "started before it was asked for", "P7",
        "SELECT j.id FROM penstock_jobs j JOIN penstock_runs r ON r.job_id = j.id WHERE r.started_at < j.created_at"
        " UNION ALL SELECT j.id FROM penstock_jobs j JOIN penstock_running o ON o.job_id = j.id WHERE o.started_at < j.created_at",
    ),
    Check(
        "run that started before its job was due", "P5",
        "SELECT o.run_id FROM penstock_running o JOIN penstock_jobs j ON j.id = o.job_id WHERE o.started_at < j.scheduled_for"
        # A job that was tried, put back and then canceled has a due time after its last run.
        f" UNION ALL SELECT e.id FROM {ENDED} e JOIN penstock_jobs j ON j.id = e.job_id"
        " WHERE e.job_status <> 'canceled' AND e.started_at < j.scheduled_for",
    ),
    Check(
        "two members of a sequential group under way at once", "P8",
        f"SELECT b.job_id FROM {MOVES} a JOIN penstock_jobs x ON x.id = a.job_id"
        f" JOIN {MOVES} b ON b.group_id = a.group_id AND b.started = 1 JOIN penstock_jobs y ON y.id = b.job_id"
        " JOIN penstock_groups g ON g.id = a.group_id AND g.mode = 'sequential' WHERE y.group_position > x.group_position",
    ),
    Check(
        "sequential group whose next member was never let go", "P8",
        "SELECT w.job_id FROM penstock_waiting w JOIN penstock_groups g ON g.id = w.group_id AND g.mode = 'sequential'"
        f" LEFT JOIN {MOVES} a ON a.group_id = w.group_id WHERE w.reason = 'group' AND a.job_id IS NULL",
    ),
    Check(
        "two active reservations of one tenant", "P9",
        "SELECT min(CAST(id AS text)) FROM penstock_reservations WHERE status = 'active' GROUP BY tenant_id HAVING count(*) > 1",
    ),
    Check(
        "claimed while its tenant was reserved", "P9",
        "SELECT r.id FROM (SELECT id, tenant_id, started_at FROM penstock_runs"
        " UNION ALL SELECT run_id, tenant_id, started_at FROM penstock_running) r"
        " JOIN penstock_reservations v ON v.tenant_id = r.tenant_id"
        " WHERE v.status = 'active' AND r.started_at > v.reserved_at AND r.started_at < v.expires_at AND v.expires_at > :now",
    ),
    Check(
        "active reservation past its expiry for longer than recovery may take", "P9",
        "SELECT id FROM penstock_reservations WHERE status = 'active' AND expires_at < :overdue",
    ),
    Check(
        "run or state of another tenant than its job", "P10",
        "SELECT r.job_id FROM penstock_runs r JOIN penstock_jobs j ON j.id = r.job_id WHERE r.tenant_id <> j.tenant_id"
        f" UNION ALL SELECT s.job_id FROM {STATES} s JOIN penstock_jobs j ON j.id = s.job_id WHERE s.tenant_id <> j.tenant_id",
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
        f"SELECT d.id FROM penstock_definitions d JOIN {SLOTS} s ON s.definition_id = d.id"
        " WHERE d.max_running IS NOT NULL GROUP BY d.id, d.max_running HAVING count(*) > d.max_running"
        " AND max(CASE WHEN s.ready = 1 OR s.started_at > d.updated_at THEN 1 ELSE 0 END) = 1",
    ),
    Check(
        "job let through although its tenant's limit is reached", "P5",
        f"SELECT t.id FROM penstock_tenants t JOIN {SLOTS} s ON s.tenant_id = t.id"
        " WHERE t.max_running IS NOT NULL GROUP BY t.id, t.max_running HAVING count(*) > t.max_running AND max(s.ready) = 1",
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
