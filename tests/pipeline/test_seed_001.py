"""Every code block of seed 001: what it asks for, on both databases."""

from __future__ import annotations

import inspect
import re
import subprocess
from typing import Any

import pytest

import penstock.pipeline as dj
from penstock.pipeline.config import job_version
from penstock.pipeline.definition import AttributeLine, parse
from penstock.store.pipeline import catalog
from tests.pipeline import blocks
from tests.pipeline.lab import Lab


def test_every_block_has_a_test() -> None:
    source = inspect.getsource(inspect.getmodule(test_every_block_has_a_test))  # type: ignore[arg-type]
    tested = {int(found) for found in re.findall(r"def test_block_(\d+)", source)}
    assert tested == set(range(1, blocks.count("001") + 1))


def test_block_1_naming(lab: Lab) -> None:
    made: dict[str, Any] = {"Table": object}
    exec(blocks.code("001", 1), made)
    theirs = made["JobsTable"].__new__(made["JobsTable"])
    theirs._target_class = lab.FilteredImage
    assert theirs.table_name == lab.FilteredImage.jobs.table_name == "~~filtered_image"
    jobs = dj.JobsTable(lab.FilteredImage())
    assert jobs.target.table_name == "__filtered_image"


def test_block_2_core_methods() -> None:
    made: dict[str, Any] = {}
    exec(blocks.code("001", 2), made)
    for name in ("refresh", "reserve", "complete", "error", "ignore", "progress"):
        ours = inspect.signature(getattr(dj.JobsTable, name)).parameters
        for parameter in inspect.signature(made[name]).parameters.values():
            assert ours[parameter.name].kind == parameter.kind, (name, parameter.name)
            assert ours[parameter.name].default == parameter.default, (name, parameter.name)


def test_block_2_refresh_answers_four_counts(lab: Lab) -> None:
    lab.fill()
    assert {"added", "removed", "orphaned", "re_pended"} <= set(lab.FilteredImage.jobs.refresh())


def test_block_3_status_properties(lab: Lab) -> None:
    made: dict[str, Any] = {"QueryExpression": dj.QueryExpression}
    exec(blocks.code("001", 3), made)
    lab.fill()
    jobs = lab.FilteredImage.jobs
    jobs.refresh()
    jobs.reserve(lab.key(1))
    jobs.ignore(lab.key(2))
    for name in ("pending", "reserved", "errors", "ignored", "completed"):
        assert made[name].fget(jobs).fetch("KEY") == getattr(jobs, name).fetch("KEY")
    assert len(jobs.pending) == 4


def test_block_4_definition(lab: Lab) -> None:
    made: dict[str, Any] = {}
    exec(blocks.code("001", 4), made)
    target = lab.FilteredImage()

    class Generator:
        _generate_definition = made["_generate_definition"]

        def _get_fk_derived_pk_attrs(self, table: Any) -> list[tuple[str, str]]:
            return [(name, table.heading[name].type) for name in table.primary_key]

    wanted = parse("jobs", Generator()._generate_definition(target)).lines
    heading = lab.FilteredImage.jobs.heading
    wider = {"priority": "int32", "connection_id": "int64"}
    for line in wanted:
        assert isinstance(line, AttributeLine)
        assert heading[line.name].kind == wider.get(line.name, line.kind), line.name
        assert heading[line.name].in_key == line.in_key


def test_block_5_new_keys_come_from_parents_alone(lab: Lab) -> None:
    Image, schema = lab.Image, lab.schema

    class Analysis(dj.Computed):
        definition = """
        -> Image
        method : varchar(32)
        ---
        result : float
        """

    assert "non-FK primary key" in blocks.block("001", 5)
    with pytest.raises(dj.DataJointError, match=r"Analysis: .* but method does not.*lookup table"):
        schema(Analysis, context={"Image": Image})
    assert "__analysis" not in schema.list_tables()


