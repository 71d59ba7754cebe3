"""Every code block of seed 000, as written, on both databases."""

from __future__ import annotations

import inspect
import re
from datetime import datetime, timedelta
from typing import Any

import pytest

import penstock.pipeline as dj
from penstock.pipeline.definition import AttributeLine, parse
from penstock.store.pipeline import catalog
from tests.pipeline import blocks
from tests.pipeline.lab import Lab


@pytest.fixture
def names(lab: Lab) -> dict[str, Any]:
    """What the seed's code may speak of."""
    lab.fill()
    return {
        "dj": dj, "schema": lab.schema, "Subject": lab.Subject, "Image": lab.Image, "FilteredImage": lab.FilteredImage,
        "MyTable": lab.FilteredImage,
    }  # fmt: skip


def run(number: int, names: dict[str, Any]) -> dict[str, Any]:
    exec(blocks.code("000", number), names)
    return names


def test_every_block_has_a_test() -> None:
    source = inspect.getsource(inspect.getmodule(test_every_block_has_a_test))  # type: ignore[arg-type]
    tested = {int(found) for found in re.findall(r"def test_block_(\d+)", source)}
    assert tested == set(range(1, blocks.count("000") + 1))


def test_block_1_structure_of_the_job_table(lab: Lab) -> None:
    text = blocks.block("000", 1).replace("subject_id : int\nsession_id : int\n...  ", "subject_id : int\n#")
    lines = [line for line in text.splitlines() if not line.startswith("...")]
    wanted = {
        line.name: line.kind for line in parse("MyTable", "\n".join(lines)).lines if isinstance(line, AttributeLine)
    }
    heading = lab.FilteredImage.jobs.heading
    renamed = {
        "priority": "int32",
        "connection_id": "int64",
        "scheduled_time": "timestamp",
        "created_time": "timestamp",
    }
    times = {"reserved_time": "timestamp", "completed_time": "timestamp"}
    for name, kind in {**wanted, **renamed, **times}.items():
        if name != "session_id":
            assert heading[name].kind == kind, name
    assert heading["status"].args == ("pending", "reserved", "success", "error", "ignore")
    assert heading["error_message"].args == (2047,)
    assert "FOREIGN" not in lab.FilteredImage.jobs.definition and "->" not in lab.FilteredImage.jobs.definition


def test_block_2_access(names: dict[str, Any]) -> None:
    run(2, names)
    assert names["FilteredImage"].jobs.progress()["pending"] == 6


def test_block_3_transitions(names: dict[str, Any]) -> None:
    """Each arrow of the diagram, in turn."""
    arrows = re.findall(r"(\w+) --> (\w+) : (\w+)\(\)(\*?)", blocks.block("000", 3))
    assert len(arrows) == 10
    table = names["MyTable"]
    for number, (before, after, verb, star) in enumerate(arrows):
        table.delete()
        table.jobs.delete()
        dj.config["jobs.keep_completed"] = star == "*"
        key = {"subject_id": 1, "image_id": 1}
        _bring_to(table, key, before)
        _transition(table, key, verb)
        found = (table.jobs & key).fetch("status", as_dict=True)
        wanted = [] if after.startswith("none") else [{"status": after}]
        assert found == wanted, arrows[number]


def _bring_to(table: Any, key: dict[str, Any], status: str) -> None:
    if status in ("pending", "reserved", "error", "success"):
        table.jobs.refresh(key)
    if status in ("reserved", "error", "success"):
        assert table.jobs.reserve(key)
    if status == "error":
        table.jobs.error(key, "it broke")
    if status == "success":
        keep = dj.config["jobs.keep_completed"]
        dj.config["jobs.keep_completed"] = True
        table.jobs.complete(key)
        dj.config["jobs.keep_completed"] = keep
    if status == "ignore":
        table.jobs.ignore(key)


def _transition(table: Any, key: dict[str, Any], verb: str) -> None:
    jobs = table.jobs
    actions: dict[str, Any] = {
        "refresh": lambda: jobs.refresh(key), "ignore": lambda: jobs.ignore(key), "reserve": lambda: jobs.reserve(key),
        "complete": lambda: jobs.complete(key), "error": lambda: jobs.error(key, "it broke"),
        "delete": lambda: (jobs & key).delete(),
    }  # fmt: skip
    actions[verb]()


