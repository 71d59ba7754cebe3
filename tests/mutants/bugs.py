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
from sqlalchemy import select, text, update

from penstock.core import decide, groups, status
from penstock.core.decide import Lost
from penstock.core.settings import jobs as job_settings
from penstock.core.status import JobStatus
from penstock.queue import enqueue, order, record, recover
from penstock.store import claims, definitions, jobs, promote, recovery, reservations, rows, states
from penstock.store import groups as group_rows
from penstock.store import order as order_rows
from penstock.store import prune as pruning
from penstock.store.database import Database
from penstock.store.postgresql import claim as postgresql_claim
from penstock.store.postgresql import close as postgresql_close
from penstock.store.postgresql import heartbeat as postgresql_heartbeat
from penstock.store.postgresql import insert as postgresql_insert
from penstock.store.postgresql.transaction import Hot
from penstock.store.sqlite import claim as sqlite_claim
from penstock.store.sqlite import close as sqlite_close
from penstock.store.sqlite import heartbeat as sqlite_heartbeat
from penstock.store.sqlite import insert as sqlite_insert
from penstock.store.sqlite import transaction as sqlite_transaction
from penstock.store.tables import died_in_group, job_view, ready
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
    "sqlite": {"insert": sqlite_insert, "claim": sqlite_claim, "close": sqlite_close, "heartbeat": sqlite_heartbeat},
    "postgresql": {
        "insert": postgresql_insert, "claim": postgresql_claim, "close": postgresql_close, "heartbeat": postgresql_heartbeat,
    },
}  # fmt: skip


def text_bug(backend: str, name: str, statement: str, old: str, new: str) -> None:
    """A statement, named by its module and its constant, with one piece of its text replaced."""
    place, _, constant = statement.partition(".")
    module = STATEMENTS[backend][place]

    def plant(patch: Patch) -> None:
        patch.setattr(module, constant, changed(getattr(module, constant), old, new))

    BUGS[backend][name] = plant


def changed(before: str | Hot, old: str, new: str) -> Any:
    if isinstance(before, Hot):
        return Hot(*(changed(each, old, new) for each in before))
    assert old in before, f"the statement no longer says {old!r}: rewrite this bug"
    return before.replace(old, new)


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


# Fences. A run is open while it has its row, so what is not there cannot be written: the run id keeps out who held it before.
text_bug("sqlite", "finish without a fence", "close._OURS", "r.run_id = json_extract(f.value, '$[1]') AND ", "")
text_bug("sqlite", "heartbeat without a fence", "heartbeat._HEARTBEAT", " AND penstock_running.run_id = pair.run", "")
text_bug("sqlite", "runs left open", "close._LEAVE", "WHERE rowid IN", "WHERE 0 AND rowid IN")
text_bug("sqlite", "success without its run", "close._CLOSE_PLAIN", "ON r.rowid = f.value", "ON 0")
text_bug("sqlite", "failure without its run", "close._CLOSE_TOLD", "ON r.rowid = f.n", "ON 0")
text_bug("sqlite", "retry lost", "close._TRY_AGAIN", "WHERE f.js = 'queued'", "WHERE 0")
text_bug(
    "sqlite", "retry without its delay", "close._TRY_AGAIN", ":now + CAST(round(coalesce(f.d, 0) * 1000000) AS INTEGER)", ":now"
)  # fmt: skip
text_bug("sqlite", "success of a member alone", "close._OURS", "r.group_id IS NULL AND NOT", "NOT")
text_bug("sqlite", "success kept from webhooks", "close._OURS", f" AND NOT {sqlite_close._HOOKED}", "")
text_bug("sqlite", "result not kept", "close._CLOSE_TOLD", "f.e, f.res,", "f.e, NULL,")
text_bug("sqlite", "dedupe key kept by what ended", "close._FREE_DEDUPE_KEYS", "WHERE (", "WHERE 0 AND (")
instead("dedupe key freed by a retry", sqlite_close, "_again", lambda closing: False)
text_bug("sqlite", "attempts not counted", "claim._TAKE", "r.attempt_no + 1", "max(1, r.attempt_no)")
text_bug("sqlite", "claimable after the claim", "claim._LEAVE", "WHERE rowid IN", "WHERE 0 AND rowid IN")
text_bug("sqlite", "claimed without a run", "claim._TAKE", "ON r.rowid =", "ON 0 AND r.rowid =")
text_bug("sqlite", "slot forgotten by the claim", "claim._TAKE", "r.suspect, r.slot,", "r.suspect, 0,")
text_bug("sqlite", "dedupe without its key", "insert._INSERT_DEDUPE", " ON CONFLICT DO NOTHING", "")
text_bug("sqlite", "paused queue served", "claim._GATE", " WHERE NOT paused", "")
text_bug("sqlite", "reservation not looked for", "claim._GATE", "status = 'active'", "status = 'never'")
text_bug("sqlite", "due jobs not looked for", "claim._GATE", "reason = 'time'", "reason = 'never'")
text_bug("sqlite", "limits not looked for", "claim._GATE", "reason = 'limit'", "reason = 'never'")
text_bug(
    "sqlite", "first come, first served over all tenants", "insert._SEEN", "tenant_id = :tenant_id AND priority", "priority"
)  # fmt: skip
found_otherwise("last place first", "ORDER BY priority, position", "ORDER BY priority, position DESC")
found_otherwise("high number first", "ORDER BY priority,", "ORDER BY priority DESC,")
found_otherwise(
    "place ignored", "ORDER BY priority, position, queued_at, job_id", "ORDER BY priority, queued_at, job_id"
)


