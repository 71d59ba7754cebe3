"""The gate, and the claim behind it. Many claim at once: each skips what another holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection

from penstock.core.nouns import Claim
from penstock.store.hot import RETRY_MODES, ClaimRequest, Gate, Rehearsed, Taken
from penstock.store.postgresql import transaction
from penstock.store.postgresql.locks import GATE_LOCK
from penstock.store.postgresql.types import array


class PostgresClaim:
    """Enter by the gate and claim."""

    def gate(self, conn: Connection, moment: datetime | None) -> Gate:
        (row,) = transaction.run(conn, _GATE, moment, {"lock": GATE_LOCK})
        return _gate(row)

    def claim(self, conn: Connection, moment: datetime | None, request: ClaimRequest) -> Taken:
        sql, values = _claim_for(request, guarded=False), _claim_values(request)
        rows = transaction.run(conn, sql, moment, values)
        return Taken(len(rows), lambda: [_claimed(row, request.worker) for row in rows])

    def rehearse(self, moment: datetime | None, request: ClaimRequest, expected: Gate) -> Rehearsed:
        from penstock.store.postgresql import wire

        values = {**_claim_values(request), "open": list(expected.queues), "lock": GATE_LOCK, "moment": moment}
        injected = moment is not None
        gate = wire.Statement(transaction.timed(_GATE, injected), values)
        claim = wire.Statement(transaction.timed(_claim_for(request, guarded=True), injected), values, binary=True)
        for each in (gate, claim):
            each.ready()
        return Rehearsed(expected, request, [gate, claim])

    def enter_and_claim(self, conn: Connection, moment: datetime | None, rehearsed: Rehearsed) -> tuple[Gate, Taken]:
        """Gate, claim and COMMIT in one round trip. The claim takes nothing unless it finds the gate as expected."""
        from penstock.store.postgresql import wire

        gate, claims = transaction.ask(conn, rehearsed.statements)
        (entered,) = wire.rows(conn.connection, gate)
        return _gate(entered), Taken(claims.ntuples, lambda: _claims_in(claims, rehearsed.request))


def _gate(row: Sequence[Any]) -> Gate:
    """The claim itself looks for reservations: the gate's snapshot is older than the lock that it waits for, so the very
    reservation it waited for would be missed in it."""
    *_, due, limited, queues = row
    return Gate(due, limited, True, tuple(queues or ()))


def _claim_values(request: ClaimRequest) -> dict[str, Any]:
    values: dict[str, Any] = {
        "worker": request.worker, "pid": request.pid, "lease": request.lease_seconds, "limit": request.limit,
        "run_ids": array(request.run_ids),
    }  # fmt: skip
    if len(request.open) > 1:
        values["queues"] = list(request.open)
    else:
        values["queue"] = request.open[0]
    if request.keys is not None:
        values["keys"] = list(request.keys)
    if request.tenant_id is not None:
        values["tenant_id"] = request.tenant_id
    if request.starting is not None:
        values |= {"starting": request.starting, "apart": int(request.alone)}
    return values


def _claims_in(answer: Any, request: ClaimRequest) -> list[Claim]:
    """The claims of an answer in binary form."""
    from penstock.store.postgresql import wire

    ids = wire.Ids({run_id.int.to_bytes(16, "big"): run_id for run_id in request.run_ids})
    texts, numbers, moments = wire.Texts(), wire.Integers(), wire.Moments()
    columns = (
        ids, ids, ids, texts, ids, texts, texts, texts, numbers, numbers, texts, ids,
        ids, texts, texts, moments, moments, numbers, numbers,
    )  # fmt: skip
    return [_claimed(row, request.worker) for row in wire.decoded(answer, columns)]


def _claimed(row: Any, worker: str) -> Claim:
    (
        job_id, run_id, tenant_id, slug, definition_id, key, queue, params, attempt_no, max_attempts, retry_mode, root_id,
        group_id, trace, correlation_id, lease_expires_at, started_at, timeout_seconds, suspicion,
    ) = row  # fmt: skip
    return Claim(
        job_id, run_id, tenant_id, slug, definition_id, key, queue, {} if params == "{}" else json.loads(params),
        attempt_no, max_attempts, RETRY_MODES[retry_mode], root_id, group_id, worker, started_at, lease_expires_at,
        json.loads(trace) if trace else None, correlation_id, timeout_seconds, suspicion,
    )  # fmt: skip


def _claim_for(request: ClaimRequest, *, guarded: bool) -> str:
    keys, tenant = request.keys is not None, request.tenant_id is not None
    by_worker = request.starting is not None
    return _claim_sql(len(request.open) > 1, keys, tenant, request.heed_reservations, guarded, by_worker)


@lru_cache(maxsize=64)
def _claim_sql(
    many_queues: bool, keys: bool, tenant: bool, heed_reservations: bool, guarded: bool = False, by_worker: bool = False
) -> str:
    extra = ""
    if keys:
        extra += " AND definition_key = ANY(CAST(:keys AS text[]))"
    if tenant:
        extra += " AND tenant_id = CAST(:tenant_id AS uuid)"
    if heed_reservations:
        extra += " AND tenant_id NOT IN (SELECT tenant_id FROM penstock_reservations WHERE status = 'active' AND expires_at > {now})"
    order = "ORDER BY priority, position, queued_at, id"
    if many_queues:
        # One ordered probe per queue, merged: a plain `queue = ANY` would sort everything that waits.
        source = (
            "id IN (SELECT x.id FROM unnest(CAST(:queues AS text[])) AS q(name) CROSS JOIN LATERAL ("
            f"SELECT id FROM penstock_jobs WHERE claimable AND queue = q.name{extra} {order} LIMIT :limit + 500) AS x) AND claimable"
        )
    else:
        source = f"claimable AND queue = :queue{extra}"
    if guarded:
        source = f"(SELECT NOT {_DUE} AND NOT {_LIMITED} AND {_OPEN} = CAST(:open AS text[])) AND {source}"
    # MATERIALIZED, and the status checked again: the planner may otherwise run the subquery more than once.
    begun, until = (_BEGUN_BY_WORKER, _UNTIL_A_SUSPECT) if by_worker else ("true", "")
    return (
        _CLAIM.replace("{source}", source)
        .replace("{order}", order)
        .replace("{begun}", begun)
        .replace("{until_a_suspect}", until)
    )


# A worker's batch ends with the first suspect: that runs when what came before it has ended.
_BEGUN_BY_WORKER = "n.number <= CASE WHEN j.suspect THEN CAST(:apart AS integer) ELSE CAST(:starting AS integer) END"
_UNTIL_A_SUSPECT = " AND n.number <= coalesce((SELECT min(s.number) FROM n s WHERE s.suspect), n.number)"
_CLAIM = """
WITH c AS MATERIALIZED (
  SELECT id, suspect FROM penstock_jobs WHERE {source} {order} LIMIT :limit FOR UPDATE SKIP LOCKED
), n AS (
  SELECT id, suspect, row_number() OVER () AS number FROM c
), u AS (
  UPDATE penstock_jobs j SET status = 'running', claimable = false,
    started_at = coalesce(j.started_at, greatest({now}, j.queued_at)),
    lease_expires_at = {now} + make_interval(secs => :lease), claimed_by = :worker,
    attempt_no = j.attempt_no + 1, run_id = (CAST(:run_ids AS uuid[]))[n.number], begun = {begun}
  FROM n WHERE j.id = n.id AND j.status = 'queued'{until_a_suspect}
  RETURNING j.id, j.run_id, j.tenant_id, j.definition_id, j.definition_key, j.queue, j.params, j.attempt_no, j.max_attempts,
    j.retry_mode, j.root_id, j.group_id, j.trace, j.correlation_id, j.lease_expires_at, j.priority, j.position, j.queued_at,
    CASE WHEN j.suspect THEN j.crashes + 1 ELSE 0 END AS suspicion
), o AS (
  INSERT INTO penstock_runs (job_id, attempt_no, id, tenant_id, status, worker_id, pid, definition_id, started_at)
  SELECT id, attempt_no, run_id, tenant_id, 'running', :worker, CAST(:pid AS integer), definition_id, greatest({now}, queued_at)
  FROM u
)
SELECT u.id AS job_id, u.run_id, u.tenant_id, t.slug AS tenant_slug, u.definition_id, u.definition_key AS key, u.queue,
  CAST(u.params AS text), u.attempt_no, u.max_attempts, u.retry_mode, u.root_id, u.group_id, CAST(u.trace AS text), u.correlation_id,
  u.lease_expires_at,
  greatest({now}, u.queued_at) AS started_at, d.timeout_seconds, u.suspicion
