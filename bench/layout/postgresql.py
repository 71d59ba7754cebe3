"""The next layout on PostgreSQL: a job's state is the table it is in. Each statement whole, with every feature of today's.

Parameters are named as in SQLAlchemy's text(); `statement_timestamp()` is the moment. Run by `python -m bench.layout`.
"""

TABLES = """
CREATE TABLE next_jobs (
  id uuid PRIMARY KEY, tenant_id uuid NOT NULL, root_id uuid NOT NULL, scheduled_for timestamptz NOT NULL,
  created_at timestamptz NOT NULL, priority integer NOT NULL, max_attempts integer NOT NULL CHECK (max_attempts >= 1),
  queue text NOT NULL CHECK (length(queue) > 0), definition_key text NOT NULL CHECK (length(definition_key) > 0),
  retry_mode text NOT NULL CHECK (retry_mode = 'requeue' OR retry_mode = 'chain'), source text NOT NULL, params jsonb NOT NULL,
  definition_id uuid, source_ref text, dedupe_key text, correlation_id text, retry_of uuid CHECK (retry_of <> id), group_id uuid,
  group_position integer, trigger_id uuid, tick_at timestamptz, created_by text, trace jsonb,
  CHECK ((group_id IS NULL) = (group_position IS NULL)));
CREATE INDEX next_jobs_list ON next_jobs (tenant_id, id);
CREATE UNIQUE INDEX next_jobs_retry_of ON next_jobs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX next_jobs_chain ON next_jobs (root_id) WHERE retry_of IS NOT NULL;
CREATE INDEX next_jobs_group ON next_jobs (group_id, group_position, id) WHERE group_id IS NOT NULL;
CREATE UNIQUE INDEX next_jobs_tick ON next_jobs (trigger_id, tick_at) WHERE tick_at IS NOT NULL AND retry_of IS NULL;
CREATE INDEX next_jobs_trigger ON next_jobs (trigger_id, id) WHERE trigger_id IS NOT NULL;
CREATE INDEX next_jobs_correlation ON next_jobs (tenant_id, correlation_id) WHERE correlation_id IS NOT NULL;

-- Per tenant and key at most one job that waits, is ready or runs. Only jobs with a dedupe key have a row.
CREATE TABLE next_dedupe (tenant_id uuid NOT NULL, dedupe_key text NOT NULL, job_id uuid NOT NULL, PRIMARY KEY (tenant_id, dedupe_key));

-- What a job carries from state to state is the same in waiting, ready and running: its count of attempts and crashes.
CREATE TABLE next_waiting (
  job_id uuid PRIMARY KEY, tenant_id uuid NOT NULL, until timestamptz, queued_at timestamptz NOT NULL,
  priority integer NOT NULL, attempt_no integer NOT NULL, max_attempts integer NOT NULL, crashes integer NOT NULL,
  interruptions integer NOT NULL, suspect boolean NOT NULL, tied boolean NOT NULL, reason text NOT NULL, queue text NOT NULL, key text NOT NULL,
  definition_id uuid, group_id uuid, group_position integer,
  CHECK (reason = 'time' OR reason = 'limit' OR reason = 'group'), CHECK ((reason = 'time') = (until IS NOT NULL)));
CREATE INDEX next_waiting_list ON next_waiting (tenant_id, job_id);
CREATE INDEX next_waiting_due ON next_waiting (until, job_id) WHERE reason = 'time';
CREATE INDEX next_waiting_slot ON next_waiting (key, tenant_id, priority, queued_at, job_id) WHERE reason = 'limit';
CREATE INDEX next_waiting_group ON next_waiting (group_id, group_position, job_id) WHERE reason = 'group';

CREATE TABLE next_ready (
  job_id uuid NOT NULL, tenant_id uuid NOT NULL, queued_at timestamptz NOT NULL, ready_at timestamptz NOT NULL, position bigint NOT NULL,
  priority integer NOT NULL, attempt_no integer NOT NULL, max_attempts integer NOT NULL, crashes integer NOT NULL, interruptions integer NOT NULL,
  suspect boolean NOT NULL, slot boolean NOT NULL, tied boolean NOT NULL, queue text NOT NULL, key text NOT NULL, definition_id uuid,
  PRIMARY KEY (tenant_id, job_id)) WITH (fillfactor = 100);
CREATE UNIQUE INDEX next_ready_claim ON next_ready (queue, priority, position, queued_at, job_id, key);
CREATE INDEX next_ready_place ON next_ready (tenant_id, priority, position);
CREATE INDEX next_ready_slots ON next_ready (key, tenant_id) WHERE slot;

CREATE TABLE next_running (
  job_id uuid PRIMARY KEY, run_id uuid NOT NULL, tenant_id uuid NOT NULL, started_at timestamptz NOT NULL, lease_expires_at timestamptz NOT NULL,
  queued_at timestamptz NOT NULL, ready_at timestamptz NOT NULL, position bigint NOT NULL,
  priority integer NOT NULL, attempt_no integer NOT NULL, max_attempts integer NOT NULL, crashes integer NOT NULL, interruptions integer NOT NULL,
  suspect boolean NOT NULL, slot boolean NOT NULL, tied boolean NOT NULL, begun boolean NOT NULL, worker_id text NOT NULL, queue text NOT NULL,
  key text NOT NULL, definition_id uuid, pid integer, cancel_requested_at timestamptz, progress jsonb, stdout_tail text, stderr_tail text,
  artifacts jsonb, CHECK (attempt_no BETWEEN 1 AND max_attempts)) WITH (fillfactor = 70);
CREATE INDEX next_running_to_stop ON next_running (worker_id) WHERE cancel_requested_at IS NOT NULL;
CREATE INDEX next_running_slots ON next_running (key, tenant_id) WHERE slot;

-- One complete row per closed run. The last one of a job says what became of it.
CREATE TABLE next_runs (
  job_id uuid NOT NULL, attempt_no integer NOT NULL, id uuid NOT NULL, tenant_id uuid NOT NULL, started_at timestamptz NOT NULL,
  finished_at timestamptz NOT NULL, status text NOT NULL, worker_id text NOT NULL, pid integer, definition_id uuid, exit_code integer,
  job_status text, error text, result jsonb, params_snapshot jsonb, stdout_tail text, stderr_tail text, artifacts jsonb, log_path text,
  PRIMARY KEY (job_id, attempt_no), CHECK (finished_at >= started_at), CHECK (attempt_no >= 1),
  CHECK (status = 'succeeded' OR status = 'failed' OR status = 'timeout' OR status = 'canceled' OR status = 'skipped'),
  CHECK (job_status = 'succeeded' OR job_status = 'failed' OR job_status = 'canceled' OR job_status = 'dead_letter'));
CREATE INDEX next_runs_ended ON next_runs (tenant_id, job_status, job_id) WHERE job_status IS NOT NULL;
"""

