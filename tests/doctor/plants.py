"""For every check of doctor, rows that break its promise. `{name}` stands for the id of a row of the world below."""

from __future__ import annotations

COPY_RUN = (
    "INSERT INTO penstock_runs (job_id, attempt_no, id, tenant_id, status, worker_id, started_at, finished_at)"
    " SELECT {job}, {attempt}, {run}, tenant_id, '{status}', worker_id, started_at, {end}"
    " FROM penstock_runs WHERE job_id = {succeeded}"
)


def run_of(job: str, attempt: int, status: str, run: str = "{new}") -> str:
    end = "NULL" if status == "running" else "started_at"
    return COPY_RUN.replace("{job}", job).replace("{attempt}", str(attempt)).replace("{run}", run).replace(
        "{status}", status
    ).replace("{end}", end)  # fmt: skip


def copy_of(job: str, changes: str) -> str:
    """A second row like `job`'s, with columns replaced; both are given as in the world."""
    return f"COPY {job} {changes}"


def change(job: str, values: str) -> str:
    return f"UPDATE penstock_jobs SET {values} WHERE id = {job}"


END = "finished_at = created_at"
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
    "running job without its open run": ["DELETE FROM penstock_runs WHERE job_id = {running}"],
    "open run whose job is not running on it": [run_of("{queued}", 1, "running")],
    "run without a job": [run_of("{new}", 1, "succeeded")],
    "finished run without an end, or that ends before it starts": [
        "UPDATE penstock_runs SET finished_at = NULL WHERE job_id = {succeeded}"
    ],
    "more than one open run for a job": [run_of("{running}", 2, "running")],
    "chain job that ran more than once": [run_of("{superseded}", 2, "failed")],
    "more than one success for one request": [
        change("{superseded}", "status = 'succeeded'"),
        change("{retry}", f"status = 'succeeded', claimable = false, waits_for = NULL, {END}"),
    ],
    "job that ended otherwise than its last run": [
        "UPDATE penstock_runs SET status = 'failed' WHERE job_id = {succeeded}"
    ],
    "lease on a job that is not running, or a running job without one": [
        change("{queued}", "lease_expires_at = created_at")
    ],
    "running past its lease for longer than recovery may take": [change("{running}", "lease_expires_at = {long_ago}")],
    "running for longer than its timeout allows": [
        "UPDATE penstock_runs SET started_at = (SELECT {long_ago} FROM penstock_jobs j WHERE j.id = {running}) WHERE job_id = {running}",
        "UPDATE penstock_definitions SET updated_at = {long_ago}",
    ],
    "lease that ends later than any lease may": [change("{running}", "lease_expires_at = {farther}")],
    "worker that holds runs which have ended there": [
        "UPDATE penstock_runs SET started_at = (SELECT {long_ago} FROM penstock_jobs j WHERE j.id = {running}) WHERE job_id = {running}",
        "INSERT INTO penstock_workers (id, hostname, pid, version, queues, concurrency, running_count, started_at, last_seen_at, metadata)"
        " SELECT claimed_by, 'host', 1, '', '[]', 1, 0, created_at, created_at, '{}' FROM penstock_jobs WHERE id = {running}",
    ],
    "attempts beyond the maximum": [change("{running}", "max_attempts = 0")],
    "attempts that do not match the runs": [change("{running}", "attempt_no = 2")],
    "one run id for two runs": [
        "UPDATE penstock_runs SET id = (SELECT id FROM penstock_runs WHERE job_id = {succeeded})"
        " WHERE job_id = {superseded}"
    ],
    "superseded job without its retry": ["DELETE FROM penstock_jobs WHERE id = {retry}"],
    "retry chain that forks or changes what it retries": [change("{queued}", "retry_of = {superseded}")],
    "two active jobs of one dedupe key": [
        change("{queued}", "dedupe_key = 'k'"),
        change("{running}", "dedupe_key = 'k'"),
    ],
    "claimable flag that contradicts the status": [change("{succeeded}", "claimable = true")],
    "due for longer than recovery may take and still waiting for its time": [
        change("{queued}", "claimable = false, waits_for = 'time', scheduled_for = {long_ago}")
    ],
    "job in a queue that nobody can see": [change("{queued}", "queue = 'nowhere'")],
    "started before it was asked for, or ended before it started": [change("{running}", "started_at = {long_ago}")],
    "run that started before its job was due": [change("{running}", "scheduled_for = {far}")],
    "terminal job without its end, or active job with one": [change("{succeeded}", "finished_at = NULL")],
    "two members of a sequential group under way at once": [change("{second}", "claimable = true, waits_for = NULL")],
    "sequential group whose next member was never let go": [
        change("{first}", f"status = 'canceled', claimable = false, {END}")
    ],
    "two active reservations of one tenant": [reserved("{long_ago}", "{far}"), reserved("{long_ago}", "{far}")],
    "claimed while its tenant was reserved": [reserved("{long_ago}", "{far}")],
    "active reservation past its expiry for longer than recovery may take": [reserved("{long_ago}", "{long_ago}")],
    "run of another tenant than its job": ["UPDATE penstock_runs SET tenant_id = {acme} WHERE job_id = {succeeded}"],
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
        change("{queued}", "definition_id = {limited}, slot = true"),
        change("{first}", "definition_id = {limited}, slot = true"),
    ],
    "job let through although its tenant's limit is reached": [
        "UPDATE penstock_tenants SET max_running = 1 WHERE id = (SELECT tenant_id FROM penstock_jobs WHERE id = {queued})",
        change("{queued}", "slot = true"),
        change("{running}", "slot = true"),
    ],
    "member of a group that is not there": ["DELETE FROM penstock_groups"],
    "delivery attempts that skip a number": [
        "INSERT INTO penstock_deliveries (id, tenant_id, webhook_id, message_id, event_type, job_id, attempt, status, created_at)"
        " SELECT {new}, tenant_id, {new}, {new}, 'job.failed', id, 2, 'failed', created_at FROM penstock_jobs WHERE id = {queued}"
    ],
    "index that is missing or invalid": ["DROP INDEX ix_penstock_jobs_claim"],
}
