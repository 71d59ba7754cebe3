"""For every check of doctor, rows that break its promise. `{name}` stands for the id of a row of the world below."""

from __future__ import annotations

COPY_RUN = (
    "INSERT INTO penstock_runs (job_id, attempt_no, max_attempts, id, tenant_id, status, job_status, worker_id, started_at, finished_at)"
    " SELECT {job}, {attempt}, max_attempts, {run}, tenant_id, '{status}', {ended}, worker_id, started_at, finished_at"
    " FROM penstock_runs WHERE job_id = {succeeded}"
)


def run_of(job: str, attempt: int, status: str, ended: str | None = None, run: str = "{new}") -> str:
    """A closed run of a job, like the one that succeeded."""
    given = {
        "job": job,
        "attempt": str(attempt),
        "run": run,
        "status": status,
        "ended": f"'{ended}'" if ended else "NULL",
    }
    statement = COPY_RUN
    for name, value in given.items():
        statement = statement.replace("{" + name + "}", value)
    return statement


def change(job: str, values: str, table: str = "jobs") -> str:
    return f"UPDATE penstock_{table} SET {values} WHERE {'id' if table == 'jobs' else 'job_id'} = {job}"


def leave(job: str, table: str) -> str:
    return f"DELETE FROM penstock_{table} WHERE job_id = {job}"


CARRIED = "tenant_id, queued_at, priority, attempt_no, max_attempts, crashes, interruptions, suspect, queue, definition_key, definition_id"


def make_ready(job: str, *, like: str = "{queued}", table: str = "ready", slot: str = "false") -> str:
    """A row of `ready` for a job, with what another one carries."""
    return (
        f"INSERT INTO penstock_ready (job_id, {CARRIED}, group_id, ready_at, position, slot)"
        f" SELECT {job}, {CARRIED}, group_id, queued_at, 100, {slot} FROM penstock_{table} WHERE job_id = {like}"
    )


def make_wait(job: str, reason: str, until: str, *, like: str = "{queued}") -> str:
    """A row of `waiting` for a job, with what one of `ready` carries."""
    return (
        f"INSERT INTO penstock_waiting (job_id, {CARRIED}, reason, until)"
        f" SELECT {job}, {CARRIED}, '{reason}', {until} FROM penstock_ready WHERE job_id = {like}"
    )


DEDUPE = "INSERT INTO penstock_dedupe (tenant_id, dedupe_key, job_id) SELECT tenant_id, '{key}', id FROM penstock_jobs WHERE id = {job}"


def dedupe(job: str, key: str) -> str:
    return DEDUPE.replace("{job}", job).replace("{key}", key)


RESERVE = (
    "INSERT INTO penstock_reservations (id, tenant_id, reserved_by, reserved_at, expires_at, status)"
    " SELECT {new}, tenant_id, 'somebody', {reserved}, {expires}, 'active' FROM penstock_jobs WHERE id = {running}"
)
TICK = (
    "INSERT INTO penstock_ticks (trigger_id, tick_at, tenant_id, outcome, reason, job_id, created_at)"
    " SELECT {trigger}, created_at, tenant_id, '{outcome}', 'why', {of}, created_at FROM penstock_jobs WHERE id = {queued}"
)
TICKED = change("{queued}", "trigger_id = {trigger}, tick_at = created_at")


def reserved(since: str, until: str) -> str:
    return RESERVE.replace("{reserved}", since).replace("{expires}", until)


def tick(outcome: str, job: str) -> str:
    return TICK.replace("{outcome}", outcome).replace("{of}", job)