DROP = "DROP TABLE IF EXISTS next_jobs, next_dedupe, next_waiting, next_ready, next_running, next_runs"

_BASE = """greatest(
    coalesce((SELECT max(position) FROM next_ready WHERE tenant_id = t.id AND priority = CAST(:priority AS integer)), 0),
    coalesce((SELECT coalesce(min(q.first) FILTER (WHERE NOT q.paused),
                              (SELECT max(position) FROM penstock_floors WHERE priority = CAST(:priority AS integer)), min(q.first))
              FROM (SELECT paused, (SELECT min(position) FROM next_ready
                                    WHERE queue = name AND priority = CAST(:priority AS integer) AND position >= coalesce(
                                      (SELECT f.position FROM penstock_floors f
                                       WHERE f.queue = name AND f.priority = CAST(:priority AS integer)),
                                      -9223372036854775807)) AS first
                    FROM penstock_queues OFFSET 0) AS q), 0) - 100)"""

# One statement for one job and for many: what they share is said once, what they differ in as two arrays. The tenant and the
# definition are as the caller saw them, or nothing is written.
ENQUEUE = f"""
WITH b AS MATERIALIZED (
  SELECT t.id AS tenant_id, w.reason, w.due_at, greatest(1, 100 / t.weight) AS stride,
    CASE WHEN w.reason IS NULL THEN {_BASE} END AS base
  FROM penstock_tenants t LEFT JOIN penstock_definitions d ON d.id = CAST(:definition_id AS uuid)
  CROSS JOIN LATERAL (
    SELECT due_at, CASE WHEN CAST(:waits_for_group AS boolean) THEN 'group' WHEN due_at > statement_timestamp() THEN 'time'
      WHEN t.max_running IS NOT NULL OR d.max_running IS NOT NULL OR d.paused THEN 'limit' END AS reason
    FROM (SELECT coalesce(CAST(:scheduled_for AS timestamptz),
                          statement_timestamp() + make_interval(secs => coalesce(CAST(:delay AS float8), 0))) AS due_at OFFSET 0) AS x OFFSET 0
  ) AS w
  WHERE t.id = CAST(:tenant_id AS uuid) AND t.is_active
    AND (CAST(:definition_id AS uuid) IS NULL OR (d.is_active AND d.version = CAST(:definition_version AS integer)))
), g AS MATERIALIZED (
  SELECT g.id, g.params, g.n FROM b CROSS JOIN ROWS FROM (unnest(CAST(:ids AS uuid[])), jsonb_array_elements(CAST(:many AS jsonb)))
    WITH ORDINALITY AS g(id, params, n)
), k AS (
  INSERT INTO next_dedupe SELECT CAST(:tenant_id AS uuid), CAST(:dedupe_key AS text), g.id FROM g WHERE CAST(:dedupe_key AS text) IS NOT NULL
  ON CONFLICT DO NOTHING RETURNING job_id
), j AS (
  INSERT INTO next_jobs (id, tenant_id, root_id, scheduled_for, created_at, priority, max_attempts, queue, definition_key, retry_mode,
    source, params, definition_id, source_ref, dedupe_key, correlation_id, group_id, group_position, trigger_id, tick_at, created_by, trace)
  SELECT g.id, b.tenant_id, g.id, b.due_at, statement_timestamp(), CAST(:priority AS integer), CAST(:max_attempts AS integer), :queue,
    :definition_key, :retry_mode, :source, g.params, CAST(:definition_id AS uuid), CAST(:source_ref AS text), CAST(:dedupe_key AS text),
    CAST(:correlation_id AS text), CAST(:group_id AS uuid), CAST(:group_position AS integer), CAST(:trigger_id AS uuid),
    CAST(:tick_at AS timestamptz), CAST(:created_by AS text), CAST(:trace AS jsonb)
  FROM b CROSS JOIN g WHERE CAST(:dedupe_key AS text) IS NULL OR EXISTS (SELECT 1 FROM k WHERE k.job_id = g.id)
), r AS (
  INSERT INTO next_ready (job_id, tenant_id, queued_at, ready_at, position, priority, attempt_no, max_attempts, crashes, interruptions,
    suspect, slot, tied, queue, key, definition_id)
  SELECT g.id, b.tenant_id, statement_timestamp(), statement_timestamp(), b.base + b.stride * g.n, CAST(:priority AS integer), 0,
    CAST(:max_attempts AS integer), 0, 0, false, false,
    CAST(:group_id AS uuid) IS NOT NULL OR CAST(:dedupe_key AS text) IS NOT NULL, :queue, :definition_key, CAST(:definition_id AS uuid)
  FROM b CROSS JOIN g
  WHERE b.reason IS NULL AND (CAST(:dedupe_key AS text) IS NULL OR EXISTS (SELECT 1 FROM k WHERE k.job_id = g.id))
), w AS (
  INSERT INTO next_waiting (job_id, tenant_id, until, queued_at, priority, attempt_no, max_attempts, crashes, interruptions, suspect, tied,
    reason, queue, key, definition_id, group_id, group_position)
  SELECT g.id, b.tenant_id, CASE b.reason WHEN 'time' THEN b.due_at END, statement_timestamp(), CAST(:priority AS integer), 0,
    CAST(:max_attempts AS integer), 0, 0, false, CAST(:group_id AS uuid) IS NOT NULL OR CAST(:dedupe_key AS text) IS NOT NULL, b.reason,
    :queue, :definition_key, CAST(:definition_id AS uuid), CAST(:group_id AS uuid), CAST(:group_position AS integer)
  FROM b CROSS JOIN g
  WHERE b.reason IS NOT NULL AND (CAST(:dedupe_key AS text) IS NULL OR EXISTS (SELECT 1 FROM k WHERE k.job_id = g.id))
)
SELECT count(*), max(b.base), max(b.stride), max(b.reason), max(b.due_at),
  CASE WHEN max(b.reason) IS NULL AND count(*) > 0 THEN CAST(pg_notify('penstock', :queue) AS text) END
FROM b CROSS JOIN g WHERE CAST(:dedupe_key AS text) IS NULL OR EXISTS (SELECT 1 FROM k WHERE k.job_id = g.id)
"""