def test_block_4_the_jobs_table_class() -> None:
    made: dict[str, Any] = {"Table": object, "datetime": datetime, "QueryExpression": dj.QueryExpression}
    exec(blocks.code("000", 4), made)
    wanted = made["JobsTable"]
    for name, member in vars(wanted).items():
        if isinstance(member, property):
            assert isinstance(inspect.getattr_static(dj.JobsTable, name), property), name
        elif inspect.isfunction(member):
            ours = inspect.signature(getattr(dj.JobsTable, name)).parameters
            for parameter in inspect.signature(member).parameters.values():
                assert ours[parameter.name].kind == parameter.kind, (name, parameter.name)


def test_block_5_the_parameters_of_populate() -> None:
    made: dict[str, Any] = {}
    exec(blocks.code("000", 5), made)
    ours = inspect.signature(dj.Computed.populate).parameters
    for parameter in inspect.signature(made["populate"]).parameters.values():
        assert parameter.name in ours
        if parameter.name not in ("refresh", "self", "restrictions"):  # refresh: None reads jobs.auto_refresh, True
            assert ours[parameter.name].default == parameter.default, parameter.name


def test_block_6_progress(names: dict[str, Any]) -> None:
    names["MyTable"].populate(max_calls=2)
    run(6, names)
    assert (names["remaining"], names["total"]) == (4, 6)
    assert set(names["MyTable"].jobs.progress()) == {"pending", "reserved", "success", "error", "ignore", "total"}


def test_block_7_priority_and_scheduling(names: dict[str, Any]) -> None:
    run(7, names)
    rows = names["MyTable"].jobs.to_dicts()
    assert {row["priority"] for row in rows} == {0} and len(rows) == 6


def test_block_8_primary_keys(names: dict[str, Any]) -> None:
    names["FilteredImage"].drop()
    dj.config["jobs.allow_new_pk_fields"] = True
    schema = names["schema"]

    @schema
    class Recording(dj.Manual):
        definition = """
        recording_id : int
        """

    names["Recording"] = Recording
    run(8, names)
    assert names["FilteredImage"].jobs.primary_key == ["subject_id", "image_id"]
    assert names["Analysis"].primary_key == ["recording_id", "analysis_method"]
    assert names["Analysis"].jobs.primary_key == ["recording_id"]
    Recording.insert1({"recording_id": 1})
    assert names["Analysis"].jobs.refresh()["added"] == 1


def test_block_9_stale_jobs(names: dict[str, Any]) -> None:
    dj.config["jobs.stale_timeout"] = 0
    names["FilteredImage"].jobs.refresh()
    (names["Image"] & "subject_id = 1").delete()
    run(9, names)
    assert names["result"]["removed"] == 2 and names["result"]["added"] == 0


def test_block_10_drop(names: dict[str, Any]) -> None:
    names["FilteredImage"].jobs.refresh()
    connection = names["schema"].connection
    run(10, names)
    assert not connection.look(lambda tx: catalog.has_table(tx, "lab", "~~filtered_image"))
    assert names["schema"].list_tables() == ["subject", "image"]


def test_block_11_alter(names: dict[str, Any]) -> None:
    table = names["FilteredImage"]
    table.jobs.refresh()
    assert table.jobs.primary_key == ["subject_id", "image_id"]
    table.definition = """
    -> Subject
    ---
    filtered_image : <blob>
    """
    run(11, names)
    assert table.jobs.primary_key == ["subject_id"]
    assert len(table.jobs.pending) == 3


def test_block_12_lazy_creation(names: dict[str, Any]) -> None:
    run(12, names)
    assert len(names["FilteredImage"]) == 6


def test_block_13_pre_partitioning(names: dict[str, Any]) -> None:
    names["FilteredImage"].jobs.refresh()
    names["assigned_keys"] = names["FilteredImage"].jobs.pending.fetch("KEY")[:2]
    run(13, names)
    assert len(names["all_pending"]) == 6
    assert sorted(map(str, names["FilteredImage"].keys())) == sorted(map(str, names["assigned_keys"]))


