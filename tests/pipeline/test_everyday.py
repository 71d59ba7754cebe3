"""What a scientist does on the first day: drop and declare again, restrict by many keys, fill in from a DataFrame, stop."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import psycopg
import pytest

import penstock.pipeline as dj
from penstock import Fatal
from penstock.app import populating
from tests.pipeline.lab import Lab


def counted(schema: dj.Schema, number: int = 8) -> tuple[Any, Any]:
    """A table of numbers, and one that computes from each; what `make` does is to be set."""

    @schema
    class Number(dj.Manual):
        definition = "n : int"

    @schema
    class Work(dj.Computed):
        definition = """
        -> Number
        ---
        doubled : int
        """
        spoil: Any = None

        def make(self, key: dict[str, Any]) -> None:
            if Work.spoil is not None:
                Work.spoil(key)
            self.insert1({**key, "doubled": 2 * key["n"]})

    Number.insert({"n": n} for n in range(number))
    return Number, Work


def test_a_worker_waits_for_jobs_that_somebody_is_changing(schema: dj.Schema) -> None:
    _, Work = counted(schema)
    Work.jobs.refresh()
    held, release = threading.Event(), threading.Event()

    def refresh() -> None:
        with schema.connection.transaction:
            Work.jobs.refresh(priority=3)
            held.set()
            release.wait(0.5)

    other = threading.Thread(target=refresh)
    other.start()
    assert held.wait(60)
    outcome = Work.populate(reserve_jobs=True, refresh=False)
    other.join()
    assert outcome == {"success_count": 8, "error_list": []}


def test_a_class_that_was_dropped_can_be_declared_again(schema: dj.Schema) -> None:
    Number, Work = counted(schema)
    Work.jobs.refresh()
    Work.drop(prompt=False)
    schema(Work, context={"Number": Number})
    assert Work.populate(reserve_jobs=True)["success_count"] == 8
    schema.drop(prompt=False)
    schema(Number)
    schema(Work, context={"Number": Number})
    Number.insert1({"n": 1})
    assert Work.populate(reserve_jobs=True)["success_count"] == 1


@pytest.mark.parametrize("leave", [lambda: sys.exit("enough"), lambda: _raise(KeyboardInterrupt), lambda: _raise(asyncio.CancelledError)])  # fmt: skip
@pytest.mark.parametrize("reserve_jobs", [True, False])
def test_a_make_that_exits_spoils_its_own_key_alone(schema: dj.Schema, leave: Any, reserve_jobs: bool) -> None:
    _, Work = counted(schema)
    Work.spoil = lambda key: leave() if key["n"] == 3 else None
    outcome = Work.populate(reserve_jobs=reserve_jobs, suppress_errors=True)
    assert outcome["success_count"] == 7
    assert [key for key, _ in outcome["error_list"]] == [{"n": 3}]
    if reserve_jobs:
        (failed,) = Work.jobs.errors.to_dicts()
        assert failed["n"] == 3 and failed["error_message"].startswith(
            ("SystemExit: enough", "KeyboardInterrupt", "CancelledError")
        )


def test_without_suppress_errors_the_exit_goes_on_and_the_next_start_passes_it_by(schema: dj.Schema) -> None:
    _, Work = counted(schema)
    Work.spoil = lambda key: sys.exit(4) if key["n"] == 3 else None
    with pytest.raises(SystemExit):
        Work.populate(reserve_jobs=True)
    assert Work.populate(reserve_jobs=True)["success_count"] + 3 == 7
    assert Work.jobs.progress()["error"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_from_outside_is_no_fault_of_the_key(schema: dj.Schema, number: int) -> None:
    _, Work = counted(schema)
    Work.spoil = lambda key: os.kill(os.getpid(), number) if key["n"] == 3 else None
    before = signal.getsignal(number)
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        Work.populate(reserve_jobs=True, suppress_errors=True)
    assert signal.getsignal(number) is before
    assert Work.jobs.progress() == {"pending": 5, "reserved": 0, "success": 0, "error": 0, "ignore": 0, "total": 5}


def test_a_handler_of_the_program_s_own_is_called(schema: dj.Schema) -> None:
    _, Work = counted(schema)
    heard: list[int] = []

    def handler(number: int, frame: Any) -> None:
        heard.append(number)
        sys.exit(0)

    before = signal.signal(signal.SIGTERM, handler)
    try:
        Work.spoil = lambda key: os.kill(os.getpid(), signal.SIGTERM) if key["n"] == 3 else None
        with pytest.raises(SystemExit):
            Work.populate(reserve_jobs=True, suppress_errors=True)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM] and Work.jobs.progress()["pending"] == 5


def _raise(error: type[BaseException]) -> None:
    raise error


def test_any_number_of_keys_is_a_restriction(lab: Lab) -> None:
    lab.fill(subjects=3, images=2)
    many = [{"subject_id": s, "image_id": i} for s in range(2, 6_002) for i in (1, 2)]
    assert len(lab.Image & many) == 4
    assert len(lab.Image - many) == 2
    assert lab.FilteredImage.jobs.refresh(many)["added"] == 4
    assert lab.FilteredImage.populate(many)["success_count"] == 4


def test_a_list_of_keys_takes_every_type(schema: dj.Schema) -> None:
    @schema
    class Wide(dj.Manual):
        definition = """
        a : varchar(20)
        b : date
        c : uuid
        d : decimal(6,2)
        e : timestamp
        f : bool
        ---
        x = null : float
        y = null : datetime
        """

    rows = [
        {"a": f'it"s {n}', "b": date(2026, 1, n), "c": f"{n:032x}", "d": f"{n}.50", "e": datetime(2026, 1, n, tzinfo=UTC),
         "f": n % 2 == 0, "x": None if n == 1 else n / 10, "y": datetime(2026, 2, n)}  # noqa: DTZ001
        for n in range(1, 6)
    ]  # fmt: skip
    Wide.insert(rows)
    keys = Wide.keys(order_by="KEY")
    assert (Wide & keys[:3]).keys(order_by="KEY") == keys[:3]
    assert (Wide & (Wide & keys[:3]).to_dicts()).keys(order_by="KEY") == keys[:3]
    for name in ("a", "b", "c", "d", "e", "x", "y"):
        values = [{name: row[name]} for row in Wide.to_dicts(order_by="KEY")[:2]]
        assert len(Wide & values) == 2, name
    assert len(Wide & [{"a": 'it"s 1'}, "d > 5", {"x": 0.2}]) == 3
    assert len(Wide & []) == 0 and len(Wide & [{"a": "none"}]) == 0
    assert len(Wide & [f"d = {n}.5" for n in range(1, 1500)]) == 5


def test_top_keeps_its_order(lab: Lab) -> None:
    lab.fill(subjects=4, images=1)
    down = lab.Subject & dj.Top(None, "subject_id DESC")
    assert [row["subject_id"] for row in down.to_dicts(limit=1)] == [4]
    assert [row["subject_id"] for row in down.head(2)] == [4, 3]
    assert [row["subject_id"] for row in (down & dj.Top(2, order_by=None)).to_dicts()] == [4, 3]
    assert [row["subject_id"] for row in (down & "subject_id < 4").to_dicts()] == [3, 2, 1]
    assert [row["subject_id"] for row in down.proj("lab").to_dicts()] == [4, 3, 2, 1]
    assert [row["s"] for row in down.proj(s="subject_id").to_dicts(order_by="s")] == [1, 2, 3, 4]
    assert repr(down).index("4") < repr(down).index("1")
    for wrong in ({"limit": "3"}, {"limit": -1}, {"order_by": 3}, {"offset": "1"}):
        with pytest.raises(TypeError):
            dj.Top(**wrong)


def test_a_limit_reads_no_more_keys_than_it_needs(schema: dj.Schema) -> None:
    _, Work = counted(schema, 50)
    Work.spoil = lambda key: 1 / 0 if key["n"] == 1 else None
    outcome = Work.populate(limit=4, suppress_errors=True)
    assert (outcome["success_count"], len(outcome["error_list"])) == (3, 1)
    assert Work.keys(order_by="KEY") == [{"n": n} for n in (0, 2, 3)]
    assert Work.populate(max_calls=2, order="reverse")["success_count"] == 2
    assert {"n": 49} in Work and {"n": 48} in Work
    assert Work.populate(limit=3, order="random")["success_count"] == 3


def test_missing_values_of_a_dataframe_are_null(schema: dj.Schema) -> None:
    @schema
    class Measure(dj.Manual):
        definition = """
        n : int
        ---
        price = null : decimal(6,2)
        seen = null : timestamp
        noted = null : datetime
        day = null : date
        label = null : varchar(10)
        number = null : int
        value = null : float
        """

    Measure.insert(
        pd.DataFrame(
            {
                "n": [1, 2], "price": [1.5, float("nan")], "seen": [pd.Timestamp("2026-03-01 12:00:00"), pd.NaT],
                "noted": [np.datetime64("2026-03-01T12:00:00", "ns"), np.datetime64("NaT")],
                "day": [pd.Timestamp("2026-03-01"), pd.NaT], "label": ["a", np.nan], "number": [3, np.nan],
                "value": [2.0, np.nan],
            }
        )
    )  # fmt: skip
    Measure.insert1({"n": 3, "noted": np.datetime64("2026-03-01T12:00:00.5", "ns"), "day": np.datetime64("2026-03-01")})
    Measure.insert1({"n": 4, "label": pd.NA, "price": Decimal("NaN"), "noted": pd.Timestamp("2026-03-01 12:00:00.000000001")})  # fmt: skip
    first, second, third, fourth = Measure.to_dicts(order_by="n")
    assert first["noted"] == datetime(2026, 3, 1, 12) and first["day"] == date(2026, 3, 1)  # noqa: DTZ001
    assert first["seen"] == datetime(2026, 3, 1, 12).astimezone(UTC)
    assert {name for name, value in second.items() if value is None} == {
        "price", "seen", "noted", "day", "label", "number",
    }  # fmt: skip
    assert np.isnan(second["value"])
    assert third["noted"] == datetime(2026, 3, 1, 12, 0, 0, 500_000) and third["day"] == date(2026, 3, 1)  # noqa: DTZ001
    assert fourth["label"] is None and fourth["price"] is None
    with pytest.raises(dj.InvalidRow, match="n is None, but is not nullable"):
        Measure.insert1({"n": float("nan")})


def test_a_make_that_yields_is_made_in_three_parts(lab: Lab) -> None:
    lab.fill(subjects=2, images=1)
    schema, Image, entered = lab.schema, lab.Image, []

    @schema
    class Twice(dj.Computed):
        definition = """
        -> Image
        ---
        total : int
        """

        def make(self, key: dict[str, Any], plus: int = 0) -> Any:
            image = (Image & key).fetch1("image")
            total = yield (image,)
            if total is None:
                entered.append(schema.connection.scope.waiting)  # type: ignore[union-attr]
                total = sum(image) + plus
                yield total
            self.insert1({**key, "total": total})
            yield

    assert Twice.populate(reserve_jobs=True, make_kwargs={"plus": 10})["success_count"] == 2
    assert sorted(Twice.fetch("total")) == [12, 13] and len(entered) == 2

    @schema
    class Short(dj.Computed):
        definition = "-> Image"

        def make(self, key: dict[str, Any]) -> Any:
            yield key

    ((_, message), _) = Short.populate(suppress_errors=True)["error_list"]
    assert "did not yield twice" in message


def test_a_key_named_like_a_column_of_job_tables_is_refused_when_declared(schema: dj.Schema) -> None:
    @schema
    class Person(dj.Manual):
        definition = "user : varchar(20)"

    class Score(dj.Computed):
        definition = "-> Person"

    with pytest.raises(dj.DefinitionError, match="'user' has the name of a column of job tables"):
        schema(Score)
    assert schema.list_tables() == ["person"]


def test_tables_are_named_as_datajoint_names_them(schema: dj.Schema) -> None:
    class KeyPK(dj.Lookup):
        definition = "id : int"

        class IJ(dj.Part):
            definition = """
            -> master
            ij : int
            """

    assert schema(KeyPK).table_name == "#key_p_k"
    assert KeyPK.IJ.table_name == "#key_p_k__i_j"


def test_a_table_that_is_there_keeps_the_name_it_was_given_before(
    schema: dj.Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.pipeline import resolve

    class EEGData(dj.Manual):
        definition = "id : int"

    with monkeypatch.context() as patched:
        patched.setattr(resolve, "snake", resolve._former_snake)
        schema(EEGData)
    EEGData.insert1({"id": 1})
    again = dj.Schema("lab")(EEGData)
    assert again.table_name == "eeg_data" and len(again) == 1


def test_populate_gives_its_priority_to_the_keys_it_adds(schema: dj.Schema) -> None:
    Number, Work = counted(schema, 3)
    Work.jobs.refresh()
    Number.insert1({"n": 7})
    assert Work.populate(reserve_jobs=True, priority=2)["success_count"] == 1
    assert Work.keys() == [{"n": 7}]
    assert set(Work.jobs.pending.fetch("priority")) == {5}


def test_errors_can_be_pickled() -> None:
    for error in (
        dj.JobTransitionError("complete", {"n": 1}, "pending", "reserved"), dj.DefinitionError("T", "no", line=3, text="x"),
        dj.MissingExtra("pandas", "to_pandas()"), dj.QueryError("plain"),
    ):  # fmt: skip
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error) and str(copy) == str(error) and vars(copy) == vars(error)


def test_proj_takes_a_blank_after_the_minus(lab: Lab) -> None:
    assert lab.Subject.proj(..., "- lab").heading.names == ["subject_id", "priority"]


def test_a_schema_with_a_stranger_in_it_is_not_dropped(schema: dj.Schema, home: str) -> None:
    counted(schema)
    if not home.startswith("postgresql"):
        schema.drop(prompt=False)  # a schema is a prefix there: nothing can be in the way
        return
    with psycopg.connect(home, autocommit=True) as conn:
        conn.execute("CREATE VIEW lab.summary AS SELECT 1 AS one")
        with pytest.raises(dj.AccessError, match="also holds summary, which no pipeline declared"):
            schema.drop(prompt=False)
        assert len(schema.list_tables()) == 2
        conn.execute("DROP VIEW lab.summary")
    schema.drop(prompt=False)
    assert schema.list_tables() == []


WORDS = ["start", "comment", "cache", "begin", "commit", "any", "execute", "pivot", "merge", "copy", "truncate", "end", "set", "show", "use", "kill", "load", "call", "delete", "insert", "update", "drop", "grant", "analyze", "describe", "values", "order", "group", "date", "time", "timestamp", "day", "hour", "count", "left", "right", "key", "rank"]  # fmt: skip


@pytest.mark.parametrize("backend", ["sqlite"])  # the text is read before there is a database
def test_words_of_sql_are_attribute_names(schema: dj.Schema) -> None:
    @schema
    class Session(dj.Manual):
        definition = "n : int\n---\n" + "\n".join(f"{word} : int" for word in WORDS)

    Session.insert1({"n": 1, **{word: at for at, word in enumerate(WORDS)}})
    for at, word in enumerate(WORDS):
        assert len(Session & f"{word} = {at}") == 1, word
        assert len(Session & f"n = 1 and {word} > {at}") == 0, word
        assert Session.proj(d=f"{word} + 1").fetch1("d") == at + 1, word
    with pytest.raises(dj.RestrictionError, match="goes in backticks"):
        Session & "begin > (1"


def test_a_job_that_could_not_make_a_key_does_not_end_well(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.fill(subjects=3, images=1)
    lab.broken.add(2)
    module = ModuleType("a_lab_for_jobs")
    module.FilteredImage = lab.FilteredImage  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    populate = populating([module.__name__])
    with pytest.raises(Fatal, match=r"2 made, 1 failed, 1 left\. .*'subject_id': 2.*ValueError: subject 2 moved"):
        populate(Watcher(), table="a_lab_for_jobs:FilteredImage")
    assert populate(Watcher(), table="a_lab_for_jobs:FilteredImage")["failed"] == 0
    lab.FilteredImage.jobs.errors.delete()
    lab.broken.clear()
    assert populate(Watcher(), table="a_lab_for_jobs:FilteredImage")["made"] == 1


class Watcher:
    """What a job may ask of its worker."""

    def progress(self, done: float, total: float | None = None, message: str = "") -> None: ...

    def canceled(self) -> bool:
        return False


@pytest.mark.parametrize("reserve_jobs", [True, False])
def test_several_processes_move_one_bar(
    schema: dj.Schema, reserve_jobs: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    _, Work = counted(schema, 12)
    assert Work.populate(reserve_jobs=reserve_jobs, processes=2, display_progress=True)["success_count"] == 12
    assert "12/12" in capfd.readouterr().err


def test_children_end_with_their_parent(schema: dj.Schema) -> None:
    _, Work = counted(schema, 8)
    told, tell = os.pipe()

    def spoil(key: dict[str, Any]) -> None:
        os.write(tell, os.getpid().to_bytes(4, "little"))
        threading.Event().wait(60)

    Work.spoil = spoil
    if (parent := os.fork()) == 0:
        try:
            Work.populate(reserve_jobs=True, processes=2)
        finally:
            os._exit(0)
    children = {int.from_bytes(os.read(told, 4), "little") for _ in range(2)}
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    os.close(tell)
    # The children hold the other ends of our pipe: it ends when the last of them does.
    assert os.read(told, 4) == b"" and len(children) == 2
    assert Work.jobs.progress()["pending"] == 8
