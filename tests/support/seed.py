"""Large tables in seconds: finished history and waiting jobs by one INSERT … SELECT each."""

from __future__ import annotations

from sqlalchemy import text

from penstock import Penstock

_COLUMNS = (
    "id, tenant_id, definition_id, definition_key, queue, status, claimable, waits_for, slot, priority, position, params, source,"
    " scheduled_for, created_at, queued_at, started_at, finished_at, attempt_no, max_attempts, crashes, retry_mode, root_id, run_id"
)
_NUMBERS = {
    "postgresql": "SELECT n FROM generate_series(1, :number) AS n",
    "sqlite": "WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < :number) SELECT n FROM series",
}
_ID = {  # in the order of n, as UUIDv7s are
    "postgresql": "CAST(lpad(to_hex(CAST(:base AS bigint) + n), 32, '0') AS uuid)",
    "sqlite": "'00000000-0000-0000-' || substr(printf('%016x', :base + n), 1, 4) || '-' || substr(printf('%016x', :base + n), 5, 12)",
}


def seed(app: Penstock, key: str, number: int, status: str, *, tenant: str = "default", queue: str = "default") -> None:
    """`number` jobs of a defined key in a status; finished ones with their runs."""
    definition = app.definitions.get(key)
    name = app.db.name
    finished = status not in ("queued", "future")
    with app.db.write() as tx:
        base = int(tx.scalar(text("SELECT count(*) FROM penstock_jobs"))) + 1
        now = tx.time()
        moment = now if name == "postgresql" else int(now.timestamp() * 1_000_000)
        ahead = "interval '1 day'" if name == "postgresql" else "86400000000"
        at = "CAST(:at AS timestamptz)" if name == "postgresql" else ":at"
        values = {
            "id": _ID[name], "status": ":status", "claimable": "false" if finished or status == "future" else "true",
            "waits_for": "'time'" if status == "future" else "NULL", "position": "100 * (:base + n)",
            "scheduled_for": f"{at} + {ahead}" if status == "future" else at, "ended": at if finished else "NULL",
            "attempt": "1" if finished else "0",
        }  # fmt: skip
        uuid = (lambda given: f"CAST({given} AS uuid)") if name == "postgresql" else (lambda given: given)
        params = "CAST('{}' AS jsonb)" if name == "postgresql" else "'{}'"
        select = (
            f"SELECT {values['id']}, {uuid(':tenant')}, {uuid(':definition')}, :key, :queue, {values['status']}, {values['claimable']},"
            f" {values['waits_for']}, false, 100, {values['position']}, {params}, 'manual', {values['scheduled_for']}, {at}, {at},"
            f" {values['ended']}, {values['ended']}, {values['attempt']}, 3, 0, 'requeue', {values['id']},"
            f" {values['id'] if finished else 'NULL'} FROM ({_NUMBERS[name]}) AS numbers"
        )
        given = {
            "number": number, "base": base, "tenant": str(app.tenants.get(tenant).id), "definition": str(definition.id), "key": key,
            "queue": queue, "at": moment, "status": "queued" if status == "future" else status,
        }  # fmt: skip
        tx.run(text(f"INSERT INTO penstock_jobs ({_COLUMNS}) {select}"), given)
        if finished:
            runs = (
                "INSERT INTO penstock_runs (job_id, attempt_no, id, tenant_id, status, worker_id, started_at, finished_at)"
                f" SELECT id, 1, id, tenant_id, :status, 'seed', {at}, {at} FROM penstock_jobs WHERE position > 100 * :base AND status = :status"
                " AND NOT EXISTS (SELECT 1 FROM penstock_runs r WHERE r.job_id = penstock_jobs.id)"
            )
            tx.run(text(runs), {"at": moment, "status": status, "base": base})
