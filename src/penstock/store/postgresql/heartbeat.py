"""Extend the leases of what is running."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection

from penstock.store.postgresql import transaction
from penstock.store.postgresql.transaction import HELD
from penstock.store.postgresql.types import array


class PostgresHeartbeat:
    """Extend leases."""

    def heartbeat(
        self,
        conn: Connection,
        moment: datetime | None,
        pairs: Sequence[tuple[UUID, UUID]],
        lease_seconds: float,
        begun: Sequence[bool],
    ) -> Sequence[tuple[UUID, bool]]:
        params = {
            "lease": lease_seconds, "begun": "{" + ",".join(["t" if each else "f" for each in begun]) + "}",
            "job_ids": array(job_id for job_id, _ in pairs), "run_ids": array(run_id for _, run_id in pairs),
        }  # fmt: skip
        return [(row[0], row[1]) for row in transaction.run(conn, _HEARTBEAT, moment, params, by_key=True)]


_HEARTBEAT = f"""
WITH h AS MATERIALIZED (
  SELECT j.id, p.begun FROM unnest(CAST(:job_ids AS uuid[]), CAST(:run_ids AS uuid[]), CAST(:begun AS boolean[]))
    AS p(job_id, run_id, begun)
  JOIN penstock_jobs j ON j.id = p.job_id AND j.run_id = p.run_id AND {HELD}
  ORDER BY j.id FOR UPDATE OF j SKIP LOCKED
)
UPDATE penstock_jobs j SET lease_expires_at = {{now}} + make_interval(secs => :lease), begun = j.begun OR h.begun
FROM h WHERE j.id = h.id
RETURNING j.run_id, j.cancel_requested_at IS NOT NULL
"""
