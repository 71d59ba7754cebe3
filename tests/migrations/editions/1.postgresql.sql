CREATE TABLE penstock_trigger_fires (
	trigger_id UUID NOT NULL,
	payload_hash TEXT NOT NULL,
	fired_at TIMESTAMP WITH TIME ZONE NOT NULL,
	job_id UUID NOT NULL,
	CONSTRAINT pk_penstock_trigger_fires PRIMARY KEY (trigger_id, payload_hash)
);
CREATE TABLE penstock_idempotency_keys (
	tenant_id UUID NOT NULL,
	key TEXT NOT NULL,
	request_hash TEXT NOT NULL,
	response_status INTEGER,
	response_body JSONB,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_idempotency_keys PRIMARY KEY (tenant_id, key)
);
CREATE TABLE penstock_audit (
	id UUID NOT NULL,
	tenant_id UUID,
	actor TEXT NOT NULL,
	action TEXT NOT NULL,
	subject_type TEXT NOT NULL,
	subject_id TEXT,
	before JSONB,
	after JSONB,
	request_id TEXT,
	at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_audit PRIMARY KEY (id)
);
CREATE INDEX ix_penstock_audit_tenant ON penstock_audit (tenant_id, id);
CREATE TABLE penstock_tenants (
	id UUID NOT NULL,
	slug TEXT NOT NULL,
	name TEXT NOT NULL,
	timezone TEXT DEFAULT 'UTC' NOT NULL,
	weight INTEGER DEFAULT 1 NOT NULL,
	max_running INTEGER,
	is_active BOOLEAN DEFAULT true NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_tenants PRIMARY KEY (id),
	CONSTRAINT ck_penstock_tenants_slug_filled CHECK (length(slug) > 0),
	CONSTRAINT ck_penstock_tenants_name_filled CHECK (length(name) > 0),
	CONSTRAINT ck_penstock_tenants_weight_bounded CHECK (weight BETWEEN 1 AND 100),
	CONSTRAINT ck_penstock_tenants_max_running_positive CHECK (max_running IS NULL OR max_running >= 0),
	CONSTRAINT uq_penstock_tenants_slug UNIQUE (slug)
);
CREATE TABLE penstock_queues (
	name TEXT NOT NULL,
	paused BOOLEAN DEFAULT false NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_queues PRIMARY KEY (name),
	CONSTRAINT ck_penstock_queues_name_filled CHECK (length(name) > 0)
);
CREATE TABLE penstock_workers (
	id TEXT NOT NULL,
	hostname TEXT NOT NULL,
	pid INTEGER NOT NULL,
	version TEXT DEFAULT '' NOT NULL,
	queues JSONB NOT NULL,
	keys JSONB,
	concurrency INTEGER NOT NULL,
	running_count INTEGER DEFAULT 0 NOT NULL,
	started_at TIMESTAMP WITH TIME ZONE NOT NULL,
	last_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
	stopped_at TIMESTAMP WITH TIME ZONE,
	metadata JSONB NOT NULL,
	CONSTRAINT pk_penstock_workers PRIMARY KEY (id),
	CONSTRAINT ck_penstock_workers_id_filled CHECK (length(id) > 0)
);
CREATE TABLE penstock_clock (
	id SERIAL NOT NULL,
	latest TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_clock PRIMARY KEY (id),
	CONSTRAINT ck_penstock_clock_one_row CHECK (id = 1)
);
CREATE TABLE penstock_leaders (
	name TEXT NOT NULL,
	holder TEXT NOT NULL,
	expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_leaders PRIMARY KEY (name)
);
CREATE TABLE penstock_jobs (
	id UUID NOT NULL,
	tenant_id UUID NOT NULL,
	definition_id UUID,
	definition_key TEXT NOT NULL,
	queue TEXT NOT NULL,
	status TEXT NOT NULL,
	claimable BOOLEAN NOT NULL,
	waits_for TEXT,
	slot BOOLEAN DEFAULT false NOT NULL,
	priority INTEGER NOT NULL,
	position BIGINT NOT NULL,
	params JSONB NOT NULL,
	source TEXT NOT NULL,
	source_ref TEXT,
	dedupe_key TEXT,
	correlation_id TEXT,
	scheduled_for TIMESTAMP WITH TIME ZONE NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	queued_at TIMESTAMP WITH TIME ZONE NOT NULL,
	started_at TIMESTAMP WITH TIME ZONE,
	finished_at TIMESTAMP WITH TIME ZONE,
	attempt_no INTEGER DEFAULT 0 NOT NULL,
	max_attempts INTEGER NOT NULL,
	crashes INTEGER DEFAULT 0 NOT NULL,
	retry_mode TEXT NOT NULL,
	root_id UUID NOT NULL,
	retry_of UUID,
	group_id UUID,
	group_position INTEGER,
	trigger_id UUID,
	tick_at TIMESTAMP WITH TIME ZONE,
	run_id UUID,
	claimed_by TEXT,
	lease_expires_at TIMESTAMP WITH TIME ZONE,
	cancel_requested_at TIMESTAMP WITH TIME ZONE,
	progress JSONB,
	result JSONB,
	last_error TEXT,
	created_by TEXT,
	trace JSONB,
	CONSTRAINT pk_penstock_jobs PRIMARY KEY (id),
	CONSTRAINT ck_penstock_jobs_status_known CHECK (status IN ('queued', 'running', 'succeeded', 'failed', 'canceled', 'dead_letter')),
	CONSTRAINT ck_penstock_jobs_source_known CHECK (source IN ('manual', 'event', 'schedule', 'system')),
	CONSTRAINT ck_penstock_jobs_retry_mode_known CHECK (retry_mode IN ('requeue', 'chain')),
	CONSTRAINT ck_penstock_jobs_waits_for_known CHECK (waits_for IN ('time', 'group', 'limit')),
	CONSTRAINT ck_penstock_jobs_definition_key_filled CHECK (length(definition_key) > 0),
	CONSTRAINT ck_penstock_jobs_queue_filled CHECK (length(queue) > 0),
	CONSTRAINT ck_penstock_jobs_claimable_is_queued_and_free CHECK (claimable = (status = 'queued' AND waits_for IS NULL)),
	CONSTRAINT ck_penstock_jobs_only_queued_jobs_wait CHECK (waits_for IS NULL OR status = 'queued'),
	CONSTRAINT ck_penstock_jobs_finished_exactly_if_terminal CHECK ((finished_at IS NOT NULL) = (status IN ('succeeded', 'failed', 'canceled', 'dead_letter'))),
	CONSTRAINT ck_penstock_jobs_lease_exactly_if_running CHECK ((status = 'running') = (lease_expires_at IS NOT NULL) AND (status <> 'running' OR claimed_by IS NOT NULL)),
	CONSTRAINT ck_penstock_jobs_running_has_a_run CHECK (status <> 'running' OR (run_id IS NOT NULL AND started_at IS NOT NULL)),
	CONSTRAINT ck_penstock_jobs_attempts_bounded CHECK (attempt_no >= 0 AND attempt_no <= max_attempts),
	CONSTRAINT ck_penstock_jobs_max_attempts_positive CHECK (max_attempts >= 1),
	CONSTRAINT ck_penstock_jobs_group_has_position CHECK ((group_id IS NULL) = (group_position IS NULL)),
	CONSTRAINT ck_penstock_jobs_ends_after_start CHECK (finished_at IS NULL OR started_at IS NULL OR finished_at >= started_at),
	CONSTRAINT ck_penstock_jobs_not_its_own_retry CHECK (retry_of IS NULL OR retry_of <> id),
	CONSTRAINT ck_penstock_jobs_slot_only_while_active CHECK (NOT slot OR status IN ('queued', 'running'))
)
 WITH (fillfactor = 70);
