"""The gate, and the claim behind it, under the one write lock. A batch comes back as one JSON text: for every row that the
driver hands out it gives up the interpreter and waits to have it back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from penstock.core.clock import wall_time
from penstock.core.ids import id_from
from penstock.core.nouns import Claim
from penstock.core.payload import dumps
from penstock.store import failpoints
from penstock.store.dialect import HotConnection
from penstock.store.hot import NOTHING_TAKEN, RETRY_MODES, ClaimRequest, Gate, Rehearsed, Taken
from penstock.store.sqlite import transaction
from penstock.store.sqlite.lease_clock import SqliteLeases
from penstock.store.types import from_micros, to_micros


class SqliteClaim(SqliteLeases):
    """Enter by the gate and claim."""

    def gate(self, conn: HotConnection, moment: datetime | None) -> Gate:
        [(due, limited, reserved, queues)] = transaction.run(conn, _GATE, {"now": to_micros(moment or wall_time())})
        return Gate(bool(due), bool(limited), bool(reserved), tuple(queues.split("\n")) if queues else ())

    def claim(self, conn: HotConnection, moment: datetime | None, request: ClaimRequest) -> Taken:
        now = to_micros(moment or wall_time())
        find = _find(
            len(request.open), request.keys is not None, request.tenant_id is not None, request.heed_reservations
        )
        params: dict[str, Any] = {f"queue{i}": queue for i, queue in enumerate(request.open)}
        params |= {"limit": request.limit, "now": now}
        if request.keys is not None:
            params["keys"] = dumps(list(request.keys))
        if request.tenant_id is not None:
            params["tenant_id"] = str(request.tenant_id)
        [(numbers, rows, long, suspects)] = transaction.run(conn, find, params)
        found = json.loads(numbers)
        if not found:
            return NOTHING_TAKEN
        starting, apart = (
            (request.limit, request.limit) if request.starting is None else (request.starting, request.alone)
        )
        if suspects and request.starting is not None:
            found, numbers, rows = _until_a_suspect(found, rows)
        pairs = ",".join([f'[{number},"{run_id}"]' for number, run_id in zip(found, request.run_ids, strict=False)])
        lease = self.lease_until(conn, moment, request.lease_seconds)
        given = {
            "pairs": f"[{pairs}]", "now": now, "lease": lease, "worker": request.worker, "pid": request.pid,
            "starting": starting, "apart": int(apart),
        }  # fmt: skip
        transaction.run(conn, _TAKE, given)
        failpoints.reach("claim.after_running")
        told_apart = dict(transaction.run(conn, _LONG_PARAMS, {"numbers": numbers})) if long else {}
        transaction.run(conn, _LEAVE, {"numbers": numbers})
        failpoints.reach("claim.after_ready")
        return Taken(len(found), lambda: _claims_in(rows, told_apart, request, from_micros(lease)))

    def rehearse(self, moment: datetime | None, request: ClaimRequest, expected: Gate) -> Rehearsed:
        return Rehearsed(expected, request, None)

    def enter_and_claim(self, conn: HotConnection, moment: datetime | None, rehearsed: Rehearsed) -> tuple[Gate, Taken]:
        entered = self.gate(conn, moment)
        if not entered.lets_through(rehearsed.expected):
            return entered, NOTHING_TAKEN
        return entered, self.claim(conn, moment, replace(rehearsed.request, heed_reservations=entered.reserved))


def _until_a_suspect(found: list[int], rows: str) -> tuple[list[int], str, str]:
    """A worker's batch ends with the first suspect: that runs when what came before it has ended."""
    told = json.loads(rows)
    number = next(index for index, row in enumerate(told, 1) if row[-1])
    return found[:number], dumps(found[:number]), dumps(told[:number])


def _claims_in(rows: str, long: Mapping[str, str], request: ClaimRequest, lease_expires_at: datetime) -> list[Claim]:
    return [
        _claimed(row, run_id, long, lease_expires_at, request.worker)
        for row, run_id in zip(json.loads(rows), request.run_ids, strict=False)
    ]


def _claimed(row: Any, run_id: UUID, long: Mapping[str, str], lease_expires_at: datetime, worker: str) -> Claim:
    (
        id_, tenant_id, slug, definition_id, key, queue, params, attempt_no, max_attempts, retry_mode, root_id, group_id, trace,
        correlation_id, started, timeout_seconds, suspicion,
    ) = row  # fmt: skip
    job_id = id_from(id_)
    return Claim(
        job_id, run_id, _uuid(tenant_id), slug, _uuid(definition_id) if definition_id else None, key, queue,
        {} if params == "{}" else json.loads(params or long[id_]), attempt_no, max_attempts, RETRY_MODES[retry_mode],
        job_id if root_id == id_ else id_from(root_id), UUID(group_id) if group_id else None, worker, _moment(started),
        lease_expires_at, json.loads(trace) if trace else None, correlation_id, timeout_seconds, suspicion,
    )  # fmt: skip