def test_block_5_existing_tables_go_on_working(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    lab.fill(1, 1)
    Image, schema = lab.Image, lab.schema

    class Analysis(dj.Computed):
        definition = """
        -> Image
        method : varchar(32)
        ---
        result : float
        """

        def make(self, key: dict[str, Any]) -> None:
            self.insert({**key, "method": method, "result": 1.0} for method in ("a", "b"))

    with dj.config.override({"jobs.allow_new_pk_fields": True}):
        schema(Analysis, context={"Image": Image})
    again = type("Analysis", (dj.Computed,), {"definition": Analysis.definition, "make": Analysis.__dict__["make"]})
    schema(again, context={"Image": Image})
    assert "one job covers all rows that share (subject_id, image_id)" in caplog.text
    assert again.jobs.primary_key == ["subject_id", "image_id"]
    assert again.populate(reserve_jobs=True)["success_count"] == 1
    assert len(again) == 2


def test_block_6_jobs_property(lab: Lab) -> None:
    made: dict[str, Any] = {"JobsTable": dj.JobsTable}
    exec(blocks.code("001", 6), made)

    class Target:
        """Stands where the seed's mixin would: it hands JobsTable the real table."""

        _jobs_table = None
        jobs = made["AutoPopulate"].jobs

    made["JobsTable"] = lambda _: dj.JobsTable(lab.FilteredImage())
    target = Target()
    assert target.jobs.is_declared
    assert target.jobs is target.jobs
    target.jobs.drop_quick()
    assert not target.jobs.is_declared
    target.jobs.declare()
    assert target.jobs.is_declared


def test_block_7_parameters_of_populate() -> None:
    made: dict[str, Any] = {}
    exec(compile(blocks.block("001", 7) + "    ...", "seed 001, block 7", "exec"), made)
    ours = inspect.signature(dj.Computed.populate).parameters
    for parameter in inspect.signature(made["populate"]).parameters.values():
        assert ours[parameter.name].default == parameter.default, parameter.name
        assert ours[parameter.name].kind == parameter.kind, parameter.name


def test_block_8_mode_selection(lab: Lab) -> None:
    made: dict[str, Any] = {"DataJointError": dj.DataJointError}
    exec(blocks.code("001", 8), made)

    class Seen:
        connection = lab.schema.connection
        populate = made["populate"]

        def _populate_distributed(self, *restrictions: Any, **kwargs: Any) -> dict[str, Any]:
            return lab.FilteredImage.populate(*restrictions, reserve_jobs=True, **kwargs)

        def _populate_direct(self, *restrictions: Any, **kwargs: Any) -> dict[str, Any]:
            return lab.FilteredImage.populate(*restrictions, **kwargs)

    lab.fill()
    assert Seen().populate("subject_id = 1")["success_count"] == 2
    assert Seen().populate(reserve_jobs=True)["success_count"] == 4
    with lab.schema.connection.transaction, pytest.raises(dj.DataJointError):
        Seen().populate()


def test_block_9_direct_mode(lab: Lab) -> None:
    lab.fill()
    lab.FilteredImage.populate("subject_id = 1")
    names = {"self": lab.FilteredImage(), "AndList": dj.AndList, "restrictions": ("image_id = 1",), "max_calls": 1}
    lines = [line.strip() for line in blocks.block("001", 9).splitlines() if line.strip().startswith("keys = ")]
    assert len(lines) == 2
    for line in lines:
        exec(line, names)
    assert names["keys"] == [lab.key(2)]


def test_block_10_distributed_mode(lab: Lab) -> None:
    lab.fill()
    lab.FilteredImage.jobs.refresh(lab.key(2, 2), priority=0)
    lab.FilteredImage.jobs.refresh("subject_id = 1", delay=3600)
    lab.FilteredImage.jobs.refresh("subject_id = 3")
    text = blocks.block("001", 10)
    query = re.search(r"pending = \((.*?)limit=max_calls\)", text, re.DOTALL)
    assert query is not None
    names: dict[str, Any] = {"self": lab.FilteredImage(), "max_calls": 2}
    exec(f"pending = ({query[1]}limit=max_calls)", names)
    assert names["pending"] == [lab.key(2, 2), lab.key(3, 1)]
    lab.broken = {3}
    result = lab.FilteredImage.populate(reserve_jobs=True, refresh=False, suppress_errors=True)
    assert set(result) == {"success_count", "error_list"} and result["success_count"] == 1


def test_block_11_schema_jobs(lab: Lab) -> None:
    made: dict[str, Any] = {}
    exec(blocks.code("001", 11, without="from .jobs import JobsTable"), made)
    theirs = made["jobs"].fget(lab.schema)
    assert [jobs.full_table_name for jobs in theirs] == ["lab.~~filtered_image"]
    fresh = dj.Schema("lab")
    assert [jobs.full_table_name for jobs in fresh.jobs] == ["lab.~~filtered_image"]
    lab.fill()
    assert [jobs.refresh()["added"] for jobs in fresh.jobs] == [6]


def test_block_12_defaults() -> None:
    made: dict[str, Any] = {}
    exec(blocks.code("001", 12), made)
    fresh = dj.Config()
    assert {name: fresh[name] for name in made["DEFAULTS"]} == made["DEFAULTS"]


@pytest.mark.parametrize("version", [None, "1.2.3", "git"])
def test_block_13_version(version: str | None) -> None:
    made: dict[str, Any] = {"config": dj.config, "subprocess": subprocess}
    exec(blocks.code("001", 13), made)
    dj.config["jobs.version"] = version
    assert job_version() == made["get_job_version"]()


def test_block_14_drop(lab: Lab) -> None:
    assert "drop_quick" in blocks.block("001", 14)
    lab.FilteredImage.jobs.refresh()
    connection = lab.schema.connection
    lab.FilteredImage.drop()
    assert not connection.look(lambda tx: catalog.has_table(tx, "lab", "~~filtered_image"))
    assert not connection.look(lambda tx: catalog.has_table(tx, "lab", "__filtered_image"))
