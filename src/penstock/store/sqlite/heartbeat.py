"""Extend the leases of what is running."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from penstock.core.payload import dumps
from penstock.store.dialect import HotConnection
from penstock.store.sqlite import transaction
from penstock.store.sqlite.lease_clock import SqliteLeases


class SqliteHeartbeat(SqliteLeases):
    """Extend leases."""

    def heartbeat(
        self,
        conn: HotConnection,
        moment: datetime | None,
        pairs: Sequence[tuple[UUID, UUID]],
        lease_seconds: float,
        begun: Sequence[bool],
    ) -> Sequence[tuple[UUID, bool]]:
        given = dumps([[str(job), str(run), int(each)] for (job, run), each in zip(pairs, begun, strict=True)])
        lease = self.lease_until(conn, moment, lease_seconds)
        # The column itself, because SQLite 3.40 answers `IS NOT NULL` wrongly in the RETURNING of an UPDATE … FROM.
        return [
            (UUID(row[0]), bool(row[1])) for row in transaction.run(conn, _HEARTBEAT, {"pairs": given, "lease": lease})
        ]


_HEARTBEAT = """
UPDATE penstock_running SET lease_expires_at = :lease, begun = max(penstock_running.begun, pair.begun)
FROM (SELECT json_extract(value, '$[0]') AS job, json_extract(value, '$[1]') AS run, json_extract(value, '$[2]') AS begun
      FROM json_each(:pairs)) AS pair
WHERE penstock_running.job_id = pair.job AND penstock_running.run_id = pair.run
RETURNING penstock_running.run_id, cancel_requested_at
"""