_uuid = lru_cache(maxsize=1024)(UUID)
_moment = lru_cache(maxsize=64)(from_micros)
"""The claims of a batch share theirs."""


@lru_cache(maxsize=256)
def _find(queues: int, keys: bool, tenant: bool, heed_reservations: bool) -> str:
    """The first that are ready, by their row numbers, and what a claim says of each."""
    extra = " AND definition_key IN (SELECT value FROM json_each(:keys))" if keys else ""
    extra += " AND tenant_id = :tenant_id" if tenant else ""
    if heed_reservations:
        extra += " AND tenant_id NOT IN (SELECT tenant_id FROM penstock_reservations WHERE status = 'active' AND expires_at > :now)"
    order = "ORDER BY priority, position, queued_at, job_id LIMIT :limit"
    lanes = " UNION ALL ".join(
        "SELECT number, job_id, priority, position, queued_at FROM"
        " (SELECT rowid AS number, job_id, priority, position, queued_at FROM penstock_ready"
        f" WHERE queue = :queue{i}{extra} {order})"
        for i in range(queues)
    )
    return f"""
SELECT json_group_array(f.number), json_group_array(json_array(j.id, r.tenant_id, t.slug, r.definition_id, r.definition_key, r.queue,
    CASE WHEN {_SHORT} THEN j.params END, r.attempt_no + 1, r.max_attempts, j.retry_mode, j.root_id, r.group_id, j.trace, j.correlation_id,
    max(:now, r.queued_at), d.timeout_seconds, CASE WHEN r.suspect THEN r.crashes + 1 ELSE 0 END)),
  sum(NOT {_SHORT}), sum(r.suspect)
FROM ({lanes} {order}) AS f CROSS JOIN penstock_ready r ON r.rowid = f.number CROSS JOIN penstock_jobs j ON j.id = r.job_id
CROSS JOIN penstock_tenants t ON t.id = r.tenant_id LEFT JOIN penstock_definitions d ON d.id = r.definition_id
"""


# Long params are told apart: a JSON text of a batch of them would be longer than SQLite allows.
_SHORT = "(length(j.params) <= 4096)"
_LONG_PARAMS = f"""
SELECT j.id, j.params FROM json_each(:numbers) f CROSS JOIN penstock_ready r ON r.rowid = f.value
CROSS JOIN penstock_jobs j ON j.id = r.job_id WHERE NOT {_SHORT}
"""
_GATE = """
SELECT (SELECT until FROM penstock_waiting WHERE reason = 'time' ORDER BY until LIMIT 1) <= :now,
  EXISTS (SELECT 1 FROM penstock_waiting WHERE reason = 'limit'),
  EXISTS (SELECT 1 FROM penstock_reservations WHERE status = 'active'),
  (SELECT group_concat(name, char(10)) FROM penstock_queues WHERE NOT paused)
"""
# Found and taken under the write lock: what was read of a job a moment ago still holds, and its row number too.
_TAKE = """
INSERT INTO penstock_running (job_id, tenant_id, queued_at, run_id, ready_at, started_at, lease_expires_at, position, priority, attempt_no,
  max_attempts, crashes, interruptions, suspect, slot, begun, worker_id, queue, definition_key, definition_id, group_id, trigger_id,
  dedupe_key, pid)
SELECT r.job_id, r.tenant_id, r.queued_at, json_extract(f.value, '$[1]'), r.ready_at, max(:now, r.queued_at), :lease, r.position, r.priority,
  r.attempt_no + 1, r.max_attempts, r.crashes, r.interruptions, r.suspect, r.slot,
  f.key < CASE WHEN r.suspect THEN :apart ELSE :starting END, :worker, r.queue, r.definition_key, r.definition_id, r.group_id, r.trigger_id,
  r.dedupe_key, :pid
FROM json_each(:pairs) f CROSS JOIN penstock_ready r ON r.rowid = json_extract(f.value, '$[0]')
"""
_LEAVE = "DELETE FROM penstock_ready WHERE rowid IN (SELECT value FROM json_each(:numbers))"