# Halves of a transaction.
def _committed_after(statement: str) -> Callable[..., Any]:
    def run(real: Any, conn: Any, sql: str, params: Any) -> Any:
        rows = real(conn, sql, params)
        if sql == statement:
            raw = conn.connection.driver_connection
            raw.execute("COMMIT")
            raw.execute("BEGIN IMMEDIATE")
        return rows

    return run


around("claim in two transactions", sqlite_transaction, "run", _committed_after(sqlite_claim._TAKE))
around("run closed in a second transaction", sqlite_transaction, "run", _committed_after(sqlite_close._CLOSE_TOLD))
around("retry in a second transaction", sqlite_transaction, "run", _committed_after(sqlite_close._LEAVE))


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
text_bug("sqlite", "a buffer counts as begun", "claim._TAKE", "f.key < CASE", "f.key >= 0 OR f.key < CASE")
text_bug(
    "sqlite",
    "suspicion outlives an end of its own",
    "close._TRY_AGAIN",
    "f.s OR (f.i AND r.suspect)",
    "f.s OR r.suspect",
)
instead("retry of what succeeded", status, "RETRY", replace(status.RETRY, sources=tuple(JobStatus)))
instead("change of what runs", status, "UPDATE", replace(status.UPDATE, sources=tuple(JobStatus)))
instead("cancel of what ended", status, "CANCEL", replace(status.CANCEL, sources=tuple(JobStatus)))
instead("retry not written", claims, "chain", lambda tx, job_id, delay, **_: job_id)
instead("group goes on after a failure", group_rows, "_died_before", lambda tx, group_id, position: False)
instead("group never goes on", group_rows, "advance", lambda tx, group_id: False)
instead("group ended with its first member", groups, "TERMINAL", frozenset(JobStatus))
instead("earlier runs take the new params", jobs, "keep_snapshots", lambda tx, job: None)


@bug("sqlite", "superseded member stops its group")
def _every_member(patch: Patch) -> None:
    def died_before(tx: Any, group_id: Any, position: int) -> bool:
        died = select(runs_table.c.job_id).join(jobs_table, jobs_table.c.id == runs_table.c.job_id)
        query = died.where(runs_table.c.group_id == group_id, died_in_group(), jobs_table.c.group_position < position)
        return tx.scalar(query.limit(1)) is not None

    patch.setattr(group_rows, "_died_before", died_before)


@bug("sqlite", "cancel leaves the run open")
def _cancel_at_once(patch: Patch) -> None:
    ended = (
        "INSERT INTO penstock_runs (job_id, tenant_id, finished_at, attempt_no, max_attempts, job_status)"
        " SELECT job_id, tenant_id, started_at, attempt_no + 1, max_attempts, 'canceled' FROM penstock_running WHERE job_id = :id"
    )
    patch.setattr(states, "ask_to_stop", lambda tx, job_id: tx.run(text(ended), {"id": str(job_id)}))


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
instead("move without effect", order, "_edge", lambda tx, job, to: job.position)


@bug("sqlite", "order of places lost")
def _by_id(patch: Patch) -> None:
    real = order_rows.normalise

    def normalise(tx: Any, tenant_id: Any, priority: int) -> int:
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(order_rows, "_KEY", (ready.c.job_id,))
            return real(tx, tenant_id, priority)

    patch.setattr(order_rows, "normalise", normalise)


@bug("sqlite", "second reservation ends the first")
def _expire_all(patch: Patch) -> None:
    real = reservations.expire
    patch.setattr(reservations, "active", lambda tx, tenant_id: None)  # else nobody gets so far
    patch.setattr(reservations, "expire", lambda tx, tenant_id=None, is_dead=None: real(tx, tenant_id, lambda by: True))