PLANTS: dict[str, list[str]] = {
    "job in two states at once": [make_ready("{running}")],
    "job that is in no state and has not ended": [leave("{queued}", "ready")],
    "job that has ended and is still queued or running": [make_ready("{succeeded}")],
    "state of a job that is not there": ["DELETE FROM penstock_jobs WHERE id = {queued}"],
    "open run that is written as closed": [run_of("{running}", 1, "failed")],
    "run without a job": [run_of("{new}", 1, "succeeded", "succeeded")],
    "run that ends before it starts, or is half a run": [
        change("{succeeded}", "started_at = NULL", "runs"),
    ],
    "chain job that ran more than once": [run_of("{superseded}", 2, "failed")],
    "more than one success for one request": [
        change("{superseded}", "status = 'succeeded', job_status = 'succeeded'", "runs"),
        leave("{retry}", "waiting"),
        run_of("{retry}", 2, "succeeded", "succeeded"),
    ],
    "job that ended otherwise than its last run": [change("{succeeded}", "status = 'failed'", "runs")],
    "job that ended before its last run": [run_of("{succeeded}", 2, "failed")],
    "running past its lease for longer than recovery may take": [
        change("{running}", "lease_expires_at = {long_ago}", "running")
    ],
    "running for longer than its timeout allows": [
        change("{running}", "started_at = {long_ago}", "running"),
        "UPDATE penstock_definitions SET updated_at = {long_ago}",
    ],
    "lease that ends later than any lease may": [change("{running}", "lease_expires_at = {farther}", "running")],
    "worker that holds runs which have ended there": [
        "INSERT INTO penstock_workers (id, hostname, pid, version, queues, concurrency, running_count, started_at, last_seen_at, metadata)"
        " SELECT worker_id, 'host', 1, '', '[]', 1, 0, started_at, started_at, '{}' FROM penstock_running WHERE job_id = {running}",
        change("{running}", "started_at = {long_ago}", "running"),
    ],
    "attempts beyond the maximum": [change("{running}", "max_attempts = 0", "running")],
    "attempts that do not match the runs": [change("{running}", "attempt_no = 2", "running")],
    "one run id for two runs": [
        "UPDATE penstock_runs SET id = (SELECT id FROM penstock_runs WHERE job_id = {succeeded}) WHERE job_id = {superseded}"
    ],
    "superseded job without its retry": ["DELETE FROM penstock_jobs WHERE id = {retry}"],
    "retry chain that forks or changes what it retries": [change("{queued}", "retry_of = {superseded}")],
    "two active jobs of one dedupe key": [
        change("{queued}", "dedupe_key = 'k'", "ready"),
        change("{running}", "dedupe_key = 'k'", "running"),
    ],
    "active job that does not hold its dedupe key": [change("{queued}", "dedupe_key = 'k'", "ready")],
    "dedupe key of a job that is not active": [dedupe("{succeeded}", "k")],
    "state that says otherwise than its job": [change("{queued}", "priority = 7", "ready")],
    "due for longer than recovery may take and still waiting for its time": [
        make_wait("{queued}", "time", "{long_ago}"),
        leave("{queued}", "ready"),
    ],
    "job in a queue that nobody can see": [change("{queued}", "queue = 'nowhere'", "ready")],
    "started before it was asked for": [change("{running}", "started_at = {long_ago}", "running")],
    "run that started before its job was due": [change("{running}", "scheduled_for = {far}")],
    "two members of a sequential group under way at once": [
        make_ready("{second}", like="{second}", table="waiting"),
        leave("{second}", "waiting"),
    ],
    "sequential group whose next member was never let go": [leave("{first}", "ready")],
    "two active reservations of one tenant": [reserved("{long_ago}", "{far}"), reserved("{long_ago}", "{far}")],
    "claimed while its tenant was reserved": [reserved("{long_ago}", "{far}")],
    "active reservation past its expiry for longer than recovery may take": [reserved("{long_ago}", "{long_ago}")],
    "run or state of another tenant than its job": [change("{succeeded}", "tenant_id = {acme}", "runs")],
    "job, trigger or tick that reaches into another tenant": [change("{queued}", "definition_id = {private}")],
    "job without a tenant": [change("{queued}", "tenant_id = {new}")],
    "tick with more than one job, or a skipped one with a job": [tick("skipped", "NULL"), TICKED],
    "tick that names another job than the one it made": [tick("fired", "{running}"), TICKED],
    "schedule's job without its tick": [TICKED],
    "tick from before its trigger existed": [
        tick("fired", "{queued}"),
        "UPDATE penstock_ticks SET tick_at = {long_ago}",
        change("{queued}", "trigger_id = {trigger}, tick_at = {long_ago}"),
    ],
    "more jobs let through than a definition's limit": [
        change("{queued}", "definition_id = {limited}, slot = true", "ready"),
        change("{first}", "definition_id = {limited}, slot = true", "ready"),
    ],
    "job let through although its tenant's limit is reached": [
        "UPDATE penstock_tenants SET max_running = 1 WHERE id = (SELECT tenant_id FROM penstock_jobs WHERE id = {queued})",
        change("{queued}", "slot = true", "ready"),
        change("{running}", "slot = true", "running"),
    ],
    "member of a group that is not there": ["DELETE FROM penstock_groups"],
    "delivery attempts that skip a number": [
        "INSERT INTO penstock_deliveries (id, tenant_id, webhook_id, message_id, event_type, job_id, attempt, status, created_at)"
        " SELECT {new}, tenant_id, {new}, {new}, 'job.failed', id, 2, 'failed', created_at FROM penstock_jobs WHERE id = {queued}"
    ],
    "index that is missing or invalid": ["DROP INDEX ix_penstock_ready_claim"],
}