FROM u JOIN penstock_tenants t ON t.id = u.tenant_id LEFT JOIN penstock_definitions d ON d.id = u.definition_id
ORDER BY u.priority, u.position, u.queued_at, u.id
"""

_DUE = "coalesce((SELECT scheduled_for FROM penstock_jobs WHERE waits_for = 'time' ORDER BY scheduled_for LIMIT 1) <= {began}, false)"
_LIMITED = "EXISTS (SELECT 1 FROM penstock_jobs WHERE waits_for = 'limit')"
_OPEN = "coalesce((SELECT array_agg(name ORDER BY name) FROM penstock_queues WHERE NOT paused), '{}')"

# The settings hold for this transaction alone. What follows are point reads by index whatever the statistics say: on a
# table that grew since it was last analysed the planner would read and sort everything that waits, and a generic plan, which
# does not know how few are asked for, would join with the whole table. The sort of what was claimed is so dear to a planner
# that may not sort that it would also have the statement compiled, which takes longer than to run it.
_OFF = ("enable_bitmapscan", "enable_sort", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit")
_GATE = f"""
SELECT pg_advisory_xact_lock_shared(:lock), {", ".join(f"set_config('{name}', 'off', true)" for name in _OFF)},
  set_config('plan_cache_mode', 'force_generic_plan', true), {_DUE}, {_LIMITED}, {_OPEN}
"""