def test_block_14_orphans(names: dict[str, Any]) -> None:
    jobs = names["MyTable"].jobs
    jobs.refresh()
    assert jobs.reserve({"subject_id": 1, "image_id": 1})
    run(14, names)
    assert len(jobs.reserved) == 0 and len(jobs.pending) == 6


def test_block_14_each_deletion_takes_what_it_says(names: dict[str, Any]) -> None:
    """The same strings, one by one, against rows that they should and should not take."""
    jobs = names["MyTable"].jobs
    conditions = re.findall(r"jobs\.reserved & '([^\n]*)'\)", blocks.block("000", 14))
    assert len(conditions) == 2
    jobs.refresh()
    key = {"subject_id": 1, "image_id": 1}
    assert jobs.reserve(key)
    for condition in conditions:
        assert len(jobs.reserved & condition) == 0
    assert len(jobs.reserved & "reserved_time > NOW() - INTERVAL 1 HOUR") == 1
    assert len(jobs.reserved & f'host = "{jobs.reserved.fetch1("host")}"') == 1


def test_block_15_settings(names: dict[str, Any]) -> None:
    before = dict(dj.config)
    run(15, names)
    assert dict(dj.config) == before


def test_block_16_two_workers(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run(16, names)
    assert "'pending': 0" in capsys.readouterr().out
    assert len(names["FilteredImage"]) == 6


def test_block_17_priorities(names: dict[str, Any], lab: Lab) -> None:
    lab.FilteredImage.jobs.refresh({"subject_id": 3})
    run(17, names)
    assert [key["subject_id"] for key in lab.calls][:2] == [1, 1]
    assert len(lab.calls) == 6


def test_block_18_scheduled(names: dict[str, Any]) -> None:
    names["Subject"].insert1({"subject_id": 101})
    names["Image"].insert1({"subject_id": 101, "image_id": 1, "image": [1]})
    text = blocks.block("000", 18)
    tonight = datetime.now().replace(hour=22, minute=0, second=0)  # noqa: DTZ005 - as the seed writes it
    run(18, names)
    made = {row["subject_id"] for row in names["FilteredImage"]}
    assert "subject_id > 100" in text
    assert made == ({1, 2, 3} if tonight > datetime.now() else {1, 2, 3, 101})  # noqa: DTZ005 - as the seed writes it


def test_block_18_with_a_night_still_ahead(names: dict[str, Any]) -> None:
    names["Subject"].insert1({"subject_id": 101})
    names["Image"].insert1({"subject_id": 101, "image_id": 1, "image": [1]})
    table = names["FilteredImage"]
    table.jobs.refresh("subject_id > 100", scheduled_time=datetime.now() + timedelta(hours=2))  # noqa: DTZ005 - as the seed writes it
    table.populate(reserve_jobs=True)
    assert {row["subject_id"] for row in table} == {1, 2, 3}


def test_block_19_error_recovery(names: dict[str, Any], lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.Subject.insert1({"subject_id": 42})
    lab.Image.insert1({"subject_id": 42, "image_id": 1, "image": [1]})
    lab.broken = {2, 42}
    lab.FilteredImage.populate(reserve_jobs=True, suppress_errors=True)
    run(19, names)
    out = capsys.readouterr().out
    assert "Key: 42, Error: ValueError: subject 42 moved" in out
    lab.broken = set()
    assert lab.FilteredImage.populate(reserve_jobs=True)["success_count"] == 3


def test_block_20_dashboards(names: dict[str, Any], lab: Lab) -> None:
    lab.broken = {2}
    lab.FilteredImage.populate(reserve_jobs=True, suppress_errors=True)
    run(20, names)
    assert {error["_table"] for error in names["all_errors"]} == {"__filtered_image"}
    status = names["pipeline_status"](lab.schema)
    assert status["__filtered_image"]["error"] == 2


def test_block_21_schema_jobs(names: dict[str, Any], lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    lab.broken = {2}
    lab.FilteredImage.populate(reserve_jobs=True, suppress_errors=True)
    run(21, names)
    assert "__filtered_image: {'pending': 0" in capsys.readouterr().out
    assert len(names["all_errors"]) == 2