@bug("sqlite", "another tenant's job can be read")
def _get_any(patch: Patch) -> None:
    def get(tx: Any, tenant_id: Any, job_id: Any, *, lock: bool = False) -> Any:
        row = tx.run(select(*rows.JOB_COLUMNS).where(job_view.c.id == job_id)).mappings().first()
        return rows.job(row, tx.codec) if row else None

    patch.setattr(jobs, "get", get)


@bug("sqlite", "another tenant's jobs are listed")
def _list_any(patch: Patch) -> None:
    def listed(tx: Any, tenant_id: Any, *args: Any, **kwargs: Any) -> Any:
        return [rows.job(row, tx.codec) for row in tx.run(select(*rows.JOB_COLUMNS)).mappings()]

    patch.setattr(jobs, "listed", listed)


@bug("sqlite", "definition not looked at again")
def _any_version(patch: Patch) -> None:
    real = sqlite_insert._Seen._of

    def of(self: Any, job: Any) -> Any:
        found = real(self, job)
        return found and (*found[:2], job.definition_version, *found[3:])

    patch.setattr(sqlite_insert._Seen, "_of", of)


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

    def release(tx: Any, pairs: Any, **options: Any) -> int:
        given = real(tx, pairs, **options)
        for job_id, _ in pairs:
            tx.run(update(ready).where(ready.c.job_id == job_id).values(attempt_no=ready.c.attempt_no + 1))
        return given

    patch.setattr(claims, "release", release)


# Recovery, pruning.
instead("lost jobs left alone", recovery, "lost", lambda tx, after: ([], None))
instead("finishing jobs left alone", recovery, "with_ended_run", lambda tx: [])
instead("stray runs left open", recovery, "remove_stray_runs", lambda tx: 0)
instead("second states left", recovery, "remove_second_states", lambda tx: 0)
instead("stray states left", recovery, "remove_stray_states", lambda tx, table, after: (0, None))
instead("dedupe keys of nobody left", recovery, "remove_stray_keys", lambda tx, after: (0, None))
instead("lost dedupe keys not taken", recovery, "take_missing_keys", lambda tx: 0)
instead("missing retries left out", recovery, "failed_without_retry", lambda tx: [])


@bug("sqlite", "prune leaves the runs")
def _orphans(patch: Patch) -> None:
    real = pruning.delete

    def delete(table: Any) -> Any:
        statement = real(table)
        return statement.where(runs_table.c.job_id.is_(None)) if table is runs_table else statement

    patch.setattr(pruning, "delete", delete)


# The same on PostgreSQL, whose statements are its own.
text_bug("postgresql", "finish without a fence", "close._CLOSE", " AND r.run_id = f.r", "")
text_bug("postgresql", "success of a member alone", "close._CLOSE", "r.group_id IS NULL AND NOT", "NOT")
text_bug("postgresql", "success kept from webhooks", "close._CLOSE", f" AND NOT r.{postgresql_close._HOOKED}", "")
text_bug("postgresql", "result not kept", "close._CLOSE", "definition_id, x, e, res,", "definition_id, x, e, NULL,")
text_bug(
    "postgresql",
    "failure without its run",
    "close._CLOSE",
    "a, lp, group_id\n  FROM u",
    "a, lp, group_id\n  FROM u WHERE e IS NULL",
)
text_bug("postgresql", "retry lost", "close._CLOSE", "FROM u WHERE js = 'queued'", "FROM u WHERE false")
text_bug("postgresql", "dedupe key kept by what ended", "close._CLOSE", "u.dedupe_key IS NOT NULL AND", "false AND")
text_bug("postgresql", "dedupe key freed by a retry", "close._CLOSE", " AND u.js <> 'queued'))", "))")
text_bug(
    "postgresql", "suspicion outlives an end of its own", "close._CLOSE", "f.s IS TRUE OR (f.i IS TRUE AND r.suspect)",
    "f.s IS TRUE OR r.suspect",
)  # fmt: skip
text_bug("postgresql", "heartbeat without a fence", "heartbeat._HEARTBEAT", " AND r.run_id = p.run_id", "")
text_bug(
    "postgresql", "retry without its delay", "close._CLOSE", "make_interval(secs => coalesce(d, 0))", "interval '0'"
)
text_bug("postgresql", "paused queue served", "claim._GATE", " WHERE NOT paused", "")


