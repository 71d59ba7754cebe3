"""Relations: the algebra, what may be asked of it, and what it refuses."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pytest
from sqlalchemy import event

import penstock.pipeline as dj
from tests.pipeline.lab import Lab


@pytest.fixture
def things(schema: dj.Schema) -> Any:
    """A table with an attribute of every kind."""

    @schema
    class Thing(dj.Manual):
        definition = """
        thing_id : int
        ---
        name = "" : varchar(20)
        size = 0 : float
        price = 0 : decimal(8,2)
        good = false : bool
        made = "2026-01-01" : date
        seen = "2026-01-01 10:00:00" : datetime
        stamped = CURRENT_TIMESTAMP : timestamp
        side = "left" : enum('left', 'right')
        tag = null : uuid
        facts = null : json
        data = null : <blob>
        count = null : int64
        big = 0 : uint64
        """

    Thing.insert(
        [
            {"thing_id": 1, "name": "Ann", "size": 1.5, "price": "10.10", "good": True, "count": 5, "data": np.eye(2)},
            {"thing_id": 2, "name": "bob", "size": 2.5, "price": 2.05, "side": "right", "made": date(2026, 3, 4)},
            {"thing_id": 3, "name": "it's", "size": float("nan"), "tag": UUID(int=7), "facts": {"a": [1, None]}, "count": -1},
        ]
    )  # fmt: skip
    return Thing


def ids(relation: Any) -> list[int]:
    return [row["thing_id"] for row in relation.to_dicts(order_by="thing_id")]


CONDITIONS: list[Any] = [
        ("thing_id = 1", [1]), ("thing_id in (1, 3)", [1, 3]), ("thing_id not in (1)", [2, 3]), ("thing_id <> 1", [2, 3]),
        ('name = "Ann"', [1]), ("name = 'it''s'", [3]), (r"name = 'it\'s'", [3]), ('name like "b%"', [2]), ('name like "B%"', [2]),
        ("size > 1.5 and size < 3", [2]), ("size between 1 and 2", [1]), ("price = 10.10", [1]), ("price < 5 and price > 0", [2]),
        ("good", [1]), ("not good", [2, 3]), ("good = true", [1]), ("good = 1", [1]), ("good is false", [2, 3]),
        ('made = "2026-03-04"', [2]), ('made > "2026-01-01"', [2]), ("made < NOW()", [1, 2, 3]), ("made < CURDATE()", [1, 2, 3]),
        ('seen >= "2026-01-01 10:00:00"', [1, 2, 3]), ("seen < NOW() - INTERVAL 1 DAY", [1, 2, 3]),
        ("stamped > NOW() - INTERVAL 1 HOUR", [1, 2, 3]), ("stamped < NOW() - INTERVAL 1 HOUR", []),
        ("stamped + INTERVAL 1 DAY > NOW()", [1, 2, 3]), ("stamped > DATE_SUB(NOW(), INTERVAL 2 DAY)", [1, 2, 3]),
        ('side = "right"', [2]), (f'tag = "{UUID(int=7)}"', [3]), ("tag is null", [1, 2]), ("tag is not null", [3]),
        ("count > 0 or count < 0", [1, 3]), ("count <=> 5", [1]), ("-count = 1", [3]), ("count + 1 = 6", [1]), ("count % 2 = 1", [1]),
        ("size / 2 > 1 and size < 100", [2]), ("lower(name) = 'ann'", [1]), ("length(name) = 4", [3]), ("abs(count) = 1", [3]),
        ("coalesce(count, 9) = 9", [2]), ("`thing_id` = 2", [2]), ("(thing_id = 2)", [2]), ("thing_id = '2'", [2]),
        ("thing_id = 2.5", []), ("1 < thing_id", [2, 3]), ("thing_id = 1 -- a comment", [1]), ("big = 0 and thing_id < 2", [1]),
    ]  # fmt: skip


def test_restriction_by_text(things: Any) -> None:
    for condition, expected in CONDITIONS:
        assert ids(things & condition) == expected, condition


BAD_CONDITIONS: list[Any] = [
        "", " ", "1", "1 = 1", "true", "nothing = 1", "thing_id", "thing_id = 1; drop table x", "thing_id in (select 1)",
        "exists(select 1)", "thing_id = 1 union select 1", "sleep(5) = thing_id", "load_file('x') = name", "thing_id = ",
        "other.thing_id = 1", "data = 'x'", "facts = '{}'", "thing_id = 'many'", "made = 'yesterday'", "name < thing_id",
        "count(*) > 1", "thing_id = NOW()", "seen > NOW() - INTERVAL 1 MONTH", "name", "thing_id = @@version", "name regexp 'x'",
        "thing_id as x", "case when thing_id = 1 then 1 end", "(" * 500, "@x := 1", "thing_id = (thing_id = 1)", "name = name + 1",
    ]  # fmt: skip


def test_bad_text_is_an_error_never_everything(things: Any) -> None:
    for condition in BAD_CONDITIONS:
        if condition == "thing_id":
            assert ids(things & condition) == [1, 2, 3]  # a number is true unless it is 0
            continue
        with pytest.raises(dj.RestrictionError):
            (things & condition).fetch()


def test_text_reaches_the_database_only_as_parameters(things: Any) -> None:
    seen: list[str] = []
    engine = things.connection.db.engine
    event.listen(engine, "before_cursor_execute", lambda c, k, statement, *rest: seen.append(statement))
    assert ids(things & 'name = "x\'; DROP TABLE thing; --"') == []
    assert not any("DROP" in statement for statement in seen)


RESTRICTIONS: list[Any] = [
        ({"thing_id": 1}, [1]), ({"thing_id": 1, "unknown": 5}, [1]), ({}, [1, 2, 3]), ({"tag": None}, [1, 2]),
        ([{"thing_id": 1}, "thing_id = 3"], [1, 3]), ([], []), (dj.AndList(["thing_id > 1", {"side": "right"}]), [2]),
        (dj.AndList(), [1, 2, 3]), (dj.Not("thing_id = 1"), [2, 3]), (True, [1, 2, 3]), (False, []),
        ({"made": "2026-03-04"}, [2]), ({"price": 10.1}, [1]), ({"thing_id": np.int64(2)}, [2]), ({"size": 1.5}, [1]),
        (pd.DataFrame({"thing_id": [1, 2]}), [1, 2]), (np.array([(1,), (3,)], dtype=[("thing_id", "i8")]), [1, 3]),
    ]  # fmt: skip


def test_restriction_by_values(things: Any) -> None:
    for restriction, expected in RESTRICTIONS:
        assert ids(things & restriction) == expected
        assert ids(things - restriction) == [i for i in (1, 2, 3) if i not in expected]


BAD_RESTRICTIONS: list[Any] = [{"unknown": 1}, {"data": 1}, {"thing_id": "many"}, 5, None, object()]  # fmt: skip


def test_bad_values_are_errors(things: Any) -> None:
    for restriction in BAD_RESTRICTIONS:
        with pytest.raises(dj.RestrictionError):
            things & restriction


def test_relations_match_on_keys_never_on_namesakes(lab: Lab) -> None:
    lab.fill()
    lab.FilteredImage.jobs.refresh()
    jobs = lab.FilteredImage.jobs
    urgent = lab.Subject & 'priority = "urgent"'
    assert {row["subject_id"] for row in jobs & urgent} == {1}
    assert {row["subject_id"] for row in jobs - urgent} == {2, 3}
    assert len(lab.Subject & jobs) == 3 and len(lab.Subject - jobs) == 0
    assert len(lab.Image - lab.FilteredImage) == 6
    lab.FilteredImage.populate({"subject_id": 1})
    assert {row["subject_id"] for row in lab.Image - lab.FilteredImage} == {2, 3}
    assert len(lab.Image & (lab.Image & "image_id = 1")) == 3
    assert len(lab.Image & [lab.FilteredImage, {"subject_id": 2}]) == 4


def test_strangers_do_not_match(lab: Lab, things: Any) -> None:
    for work in (
        lambda: lab.Subject & things,
        lambda: lab.Subject - things,
        lambda: lab.Subject.aggr(things, n="count(*)"),
    ):
        with pytest.raises((dj.RestrictionError, dj.QueryError), match="share"):
            work()
    schema = lab.schema

    @schema
    class Other(dj.Manual):
        definition = """
        subject_id : int
        """

    with pytest.raises(dj.RestrictionError, match="means different things"):
        lab.Subject & Other
    with pytest.raises(dj.RestrictionError, match="means different things"):
        lab.Subject * Other
    assert len(lab.Subject * Other.proj(other_id="subject_id")) == 0


def test_join(lab: Lab) -> None:
    lab.fill(2, 2)
    lab.FilteredImage.populate()
    joined = lab.Subject * lab.Image * lab.FilteredImage
    assert joined.primary_key == ["subject_id", "image_id"] and len(joined) == 4
    row = (joined & lab.key(2, 2)).fetch1()
    assert (row["priority"], row["image"], row["filtered_image"]) == ("normal", [2, 2], [4, 4])
    assert len(lab.Image * lab.Image.proj(other="image_id")) == 8
    with pytest.raises(dj.QueryError, match="'priority' that does not mean the same"):
        lab.Subject * lab.FilteredImage.jobs


def test_projection(things: Any) -> None:
    assert things.proj().heading.names == ["thing_id"]
    assert things.proj("name").fetch("name", order_by="thing_id").tolist() == ["Ann", "bob", "it's"]
    assert "data" not in things.proj(..., "-data").heading
    renamed = things.proj(label="name", other_id="thing_id")
    assert renamed.heading.names == ["other_id", "label"] and renamed.primary_key == ["other_id"]
    assert ((renamed & "label = 'bob'").fetch1("KEY")) == {"other_id": 2}
    doubled = things.proj(twice="count * 2", half="count / 2", loud="upper(name)")
    assert (doubled & "twice = 10").fetch1() == {"thing_id": 1, "twice": 10, "half": 2.5, "loud": "ANN"}
    for bad in (
        lambda: things.proj("nothing"),
        lambda: things.proj("-thing_id"),
        lambda: things.proj(thing_id="count + 1"),
    ):
        with pytest.raises(dj.QueryError):
            bad()
    with pytest.raises(dj.RestrictionError):
        things.proj(x="nothing + 1")


def test_aggregation(lab: Lab, things: Any) -> None:
    lab.fill(3, 2)
    (lab.Image & {"subject_id": 3}).delete()
    counted = lab.Subject.aggr(lab.Image, n="count(*)", last="max(image_id)")
    assert counted.to_dicts(order_by="subject_id") == [
        {"subject_id": 1, "n": 2, "last": 2}, {"subject_id": 2, "n": 2, "last": 2},
    ]  # fmt: skip
    everyone = lab.Subject.aggr(lab.Image, "priority", keep_all_rows=True, n="count(image_id)")
    assert (everyone & "n = 0").fetch1() == {"subject_id": 3, "priority": "normal", "n": 0}
    own = things.aggr(
        things.proj("size", "price", "count"), s="sum(size)", p="sum(price)", a="avg(count)", m="min(price)"
    )
    rows = own.to_dicts(order_by="thing_id")
    assert (rows[0]["s"], rows[0]["p"], rows[0]["a"], rows[0]["m"]) == (1.5, Decimal("10.10"), 5.0, Decimal("10.10"))
    assert np.isnan(rows[2]["s"])
    with pytest.raises(dj.RestrictionError, match=r"belongs in aggr"):
        things.proj(n="count(*)")


def test_fetch(things: Any) -> None:
    assert things.fetch("KEY", order_by="thing_id DESC", limit=2) == [{"thing_id": 3}, {"thing_id": 2}]
    assert things.keys(offset=1, limit=1) == [{"thing_id": 2}]
    names, sizes = things.fetch("name", "size", order_by="thing_id")
    assert names.tolist() == ["Ann", "bob", "it's"] and sizes.dtype == float and np.isnan(sizes[2])
    assert things.fetch("thing_id", order_by="thing_id").dtype.kind == "i"
    assert things.fetch("count", as_dict=True, order_by="count, thing_id") == [
        {"count": None},
        {"count": -1},
        {"count": 5},
    ]
    assert [row["count"] for row in things.to_dicts(order_by="count DESC")] == [5, -1, None]
    row = (things & {"thing_id": 3}).fetch1()
    assert row["tag"] == UUID(int=7) and row["facts"] == {"a": [1, None]} and np.isnan(row["size"])
    assert row["seen"] == datetime(2026, 1, 1, 10) and row["stamped"].tzinfo is not None  # noqa: DTZ001
    assert (things & "thing_id=1").fetch1("data").tolist() == [[1, 0], [0, 1]]
    assert (things & "thing_id=1").fetch1("name", "price") == ("Ann", Decimal("10.10"))
    frame = things.to_pandas(order_by="thing_id")
    assert list(frame.index) == [1, 2, 3] and frame.loc[2, "side"] == "right"
    assert [row["thing_id"] for row in things] and len(things) == 3 and {"thing_id": 1} in things
    assert {"thing_id": 9} not in things and not (things & "thing_id = 9") and bool(things())
    assert ids(things & dj.Top(1, order_by="thing_id DESC")) == [3]
    assert len(things.head(2)) == 2
    for bad in ({"order_by": "nothing"}, {"order_by": "thing_id; drop"}, {"limit": -1}, {"offset": "x"}):
        with pytest.raises(dj.QueryError):
            things.fetch(**bad)
    with pytest.raises(dj.QueryError, match="several"):
        things.fetch1()
    with pytest.raises(dj.QueryError, match="none"):
        (things & "thing_id = 9").fetch1()


BAD_ROWS: list[Any] = [
        ({"name": "x"}, "thing_id is missing"), ({"thing_id": None}, "is not nullable"), ({"thing_id": 1.5}, "whole number"),
        ({"thing_id": 2**40}, "takes -2147483648"), ({"thing_id": 9, "name": "x" * 21}, "at most 20"),
        ({"thing_id": 9, "name": 5}, "takes text"), ({"thing_id": 9, "side": "up"}, "expected one of"),
        ({"thing_id": 9, "what": 1}, "which is no attribute"), ({"thing_id": 9, "size": "big"}, "takes a number"),
        ({"thing_id": 9, "good": 7}, "True or False"), ({"thing_id": 9, "made": "soon"}, "made"), ((1, 2), "has 2 values"),
        ({"thing_id": 9, "price": 10**9}, "more digits"), ({"thing_id": 9, "facts": {1, 2}}, "not JSON"),
        ({"thing_id": 9, "data": object()}, "cannot hold"), ({"thing_id": 9, "tag": "zz"}, "tag"), (7, "expected a mapping"),
        ({"thing_id": 9, "seen": datetime.now(UTC)}, "has a time zone"), ({"thing_id": 9, "name": "a\x00b"}, "NUL"),
        ({"thing_id": 9, "big": 2**64}, "takes 0 to|integers end"), ({"thing_id": 9, "big": -1}, "big is"),
    ]  # fmt: skip


def test_rows_that_do_not_fit_change_nothing(things: Any) -> None:
    for row, said in BAD_ROWS:
        with pytest.raises(dj.InvalidRow, match=said):
            things.insert([{"thing_id": 100}, row])
        assert len(things) == 3


def test_insert_in_every_form(schema: dj.Schema) -> None:
    @schema
    class Point(dj.Manual):
        definition = """
        x : int
        ---
        y = 5 : int
        """

    Point.insert1({"x": 1})
    Point.insert([(2, 3)])
    Point.insert(np.array([(3, 4)], dtype=[("x", "i8"), ("y", "i8")]))
    Point.insert(pd.DataFrame({"x": [4], "y": [6]}))
    Point.insert(pd.DataFrame({"y": [7]}, index=pd.Index([5], name="x")))
    Point.insert({"x": x} for x in range(6, 1206))
    assert len(Point) == 1205
    with pytest.raises(dj.DuplicateError):
        Point.insert([{"x": 5000}, {"x": 1}])
    assert {"x": 5000} not in Point
    Point.insert([{"x": 5000}, {"x": 1, "y": 9}], skip_duplicates=True)
    assert (Point & {"x": 1}).fetch1("y") == 5 and {"x": 5000} in Point
    Point.insert1({"x": 1, "y": 9}, replace=True)
    Point.insert1({"x": 6000, "z": 1}, ignore_extra_fields=True)
    Point.update1({"x": 2, "y": 33})
    assert (Point & "x in (1, 2)").fetch("y", order_by="x").tolist() == [9, 33]
    for bad in ({"y": 1}, {"x": 1}, {"x": 99999, "y": 1}):
        with pytest.raises(dj.QueryError):
            Point.update1(bad)
    with pytest.raises(dj.InvalidRow, match="use insert1"):
        Point.insert({"x": 1})
    Point.insert([])


def test_the_top_of_uint64(things: Any) -> None:
    if things.connection.backend == "sqlite":
        with pytest.raises(dj.InvalidRow, match="SQLite's integers end"):
            things.insert1({"thing_id": 9, "big": 2**64 - 1})
        return
    things.insert1({"thing_id": 9, "big": 2**64 - 1})
    assert (things & f"big = {2**64 - 1}").fetch1("big") == 2**64 - 1


def test_delete_cascades_in_one_transaction(lab: Lab) -> None:
    lab.fill(3, 2)
    lab.FilteredImage.populate()
    chosen = lab.Subject & "subject_id = 1"
    assert chosen.delete_preview() == {"lab.subject": 1, "lab.image": 2, "lab.__filtered_image": 2}
    assert chosen.delete(dry_run=True) == 1
    assert len(lab.Subject) == 3
    with pytest.raises(dj.MissingParentError):
        chosen.delete_quick()
    assert chosen.delete() == 1
    assert (len(lab.Subject), len(lab.Image), len(lab.FilteredImage)) == (2, 4, 4)
    by_child = lab.Subject & (lab.Image & "subject_id = 2")
    assert by_child.delete() == 1
    assert (len(lab.Subject), len(lab.Image), len(lab.FilteredImage)) == (1, 2, 2)
    assert lab.FilteredImage.delete_quick() == 2


def test_delete_asks_at_a_terminal(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.fill(1, 1)
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return ["no", "yes"][len(asked) - 1]

    monkeypatch.setattr("builtins.input", answer)
    assert lab.Subject.delete(prompt=True) == 0
    assert "lab.image: 1" in asked[0]
    assert lab.Subject.delete(prompt=True) == 1


def test_parts_go_with_their_master(schema: dj.Schema) -> None:
    @schema
    class Person(dj.Manual):
        definition = """
        person : int
        """

    @schema
    class Team(dj.Manual):
        definition = """
        team : int
        """

        class Member(dj.Part):
            definition = """
            -> master
            -> Person
            """

    Person.insert([(1,), (2,)])
    Team.insert1((1,))
    Team.Member.insert([(1, 1), (1, 2)])
    with pytest.raises(dj.AccessError, match="is a part"):
        Team.Member.delete()
    with pytest.raises(dj.AccessError, match="but not of its master"):
        (Person & "person = 1").delete()
    assert len(Team.Member) == 2
    assert Team.delete() == 1 and len(Team.Member) == 0


def test_transactions_commit_together(lab: Lab) -> None:
    with pytest.raises(RuntimeError), lab.schema.connection.transaction:
        lab.Subject.insert1({"subject_id": 1})
        assert len(lab.Subject) == 1
        raise RuntimeError
    assert len(lab.Subject) == 0
    with lab.schema.connection.transaction:
        lab.Subject.insert1({"subject_id": 1})
        with pytest.raises(dj.PipelineError, match="do not nest"), lab.schema.connection.transaction:
            pass
    assert len(lab.Subject) == 1


def test_how_it_looks(things: Any) -> None:
    text = repr(things())
    assert "*thing_id" in text and "=BLOB=" in text and "(3 rows)" in text
    things.insert1({"thing_id": 4, "name": "<b>&"})
    html = things()._repr_html_()
    assert "&lt;b&gt;&amp;" in html and "<b>thing_id</b>" in html
    dj.config["display.limit"] = 1
    assert "..." in repr(things()) and "thing" in repr(things)
    assert "2026-01-01" in repr(things())


def test_naive_timestamps_are_local_and_exact(things: Any) -> None:
    moment = datetime.now().astimezone() - timedelta(days=3, microseconds=17)
    things.insert1({"thing_id": 9, "stamped": moment.replace(tzinfo=None)})
    assert (things & "thing_id = 9").fetch1("stamped") == moment
    assert ids(things & {"stamped": moment}) == [9]
    assert ids(things & "stamped < NOW() - INTERVAL 2 DAY") == [9]