_DUE = "coalesce((SELECT until FROM next_waiting WHERE reason = 'time' ORDER BY until LIMIT 1) <= now(), false)"
_LIMITED = "EXISTS (SELECT 1 FROM next_waiting WHERE reason = 'limit')"
_OPEN = "coalesce((SELECT array_agg(name ORDER BY name) FROM penstock_queues WHERE NOT paused), '{}')"
_OFF = ("enable_bitmapscan", "enable_sort", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit")
GATE = f"""
SELECT pg_advisory_xact_lock_shared(:lock), {", ".join(f"set_config('{name}', 'off', true)" for name in _OFF)},
  set_config('plan_cache_mode', 'force_generic_plan', true), {_DUE}, {_LIMITED}, {_OPEN}
"""

# `ready` to `running`. A row that another claim or an edit holds is passed by; one that was edited since our snapshot keeps its
# new version, which this DELETE does not see.
CLAIM = f"""
WITH c AS MATERIALIZED (
  SELECT ctid, suspect FROM next_ready
  WHERE (SELECT NOT {_DUE} AND NOT {_LIMITED} AND {_OPEN} = CAST(:open AS text[])) AND queue = :queue
    AND key = ANY(CAST(:keys AS text[]))
    AND tenant_id NOT IN (SELECT tenant_id FROM penstock_reservations WHERE status = 'active' AND expires_at > statement_timestamp())
  ORDER BY priority, position, queued_at, job_id LIMIT :limit FOR UPDATE SKIP LOCKED
), n AS (
  SELECT ctid, suspect, row_number() OVER () AS number FROM c
), d AS (
  DELETE FROM next_ready r USING n
  WHERE r.ctid = n.ctid AND n.number <= coalesce((SELECT min(s.number) FROM n s WHERE s.suspect), n.number)
  RETURNING r.*, n.number
), o AS (
  INSERT INTO next_running (job_id, run_id, tenant_id, started_at, lease_expires_at, queued_at, ready_at, position, priority,
    attempt_no, max_attempts, crashes, interruptions, suspect, slot, tied, begun, worker_id, queue, key, definition_id, pid)
  SELECT d.job_id, (CAST(:run_ids AS uuid[]))[d.number], d.tenant_id, greatest(statement_timestamp(), d.queued_at),
    statement_timestamp() + make_interval(secs => :lease), d.queued_at, d.ready_at, d.position, d.priority, d.attempt_no + 1, d.max_attempts,
    d.crashes, d.interruptions, d.suspect, d.slot, d.tied,
    d.number <= CASE WHEN d.suspect THEN CAST(:apart AS integer) ELSE CAST(:starting AS integer) END, :worker, d.queue, d.key,
    d.definition_id, CAST(:pid AS integer)
  FROM d
  RETURNING job_id, run_id, tenant_id, definition_id, key, queue, attempt_no, max_attempts, lease_expires_at, started_at, priority, position,
    queued_at, CASE WHEN suspect THEN crashes + 1 ELSE 0 END AS suspicion
)
SELECT o.job_id, o.run_id, o.tenant_id, t.slug AS tenant_slug, o.definition_id, o.key, o.queue, CAST(j.params AS text), o.attempt_no,
  o.max_attempts, j.retry_mode, j.root_id, j.group_id, CAST(j.trace AS text), j.correlation_id, o.lease_expires_at, o.started_at,
  x.timeout_seconds, o.suspicion
FROM o JOIN next_jobs j ON j.id = o.job_id JOIN penstock_tenants t ON t.id = o.tenant_id
LEFT JOIN penstock_definitions x ON x.id = o.definition_id
ORDER BY o.priority, o.position, o.queued_at, o.job_id
"""

HEARTBEAT = """
WITH h AS MATERIALIZED (
  SELECT r.job_id, p.begun FROM unnest(CAST(:job_ids AS uuid[]), CAST(:run_ids AS uuid[]), CAST(:begun AS boolean[])) AS p(job_id, run_id, begun)
  JOIN next_running r ON r.job_id = p.job_id AND r.run_id = p.run_id
  ORDER BY r.job_id FOR UPDATE OF r SKIP LOCKED
)
UPDATE next_running r SET lease_expires_at = statement_timestamp() + make_interval(secs => :lease), begun = r.begun OR h.begun
FROM h WHERE r.job_id = h.job_id
RETURNING r.run_id, r.cancel_requested_at IS NOT NULL
"""

_BY_KEY_OFF = ("enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin")
BY_KEY = f"""
SELECT {", ".join(f"set_config('{name}', 'off', true)" for name in _BY_KEY_OFF)}, set_config('plan_cache_mode', 'force_generic_plan', true)
"""

# What a batch has in common is counted before it is looked at: a batch was claimed at one moment, and mostly enqueued at one.
_TALLY = """g AS (
  SELECT tenant_id, key, queue, rs, m, started_at, CASE WHEN js <> 'queued' THEN ready_at END AS ready_at, count(*) AS n
  FROM u GROUP BY 1, 2, 3, 4, 5, 6, 7
), m AS (
  SELECT tenant_id, key, queue, rs AS measure, CAST(extract(epoch FROM statement_timestamp() - started_at) AS float8) AS seconds, n FROM g
  UNION ALL
  SELECT tenant_id, key, queue, 'wait', CAST(extract(epoch FROM started_at - ready_at) AS float8), n FROM g WHERE ready_at IS NOT NULL
  UNION ALL
  SELECT tenant_id, key, queue, m, 0, n FROM g WHERE m IS NOT NULL
), t AS (
  INSERT INTO penstock_tallies (minute, tenant_id, definition_key, queue, measure, bucket, shard, n)
  SELECT date_trunc('minute', statement_timestamp() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC', tenant_id, key, queue, measure,
    CAST(floor(2 * ln(greatest(0, seconds) * 1000 + 1) / ln(CAST(2 AS float8))) AS integer) AS b, :shard, sum(n)
  FROM m GROUP BY tenant_id, key, queue, measure, b ORDER BY tenant_id, key, queue, measure, b
  ON CONFLICT (minute, tenant_id, definition_key, queue, measure, bucket, shard) DO UPDATE SET n = penstock_tallies.n + excluded.n
)"""

# `running` to `runs`, and to `waiting` where a retry follows. The fence is the DELETE: who deletes nothing has lost the lease.
# One statement for every outcome: what is said of the first runs comes as JSON, and a run of which nothing is said succeeded.
CLOSE = f"""
WITH f AS MATERIALIZED (
  SELECT j, r, coalesce(rs, 'succeeded') AS rs, coalesce(js, 'succeeded') AS js, m, e, d, res, x, so, se, lp, xa, c, i, s, a, p
  FROM ROWS FROM (unnest(CAST(:job_ids AS uuid[])), unnest(CAST(:run_ids AS uuid[])), jsonb_to_recordset(CAST(:said AS jsonb)) AS (
    rs text, js text, m text, e text, d float8, res jsonb, x integer, so text, se text, lp text, xa integer, c boolean, i boolean,
    s boolean, a jsonb, p integer)) AS f(j, r, rs, js, m, e, d, res, x, so, se, lp, xa, c, i, s, a, p)
), u AS (
  DELETE FROM next_running r USING f WHERE r.job_id = f.j AND r.run_id = f.r
  RETURNING r.*, f.*
), c AS (
  INSERT INTO next_runs (job_id, attempt_no, id, tenant_id, started_at, finished_at, status, worker_id, pid, definition_id, exit_code,
    job_status, error, result, stdout_tail, stderr_tail, artifacts, log_path)
  SELECT job_id, attempt_no, run_id, tenant_id, started_at, greatest(statement_timestamp(), started_at), rs, worker_id, coalesce(p, pid),
    definition_id, x, NULLIF(js, 'queued'), e, res, coalesce(so, stdout_tail), coalesce(se, stderr_tail), coalesce(a, artifacts), lp
  FROM u
), w AS (
  INSERT INTO next_waiting (job_id, tenant_id, until, queued_at, priority, attempt_no, max_attempts, crashes, interruptions,
    suspect, tied, reason, queue, key, definition_id)
  SELECT job_id, tenant_id, statement_timestamp() + make_interval(secs => coalesce(d, 0)), queued_at, priority, attempt_no,
    max_attempts + coalesce(xa, 0), CASE WHEN c THEN crashes + 1 WHEN i THEN crashes ELSE 0 END,
    interruptions + CASE WHEN i THEN 1 ELSE 0 END, s IS TRUE OR (i IS TRUE AND suspect), tied, 'time', queue, key, definition_id
  FROM u WHERE js = 'queued'
), k AS (
  DELETE FROM next_dedupe x USING u JOIN next_jobs j ON j.id = u.job_id
  WHERE u.tied AND u.js <> 'queued' AND j.dedupe_key IS NOT NULL AND x.tenant_id = u.tenant_id AND x.dedupe_key = j.dedupe_key
    AND x.job_id = u.job_id
), {_TALLY}
SELECT array_agg(u.run_id), array_agg(u.run_id) FILTER (
  WHERE u.tied OR u.tenant_id IN (SELECT tenant_id FROM penstock_webhooks WHERE is_enabled)) FROM u
"""
