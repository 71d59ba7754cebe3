"""Extend the leases of what is running."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from penstock.store.dialect import HotConnection
from penstock.store.postgresql import transaction
from penstock.store.postgresql.transaction import hot
from penstock.store.postgresql.types import array


class PostgresHeartbeat:
    """Extend leases."""

    def heartbeat(
        self,
        conn: HotConnection,
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


_HEARTBEAT = hot(
    lambda clock: (
        f"""
WITH h AS MATERIALIZED (
  SELECT r.job_id, p.begun FROM unnest(CAST(:job_ids AS uuid[]), CAST(:run_ids AS uuid[]), CAST(:begun AS boolean[]))
    AS p(job_id, run_id, begun)
  JOIN penstock_running r ON r.job_id = p.job_id AND r.run_id = p.run_id
  WHERE r.job_id = ANY(CAST(:job_ids AS uuid[]))
  ORDER BY r.job_id FOR UPDATE OF r SKIP LOCKED
)
UPDATE penstock_running r SET lease_expires_at = {clock.now} + make_interval(secs => :lease), begun = r.begun OR h.begun
FROM h WHERE r.job_id = ANY(CAST(:job_ids AS uuid[])) AND r.job_id = h.job_id
RETURNING r.run_id, r.cancel_requested_at IS NOT NULL
"""
    )
)