CREATE UNIQUE INDEX uq_penstock_jobs_active_dedupe ON penstock_jobs (tenant_id, dedupe_key) WHERE dedupe_key IS NOT NULL AND status IN ('queued', 'running');
CREATE UNIQUE INDEX uq_penstock_jobs_tick ON penstock_jobs (trigger_id, tick_at) WHERE tick_at IS NOT NULL AND retry_of IS NULL;
CREATE INDEX ix_penstock_jobs_chain ON penstock_jobs (root_id, attempt_no) WHERE retry_of IS NOT NULL;
CREATE INDEX ix_penstock_jobs_trigger ON penstock_jobs (trigger_id, id) WHERE trigger_id IS NOT NULL;
CREATE INDEX ix_penstock_jobs_due ON penstock_jobs (scheduled_for, id) WHERE waits_for = 'time';
CREATE INDEX ix_penstock_jobs_running ON penstock_jobs (definition_key, tenant_id) WHERE status = 'running';
CREATE UNIQUE INDEX uq_penstock_jobs_retry_of ON penstock_jobs (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX ix_penstock_jobs_waiting_for_group ON penstock_jobs (group_id) WHERE waits_for = 'group';
CREATE INDEX ix_penstock_jobs_place ON penstock_jobs (tenant_id, priority, position) WHERE claimable;
CREATE INDEX ix_penstock_jobs_claim ON penstock_jobs (queue, priority, position, queued_at, id, definition_key) WHERE claimable;
CREATE INDEX ix_penstock_jobs_slots ON penstock_jobs (definition_key, tenant_id) WHERE slot;
CREATE INDEX ix_penstock_jobs_group ON penstock_jobs (group_id, group_position, id) WHERE group_id IS NOT NULL;
CREATE INDEX ix_penstock_jobs_waiting_for_slot ON penstock_jobs (definition_key, tenant_id, priority, queued_at, id) WHERE waits_for = 'limit';
CREATE INDEX ix_penstock_jobs_correlation ON penstock_jobs (tenant_id, correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX ix_penstock_jobs_list ON penstock_jobs (tenant_id, status, id);
CREATE TABLE penstock_runs (
	job_id UUID NOT NULL,
	attempt_no INTEGER NOT NULL,
	id UUID NOT NULL,
	tenant_id UUID NOT NULL,
	status TEXT NOT NULL,
	worker_id TEXT NOT NULL,
	pid INTEGER,
	definition_id UUID,
	started_at TIMESTAMP WITH TIME ZONE NOT NULL,
	finished_at TIMESTAMP WITH TIME ZONE,
	exit_code INTEGER,
	error TEXT,
	params_snapshot JSONB,
	stdout_tail TEXT,
	stderr_tail TEXT,
	artifacts JSONB,
	log_path TEXT,
	CONSTRAINT pk_penstock_runs PRIMARY KEY (job_id, attempt_no),
	CONSTRAINT ck_penstock_runs_status_known CHECK (status IN ('running', 'succeeded', 'failed', 'timeout', 'canceled', 'skipped')),
	CONSTRAINT ck_penstock_runs_finished_exactly_if_ended CHECK ((status = 'running') = (finished_at IS NULL)),
	CONSTRAINT ck_penstock_runs_ends_after_start CHECK (finished_at IS NULL OR finished_at >= started_at),
	CONSTRAINT ck_penstock_runs_running_has_no_exit_code CHECK (status <> 'running' OR exit_code IS NULL),
	CONSTRAINT ck_penstock_runs_attempt_no_positive CHECK (attempt_no >= 1)
)
 WITH (fillfactor = 70);
CREATE UNIQUE INDEX uq_penstock_runs_open ON penstock_runs (job_id) WHERE status = 'running';
CREATE TABLE penstock_tallies (
	minute TIMESTAMP WITH TIME ZONE NOT NULL,
	tenant_id UUID NOT NULL,
	definition_key TEXT NOT NULL,
	measure TEXT NOT NULL,
	bucket INTEGER NOT NULL,
	shard INTEGER NOT NULL,
	n BIGINT NOT NULL,
	CONSTRAINT pk_penstock_tallies PRIMARY KEY (minute, tenant_id, definition_key, measure, bucket, shard)
);
CREATE TABLE penstock_events (
	id UUID NOT NULL,
	tenant_id UUID NOT NULL,
	name TEXT NOT NULL,
	context JSONB NOT NULL,
	depth INTEGER DEFAULT 0 NOT NULL,
	emitted_by TEXT,
	outcomes JSONB NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_events PRIMARY KEY (id),
	CONSTRAINT ck_penstock_events_name_filled CHECK (length(name) > 0),
	CONSTRAINT fk_penstock_events_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT
);
CREATE INDEX ix_penstock_events_tenant ON penstock_events (tenant_id, id);
CREATE TABLE penstock_webhooks (
	id UUID NOT NULL,
	tenant_id UUID NOT NULL,
	url TEXT NOT NULL,
	description TEXT DEFAULT '' NOT NULL,
	event_types JSONB NOT NULL,
	secret TEXT NOT NULL,
	previous_secret TEXT,
	previous_secret_expires_at TIMESTAMP WITH TIME ZONE,
	is_enabled BOOLEAN DEFAULT true NOT NULL,
	created_by TEXT,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_webhooks PRIMARY KEY (id),
	CONSTRAINT uq_penstock_webhooks_tenant_id_id UNIQUE (tenant_id, id),
	CONSTRAINT ck_penstock_webhooks_url_filled CHECK (length(url) > 0),
	CONSTRAINT fk_penstock_webhooks_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT
);
CREATE TABLE penstock_principals (
	id UUID NOT NULL,
	tenant_id UUID,
	role TEXT NOT NULL,
	label TEXT NOT NULL,
	token_prefix TEXT NOT NULL,
	token_hash TEXT NOT NULL,
	queues JSONB,
	created_by TEXT,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	expires_at TIMESTAMP WITH TIME ZONE,
	revoked_at TIMESTAMP WITH TIME ZONE,
	last_used_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT pk_penstock_principals PRIMARY KEY (id),
	CONSTRAINT ck_penstock_principals_role_known CHECK (role IN ('super_admin', 'tenant_admin', 'operator', 'viewer', 'worker')),
	CONSTRAINT ck_penstock_principals_label_filled CHECK (length(label) > 0),
	CONSTRAINT ck_penstock_principals_tenant_unless_global CHECK (role IN ('super_admin', 'worker') OR tenant_id IS NOT NULL),
	CONSTRAINT ck_penstock_principals_super_admin_is_global CHECK (role <> 'super_admin' OR tenant_id IS NULL),
	CONSTRAINT fk_penstock_principals_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT,
	CONSTRAINT uq_penstock_principals_token_hash UNIQUE (token_hash)
);
CREATE INDEX ix_penstock_principals_tenant ON penstock_principals (tenant_id);
CREATE TABLE penstock_definitions (
	id UUID NOT NULL,
	tenant_id UUID,
	key TEXT NOT NULL,
	description TEXT DEFAULT '' NOT NULL,
	runner TEXT NOT NULL,
	queue TEXT NOT NULL,
	arg_schema JSONB NOT NULL,
	default_params JSONB NOT NULL,
	timeout_seconds INTEGER NOT NULL,
	max_attempts INTEGER NOT NULL,
	retry_mode TEXT NOT NULL,
	retry_policy JSONB NOT NULL,
	priority INTEGER NOT NULL,
	max_running INTEGER,
	is_active BOOLEAN DEFAULT true NOT NULL,
	paused BOOLEAN DEFAULT false NOT NULL,
	version INTEGER DEFAULT 1 NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_definitions PRIMARY KEY (id),
	CONSTRAINT ck_penstock_definitions_key_filled CHECK (length(key) > 0),
	CONSTRAINT ck_penstock_definitions_retry_mode_known CHECK (retry_mode IN ('requeue', 'chain')),
	CONSTRAINT ck_penstock_definitions_timeout_positive CHECK (timeout_seconds > 0),
	CONSTRAINT ck_penstock_definitions_max_attempts_positive CHECK (max_attempts >= 1),
	CONSTRAINT ck_penstock_definitions_max_running_positive CHECK (max_running IS NULL OR max_running >= 0),
	CONSTRAINT fk_penstock_definitions_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT
);
CREATE UNIQUE INDEX uq_penstock_definitions_key_for_all ON penstock_definitions (key) WHERE tenant_id IS NULL;
CREATE UNIQUE INDEX uq_penstock_definitions_key ON penstock_definitions (tenant_id, key) WHERE tenant_id IS NOT NULL;
CREATE TABLE penstock_groups (
	id UUID NOT NULL,
	tenant_id UUID NOT NULL,
	mode TEXT NOT NULL,
	on_failure TEXT NOT NULL,
	label TEXT,
	created_by TEXT,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_groups PRIMARY KEY (id),
	CONSTRAINT ck_penstock_groups_mode_known CHECK (mode IN ('sequential', 'parallel')),
	CONSTRAINT ck_penstock_groups_on_failure_known CHECK (on_failure IN ('stop', 'continue', 'skip')),
	CONSTRAINT fk_penstock_groups_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT
);
CREATE INDEX ix_penstock_groups_tenant ON penstock_groups (tenant_id, id);
CREATE TABLE penstock_reservations (
	id UUID NOT NULL,
	tenant_id UUID NOT NULL,
	reserved_by TEXT NOT NULL,
	reserved_at TIMESTAMP WITH TIME ZONE NOT NULL,
	expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
	ended_at TIMESTAMP WITH TIME ZONE,
	status TEXT NOT NULL,
	CONSTRAINT pk_penstock_reservations PRIMARY KEY (id),
	CONSTRAINT ck_penstock_reservations_status_known CHECK (status IN ('active', 'released', 'expired')),
	CONSTRAINT ck_penstock_reservations_reserved_by_filled CHECK (length(reserved_by) > 0),
	CONSTRAINT ck_penstock_reservations_ended_exactly_if_not_active CHECK ((status = 'active') = (ended_at IS NULL)),
	CONSTRAINT ck_penstock_reservations_expires_later CHECK (expires_at > reserved_at),
	CONSTRAINT fk_penstock_reservations_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT
);
CREATE UNIQUE INDEX uq_penstock_reservations_active ON penstock_reservations (tenant_id) WHERE status = 'active';
CREATE TABLE penstock_triggers (
	id UUID NOT NULL,
	tenant_id UUID NOT NULL,
	label TEXT NOT NULL,
	is_enabled BOOLEAN DEFAULT true NOT NULL,
	disabled_reason TEXT,
	trigger_type TEXT NOT NULL,
	event_name TEXT,
	cron_expr TEXT,
	timezone TEXT,
	definition_id UUID NOT NULL,
	definition_key TEXT NOT NULL,
	payload_template JSONB NOT NULL,
	priority INTEGER,
	dedupe_window_seconds INTEGER DEFAULT 0 NOT NULL,
	catch_up TEXT DEFAULT 'latest' NOT NULL,
	catch_up_window_seconds INTEGER DEFAULT 86400 NOT NULL,
	overlap TEXT DEFAULT 'allow' NOT NULL,
	jitter_seconds INTEGER DEFAULT 0 NOT NULL,
	dst_gap TEXT DEFAULT 'shift' NOT NULL,
	dst_overlap TEXT DEFAULT 'first' NOT NULL,
	next_trigger_at TIMESTAMP WITH TIME ZONE,
	last_triggered_at TIMESTAMP WITH TIME ZONE,
	version INTEGER DEFAULT 1 NOT NULL,
	created_by TEXT,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
	deleted_at TIMESTAMP WITH TIME ZONE,
	CONSTRAINT pk_penstock_triggers PRIMARY KEY (id),
	CONSTRAINT uq_penstock_triggers_tenant_id_id UNIQUE (tenant_id, id),
	CONSTRAINT ck_penstock_triggers_label_filled CHECK (length(label) > 0),
	CONSTRAINT ck_penstock_triggers_trigger_type_known CHECK (trigger_type IN ('event', 'schedule')),
	CONSTRAINT ck_penstock_triggers_catch_up_known CHECK (catch_up IN ('skip', 'latest', 'all')),
	CONSTRAINT ck_penstock_triggers_overlap_known CHECK (overlap IN ('allow', 'skip', 'buffer_one', 'cancel_running')),
	CONSTRAINT ck_penstock_triggers_dst_gap_known CHECK (dst_gap IN ('shift', 'skip')),
	CONSTRAINT ck_penstock_triggers_dst_overlap_known CHECK (dst_overlap IN ('first', 'both')),
	CONSTRAINT ck_penstock_triggers_event_or_schedule CHECK ((trigger_type = 'event' AND event_name IS NOT NULL AND cron_expr IS NULL) OR (trigger_type = 'schedule' AND cron_expr IS NOT NULL AND timezone IS NOT NULL AND event_name IS NULL)),
	CONSTRAINT ck_penstock_triggers_windows_positive CHECK (dedupe_window_seconds >= 0 AND jitter_seconds >= 0),
	CONSTRAINT fk_penstock_triggers_tenant_id_penstock_tenants FOREIGN KEY(tenant_id) REFERENCES penstock_tenants (id) ON DELETE RESTRICT,
	CONSTRAINT fk_penstock_triggers_definition_id_penstock_definitions FOREIGN KEY(definition_id) REFERENCES penstock_definitions (id) ON DELETE RESTRICT
);
CREATE INDEX ix_penstock_triggers_definition ON penstock_triggers (definition_id);
CREATE INDEX ix_penstock_triggers_due ON penstock_triggers (next_trigger_at) WHERE trigger_type = 'schedule' AND is_enabled AND deleted_at IS NULL;
CREATE UNIQUE INDEX uq_penstock_triggers_label ON penstock_triggers (tenant_id, label) WHERE deleted_at IS NULL;
CREATE INDEX ix_penstock_triggers_event ON penstock_triggers (tenant_id, event_name) WHERE trigger_type = 'event' AND deleted_at IS NULL;
CREATE TABLE penstock_deliveries (
	id UUID NOT NULL,
	tenant_id UUID NOT NULL,
	webhook_id UUID NOT NULL,
	message_id UUID NOT NULL,
	event_type TEXT NOT NULL,
	subject_id UUID,
	job_id UUID NOT NULL,
	attempt INTEGER NOT NULL,
	status TEXT NOT NULL,
	response_status INTEGER,
	response_excerpt TEXT,
	error TEXT,
	duration_ms INTEGER,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_deliveries PRIMARY KEY (id),
	CONSTRAINT fk_penstock_deliveries_tenant_id_penstock_webhooks FOREIGN KEY(tenant_id, webhook_id) REFERENCES penstock_webhooks (tenant_id, id) ON DELETE CASCADE,
	CONSTRAINT uq_penstock_deliveries_webhook_id_message_id_attempt UNIQUE (webhook_id, message_id, attempt),
	CONSTRAINT ck_penstock_deliveries_status_known CHECK (status IN ('delivered', 'failed'))
);
CREATE INDEX ix_penstock_deliveries_webhook ON penstock_deliveries (tenant_id, webhook_id, id);
CREATE TABLE penstock_sessions (
	id UUID NOT NULL,
	principal_id UUID NOT NULL,
	secret_hash TEXT NOT NULL,
	csrf_hash TEXT NOT NULL,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_sessions PRIMARY KEY (id),
	CONSTRAINT fk_penstock_sessions_principal_id_penstock_principals FOREIGN KEY(principal_id) REFERENCES penstock_principals (id) ON DELETE CASCADE,
	CONSTRAINT uq_penstock_sessions_secret_hash UNIQUE (secret_hash)
);
CREATE TABLE penstock_ticks (
	trigger_id UUID NOT NULL,
	tick_at TIMESTAMP WITH TIME ZONE NOT NULL,
	tenant_id UUID NOT NULL,
	outcome TEXT NOT NULL,
	reason TEXT,
	job_id UUID,
	created_at TIMESTAMP WITH TIME ZONE NOT NULL,
	CONSTRAINT pk_penstock_ticks PRIMARY KEY (trigger_id, tick_at),
	CONSTRAINT fk_penstock_ticks_tenant_id_penstock_triggers FOREIGN KEY(tenant_id, trigger_id) REFERENCES penstock_triggers (tenant_id, id) ON DELETE RESTRICT,
	CONSTRAINT ck_penstock_ticks_outcome_known CHECK (outcome IN ('fired', 'skipped', 'error')),
	CONSTRAINT ck_penstock_ticks_job_exactly_if_fired CHECK ((outcome = 'fired') = (job_id IS NOT NULL)),
	CONSTRAINT ck_penstock_ticks_reason_unless_fired CHECK (outcome = 'fired' OR reason IS NOT NULL)
);
