"""Many rows in one statement, many keys in one batch: nothing is lost on the way, nobody keeps what others could make."""

from __future__ import annotations

import math
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import penstock.pipeline as dj


def test_many_rows_of_every_kind_come_back_as_they_went_in(schema: dj.Schema) -> None:
    @schema
    class Thing(dj.Manual):
        definition = """
        id : int32
        ---
        whole = null : int64
        large = null : uint64
        real = null : float64
        exact = null : decimal(8,2)
        flag = null : bool
        words = null : varchar(64)
        side = null : enum('left', "ri,ght")
        day = null : date
        wall = null : datetime
        moment = null : timestamp
        tag = null : uuid
        """

    nothing = dict.fromkeys(Thing.heading.secondary_attributes)
    rows: list[dict[str, Any]] = [
        {"id": 1, **nothing},
        {"id": 2, "whole": -(2**63), "large": 2**63 - 1, "real": -1e300, "exact": Decimal("-1.25"), "flag": False, "words": "",
         "side": "left", "day": date(1, 1, 1), "wall": datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001
         "moment": datetime(2026, 1, 2, 3, 4, 5, 6, UTC), "tag": UUID(int=7)},
        {"id": 3, **nothing, "words": "NULL", "large": 0, "real": math.inf, "flag": True, "side": "ri,ght"},
        {"id": 4, **nothing, "words": '{"a\\b", \'ü\n} ', "whole": 2**63 - 1, "real": 0.1, "exact": Decimal("999999.99")},
    ]  # fmt: skip
    Thing.insert(rows)
    assert Thing.fetch(order_by="id") == rows
    assert [(Thing & {"id": row["id"]}).fetch1() for row in rows] == rows
    for row in rows[1:]:
        assert all(
            (Thing & {"id": row["id"], name: value}).fetch1("id") == row["id"]
            for name, value in row.items()
            if value is not None
        )


def test_rows_that_come_twice_in_one_insert(schema: dj.Schema) -> None:
    @schema
    class Thing(dj.Manual):
        definition = """
        id : int32
        ---
        word : varchar(8)
        """

    Thing.insert([(1, "a"), (1, "b"), (2, "c")], skip_duplicates=True)
    assert Thing.fetch(order_by="id") == [{"id": 1, "word": "a"}, {"id": 2, "word": "c"}]
    Thing.insert([(2, "d"), (3, "e"), (2, "f")], replace=True)
    assert (Thing & {"id": 2}).fetch1("word") == "f"
    assert len(Thing) == 3


def test_key_attributes_may_have_the_names_of_our_parameters(schema: dj.Schema) -> None:
    @schema
    class Source(dj.Manual):
        definition = """
        limit : int32
        lease : varchar(8)
        now : date
        """

    @schema
    class Result(dj.Computed):
        definition = """
        -> Source
        ---
        all_limit : int32
        """

        def make(self, key: dict[str, Any]) -> None:
            self.insert1({**key, "all_limit": (Source & key).fetch1("limit")})

    Source.insert((n, f"x{n % 3}", date(2026, 1, 1 + n % 5)) for n in range(40))
    assert Result.populate(reserve_jobs=True) == {"success_count": 40, "error_list": []}
    assert sorted(Result.fetch("all_limit")) == list(range(40))
    assert len(Result.jobs) == 0


def test_a_batch_that_takes_too_long_is_left_to_others(schema: dj.Schema) -> None:
    held: list[int] = []

    @schema
    class Source(dj.Manual):
        definition = "n : int32"

    @schema
    class Result(dj.Computed):
        definition = "-> Source"

        def make(self, key: dict[str, Any]) -> None:
            held.append(len(Result.jobs.reserved))
            if len(held) == 2:
                time.sleep(16)  # more than twice as long as a batch is meant to last, also where a claim takes long
            self.insert1(key)

    Source.insert((n,) for n in range(30))
    dj.config["jobs.batch_seconds"] = 4
    assert Result.populate(reserve_jobs=True)["success_count"] == 30
    assert held[0] == 1 < held[1]
    assert held[2] == 1, "the rest of the batch was kept"
    assert len(held) == 30
    assert len(Result.jobs) == 0


def test_a_key_whose_rows_do_not_go_in_is_made_once(schema: dj.Schema) -> None:
    """What is wrong shows when the batch is written, which is when the next one is claimed."""
    calls: list[int] = []

    @schema
    class Source(dj.Manual):
        definition = "n : int32"

    @schema
    class Result(dj.Computed):
        definition = """
        -> Source
        ---
        half : int32
        unique index (half)
        """

        def make(self, key: dict[str, Any]) -> None:
            calls.append(key["n"])
            self.insert1({**key, "half": max(key["n"], 1)})

    Source.insert((n,) for n in range(20))
    result = Result.populate(reserve_jobs=True, suppress_errors=True)
    assert result["success_count"] == 19
    assert [key for key, _ in result["error_list"]] == [{"n": 1}]
    assert sorted(calls) == list(range(20))
    assert Result.jobs.progress()["error"] == Result.jobs.progress()["total"] == 1
