"""The gate, and the claim behind it. Many claim at once: each skips what another holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from penstock.core.nouns import Claim
from penstock.store.dialect import HotConnection
from penstock.store.hot import RETRY_MODES, ClaimRequest, Gate, Rehearsed, Taken
from penstock.store.postgresql import transaction
from penstock.store.postgresql.locks import GATE_LOCK
from penstock.store.postgresql.transaction import Clock, Hot, hot
from penstock.store.postgresql.types import array


class PostgresClaim:
    """Enter by the gate and claim."""

    def gate(self, conn: HotConnection, moment: datetime | None) -> Gate:
        (row,) = transaction.run(conn, _GATE, moment, {"lock": GATE_LOCK})
        return _gate(row)

    def claim(self, conn: HotConnection, moment: datetime | None, request: ClaimRequest) -> Taken:
        sql, values = _claim_for(request, guarded=False), _claim_values(request)
        rows = transaction.run(conn, sql, moment, values)
        return Taken(len(rows), lambda: [_claimed(row, request.worker) for row in rows])

    def rehearse(self, moment: datetime | None, request: ClaimRequest, expected: Gate) -> Rehearsed:
        from penstock.store.postgresql import wire

        values = {**_claim_values(request), "open": list(expected.queues), "lock": GATE_LOCK, "moment": moment}
        gate = wire.Statement(_GATE.text(moment), values)
        claim = wire.Statement(_claim_for(request, guarded=True).text(moment), values, binary=True)
        for each in (gate, claim):
            each.ready()
        return Rehearsed(expected, request, [gate, claim])

    def enter_and_claim(self, conn: HotConnection, moment: datetime | None, rehearsed: Rehearsed) -> tuple[Gate, Taken]:
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


def _claim_for(request: ClaimRequest, *, guarded: bool) -> Hot:
    keys, tenant = request.keys is not None, request.tenant_id is not None
    by_worker = request.starting is not None
    return _claim_sql(len(request.open) > 1, keys, tenant, request.heed_reservations, guarded, by_worker)


_ORDER = "ORDER BY priority, position, queued_at, job_id"


@lru_cache(maxsize=64)
def _claim_sql(
    many_queues: bool, keys: bool, tenant: bool, heed_reservations: bool, guarded: bool = False, by_worker: bool = False
) -> Hot:
    """`ready` to `running`. A row that another claim or an edit holds is passed by; one that was edited since our snapshot is another
    version, which the DELETE does not see."""

    def source(clock: Clock) -> str:
        extra = " AND definition_key = ANY(CAST(:keys AS text[]))" if keys else ""
        extra += " AND tenant_id = CAST(:tenant_id AS uuid)" if tenant else ""
        if heed_reservations:
            extra += (
                " AND tenant_id NOT IN (SELECT tenant_id FROM penstock_reservations"
                f" WHERE status = 'active' AND expires_at > {clock.now})"
            )
        here = f"queue = :queue{extra}"
        if many_queues:
            # One ordered probe per queue, merged: a plain `queue = ANY` would sort everything that is ready.
            here = (
                "ctid = ANY(ARRAY(SELECT x.ctid FROM unnest(CAST(:queues AS text[])) AS q(name) CROSS JOIN LATERAL ("
                f"SELECT ctid FROM penstock_ready WHERE queue = q.name{extra} {_ORDER} LIMIT :limit + 500) AS x))"
            )
        if guarded:
            as_expected = f"NOT {_due(clock)} AND NOT {_LIMITED} AND {_OPEN} = CAST(:open AS text[])"
            return f"(SELECT {as_expected}) AND {here}"
        return here

    # A worker's batch ends with the first suspect: that runs when what came before it has ended.
    apart = "CASE WHEN d.suspect THEN CAST(:apart AS integer) ELSE CAST(:starting AS integer) END"
    begun = f"d.number <= {apart}" if by_worker else "true"
    until = " AND n.number <= coalesce((SELECT min(s.number) FROM n s WHERE s.suspect), n.number)" if by_worker else ""

    return hot(
        lambda clock: (
            f"""
WITH c AS MATERIALIZED (
  SELECT ctid, suspect FROM penstock_ready WHERE {source(clock)} {_ORDER} LIMIT :limit FOR UPDATE SKIP LOCKED
), n AS (
  SELECT ctid, suspect, row_number() OVER () AS number FROM c
), d AS (
  DELETE FROM penstock_ready r USING n WHERE r.ctid = n.ctid{until}
  RETURNING r.*, n.number
), o AS (
  INSERT INTO penstock_running (job_id, tenant_id, queued_at, run_id, ready_at, started_at, lease_expires_at, position, priority,
    attempt_no, max_attempts, crashes, interruptions, suspect, slot, begun, worker_id, queue, definition_key, definition_id, group_id,
    trigger_id, dedupe_key, pid)
  SELECT d.job_id, d.tenant_id, d.queued_at, (CAST(:run_ids AS uuid[]))[d.number], d.ready_at, greatest({clock.now}, d.queued_at),
    {clock.now} + make_interval(secs => :lease), d.position, d.priority, d.attempt_no + 1, d.max_attempts, d.crashes, d.interruptions,
    d.suspect, d.slot, {begun}, :worker, d.queue, d.definition_key, d.definition_id, d.group_id, d.trigger_id, d.dedupe_key,
    CAST(:pid AS integer)
  FROM d
  RETURNING job_id, run_id, tenant_id, definition_id, definition_key, queue, attempt_no, max_attempts, group_id, lease_expires_at,
    started_at, priority, position, queued_at, CASE WHEN suspect THEN crashes + 1 ELSE 0 END AS suspicion
)
SELECT o.job_id, o.run_id, o.tenant_id, (SELECT slug FROM penstock_tenants WHERE id = o.tenant_id), o.definition_id,
  o.definition_key, o.queue, CAST(j.params AS text), o.attempt_no, o.max_attempts, j.retry_mode, j.root_id, o.group_id, CAST(j.trace AS text), j.correlation_id, o.lease_expires_at, o.started_at,
  (SELECT timeout_seconds FROM penstock_definitions WHERE id = o.definition_id), o.suspicion
FROM o CROSS JOIN LATERAL (
  SELECT params, retry_mode, root_id, trace, correlation_id FROM penstock_jobs WHERE id = o.job_id OFFSET 0) AS j
ORDER BY o.priority, o.position, o.queued_at, o.job_id
"""
        )
    )


def _due(clock: Clock) -> str:
    first = "SELECT until FROM penstock_waiting WHERE reason = 'time' ORDER BY until LIMIT 1"
    return f"coalesce(({first}) <= {clock.began}, false)"


_LIMITED = "EXISTS (SELECT 1 FROM penstock_waiting WHERE reason = 'limit')"
_OPEN = "coalesce((SELECT array_agg(name ORDER BY name) FROM penstock_queues WHERE NOT paused), '{}')"

# The settings hold for this transaction alone. What follows are point reads by index whatever the statistics say: on a
# table that grew since it was last analysed the planner would read and sort everything that is ready, and a generic plan, which
# does not know how few are asked for, would join with the whole table. The sort of what was claimed is so dear to a planner
# that may not sort that it would also have the statement compiled, which takes longer than to run it.
_OFF = ("enable_bitmapscan", "enable_sort", "enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit")
_GATE = hot(
    lambda clock: (
        f"""
SELECT pg_advisory_xact_lock_shared(:lock), {", ".join(f"set_config('{name}', 'off', true)" for name in _OFF)},
  set_config('plan_cache_mode', 'force_generic_plan', true), {_due(clock)}, {_LIMITED}, {_OPEN}
"""
    )
)
