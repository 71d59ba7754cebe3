CREATE TABLE penstock_audit (
	id VARCHAR(36) NOT NULL,
	tenant_id VARCHAR(36),
	actor TEXT NOT NULL,
	action TEXT NOT NULL,
	subject_type TEXT NOT NULL,
	subject_id TEXT,
	"before" JSON,
	"after" JSON,
	request_id TEXT,
	at BIGINT NOT NULL,
	CONSTRAINT pk_penstock_audit PRIMARY KEY (id)
);
CREATE TABLE penstock_clock (
	id INTEGER NOT NULL,
	latest BIGINT NOT NULL,
	CONSTRAINT pk_penstock_clock PRIMARY KEY (id),
	CONSTRAINT ck_penstock_clock_one_row CHECK (id = 1)
);
CREATE TABLE penstock_idempotency_keys (
	tenant_id VARCHAR(36) NOT NULL,
	"key" TEXT NOT NULL,
	request_hash TEXT NOT NULL,
	response_status INTEGER,
	response_body JSON,
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_penstock_idempotency_keys PRIMARY KEY (tenant_id, "key")
);
CREATE TABLE penstock_jobs (
	id VARCHAR(36) NOT NULL,
	tenant_id VARCHAR(36) NOT NULL,
	definition_id VARCHAR(36),
	definition_key TEXT NOT NULL,
	queue TEXT NOT NULL,
	status TEXT NOT NULL,
	claimable BOOLEAN NOT NULL,
	waits_for TEXT,
	slot BOOLEAN DEFAULT false NOT NULL,
	priority INTEGER NOT NULL,
	position BIGINT NOT NULL,
	params JSON NOT NULL,
	source TEXT NOT NULL,
	source_ref TEXT,
	dedupe_key TEXT,
	correlation_id TEXT,
	scheduled_for BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	queued_at BIGINT NOT NULL,
	started_at BIGINT,
	finished_at BIGINT,
	attempt_no INTEGER DEFAULT 0 NOT NULL,
	max_attempts INTEGER NOT NULL,
	crashes INTEGER DEFAULT 0 NOT NULL,
	retry_mode TEXT NOT NULL,
	root_id VARCHAR(36) NOT NULL,
	retry_of VARCHAR(36),
	group_id VARCHAR(36),
	group_position INTEGER,
	trigger_id VARCHAR(36),
	tick_at BIGINT,
	run_id VARCHAR(36),
	claimed_by TEXT,
	lease_expires_at BIGINT,
	cancel_requested_at BIGINT,
	progress JSON,
	result JSON,
	last_error TEXT,
	created_by TEXT,
	trace JSON,
	CONSTRAINT pk_penstock_jobs PRIMARY KEY (id),
	CONSTRAINT ck_penstock_jobs_finished_exactly_if_terminal CHECK ((finished_at IS NOT NULL) = (status = 'succeeded' OR status = 'failed' OR status = 'canceled' OR status = 'dead_letter')),
	CONSTRAINT ck_penstock_jobs_lease_exactly_if_running CHECK ((status = 'running') = (lease_expires_at IS NOT NULL) AND (status <> 'running' OR claimed_by IS NOT NULL)),
	CONSTRAINT ck_penstock_jobs_slot_only_while_active CHECK (NOT slot OR status IN ('queued', 'running')),
	CONSTRAINT ck_penstock_jobs_claimable_is_queued_and_free CHECK (claimable = (status = 'queued' AND waits_for IS NULL)),
	CONSTRAINT ck_penstock_jobs_retry_mode_known CHECK (retry_mode = 'requeue' OR retry_mode = 'chain'),
	CONSTRAINT ck_penstock_jobs_source_known CHECK (source = 'manual' OR source = 'event' OR source = 'schedule' OR source = 'system'),
	CONSTRAINT ck_penstock_jobs_running_has_a_run CHECK (status <> 'running' OR (run_id IS NOT NULL AND started_at IS NOT NULL)),
	CONSTRAINT ck_penstock_jobs_status_known CHECK (status = 'queued' OR status = 'running' OR status = 'succeeded' OR status = 'failed' OR status = 'canceled' OR status = 'dead_letter'),
	CONSTRAINT ck_penstock_jobs_waits_for_known CHECK (waits_for = 'time' OR waits_for = 'group' OR waits_for = 'limit'),
	CONSTRAINT ck_penstock_jobs_only_queued_jobs_wait CHECK (waits_for IS NULL OR status = 'queued'),
	CONSTRAINT ck_penstock_jobs_group_has_position CHECK ((group_id IS NULL) = (group_position IS NULL)),
	CONSTRAINT ck_penstock_jobs_attempts_bounded CHECK (attempt_no >= 0 AND attempt_no <= max_attempts),
	CONSTRAINT ck_penstock_jobs_ends_after_start CHECK (finished_at IS NULL OR started_at IS NULL OR finished_at >= started_at),
	CONSTRAINT ck_penstock_jobs_definition_key_filled CHECK (length(definition_key) > 0),
	CONSTRAINT ck_penstock_jobs_queue_filled CHECK (length(queue) > 0),
	CONSTRAINT ck_penstock_jobs_max_attempts_positive CHECK (max_attempts >= 1),
	CONSTRAINT ck_penstock_jobs_not_its_own_retry CHECK (retry_of IS NULL OR retry_of <> id)
);
CREATE TABLE penstock_leaders (
	name TEXT NOT NULL,
	holder TEXT NOT NULL,
	expires_at BIGINT NOT NULL,
	CONSTRAINT pk_penstock_leaders PRIMARY KEY (name)
);
CREATE TABLE penstock_queues (
	name TEXT NOT NULL,
	paused BOOLEAN DEFAULT false NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_penstock_queues PRIMARY KEY (name),
	CONSTRAINT ck_penstock_queues_name_filled CHECK (length(name) > 0)
);
CREATE TABLE penstock_runs (
	job_id VARCHAR(36) NOT NULL,
	attempt_no INTEGER NOT NULL,
	id VARCHAR(36) NOT NULL,
	tenant_id VARCHAR(36) NOT NULL,
	status TEXT NOT NULL,
	worker_id TEXT NOT NULL,
	pid INTEGER,
	definition_id VARCHAR(36),
	started_at BIGINT NOT NULL,
	finished_at BIGINT,
	exit_code INTEGER,
	error TEXT,
	params_snapshot JSON,
	stdout_tail TEXT,
	stderr_tail TEXT,
	artifacts JSON,
	log_path TEXT,
	CONSTRAINT pk_penstock_runs PRIMARY KEY (job_id, attempt_no),
	CONSTRAINT ck_penstock_runs_finished_exactly_if_ended CHECK ((status = 'running') = (finished_at IS NULL)),
	CONSTRAINT ck_penstock_runs_running_has_no_exit_code CHECK (status <> 'running' OR exit_code IS NULL),
	CONSTRAINT ck_penstock_runs_status_known CHECK (status = 'running' OR status = 'succeeded' OR status = 'failed' OR status = 'timeout' OR status = 'canceled' OR status = 'skipped'),
	CONSTRAINT ck_penstock_runs_attempt_no_positive CHECK (attempt_no >= 1),
	CONSTRAINT ck_penstock_runs_ends_after_start CHECK (finished_at IS NULL OR finished_at >= started_at)
);
CREATE TABLE penstock_tallies (
	minute BIGINT NOT NULL,
	tenant_id VARCHAR(36) NOT NULL,
	definition_key TEXT NOT NULL,
	measure TEXT NOT NULL,
	bucket INTEGER NOT NULL,
	shard INTEGER NOT NULL,
	n BIGINT NOT NULL,
	CONSTRAINT pk_penstock_tallies PRIMARY KEY (minute, tenant_id, definition_key, measure, bucket, shard)
);
CREATE TABLE penstock_tenants (
	id VARCHAR(36) NOT NULL,
	slug TEXT NOT NULL,
	name TEXT NOT NULL,
	timezone TEXT DEFAULT 'UTC' NOT NULL,
	weight INTEGER DEFAULT 1 NOT NULL,
	max_running INTEGER,
	is_active BOOLEAN DEFAULT true NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_penstock_tenants PRIMARY KEY (id),
	CONSTRAINT ck_penstock_tenants_name_filled CHECK (length(name) > 0),
	CONSTRAINT ck_penstock_tenants_slug_filled CHECK (length(slug) > 0),
	CONSTRAINT ck_penstock_tenants_max_running_positive CHECK (max_running IS NULL OR max_running >= 0),
	CONSTRAINT ck_penstock_tenants_weight_bounded CHECK (weight BETWEEN 1 AND 100),
	CONSTRAINT uq_penstock_tenants_slug UNIQUE (slug)
);
CREATE TABLE penstock_trigger_fires (
	trigger_id VARCHAR(36) NOT NULL,
	payload_hash TEXT NOT NULL,
	fired_at BIGINT NOT NULL,
	job_id VARCHAR(36) NOT NULL,
	CONSTRAINT pk_penstock_trigger_fires PRIMARY KEY (trigger_id, payload_hash)
);
CREATE TABLE penstock_workers (
	id TEXT NOT NULL,
	hostname TEXT NOT NULL,
	pid INTEGER NOT NULL,
	version TEXT DEFAULT '' NOT NULL,
	queues JSON NOT NULL,
	keys JSON,
	concurrency INTEGER NOT NULL,
	running_count INTEGER DEFAULT 0 NOT NULL,
	started_at BIGINT NOT NULL,
	last_seen_at BIGINT NOT NULL,
	stopped_at BIGINT,
	metadata JSON NOT NULL,
	CONSTRAINT pk_penstock_workers PRIMARY KEY (id),
	CONSTRAINT ck_penstock_workers_id_filled CHECK (length(id) > 0)
);
CREATE TABLE penstock_definitions (
	id VARCHAR(36) NOT NULL,
	tenant_id VARCHAR(36),
	"key" TEXT NOT NULL,
	description TEXT DEFAULT '' NOT NULL,
	runner TEXT NOT NULL,
	queue TEXT NOT NULL,
	arg_schema JSON NOT NULL,
	default_params JSON NOT NULL,
	timeout_seconds INTEGER NOT NULL,
	max_attempts INTEGER NOT NULL,
	retry_mode TEXT NOT NULL,
	retry_policy JSON NOT NULL,
	priority INTEGER NOT NULL,
	max_running INTEGER,
	is_active BOOLEAN DEFAULT true NOT NULL,
	paused BOOLEAN DEFAULT false NOT NULL,
	version INTEGER DEFAULT 1 NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT pk_penstock_definitions PRIMARY KEY (id),
	CONSTRAINT ck_penstock_definitions_retry_mode_known CHECK (retry_mode = 'requeue' OR retry_mode = 'chain'),
	CONSTRAINT ck_penstock_definitions_key_filled CHECK (length(key) > 0),
	CONSTRAINT ck_penstock_definitions_max_attempts_positive CHECK (max_attempts >= 1),
	CONSTRAINT ck_penstock_definitions_max_running_positive CHECK (max_running IS NULL OR max_running >= 0),
	CONSTRAINT ck_penstock_definitions_timeout_positive CHECK (timeout_seconds > 0),
	CONSTRAINT fk_penstock_definitions_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT
);
CREATE TABLE penstock_events (
	id VARCHAR(36) NOT NULL,
	tenant_id VARCHAR(36) NOT NULL,
	name TEXT NOT NULL,
	context JSON NOT NULL,
	depth INTEGER DEFAULT 0 NOT NULL,
	emitted_by TEXT,
	outcomes JSON NOT NULL,
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_penstock_events PRIMARY KEY (id),
	CONSTRAINT ck_penstock_events_name_filled CHECK (length(name) > 0),
	CONSTRAINT fk_penstock_events_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT
);
CREATE TABLE penstock_groups (
	id VARCHAR(36) NOT NULL,
	tenant_id VARCHAR(36) NOT NULL,
	mode TEXT NOT NULL,
	on_failure TEXT NOT NULL,
	label TEXT,
	created_by TEXT,
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_penstock_groups PRIMARY KEY (id),
	CONSTRAINT ck_penstock_groups_mode_known CHECK (mode = 'sequential' OR mode = 'parallel'),
	CONSTRAINT ck_penstock_groups_on_failure_known CHECK (on_failure = 'stop' OR on_failure = 'continue' OR on_failure = 'skip'),
	CONSTRAINT fk_penstock_groups_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT
);
CREATE TABLE penstock_principals (
	id VARCHAR(36) NOT NULL,
	tenant_id VARCHAR(36),
	role TEXT NOT NULL,
	label TEXT NOT NULL,
	token_prefix TEXT NOT NULL,
	token_hash TEXT NOT NULL,
	queues JSON,
	created_by TEXT,
	created_at BIGINT NOT NULL,
	expires_at BIGINT,
	revoked_at BIGINT,
	last_used_at BIGINT,
	CONSTRAINT pk_penstock_principals PRIMARY KEY (id),
	CONSTRAINT ck_penstock_principals_super_admin_is_global CHECK (role <> 'super_admin' OR tenant_id IS NULL),
	CONSTRAINT ck_penstock_principals_role_known CHECK (role = 'super_admin' OR role = 'tenant_admin' OR role = 'operator' OR role = 'viewer' OR role = 'worker'),
	CONSTRAINT ck_penstock_principals_tenant_unless_global CHECK (role IN ('super_admin', 'worker') OR tenant_id IS NOT NULL),
	CONSTRAINT ck_penstock_principals_label_filled CHECK (length(label) > 0),
	CONSTRAINT fk_penstock_principals_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT,
	CONSTRAINT uq_penstock_principals_token_hash UNIQUE (token_hash)
);
CREATE TABLE penstock_reservations (
	id VARCHAR(36) NOT NULL,
	tenant_id VARCHAR(36) NOT NULL,
	reserved_by TEXT NOT NULL,
	reserved_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	ended_at BIGINT,
	status TEXT NOT NULL,
	CONSTRAINT pk_penstock_reservations PRIMARY KEY (id),
	CONSTRAINT ck_penstock_reservations_ended_exactly_if_not_active CHECK ((status = 'active') = (ended_at IS NULL)),
	CONSTRAINT ck_penstock_reservations_status_known CHECK (status = 'active' OR status = 'released' OR status = 'expired'),
	CONSTRAINT ck_penstock_reservations_expires_later CHECK (expires_at > reserved_at),
	CONSTRAINT ck_penstock_reservations_reserved_by_filled CHECK (length(reserved_by) > 0),
	CONSTRAINT fk_penstock_reservations_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT
);
CREATE TABLE penstock_webhooks (
	id VARCHAR(36) NOT NULL,
	tenant_id VARCHAR(36) NOT NULL,
	url TEXT NOT NULL,
	description TEXT DEFAULT '' NOT NULL,
	event_types JSON NOT NULL,
	secret TEXT NOT NULL,
	previous_secret TEXT,
	previous_secret_expires_at BIGINT,
	is_enabled BOOLEAN DEFAULT true NOT NULL,
	created_by TEXT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	CONSTRAINT pk_penstock_webhooks PRIMARY KEY (id),
	CONSTRAINT ck_penstock_webhooks_url_filled CHECK (length(url) > 0),
	CONSTRAINT fk_penstock_webhooks_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT,
	CONSTRAINT uq_penstock_webhooks_tenant_id_id UNIQUE (tenant_id, id)
);
CREATE TABLE penstock_deliveries (
	id VARCHAR(36) NOT NULL,
	tenant_id VARCHAR(36) NOT NULL,
	webhook_id VARCHAR(36) NOT NULL,
	message_id VARCHAR(36) NOT NULL,
	event_type TEXT NOT NULL,
	subject_id VARCHAR(36),
	job_id VARCHAR(36) NOT NULL,
	attempt INTEGER NOT NULL,
	status TEXT NOT NULL,
	response_status INTEGER,
	response_excerpt TEXT,
	error TEXT,
	duration_ms INTEGER,
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_penstock_deliveries PRIMARY KEY (id),
	CONSTRAINT ck_penstock_deliveries_status_known CHECK (status = 'delivered' OR status = 'failed'),
	CONSTRAINT fk_penstock_deliveries_tenant_id_penstock_webhooks FOREIGN KEY(tenant_id, webhook_id) REFERENCES penstock_webhooks (tenant_id, id) ON DELETE CASCADE,
	CONSTRAINT uq_penstock_deliveries_webhook_id_message_id_attempt UNIQUE (webhook_id, message_id, attempt)
);
CREATE TABLE penstock_sessions (
	id VARCHAR(36) NOT NULL,
	principal_id VARCHAR(36) NOT NULL,
	secret_hash TEXT NOT NULL,
	csrf_hash TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	CONSTRAINT pk_penstock_sessions PRIMARY KEY (id),
	CONSTRAINT fk_penstock_sessions_principal_id_penstock_principals FOREIGN KEY(principal_id) REFERENCES penstock_principals (id) ON DELETE CASCADE,
	CONSTRAINT uq_penstock_sessions_secret_hash UNIQUE (secret_hash)
);
CREATE TABLE penstock_triggers (
	id VARCHAR(36) NOT NULL,
	tenant_id VARCHAR(36) NOT NULL,
	label TEXT NOT NULL,
	is_enabled BOOLEAN DEFAULT true NOT NULL,
	disabled_reason TEXT,
	trigger_type TEXT NOT NULL,
	event_name TEXT,
	cron_expr TEXT,
	timezone TEXT,
	definition_id VARCHAR(36) NOT NULL,
	definition_key TEXT NOT NULL,
	payload_template JSON NOT NULL,
	priority INTEGER,
	dedupe_window_seconds INTEGER DEFAULT 0 NOT NULL,
	catch_up TEXT DEFAULT 'latest' NOT NULL,
	catch_up_window_seconds INTEGER DEFAULT 86400 NOT NULL,
	overlap TEXT DEFAULT 'allow' NOT NULL,
	jitter_seconds INTEGER DEFAULT 0 NOT NULL,
	dst_gap TEXT DEFAULT 'shift' NOT NULL,
	dst_overlap TEXT DEFAULT 'first' NOT NULL,
	next_trigger_at BIGINT,
	last_triggered_at BIGINT,
	version INTEGER DEFAULT 1 NOT NULL,
	created_by TEXT,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	deleted_at BIGINT,
	CONSTRAINT pk_penstock_triggers PRIMARY KEY (id),
	CONSTRAINT ck_penstock_triggers_event_or_schedule CHECK ((trigger_type = 'event' AND event_name IS NOT NULL AND cron_expr IS NULL) OR (trigger_type = 'schedule' AND cron_expr IS NOT NULL AND timezone IS NOT NULL AND event_name IS NULL)),
	CONSTRAINT ck_penstock_triggers_catch_up_known CHECK (catch_up = 'skip' OR catch_up = 'latest' OR catch_up = 'all'),
	CONSTRAINT ck_penstock_triggers_dst_gap_known CHECK (dst_gap = 'shift' OR dst_gap = 'skip'),
	CONSTRAINT ck_penstock_triggers_dst_overlap_known CHECK (dst_overlap = 'first' OR dst_overlap = 'both'),
	CONSTRAINT ck_penstock_triggers_overlap_known CHECK (overlap = 'allow' OR overlap = 'skip' OR overlap = 'buffer_one' OR overlap = 'cancel_running'),
	CONSTRAINT ck_penstock_triggers_trigger_type_known CHECK (trigger_type = 'event' OR trigger_type = 'schedule'),
	CONSTRAINT ck_penstock_triggers_windows_positive CHECK (dedupe_window_seconds >= 0 AND jitter_seconds >= 0),
	CONSTRAINT ck_penstock_triggers_label_filled CHECK (length(label) > 0),
	CONSTRAINT fk_penstock_triggers_definition_id_penstock_definitions FOREIGN KEY(definition_id) REFERENCES penstock_definitions (id) ON DELETE RESTRICT,
	CONSTRAINT fk_penstock_triggers_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT,
	CONSTRAINT uq_penstock_triggers_tenant_id_id UNIQUE (tenant_id, id)
);
CREATE TABLE penstock_ticks (
	trigger_id VARCHAR(36) NOT NULL,
	tick_at BIGINT NOT NULL,
	tenant_id VARCHAR(36) NOT NULL,
	outcome TEXT NOT NULL,
	reason TEXT,
	job_id VARCHAR(36),
	created_at BIGINT NOT NULL,
	CONSTRAINT pk_penstock_ticks PRIMARY KEY (trigger_id, tick_at),
	CONSTRAINT ck_penstock_ticks_job_exactly_if_fired CHECK ((outcome = 'fired') = (job_id IS NOT NULL)),
	CONSTRAINT ck_penstock_ticks_reason_unless_fired CHECK (outcome = 'fired' OR reason IS NOT NULL),
	CONSTRAINT ck_penstock_ticks_outcome_known CHECK (outcome = 'fired' OR outcome = 'skipped' OR outcome = 'error'),
	CONSTRAINT fk_penstock_ticks_tenant_id_penstock_triggers FOREIGN KEY(tenant_id, trigger_id) REFERENCES penstock_triggers (tenant_id, id) ON DELETE RESTRICT
);
CREATE INDEX ix_penstock_audit_tenant ON penstock_audit (tenant_id, id);
CREATE INDEX ix_penstock_jobs_chain ON penstock_jobs (root_id, attempt_no) WHERE retry_of IS NOT NULL;
CREATE INDEX ix_penstock_jobs_claim ON penstock_jobs (queue, priority, position, queued_at, id, definition_key) WHERE claimable;
CREATE INDEX ix_penstock_jobs_correlation ON penstock_jobs (tenant_id, correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX ix_penstock_jobs_due ON penstock_jobs (scheduled_for, id) WHERE waits_for = 'time';
CREATE INDEX ix_penstock_jobs_group ON penstock_jobs (group_id, group_position, id) WHERE group_id IS NOT NULL;
CREATE INDEX ix_penstock_jobs_list ON penstock_jobs (tenant_id, status, id);
CREATE INDEX ix_penstock_jobs_place ON penstock_jobs (tenant_id, priority, position) WHERE claimable;
CREATE INDEX ix_penstock_jobs_moves_in_group ON penstock_jobs (group_id) WHERE group_id IS NOT NULL AND status IN ('queued', 'running') AND coalesce(waits_for, '') <> 'group';
CREATE INDEX ix_penstock_jobs_died_in_group ON penstock_jobs (group_id, group_position) WHERE group_id IS NOT NULL AND status IN ('canceled', 'dead_letter');
CREATE INDEX ix_penstock_jobs_running ON penstock_jobs (definition_key, tenant_id) WHERE status = 'running';
CREATE INDEX ix_penstock_jobs_slots ON penstock_jobs (definition_key, tenant_id) WHERE slot;
CREATE INDEX ix_penstock_jobs_superseded ON penstock_jobs (id) WHERE status = 'failed';
CREATE INDEX ix_penstock_jobs_trigger ON penstock_jobs (trigger_id, id) WHERE trigger_id IS NOT NULL;
CREATE INDEX ix_penstock_jobs_active_of_trigger ON penstock_jobs (trigger_id) WHERE trigger_id IS NOT NULL AND status IN ('queued', 'running');
CREATE INDEX ix_penstock_jobs_waiting_for_group ON penstock_jobs (group_id, group_position, id) WHERE waits_for = 'group';
CREATE INDEX ix_penstock_jobs_waiting_for_slot ON penstock_jobs (definition_key, tenant_id, priority, queued_at, id) WHERE waits_for = 'limit';
CREATE UNIQUE INDEX uq_penstock_jobs_active_dedupe ON penstock_jobs (tenant_id, dedupe_key) WHERE dedupe_key IS NOT NULL AND status IN ('queued', 'running');
CREATE UNIQUE INDEX uq_penstock_jobs_retry_of ON penstock_jobs (retry_of) WHERE retry_of IS NOT NULL;
CREATE UNIQUE INDEX uq_penstock_jobs_tick ON penstock_jobs (trigger_id, tick_at) WHERE tick_at IS NOT NULL AND retry_of IS NULL;
CREATE UNIQUE INDEX uq_penstock_runs_open ON penstock_runs (job_id) WHERE status = 'running';
CREATE UNIQUE INDEX uq_penstock_definitions_key ON penstock_definitions (tenant_id, "key") WHERE tenant_id IS NOT NULL;
CREATE UNIQUE INDEX uq_penstock_definitions_key_for_all ON penstock_definitions ("key") WHERE tenant_id IS NULL;
CREATE INDEX ix_penstock_events_tenant ON penstock_events (tenant_id, id);
CREATE INDEX ix_penstock_groups_tenant ON penstock_groups (tenant_id, id);
CREATE INDEX ix_penstock_principals_tenant ON penstock_principals (tenant_id);
CREATE UNIQUE INDEX uq_penstock_reservations_active ON penstock_reservations (tenant_id) WHERE status = 'active';
CREATE INDEX ix_penstock_deliveries_webhook ON penstock_deliveries (tenant_id, webhook_id, id);
CREATE INDEX ix_penstock_triggers_definition ON penstock_triggers (definition_id);
CREATE INDEX ix_penstock_triggers_due ON penstock_triggers (next_trigger_at) WHERE trigger_type = 'schedule' AND is_enabled AND deleted_at IS NULL;
CREATE INDEX ix_penstock_triggers_due_disabled ON penstock_triggers (next_trigger_at) WHERE trigger_type = 'schedule' AND NOT is_enabled AND deleted_at IS NULL;
CREATE INDEX ix_penstock_triggers_event ON penstock_triggers (tenant_id, event_name) WHERE trigger_type = 'event' AND deleted_at IS NULL;
CREATE UNIQUE INDEX uq_penstock_triggers_label ON penstock_triggers (tenant_id, label) WHERE deleted_at IS NULL;
