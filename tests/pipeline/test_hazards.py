"""Every row of seed 000's hazard tables, in its order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event, text

import penstock.pipeline as dj
from tests.pipeline.lab import Lab


def together(*works: Callable[[], Any]) -> list[Any]:
    """Run all at once; answers what each returned or raised."""
    results: list[Any] = [None] * len(works)
    gate = threading.Barrier(len(works))

    def run(number: int) -> None:
        gate.wait()
        try:
            results[number] = works[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# Race conditions


def test_simultaneous_reservation(lab: Lab) -> None:
    lab.fill(1, 1)
    lab.FilteredImage.jobs.refresh()
    assert sorted(together(*[lambda: lab.FilteredImage.jobs.reserve(lab.key(1))] * 6)) == [False] * 5 + [True]


def test_reserve_during_refresh(lab: Lab) -> None:
    lab.fill(20, 5)
    lab.FilteredImage.jobs.refresh("subject_id <= 10")
    jobs = lab.FilteredImage.jobs
    reserved, refreshed = together(lambda: jobs.reserve(lab.key(1)), lambda: lab.FilteredImage.jobs.refresh())
    assert reserved is True and refreshed["added"] == 50
    assert jobs.reserved.fetch("KEY") == [lab.key(1)] and len(jobs.pending) == 99


def test_concurrent_refresh_calls(lab: Lab) -> None:
    lab.fill(20, 5)
    _ = lab.FilteredImage.jobs
    results = together(*[lambda: lab.FilteredImage.jobs.refresh()] * 4)
    assert sum(result["added"] for result in results) == 100
    assert len(lab.FilteredImage.jobs.pending) == 100


def test_complete_versus_delete(lab: Lab) -> None:
    lab.fill(1, 1)
    jobs = lab.FilteredImage.jobs
    for _ in range(5):
        jobs.refresh()
        assert jobs.reserve(lab.key(1))
        completed, _deleted = together(lambda: jobs.complete(lab.key(1)), lambda: jobs.reserved.delete())
        assert completed is None
        assert len(jobs) == 0


# State transitions


def test_invalid_state_transition(lab: Lab) -> None:
    lab.fill(1, 1)
    lab.FilteredImage.jobs.refresh()
    with pytest.raises(dj.DataJointError, match="it is pending, and must be reserved"):
        lab.FilteredImage.jobs.complete(lab.key(1))
    assert len(lab.FilteredImage.jobs.pending) == 1


def test_stuck_in_reserved(lab: Lab) -> None:
    lab.fill(1, 1)
    jobs = lab.FilteredImage.jobs
    jobs.refresh()
    jobs.reserve(lab.key(1))
    jobs.reserved.delete()
    assert jobs.refresh()["added"] == 1


def test_success_re_pended_only_when_its_result_is_gone(lab: Lab) -> None:
    lab.fill(1, 2)
    dj.config["jobs.keep_completed"] = True
    lab.FilteredImage.populate(reserve_jobs=True)
    (lab.FilteredImage & lab.key(1, 1)).delete()
    (lab.Image & lab.key(1, 2)).delete()
    assert lab.FilteredImage.jobs.refresh()["re_pended"] == 1
    assert lab.FilteredImage.jobs.pending.fetch("KEY") == [lab.key(1, 1)]


def test_ignore_is_respected(lab: Lab) -> None:
    lab.fill(1, 2)
    lab.FilteredImage.jobs.refresh()
    lab.FilteredImage.jobs.ignore(lab.key(1, 1))
    lab.FilteredImage.populate(reserve_jobs=True)
    assert lab.FilteredImage.keys() == [lab.key(1, 2)]


# Data integrity


def test_a_stale_job_is_not_processed(lab: Lab) -> None:
    lab.fill(2, 1)
    lab.FilteredImage.jobs.refresh()
    (lab.Image & lab.key(1)).delete()
    assert lab.FilteredImage.populate(reserve_jobs=True) == {"success_count": 1, "error_list": []}
    assert lab.calls == [lab.key(2)] and len(lab.FilteredImage.jobs) == 0


def test_a_job_table_out_of_sync_is_brought_in_step(lab: Lab) -> None:
    lab.fill(1, 1)
    lab.FilteredImage.jobs.refresh()
    lab.Subject.insert1({"subject_id": 9})
    lab.Image.insert1({**lab.key(9), "image": [1]})
    assert lab.FilteredImage.populate(reserve_jobs=True)["success_count"] == 2


def test_partial_make_failure_leaves_nothing(lab: Lab) -> None:
    lab.fill(1, 1)
    make = lab.FilteredImage.make

    def half(self: Any, key: dict[str, Any]) -> None:
        make(self, key)
        raise RuntimeError("half way")

    lab.FilteredImage.make = half
    lab.FilteredImage.populate(reserve_jobs=True, suppress_errors=True)
    assert len(lab.FilteredImage) == 0
    assert lab.FilteredImage.jobs.errors.fetch1("error_message") == "RuntimeError: half way"


def test_long_error_messages(lab: Lab) -> None:
    lab.fill(1, 1)

    def loud(self: Any, key: dict[str, Any]) -> None:
        raise RuntimeError("é" * 10_000)

    lab.FilteredImage.make = loud
    lab.FilteredImage.populate(reserve_jobs=True, suppress_errors=True)
    row = lab.FilteredImage.jobs.errors.fetch1()
    assert len(row["error_message"]) == 2047
    assert "é" * 10_000 in row["error_stack"] and "Traceback" in row["error_stack"]


# Performance


def test_completed_jobs_are_not_kept_by_default(lab: Lab) -> None:
    lab.fill()
    lab.FilteredImage.populate(reserve_jobs=True)
    assert len(lab.FilteredImage.jobs) == 0


def test_refresh_is_one_statement_whatever_the_number_of_keys(lab: Lab) -> None:
    lab.Subject.insert({"subject_id": s} for s in range(20))
    lab.Image.insert({"subject_id": s, "image_id": i, "image": 0} for s in range(20) for i in range(100))
    jobs = lab.FilteredImage.jobs
    statements: list[str] = []

    def count(conn: Any, cursor: Any, statement: str, *rest: Any) -> None:
        statements.append(statement)

    engine = lab.schema.connection.db.engine
    event.listen(engine, "before_cursor_execute", count)
    assert jobs.refresh("subject_id < 5")["added"] == 500
    few = len(statements)
    assert jobs.refresh()["added"] == 1500
    event.remove(engine, "before_cursor_execute", count)
    assert len(statements) == 2 * few
    assert sum(statement.startswith("INSERT") for statement in statements) == 2


def test_job_tables_are_created_on_first_use(lab: Lab) -> None:
    from penstock.store.pipeline import catalog

    look = lab.schema.connection.look
    assert [name for name in look(lambda tx: catalog.table_names(tx, "lab")) if name.startswith("~~")] == []
    _ = lab.FilteredImage.jobs
    assert "~~filtered_image" in look(lambda tx: catalog.table_names(tx, "lab"))


# Operational


def test_deleting_all_jobs_asks_nothing_and_loses_no_result(lab: Lab) -> None:
    lab.fill()
    lab.FilteredImage.populate(max_calls=2)
    lab.FilteredImage.jobs.refresh()
    assert lab.FilteredImage.jobs.delete() == 4
    assert len(lab.FilteredImage) == 2
    assert lab.FilteredImage.jobs.refresh()["added"] == 4


def test_clearing_active_jobs_costs_work_but_no_truth(lab: Lab) -> None:
    lab.fill(1, 1)
    make, table, calls = lab.FilteredImage.make, lab.FilteredImage, []

    def cleared(self: Any, key: dict[str, Any]) -> None:
        calls.append(key)
        if len(calls) == 1:
            together(lambda: (table.jobs.reserved.delete(), table.jobs.refresh()))
        make(self, key)

    table.make = cleared
    table.populate(reserve_jobs=True, suppress_errors=True)
    assert len(table) == 1 and len(table.jobs) == 0


def test_lower_numbers_are_more_urgent(lab: Lab) -> None:
    lab.fill(3, 1)
    for subject, priority in ((1, 10), (2, 0), (3, 5)):
        lab.FilteredImage.jobs.refresh({"subject_id": subject}, priority=priority)
    lab.FilteredImage.populate(reserve_jobs=True)
    assert [key["subject_id"] for key in lab.calls] == [2, 3, 1]


# Migration


def test_a_legacy_jobs_table_is_left_alone(lab: Lab) -> None:
    name = '"lab.~jobs"' if lab.schema.connection.backend == "sqlite" else 'lab."~jobs"'
    with lab.schema.connection.transaction as tx:
        tx.run(text(f"CREATE TABLE {name} (key_hash varchar(32))"))
        tx.run(text(f"INSERT INTO {name} VALUES ('abc')"))
    lab.fill(1, 1)
    lab.FilteredImage.populate(reserve_jobs=True)
    assert lab.schema.list_tables() == ["subject", "image", "__filtered_image"]
    with lab.schema.connection.transaction as tx:
        assert tx.scalar(text(f"SELECT count(*) FROM {name}")) == 1


def test_a_job_table_of_another_version_is_made_again(lab: Lab) -> None:
    name = '"lab.~~filtered_image"' if lab.schema.connection.backend == "sqlite" else 'lab."~~filtered_image"'
    with lab.schema.connection.transaction as tx:
        tx.run(text(f"CREATE TABLE {name} (subject_id int, status varchar(9))"))
    lab.fill(1, 1)
    assert lab.FilteredImage.populate(reserve_jobs=True)["success_count"] == 1


def test_error_history_is_not_lost(lab: Lab) -> None:
    lab.fill(1, 1)
    lab.broken = {1}
    for _ in range(2):
        lab.FilteredImage.populate(reserve_jobs=True, suppress_errors=True)
        lab.FilteredImage.jobs.errors.delete()
    lab.FilteredImage.jobs.drop_quick()
    assert len(lab.FilteredImage.jobs.history()) == 2
