"""Deliberate bugs (FAULTS rule 12). Each is put into the running program from outside; nothing in the product knows of them.

A bug that replaces text in a statement fails to be planted when that text is gone, so the list cannot rot unseen.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update

from penstock.core import decide, groups, status
from penstock.core.decide import Lost
from penstock.core.settings import jobs as job_settings
from penstock.core.status import JobStatus
from penstock.queue import cancel, enqueue, order, record, recover
from penstock.store import claims, definitions, jobs, promote, recovery, reservations
from penstock.store import groups as group_rows
from penstock.store import order as order_rows
from penstock.store import prune as pruning
from penstock.store.database import Database
from penstock.store.postgresql import claim as postgresql_claim
from penstock.store.postgresql import close as postgresql_close
from penstock.store.postgresql import heartbeat as postgresql_heartbeat
from penstock.store.postgresql import insert as postgresql_insert
from penstock.store.sqlite import claim as sqlite_claim
from penstock.store.sqlite import close as sqlite_close
from penstock.store.sqlite import heartbeat as sqlite_heartbeat
from penstock.store.sqlite import insert as sqlite_insert
from penstock.store.sqlite import transaction as sqlite_transaction
from penstock.store.tables import jobs as jobs_table
from penstock.store.tables import runs as runs_table

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
BUGS: dict[str, dict[str, Plant]] = {"sqlite": {}, "postgresql": {}}


def bug(backend: str, name: str) -> Callable[[Plant], Plant]:
    def keep(plant: Plant) -> Plant:
        BUGS[backend][name] = plant
        return plant

    return keep


STATEMENTS = {
    "sqlite": (sqlite_insert, sqlite_claim, sqlite_close, sqlite_heartbeat),
    "postgresql": (postgresql_insert, postgresql_claim, postgresql_close, postgresql_heartbeat),
}


def holder(backend: str, constant: str) -> Any:
    """The module that has the statement."""
    [module] = [module for module in STATEMENTS[backend] if hasattr(module, constant)]
    return module


def text_bug(backend: str, name: str, constant: str, old: str, new: str) -> None:
    """A statement with one piece of its text replaced."""
    module = holder(backend, constant)

    def plant(patch: Patch) -> None:
        before = getattr(module, constant)
        assert old in before, f"{constant} no longer says {old!r}: rewrite this bug"
        patch.setattr(module, constant, before.replace(old, new))
        postgresql_claim._claim_sql.cache_clear()
        postgresql_close._close_successes_sql.cache_clear()

    BUGS[backend][name] = plant


def instead(name: str, place: Any, attribute: str, value: Any) -> None:
    """A function or a value replaced."""
    BUGS["sqlite"][name] = lambda patch: patch.setattr(place, attribute, value)


def around(name: str, place: Any, attribute: str, wrap: Callable[..., Any]) -> None:
    """A function called through `wrap(real, *args)`."""

    def plant(patch: Patch) -> None:
        real = getattr(place, attribute)
        patch.setattr(place, attribute, lambda *args, **kwargs: wrap(real, *args, **kwargs))

    BUGS["sqlite"][name] = plant


def found_otherwise(name: str, old: str, new: str) -> None:
    """The search for what to claim, with a piece of its text replaced."""
    assert old in sqlite_claim._find(1, True, True, True), f"the search no longer says {old!r}: rewrite {name!r}"

    def wrap(real: Any, *args: Any) -> str:
        text: str = real(*args)
        return text.replace(old, new)

    around(name, sqlite_claim, "_find", wrap)


# Fences.
text_bug("sqlite", "finish without a fence", "_CLOSE_JOBS", " AND penstock_jobs.run_id = f.r", "")
text_bug("sqlite", "finish whatever the status", "_CLOSE_JOBS", " AND penstock_jobs.status = 'running'", "")
text_bug("sqlite", "heartbeat without a fence", "_HEARTBEAT", " AND penstock_jobs.run_id = pair.run", "")
text_bug("sqlite", "heartbeat whatever the status", "_HEARTBEAT", " AND penstock_jobs.status = 'running'", "")
text_bug(
    "sqlite", "runs left open", "_CLOSE_RUNS", "penstock_runs.status = 'running'", "penstock_runs.status = 'never'"
)
text_bug("sqlite", "retry without its delay", "_CLOSE_JOBS", ":now + CAST(round(f.d * 1000000) AS INTEGER)", ":now")
text_bug("sqlite", "slot kept by what ended", "_CLOSE_JOBS", "slot = 0", "slot = slot")
text_bug("sqlite", "success without a fence", "_SUCCESSES", " AND j.run_id = json_extract(f.value, '$[1]')", "")
text_bug("sqlite", "success whatever the status", "_SUCCESSES", "j.status = 'running' AND ", "")
text_bug("sqlite", "success of a member alone", "_SUCCESSES", " AND j.group_id IS NULL", "")
text_bug(
    "sqlite", "success kept from webhooks", "_SUCCESSES",
    " AND j.tenant_id NOT IN (SELECT tenant_id FROM penstock_webhooks WHERE is_enabled)", "",
)  # fmt: skip
text_bug("sqlite", "slot kept by a success", "_CLOSE_SUCCESSES", "slot = 0", "slot = slot")
text_bug("sqlite", "result not kept", "_CLOSE_WITH_RESULTS", "f.result FROM", "NULL FROM")
text_bug("sqlite", "run of a success left open", "_CLOSE_THEIR_RUNS", "rowid IN", "0 AND rowid IN")
text_bug("sqlite", "attempts not counted", "_TAKE", "attempt_no = attempt_no + 1", "attempt_no = attempt_no")
text_bug("sqlite", "claimable after the claim", "_TAKE", "status = 'running', claimable = 0", "claimable = 0")
text_bug("sqlite", "dedupe without its key", "_INSERT", " ON CONFLICT DO NOTHING", "")
text_bug("sqlite", "paused queue served", "_GATE", " WHERE NOT paused", "")
text_bug("sqlite", "reservation not looked for", "_GATE", "status = 'active'", "status = 'never'")
text_bug("sqlite", "due jobs not looked for", "_GATE", "waits_for = 'time'", "waits_for = 'never'")
text_bug("sqlite", "limits not looked for", "_GATE", "waits_for = 'limit'", "waits_for = 'never'")
text_bug("sqlite", "first come, first served over all tenants", "_PLACE", "tenant_id = :tenant_id AND ", "")
found_otherwise("last place first", "ORDER BY priority, position", "ORDER BY priority, position DESC")
found_otherwise("high number first", "ORDER BY priority,", "ORDER BY priority DESC,")
found_otherwise("place ignored", "ORDER BY priority, position, queued_at, id", "ORDER BY priority, queued_at, id")
found_otherwise("claims what is not claimable", "claimable AND ", "status <> 'x' AND ")


# Halves of a transaction.
def _committed_after(constant: str) -> Callable[..., Any]:
    def run(real: Any, conn: Any, sql: str, params: Any) -> Any:
        rows = real(conn, sql, params)
        if sql == getattr(holder("sqlite", constant), constant):
            raw = conn.connection.driver_connection
            raw.execute("COMMIT")
            raw.execute("BEGIN IMMEDIATE")
        return rows

    return run


around("run row in a second transaction", sqlite_transaction, "run", _committed_after("_TAKE"))
around("run closed in a second transaction", sqlite_transaction, "run", _committed_after("_CLOSE_JOBS"))
around("retry in a second transaction", sqlite_transaction, "run", _committed_after("_CLOSE_RUNS"))
text_bug("sqlite", "no run row", "_OPEN_RUNS", "ON j.rowid = f.value", "ON 0")


# Decisions.
around("retries without limit", decide, "_retry_or_bury", lambda real, attempt, *a, **k: real(replace(attempt, max_attempts=10**6), *a, **k))  # fmt: skip
around("no retries", decide, "_retry_or_bury", lambda real, attempt, *a, **k: real(replace(attempt, attempt_no=10**6), *a, **k))  # fmt: skip
around("canceled job tried again", decide, "_retry_or_bury", lambda real, attempt, *a, **k: real(replace(attempt, cancel_requested=False), *a, **k))  # fmt: skip
around("snooze uses an attempt up", decide, "_again", lambda real, *a, **k: real(*a, **{**k, "extra_attempts": 0}))
around(
    "poison never buried", job_settings, "Limits", lambda real, *a, **k: real(max_crashes=10**6, max_interruptions=10)
)
around("shutdown uses an attempt up", decide, "_give_back_or_retry", lambda real, attempt, *a, **k: real(replace(attempt, interruptions=10**6), *a, **k))  # fmt: skip
around("interruptions without limit", decide, "_give_back_or_retry", lambda real, attempt, *a, **k: real(replace(attempt, interruptions=0), *a, **k))  # fmt: skip
instead("a lost buffer is charged", recover, "lost_run", lambda *_: Lost.UNDER_WAY)
instead("what had begun is given back", recover, "lost_run", lambda *_: Lost.UNTOUCHED)
instead(
    "a doubtful claim is no suspect",
    recover,
    "lost_run",
    lambda marked, *_: Lost.UNDER_WAY if marked else Lost.UNTOUCHED,
)
instead("suspects in company", sqlite_claim, "_until_a_suspect", lambda found, rows: (found, json.dumps(found), rows))
text_bug("sqlite", "a buffer counts as begun", "_TAKE", "begun = f.place <", "begun = f.place >= 0 OR f.place <")
text_bug("sqlite", "suspicion outlives a success", "_CLOSE_SUCCESSES", "suspect = 0, ", "")
instead("retry of what succeeded", status, "RETRY", replace(status.RETRY, sources=tuple(JobStatus)))
instead("change of what runs", status, "UPDATE", replace(status.UPDATE, sources=tuple(JobStatus)))
instead("cancel of what ended", status, "CANCEL", replace(status.CANCEL, sources=tuple(JobStatus)))
instead("retry not written", claims, "chain", lambda tx, job_id, delay: job_id)
instead("group goes on after a failure", group_rows, "_died_before", lambda tx, group_id, position: False)
instead("group never goes on", group_rows, "advance", lambda tx, group_id: False)
instead("group ended with its first member", groups, "TERMINAL", frozenset(JobStatus))
instead("earlier runs take the new params", jobs, "keep_snapshots", lambda tx, job: None)


@bug("sqlite", "superseded member stops its group")
def _every_member(patch: Patch) -> None:
    def died_before(tx: Any, group_id: Any, position: int) -> bool:
        died = jobs_table.c.status.in_(("canceled", "dead_letter"))
        query = select(jobs_table.c.id).where(jobs_table.c.group_id == group_id, died)
        return tx.scalar(query.where(jobs_table.c.group_position < position).limit(1)) is not None

    patch.setattr(group_rows, "_died_before", died_before)


@bug("sqlite", "cancel leaves the run open")
def _cancel_at_once(patch: Patch) -> None:
    def change(tx: Any, job_id: Any, values: dict[str, Any], *conditions: Any) -> Any:
        if "cancel_requested_at" in values and "status" not in values:
            values = {"status": JobStatus.CANCELED, "finished_at": tx.now, "lease_expires_at": None, "slot": False}
        return real(tx, job_id, values, *conditions)

    real = jobs.change
    patch.setattr(cancel.jobs, "change", change)


# Time.
def _at(tx: Any, moment: datetime) -> Any:
    return replace(tx, moment=moment)


around("worker's clock used for expiry", recovery, "abandoned", lambda real, tx, *a: real(_at(tx, datetime.now(UTC)), *a))  # fmt: skip
around("rescue before the lease is over", recovery, "abandoned", lambda real, tx, *a: real(_at(tx, tx.moment + timedelta(seconds=9)), *a))  # fmt: skip
around("scheduled job let go early", promote, "due", lambda real, tx: real(_at(tx, tx.moment + timedelta(days=1))))
instead("due jobs never let go", promote, "due", lambda tx: 0)
instead("lost leases never seen", recovery, "abandoned", lambda tx, is_dead=None: [])
found_otherwise("expired reservation still heeded", " AND expires_at > :now", "")


# Limits, reservations, tenants.
around("limits without counting", promote, "_taken", lambda real, tx: tuple(type(counts)(int) for counts in real(tx)))
around("tenant's limit without counting", promote, "_taken", lambda real, tx: (real(tx)[0], type(real(tx)[1])(int)))
instead("pause of a definition without effect", definitions, "park", lambda tx, definition_id: 0)
instead("reservation does not wait for what runs", reservations, "running", lambda tx, tenant_id: 0)
instead("weight ignored", sqlite_insert, "step", lambda weight: 100)
instead("order of places lost", order_rows, "_KEY", (jobs_table.c.id.desc(), jobs_table.c.queued_at, jobs_table.c.position))  # fmt: skip
instead("move without effect", order, "_edge", lambda tx, job, to: job.position)


@bug("sqlite", "second reservation ends the first")
def _expire_all(patch: Patch) -> None:
    real = reservations.expire
    patch.setattr(reservations, "active", lambda tx, tenant_id: None)  # else nobody gets so far
    patch.setattr(reservations, "expire", lambda tx, tenant_id=None, is_dead=None: real(tx, tenant_id, lambda by: True))


@bug("sqlite", "another tenant's job can be read")
def _get_any(patch: Patch) -> None:
    def get(tx: Any, tenant_id: Any, job_id: Any, *, lock: bool = False) -> Any:
        row = tx.run(select(jobs_table).where(jobs_table.c.id == job_id)).mappings().first()
        return jobs.rows.job(row) if row else None

    patch.setattr(jobs, "get", get)


@bug("sqlite", "another tenant's jobs are listed")
def _list_any(patch: Patch) -> None:
    def listed(tx: Any, tenant_id: Any, *args: Any, **kwargs: Any) -> Any:
        return [jobs.rows.job(row) for row in tx.run(select(jobs_table)).mappings()]

    patch.setattr(jobs, "listed", listed)


@bug("sqlite", "definition not looked at again")
def _any_version(patch: Patch) -> None:
    class Any_:
        def __ne__(self, other: object) -> bool:
            return False

    patch.setattr(sqlite_insert, "_definitions", lambda conn, ids: dict.fromkeys(ids, (Any_(), False)))


# Enqueue.
instead("defaults not merged", enqueue, "merge", lambda defaults, given: dict(given))
instead("payload not checked", enqueue, "validate", lambda *args: None)
instead("joined enqueue commits by itself", Database, "joined", lambda self, connection: self.write())
instead("claims not found after a lost reply", claims, "held", lambda tx, run_ids: [])
instead("finish not found after a lost reply", record, "recorded", lambda tx, reports: set())
around("new id after a lost reply", enqueue, "enqueue_in", lambda real, *a: real(*a[:6]))


@bug("sqlite", "release uses an attempt up")
def _costly_release(patch: Patch) -> None:
    real = claims.release

    def release(tx: Any, pairs: Any) -> int:
        given = real(tx, pairs)
        for job_id, _ in pairs:
            tx.run(update(jobs_table).where(jobs_table.c.id == job_id).values(attempt_no=jobs_table.c.attempt_no + 1))
        return given

    patch.setattr(claims, "release", release)


# Recovery, pruning.
instead("running jobs without a run left alone", recovery, "without_run", lambda tx: [])
instead("finishing jobs left alone", recovery, "with_ended_run", lambda tx: [])
instead("stray runs left open", recovery, "close_stray_runs", lambda tx: 0)
instead("missing retries left out", recovery, "failed_without_retry", lambda tx: [])


@bug("sqlite", "prune leaves the runs")
def _orphans(patch: Patch) -> None:
    real = pruning.delete

    def delete(table: Any) -> Any:
        statement = real(table)
        return statement.where(runs_table.c.job_id.is_(None)) if table is runs_table else statement

    patch.setattr(pruning, "delete", delete)


# The same on PostgreSQL, whose statements are its own.
text_bug("postgresql", "slot kept by what ended", "_CLOSE", "slot = false", "slot = j.slot")
text_bug("postgresql", "finish without a fence", "_CLOSE", " AND j.run_id = f.r", "")
text_bug("postgresql", "success without a fence", "_CLOSE_SUCCESSES", " AND j.run_id = f.r", "")
text_bug("postgresql", "success of a member alone", "_CLOSE_SUCCESSES", " AND j.group_id IS NULL", "")
text_bug("postgresql", "success kept from webhooks", "_CLOSE_SUCCESSES", f" AND NOT j.{postgresql_close._HOOKED}", "")
text_bug("postgresql", "slot kept by a success", "_CLOSE_SUCCESSES", "slot = false", "slot = j.slot")
text_bug(
    "postgresql", "finish whatever the status", "_CLOSE", " AND coalesce(j.lease_expires_at > '-infinity', false)", ""
)
text_bug("postgresql", "a buffer counts as begun", "_BEGUN_BY_WORKER", "n.number <=", "true OR n.number <=")
text_bug("postgresql", "suspects in company", "_UNTIL_A_SUSPECT", "WHERE s.suspect", "WHERE false")
text_bug("postgresql", "suspicion outlives a success", "_CLOSE_SUCCESSES", "suspect = false", "suspect = j.suspect")
text_bug("postgresql", "heartbeat without a fence", "_HEARTBEAT", " AND j.run_id = p.run_id", "")
text_bug(
    "postgresql",
    "heartbeat whatever the status",
    "_HEARTBEAT",
    " AND coalesce(j.lease_expires_at > '-infinity', false)",
    "",
)
text_bug("postgresql", "retry without its delay", "_CLOSE", "make_interval(secs => coalesce(f.d, 0))", "interval '0'")
text_bug("postgresql", "attempts not counted", "_CLAIM", "attempt_no = j.attempt_no + 1", "attempt_no = j.attempt_no")


INSERTS = ("_INSERT_ONE", "_INSERT_PLAIN", "_INSERT_ALIKE", "_INSERT")


def insert_bug(name: str, *changes: tuple[str, str], into: tuple[str, ...] = INSERTS) -> None:
    """A bug in each of the statements that write jobs: one, many alike, many."""

    @bug("postgresql", name)
    def plant(patch: Patch) -> None:
        for constant in into:
            text = getattr(postgresql_insert, constant)
            changed = text
            for right, wrong in changes:
                changed = changed.replace(right, wrong)
            assert changed != text
            patch.setattr(postgresql_insert, constant, changed)


insert_bug("first come, first served over all tenants", (" AND tenant_id = t.id", ""), (" AND tenant_id = p.tenant_id", ""))  # fmt: skip
insert_bug("weight ignored", ("100 / t.weight", "100"))
insert_bug("dedupe without its key", ("ON CONFLICT DO NOTHING", ""), into=("_INSERT_ONE", "_INSERT_PLAIN", "_INSERT"))
insert_bug(
    "definition not looked at again",
    ("(d.is_active AND d.version = g.definition_version)", "true"),
    ("(d.is_active AND d.version = CAST(:definition_version AS integer))", "true"),
)
text_bug("postgresql", "paused queue served", "_GATE", " WHERE NOT paused", "")


@bug("postgresql", "reservation not looked for")
def _no_reservations(patch: Patch) -> None:
    real = postgresql_claim._claim_sql
    patch.setattr(
        postgresql_claim,
        "_claim_sql",
        lambda queues, keys, tenant, heed, *guard: real(queues, keys, tenant, False, *guard),
    )


@bug("postgresql", "last place first")
def _last_first(patch: Patch) -> None:
    real = postgresql_claim._claim_sql
    order = ("ORDER BY priority, position,", "ORDER BY priority, position DESC,")
    patch.setattr(postgresql_claim, "_claim_sql", lambda *args: real(*args).replace(*order))


HUNTERS = {
    "success without a fence": "a_stale_run_changes_nothing",
    "success whatever the status": "a_job_runs_once_and_its_run_is_closed_with_it",
    "result not kept": "a_job_runs_once_and_its_run_is_closed_with_it",
    "success of a member alone": "a_sequential_group_goes_in_order_and_stops",
    "success kept from webhooks": "a_webhook_is_told_of_a_success",
    "run of a success left open": "a_job_runs_once_and_its_run_is_closed_with_it",
    "slot kept by a success": "limits_hold_and_free_their_slots",
    "finish without a fence": "a_stale_run_changes_nothing",
    "finish whatever the status": "a_job_runs_once_and_its_run_is_closed_with_it",
    "heartbeat without a fence": "a_stale_run_changes_nothing",
    "heartbeat whatever the status": "a_job_runs_once_and_its_run_is_closed_with_it",
    "runs left open": "a_job_runs_once_and_its_run_is_closed_with_it",
    "retry without its delay": "attempts_are_counted_and_end",
    "slot kept by what ended": "limits_hold_and_free_their_slots",
    "attempts not counted": "a_job_runs_once_and_its_run_is_closed_with_it",
    "claimable after the claim": "claims_follow_the_order",
    "dedupe without its key": "a_dedupe_key_makes_one_of_two",
    "paused queue served": "what_is_paused_waits",
    "reservation not looked for": "a_reservation_keeps_the_tenant_to_itself",
    "due jobs not looked for": "a_stale_run_changes_nothing",
    "limits not looked for": "limits_hold_and_free_their_slots",
    "first come, first served over all tenants": "tenants_take_turns",
    "last place first": "claims_follow_the_order",
    "high number first": "claims_follow_the_order",
    "place ignored": "claims_follow_the_order",
    "claims what is not claimable": "attempts_are_counted_and_end",
    "run row in a second transaction": "a_claim_is_whole_or_not_at_all",
    "run closed in a second transaction": "a_chain_has_one_retry_written_with_the_failure",
    "retry in a second transaction": "a_chain_has_one_retry_written_with_the_failure",
    "no run row": "a_job_runs_once_and_its_run_is_closed_with_it",
    "retries without limit": "attempts_are_counted_and_end",
    "no retries": "a_stale_run_changes_nothing",
    "canceled job tried again": "a_cancel_stops_what_waits_and_asks_what_runs",
    "snooze uses an attempt up": "a_snooze_uses_no_attempt_up_and_a_skip_is_no_failure",
    "poison never buried": "a_poison_job_is_buried",
    "shutdown uses an attempt up": "an_interruption_costs_no_attempt_within_a_bound",
    "interruptions without limit": "an_interruption_costs_no_attempt_within_a_bound",
    "a lost buffer is charged": "a_crash_is_charged_to_what_had_begun",
    "what had begun is given back": "a_crash_is_charged_to_what_had_begun",
    "a doubtful claim is no suspect": "a_suspect_runs_apart_until_it_has_ended_well",
    "suspects in company": "a_suspect_runs_apart_until_it_has_ended_well",
    "a buffer counts as begun": "a_crash_is_charged_to_what_had_begun",
    "suspicion outlives a success": "a_suspect_runs_apart_until_it_has_ended_well",
    "retry of what succeeded": "what_ended_well_is_not_retried_and_what_runs_is_not_changed",
    "change of what runs": "what_ended_well_is_not_retried_and_what_runs_is_not_changed",
    "cancel of what ended": "what_ended_well_is_not_retried_and_what_runs_is_not_changed",
    "retry not written": "a_chain_has_one_retry_written_with_the_failure",
    "group goes on after a failure": "a_sequential_group_goes_in_order_and_stops",
    "group never goes on": "a_sequential_group_goes_in_order_and_stops",
    "group ended with its first member": "a_parallel_group_ends_with_its_last_member",
    "earlier runs take the new params": "earlier_runs_keep_the_params_they_ran_with",
    "superseded member stops its group": "a_sequential_group_goes_in_order_and_stops",
    "cancel leaves the run open": "a_cancel_stops_what_waits_and_asks_what_runs",
    "worker's clock used for expiry": "a_stale_run_changes_nothing",
    "rescue before the lease is over": "a_stale_run_changes_nothing",
    "scheduled job let go early": "a_scheduled_job_waits_for_its_time",
    "due jobs never let go": "a_stale_run_changes_nothing",
    "lost leases never seen": "a_stale_run_changes_nothing",
    "expired reservation still heeded": "a_reservation_keeps_the_tenant_to_itself",
    "limits without counting": "limits_hold_and_free_their_slots",
    "tenant's limit without counting": "limits_hold_and_free_their_slots",
    "pause of a definition without effect": "what_is_paused_waits",
    "reservation does not wait for what runs": "a_reservation_keeps_the_tenant_to_itself",
    "weight ignored": "tenants_take_turns",
    "order of places lost": "places_spread_evenly_keep_their_order",
    "move without effect": "claims_follow_the_order",
    "second reservation ends the first": "a_reservation_keeps_the_tenant_to_itself",
    "another tenant's job can be read": "tenants_see_nothing_of_each_other",
    "another tenant's jobs are listed": "tenants_see_nothing_of_each_other",
    "definition not looked at again": "an_archived_definition_takes_nothing_whatever_is_remembered",
    "defaults not merged": "payloads_are_merged_and_checked",
    "payload not checked": "payloads_are_merged_and_checked",
    "joined enqueue commits by itself": "a_job_in_the_callers_transaction_goes_with_it",
    "claims not found after a lost reply": "a_lost_reply_makes_no_ghost_and_no_double",
    "finish not found after a lost reply": "a_lost_reply_makes_no_ghost_and_no_double",
    "new id after a lost reply": "a_lost_reply_makes_no_ghost_and_no_double",
    "release uses an attempt up": "a_shutdown_gives_the_job_back",
    "running jobs without a run left alone": "recovery_mends_what_cannot_be",
    "finishing jobs left alone": "recovery_mends_what_cannot_be",
    "stray runs left open": "recovery_mends_what_cannot_be",
    "missing retries left out": "recovery_mends_what_cannot_be",
    "prune leaves the runs": "pruning_never_touches_what_is_active",
}
"""Which check is known to catch a bug, asked first: all of them for each would take minutes."""