def claimed_otherwise(name: str, old: str, new: str) -> None:
    """The statement that claims, with a piece of its text replaced wherever it says so."""
    assert old in postgresql_claim._claim_sql(False, True, True, True, True, True).by_server, f"rewrite {name!r}"

    @bug("postgresql", name)
    def plant(patch: Patch) -> None:
        real = postgresql_claim._claim_sql
        patch.setattr(
            postgresql_claim, "_claim_sql", lambda *args: Hot(*(each.replace(old, new) for each in real(*args)))
        )


claimed_otherwise("a buffer counts as begun", "d.number <= CASE", "true OR d.number <= CASE")
claimed_otherwise("suspects in company", "WHERE s.suspect", "WHERE false")
claimed_otherwise("attempts not counted", "d.attempt_no + 1", "greatest(1, d.attempt_no)")
claimed_otherwise("slot forgotten by the claim", "d.suspect, d.slot,", "d.suspect, false,")
claimed_otherwise("last place first", "ORDER BY priority, position,", "ORDER BY priority, position DESC,")
claimed_otherwise("reservation not looked for", "status = 'active' AND", "status = 'never' AND")


def insert_bug(name: str, *changes: tuple[str, str], into: tuple[str, ...] = ("_INSERT_ONE", "_INSERT_ALIKE", "_INSERT")) -> None:  # fmt: skip
    """A bug in each of the statements that write jobs: one, many alike, many."""

    @bug("postgresql", name)
    def plant(patch: Patch) -> None:
        for constant in into:
            before = getattr(postgresql_insert, constant)
            after = before
            for right, wrong in changes:
                after = Hot(*(each.replace(right, wrong) for each in after))
            assert after != before
            patch.setattr(postgresql_insert, constant, after)


insert_bug(
    "first come, first served over all tenants", ("WHERE tenant_id = t.id AND ", "WHERE "), ("WHERE tenant_id = p.tenant_id AND ", "WHERE ")
)  # fmt: skip
insert_bug("weight ignored", ("100 / t.weight", "100"))
insert_bug(
    "dedupe without its key", ("ON CONFLICT DO NOTHING RETURNING job_id", "RETURNING job_id"), into=("_INSERT_ONE", "_INSERT")
)  # fmt: skip
insert_bug(
    "definition not looked at again",
    ("(d.is_active AND d.version = g.definition_version)", "true"),
    ("(d.is_active AND d.version = CAST(:definition_version AS integer))", "true"),
)


HUNTERS = {
    "success without its run": "a_claim_is_whole_or_not_at_all",
    "failure without its run": "attempts_are_counted_and_end",
    "retry lost": "attempts_are_counted_and_end",
    "dedupe key kept by what ended": "a_dedupe_key_makes_one_of_two",
    "dedupe key freed by a retry": "a_dedupe_key_makes_one_of_two",
    "claimed without a run": "a_job_runs_once_and_its_run_is_closed_with_it",
    "slot forgotten by the claim": "a_slot_goes_with_its_job",
    "claim in two transactions": "a_claim_is_whole_or_not_at_all",
    "suspicion outlives an end of its own": "a_suspect_runs_apart_until_it_has_ended_well",
    "lost jobs left alone": "recovery_mends_what_cannot_be",
    "second states left": "recovery_mends_what_cannot_be",
    "stray states left": "recovery_mends_what_cannot_be",
    "dedupe keys of nobody left": "recovery_mends_what_cannot_be",
    "lost dedupe keys not taken": "recovery_mends_what_cannot_be",
    "result not kept": "a_job_runs_once_and_its_run_is_closed_with_it",
    "success of a member alone": "a_sequential_group_goes_in_order_and_stops",
    "success kept from webhooks": "a_webhook_is_told_of_a_success",
    "finish without a fence": "a_stale_run_changes_nothing",
    "heartbeat without a fence": "a_stale_run_changes_nothing",
    "runs left open": "a_job_runs_once_and_its_run_is_closed_with_it",
    "retry without its delay": "attempts_are_counted_and_end",
    "attempts not counted": "attempts_are_counted_and_end",
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
    "run closed in a second transaction": "a_chain_has_one_retry_written_with_the_failure",
    "retry in a second transaction": "a_chain_has_one_retry_written_with_the_failure",
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
    "finishing jobs left alone": "recovery_mends_what_cannot_be",
    "stray runs left open": "recovery_mends_what_cannot_be",
    "missing retries left out": "recovery_mends_what_cannot_be",
    "prune leaves the runs": "pruning_never_touches_what_is_active",
}
"""Which check is known to catch a bug, asked first: all of them for each would take minutes."""
