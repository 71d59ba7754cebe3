"""Large tables in seconds: finished history and waiting jobs by one INSERT … SELECT for each table."""

from __future__ import annotations

from sqlalchemy import text

from penstock import Penstock

_NUMBERS = {
    "postgresql": "SELECT n FROM generate_series(1, :number) AS n",
    "sqlite": "WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < :number) SELECT n FROM series",
}
_ID = {  # in the order of n, as UUIDv7s are
    "postgresql": "CAST(lpad(to_hex(CAST(:base AS bigint) + n), 32, '0') AS uuid)",
    "sqlite": "'00000000-0000-0000-' || substr(printf('%016x', :base + n), 1, 4) || '-' || substr(printf('%016x', :base + n), 5, 12)",
}
_STATE = {
    "job_id": "id", "tenant_id": "tenant_id", "queued_at": "created_at", "priority": "priority", "attempt_no": "0",
    "max_attempts": "max_attempts", "crashes": "0", "interruptions": "0", "suspect": "false", "queue": "queue",
    "definition_key": "definition_key", "definition_id": "definition_id",
}  # fmt: skip


def seed(app: Penstock, key: str, number: int, status: str, *, tenant: str = "default", queue: str = "default") -> None:
    """`number` jobs of a defined key in a status; finished ones with their runs."""
    definition = app.definitions.get(key)
    name = app.db.name
    on_postgresql = name == "postgresql"
    with app.db.write() as tx:
        base = int(tx.scalar(text("SELECT count(*) FROM penstock_jobs"))) + 1
        now = tx.time()
        moment = now if on_postgresql else int(now.timestamp() * 1_000_000)
        at = "CAST(:at AS timestamptz)" if on_postgresql else ":at"
        ahead = f"{at} + " + ("interval '1 day'" if on_postgresql else "86400000000")
        uuid = "CAST({} AS uuid)" if on_postgresql else "{}"
        numbered = f"FROM ({_NUMBERS[name]}) AS numbers"
        given = {
            "number": number, "base": base, "tenant": str(app.tenants.get(tenant).id), "definition": str(definition.id), "key": key,
            "queue": queue, "at": moment, "status": status,
        }  # fmt: skip

        def insert(table: str, columns: dict[str, str], source: str) -> None:
            sql = f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())} {source}"
            tx.run(text(sql), {each: value for each, value in given.items() if f":{each}" in sql})

        jobs = {
            "id": _ID[name], "tenant_id": uuid.format(":tenant"), "root_id": _ID[name], "created_at": at,
            "scheduled_for": ahead if status == "future" else at, "priority": "100", "max_attempts": "3", "queue": ":queue",
            "definition_key": ":key", "definition_id": uuid.format(":definition"), "retry_mode": "'requeue'", "source": "'manual'",
            "params": "CAST('{}' AS jsonb)" if on_postgresql else "'{}'",
        }  # fmt: skip
        insert("penstock_jobs", jobs, numbered)
        these = f"FROM penstock_jobs JOIN (SELECT n, {_ID[name]} AS made {numbered}) AS made ON made.made = penstock_jobs.id"
        if status == "queued":
            place = {"ready_at": "created_at", "position": "100 * (:base + n)", "slot": "false"}
            insert("penstock_ready", {**_STATE, **place}, these)
        elif status == "future":
            insert("penstock_waiting", {**_STATE, "reason": "'time'", "until": "scheduled_for"}, these)
        else:
            ended = {
                "job_id": "id", "tenant_id": "tenant_id", "finished_at": "created_at", "attempt_no": "1", "max_attempts": "max_attempts",
                "id": "id", "started_at": "created_at", "status": "'succeeded'" if status == "succeeded" else "'failed'",
                "worker_id": "'seed'", "job_status": ":status", "definition_id": "definition_id",
            }  # fmt: skip
            insert("penstock_runs", ended, these)
