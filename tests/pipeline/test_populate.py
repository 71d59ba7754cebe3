"""populate() in both modes, with every parameter of the seeds."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import penstock.pipeline as dj
from tests.pipeline.lab import Lab

BOTH = pytest.mark.parametrize("reserve_jobs", [False, True], ids=["direct", "distributed"])


@BOTH
def test_everything_missing_is_made_once(lab: Lab, reserve_jobs: bool) -> None:
    lab.fill()
    assert lab.FilteredImage.populate(reserve_jobs=reserve_jobs) == {"success_count": 6, "error_list": []}
    assert lab.FilteredImage.populate(reserve_jobs=reserve_jobs)["success_count"] == 0
    assert (lab.FilteredImage & lab.key(2, 1)).fetch1("filtered_image") == [4, 2]
    assert len(lab.calls) == 6
    assert lab.FilteredImage.progress() == (0, 6)


def test_direct_mode_makes_no_job_table(lab: Lab) -> None:
    lab.fill()
    lab.FilteredImage.populate()
    from penstock.store.pipeline import catalog

    assert not lab.schema.connection.look(lambda tx: catalog.has_table(tx, "lab", "~~filtered_image"))


@BOTH
def test_restrictions_choose_keys(lab: Lab, reserve_jobs: bool) -> None:
    lab.fill()
    lab.FilteredImage.populate(lab.Subject & 'priority="urgent"', "image_id = 2", reserve_jobs=reserve_jobs)
    assert lab.FilteredImage.keys() == [lab.key(1, 2)]


@BOTH
def test_max_calls_and_limit(lab: Lab, reserve_jobs: bool) -> None:
    lab.fill()
    assert lab.FilteredImage.populate(max_calls=2, reserve_jobs=reserve_jobs)["success_count"] == 2
    assert lab.FilteredImage.populate(limit=3, reserve_jobs=reserve_jobs)["success_count"] == 3
    assert lab.FilteredImage.populate(max_calls=0, reserve_jobs=reserve_jobs)["success_count"] == 0
    assert len(lab.FilteredImage) == 5
    assert len(lab.FilteredImage.jobs.reserved) == 0


@BOTH
def test_orders(lab: Lab, reserve_jobs: bool) -> None:
    lab.fill(3, 1)
    lab.FilteredImage.populate(order="reverse", reserve_jobs=reserve_jobs)
    assert [key["subject_id"] for key in lab.calls] == [3, 2, 1]
    lab.FilteredImage.delete()
    lab.calls.clear()
    lab.FilteredImage.populate(order="random", reserve_jobs=reserve_jobs)
    assert sorted(key["subject_id"] for key in lab.calls) == [1, 2, 3]


@BOTH
def test_errors_are_gathered_or_raised(lab: Lab, reserve_jobs: bool) -> None:
    lab.fill(3, 1)
    lab.broken = {2}
    result = lab.FilteredImage.populate(suppress_errors=True, reserve_jobs=reserve_jobs)
    assert result == {"success_count": 2, "error_list": [(lab.key(2), "ValueError: subject 2 moved")]}
    if reserve_jobs:
        assert lab.FilteredImage.populate(reserve_jobs=True)["success_count"] == 0
        lab.FilteredImage.jobs.errors.delete()
    with pytest.raises(ValueError, match="subject 2 moved"):
        lab.FilteredImage.populate(reserve_jobs=reserve_jobs)
    assert lab.key(2) not in lab.FilteredImage


@BOTH
def test_exception_objects_on_request(lab: Lab, reserve_jobs: bool) -> None:
    lab.fill(1, 1)
    lab.broken = {1}
    result = lab.FilteredImage.populate(suppress_errors=True, return_exception_objects=True, reserve_jobs=reserve_jobs)
    [(key, error)] = result["error_list"]
    assert key == lab.key(1) and isinstance(error, ValueError)


def test_a_raised_error_gives_back_the_rest_of_the_batch(lab: Lab) -> None:
    lab.fill(1, 1)
    lab.broken = {2}
    lab.FilteredImage.populate(reserve_jobs=True)
    lab.Subject.insert1({"subject_id": 2})
    lab.Image.insert({"subject_id": 2, "image_id": i, "image": [1]} for i in range(10))
    with pytest.raises(ValueError):
        lab.FilteredImage.populate(reserve_jobs=True)
    progress = lab.FilteredImage.jobs.progress()
    assert (progress["pending"], progress["reserved"], progress["error"]) == (9, 0, 1)
    assert {row["attempts"] for row in lab.FilteredImage.jobs.pending} == {0}


def test_priority_filters_and_does_not_restamp(lab: Lab) -> None:
    lab.fill()
    jobs = lab.FilteredImage.jobs
    jobs.refresh(lab.Subject & 'priority="urgent"', priority=0)
    jobs.refresh()
    assert lab.FilteredImage.populate(reserve_jobs=True, priority=3)["success_count"] == 2
    assert {row["priority"] for row in jobs.pending} == {5}
    with pytest.raises(dj.PipelineError, match="reserve_jobs=True"):
        lab.FilteredImage.populate(priority=3)


def test_urgent_keys_come_first(lab: Lab) -> None:
    lab.fill(3, 1)
    jobs = lab.FilteredImage.jobs
    jobs.refresh({"subject_id": 3}, priority=0)
    jobs.refresh({"subject_id": 2}, priority=1)
    jobs.refresh()
    lab.FilteredImage.populate(reserve_jobs=True)
    assert [key["subject_id"] for key in lab.calls] == [3, 2, 1]


def test_refresh_can_be_turned_off(lab: Lab) -> None:
    lab.fill()
    assert lab.FilteredImage.populate(reserve_jobs=True, refresh=False)["success_count"] == 0
    dj.config["jobs.auto_refresh"] = False
    assert lab.FilteredImage.populate(reserve_jobs=True)["success_count"] == 0
    assert lab.FilteredImage.populate(reserve_jobs=True, refresh=True)["success_count"] == 6


@BOTH
def test_keys_that_arrive_meanwhile_are_made_too(schema: dj.Schema, reserve_jobs: bool) -> None:
    @schema
    class Number(dj.Manual):
        definition = """
        n : int
        """

    @schema
    class Square(dj.Computed):
        definition = """
        -> Number
        ---
        square : int
        """

        def make(self, key: dict[str, Any]) -> None:
            self.insert1({**key, "square": key["n"] ** 2})
            if key["n"] < 5:
                Number.insert1({"n": key["n"] + 1}, skip_duplicates=True)

    Number.insert1({"n": 1})
    assert Square.populate(reserve_jobs=reserve_jobs)["success_count"] == 5


@BOTH
def test_make_kwargs_reach_make(schema: dj.Schema, reserve_jobs: bool) -> None:
    @schema
    class Number(dj.Manual):
        definition = """
        n : int
        """

    @schema
    class Scaled(dj.Computed):
        definition = """
        -> Number
        ---
        value : int
        """

        def make(self, key: dict[str, Any], factor: int = 1) -> None:
            self.insert1({**key, "value": key["n"] * factor})

    Number.insert1({"n": 2})
    Scaled.populate(make_kwargs={"factor": 21}, reserve_jobs=reserve_jobs)
    assert Scaled.fetch1("value") == 42


@BOTH
def test_a_make_that_inserts_nothing_is_reported_once(schema: dj.Schema, reserve_jobs: bool) -> None:
    calls = []

    @schema
    class Number(dj.Manual):
        definition = """
        n : int
        """

    @schema
    class Nothing(dj.Computed):
        definition = """
        -> Number
        ---
        value : int
        """

        def make(self, key: dict[str, Any]) -> None:
            calls.append(key)

    Number.insert1({"n": 2})
    result = Nothing.populate(suppress_errors=True, reserve_jobs=reserve_jobs)
    assert result["success_count"] == 0 and "without inserting a row" in result["error_list"][0][1]
    assert len(calls) == 1


@BOTH
def test_result_parts_and_completion_are_one_transaction(schema: dj.Schema, reserve_jobs: bool) -> None:
    @schema
    class Number(dj.Manual):
        definition = """
        n : int
        """

    @schema
    class Split(dj.Computed):
        definition = """
        -> Number
        ---
        value : int
        """

        class Digit(dj.Part):
            definition = """
            -> master
            place : int
            ---
            digit : uint8
            """

        def make(self, key: dict[str, Any]) -> None:
            self.insert1({**key, "value": key["n"]})
            self.Digit.insert({**key, "place": i, "digit": int(d)} for i, d in enumerate(str(key["n"])))
            if key["n"] == 13:
                raise ValueError("bad luck")

    Number.insert([(12,), (13,)])
    result = Split.populate(suppress_errors=True, reserve_jobs=reserve_jobs)
    assert result["success_count"] == 1
    assert Split.keys() == [{"n": 12}]
    assert [row["digit"] for row in (Split.Digit & {"n": 12}).to_dicts(order_by="place")] == [1, 2]
    assert len(Split.Digit) == 2


@BOTH
def test_make_sees_what_it_inserted(schema: dj.Schema, reserve_jobs: bool) -> None:
    seen = []

    @schema
    class Number(dj.Manual):
        definition = """
        n : int
        """

    @schema
    class Log(dj.Manual):
        definition = """
        entry : int
        """

    @schema
    class Copy(dj.Computed):
        definition = """
        -> Number
        ---
        value : int
        """

        def make(self, key: dict[str, Any]) -> None:
            self.insert1({**key, "value": 1})
            seen.append((self & key).fetch1("value"))
            Log.insert1({"entry": key["n"]})
            self.update1({**key, "value": 2})

    Number.insert([(1,), (2,)])
    assert Copy.populate(reserve_jobs=reserve_jobs)["success_count"] == 2
    assert seen == [1, 1] and len(Log) == 2
    assert [row["value"] for row in Copy] == [2, 2]


def test_computed_tables_take_rows_only_from_make(lab: Lab) -> None:
    lab.fill(1, 1)
    row = {**lab.key(1), "filtered_image": [0]}
    with pytest.raises(dj.AccessError, match="fills itself"):
        lab.FilteredImage.insert1(row)
    lab.FilteredImage.insert1(row, allow_direct_insert=True)
    assert len(lab.FilteredImage) == 1


def test_populate_is_refused_inside_a_transaction(lab: Lab) -> None:
    lab.fill(1, 1)
    with lab.schema.connection.transaction, pytest.raises(dj.DataJointError, match="during a transaction"):
        lab.FilteredImage.populate()


@BOTH
def test_a_key_made_by_another_meanwhile_is_no_error(lab: Lab, reserve_jobs: bool) -> None:
    lab.fill(2, 1)
    make = lab.FilteredImage.make
    table, other = lab.FilteredImage, {**lab.key(1), "filtered_image": [7]}

    def overtaken(self: Any, key: dict[str, Any]) -> None:
        make(self, key)
        if key == lab.key(1):
            rival = threading.Thread(target=lambda: table().insert1(other, allow_direct_insert=True))
            rival.start()
            rival.join()

    table.make = overtaken
    assert table.populate(reserve_jobs=reserve_jobs) == {"success_count": 1, "error_list": []}
    assert (table & lab.key(1)).fetch1("filtered_image") == [7]
    if reserve_jobs:
        assert len(table.jobs) == 0


def test_a_job_row_that_vanishes_is_no_error(lab: Lab) -> None:
    lab.fill(2, 1)
    make, table = lab.FilteredImage.make, lab.FilteredImage

    def cleared(self: Any, key: dict[str, Any]) -> None:
        clearing = threading.Thread(target=lambda: table.jobs.reserved.delete())
        clearing.start()
        clearing.join()
        make(self, key)
        if key["subject_id"] == 2:
            raise ValueError("after the row went")

    table.make = cleared
    table.jobs.refresh()
    result = table.populate(reserve_jobs=True, suppress_errors=True, refresh=False)
    assert result["success_count"] == 1 and len(table) == 1


def test_a_result_is_thrown_away_when_the_reservation_passed_on(lab: Lab) -> None:
    lab.fill(1, 1)
    make, table = lab.FilteredImage.make, lab.FilteredImage
    calls = []

    def robbed(self: Any, key: dict[str, Any]) -> None:
        calls.append(key)
        if len(calls) == 1:
            robber = threading.Thread(target=lambda: table.jobs.refresh(orphan_timeout=0))
            robber.start()
            robber.join()
        make(self, key)

    table.make = robbed
    assert table.populate(reserve_jobs=True) == {"success_count": 1, "error_list": []}
    assert len(calls) == 2 and len(table) == 1 and len(table.jobs) == 0


@BOTH
def test_transient_errors_are_tried_again(lab: Lab, reserve_jobs: bool) -> None:
    lab.fill(1, 1)
    dj.config["jobs.retry_delay"] = 0.01
    make, calls = lab.FilteredImage.make, []

    def flaky(self: Any, key: dict[str, Any]) -> None:
        calls.append(key)
        if len(calls) < 3:
            raise ConnectionError("the microscope is busy")
        make(self, key)

    lab.FilteredImage.make = flaky
    assert lab.FilteredImage.populate(reserve_jobs=reserve_jobs)["success_count"] == 1
    if reserve_jobs:
        assert len(lab.FilteredImage.jobs.history()) == 2


def test_every_key_that_failed_is_waited_for(lab: Lab) -> None:
    """Not only the one that is due first."""
    lab.fill(1, 3)
    dj.config["jobs.retry_delay"] = 0.1
    make, calls = lab.FilteredImage.make, []

    def flaky(self: Any, key: dict[str, Any]) -> None:
        calls.append(key)
        if calls.count(key) < 3:
            time.sleep(0.05)
            raise ConnectionError("the microscope is busy")
        make(self, key)

    lab.FilteredImage.make = flaky
    assert lab.FilteredImage.populate(reserve_jobs=True)["success_count"] == 3


def test_a_table_may_have_its_own_retry_policy(lab: Lab) -> None:
    lab.fill(1, 1)
    calls = []

    def hopeless(self: Any, key: dict[str, Any]) -> None:
        calls.append(key)
        raise KeyError("lost")

    lab.FilteredImage.make = hopeless
    lab.FilteredImage.retry_policy = dj.RetryPolicy(max_attempts=4, delay=0.0, errors=(KeyError,))
    result = lab.FilteredImage.populate(reserve_jobs=True, suppress_errors=True)
    assert len(calls) == 4 and len(result["error_list"]) == 1
    assert lab.FilteredImage.jobs.errors.fetch1("attempts") == 4


@BOTH
def test_three_part_make_checks_its_input_again(lab: Lab, reserve_jobs: bool) -> None:
    lab.fill(1, 1)
    dj.config["jobs.retry_delay"] = 0.0
    schema, Image = lab.schema, lab.Image
    open_while_computing, computed = [], []

    @schema
    class Sum(dj.Computed):
        definition = """
        -> Image
        ---
        total : float
        """

        def make_fetch(self, key: dict[str, Any]) -> Any:
            return ((Image & key).fetch1("image"),)

        def make_compute(self, key: dict[str, Any], image: list[int]) -> Any:
            scope = self.connection.scope
            assert scope is not None
            open_while_computing.append(scope._tx is not None)
            computed.append(image)
            if len(computed) == 1:
                editor = threading.Thread(target=lambda: Image().update1({**key, "image": [100, 200]}))
                editor.start()
                editor.join()
            return sum(image)

        def make_insert(self, key: dict[str, Any], total: float) -> None:
            self.insert1({**key, "total": total})

    assert Sum.populate(reserve_jobs=reserve_jobs)["success_count"] == 1
    assert Sum.fetch1("total") == 300
    assert computed == [[1, 1], [100, 200]] and not any(open_while_computing)


def test_processes_share_the_work(lab: Lab) -> None:
    lab.fill(10, 2)
    assert lab.FilteredImage.populate(processes=3, reserve_jobs=True, max_calls=7)["success_count"] == 7
    assert lab.FilteredImage.populate(processes=3, max_calls=5)["success_count"] == 5
    lab.broken = {10}
    result = lab.FilteredImage.populate(processes=2, reserve_jobs=True, suppress_errors=True)
    assert result["success_count"] == 6
    assert {error for _, error in result["error_list"]} == {"ValueError: subject 10 moved"}
    lab.FilteredImage.jobs.errors.delete()
    with pytest.raises(ValueError, match="subject 10 moved"):
        lab.FilteredImage.populate(processes=2)
    assert len(lab.FilteredImage) == 18


@BOTH
def test_progress_is_shown_on_stderr(lab: Lab, reserve_jobs: bool, capfd: pytest.CaptureFixture[str]) -> None:
    lab.fill()
    lab.FilteredImage.populate(display_progress=True, reserve_jobs=reserve_jobs)
    out, err = capfd.readouterr()
    assert "FilteredImage" in err and "6/6" in err and out == ""


@pytest.mark.parametrize(
    "bad", [{"order": "sideways"}, {"limit": -1}, {"max_calls": "all"}, {"processes": 0}, {"priority": -1}]
)
def test_bad_arguments_are_refused(lab: Lab, bad: dict[str, Any]) -> None:
    with pytest.raises(dj.PipelineError, match=next(iter(bad))):
        lab.FilteredImage.populate(reserve_jobs=True, **bad)


def test_a_custom_key_source_rules(lab: Lab) -> None:
    lab.fill()
    schema, Image = lab.schema, lab.Image

    @schema
    class Odd(dj.Imported):
        definition = """
        -> Image
        ---
        value : int
        """

        @property
        def key_source(self) -> Any:
            return Image & "image_id = 1"

        def make(self, key: dict[str, Any]) -> None:
            self.insert1({**key, "value": 0})

    assert Odd.progress() == (3, 3)
    assert Odd.jobs.refresh()["added"] == 3
    assert Odd.populate(reserve_jobs=True)["success_count"] == 3
    assert {row["image_id"] for row in Odd} == {1}
