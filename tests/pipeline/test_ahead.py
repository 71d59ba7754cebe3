"""Reading ahead: fewer round trips, and nothing that make() could notice but a read that came half a second earlier."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import create_engine, text

import penstock.pipeline as dj
from penstock.core import own_process
from penstock.pipeline import ahead

Make = Callable[[Any, dict[str, Any]], None]


class Numbers:
    """Numbers with a factor each, and a table that is made of them as the test says."""

    def __init__(self, schema: dj.Schema, url: str) -> None:
        self.elsewhere = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
        numbers = self
        self.make: Make = lambda table, key: None

        @schema
        class Number(dj.Manual):
            definition = """
            n : int32
            ---
            factor : int32
            """

        @schema
        class Other(dj.Manual):
            definition = """
            n : int32
            ---
            word : varchar(16)
            """

        @schema
        class Product(dj.Computed):
            definition = """
            -> Number
            ---
            product : int64
            """

            def make(self, key: dict[str, Any]) -> None:
                numbers.make(self, key)

        self.Number, self.Other, self.Product = Number, Other, Product

    def product(self, table: Any, key: dict[str, Any]) -> int:
        factor = int((self.Number & key).fetch1("factor"))
        table.insert1({**key, "product": key["n"] * factor})
        return factor

    def change(self, n: int, factor: int) -> None:
        """As another program does it."""
        with self.elsewhere.begin() as conn:
            name = physical(self.Number)
            conn.execute(text(f"UPDATE {name} SET factor = :f WHERE n = :n"), {"f": factor, "n": n})


def physical(table: Any) -> str:
    found = type(table())._sql
    return f'"{found.schema}"."{found.name}"' if found.schema else f'"{found.name}"'


@pytest.fixture
def numbers(schema: dj.Schema, home: str) -> Iterator[Numbers]:
    made = Numbers(schema, home)
    made.Number.insert([{"n": n, "factor": 2} for n in range(60)])
    yield made
    made.elsewhere.dispose()


@pytest.fixture
def reads(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every read that goes to the database, by the tables it touches."""
    connection, seen = numbers.Number.connection, []
    read = connection.read

    def counted(work: Any, touching: Any = ()) -> Any:
        seen.append(touching)
        return read(work, touching)

    monkeypatch.setattr(connection, "read", counted)
    return seen


@pytest.mark.parametrize("reserve_jobs", [True, False], ids=["distributed", "direct"])
def test_a_batch_reads_its_parents_in_a_few_statements(
    numbers: Numbers, reads: list[Any], monkeypatch: pytest.MonkeyPatch, reserve_jobs: bool
) -> None:
    monkeypatch.setitem(dj.config, "jobs.read_ahead_seconds", 60.0)
    numbers.make = numbers.product
    assert numbers.Product.populate(reserve_jobs=reserve_jobs)["success_count"] == 60
    assert numbers.Product.fetch("product", order_by="n").tolist() == [2 * n for n in range(60)]
    assert len(reads) < 20


@pytest.mark.parametrize("reserve_jobs", [True, False], ids=["distributed", "direct"])
def test_a_parent_that_many_keys_share_is_read_ahead_for_all_of_them(
    numbers: Numbers, reads: list[Any], schema: dj.Schema, monkeypatch: pytest.MonkeyPatch, reserve_jobs: bool
) -> None:
    monkeypatch.setitem(dj.config, "jobs.read_ahead_seconds", 60.0)

    @schema
    class Method(dj.Lookup):
        definition = """
        method : varchar(8)
        ---
        power : int32
        """
        contents = (("square", 2), ("cube", 3))

    @schema
    class Power(dj.Computed):
        definition = """
        -> Number
        -> Method
        ---
        result : int64
        """

        def make(self, key: dict[str, Any]) -> None:
            power, factor = (Method & key).fetch1("power"), (numbers.Number & key).fetch1("factor")
            self.insert1({**key, "result": factor ** int(power)})

    assert Power.populate(reserve_jobs=reserve_jobs)["success_count"] == 120
    assert sorted(Power.fetch("result").tolist()) == [4] * 60 + [8] * 60
    assert len(reads) < 30


@pytest.mark.parametrize("reserve_jobs", [True, False], ids=["distributed", "direct"])
def test_nothing_is_read_ahead_if_that_is_turned_off(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch, reserve_jobs: bool
) -> None:
    monkeypatch.setitem(dj.config, "jobs.read_ahead_seconds", 0)
    monkeypatch.setitem(dj.config, "jobs.commit_seconds", 0)

    def make(table: Any, key: dict[str, Any]) -> None:
        numbers.product(table, key)
        if key["n"] == 10:
            for n in range(11, 60):
                numbers.change(n, 5)

    numbers.make = make
    numbers.Product.populate(reserve_jobs=reserve_jobs)
    assert numbers.Product.fetch("product", order_by="n").tolist() == [n * (2 if n < 11 else 5) for n in range(60)]


def test_a_change_is_seen_by_the_keys_after_it(numbers: Numbers) -> None:
    def make(table: Any, key: dict[str, Any]) -> None:
        numbers.product(table, key)
        if key["n"] == 10:
            for n in range(11, 60):
                numbers.change(n, 5)
            time.sleep(dj.config["jobs.read_ahead_seconds"] + 0.1)

    numbers.make = make
    numbers.Product.populate(reserve_jobs=True)
    assert numbers.Product.fetch("product", order_by="n").tolist() == [n * (2 if n < 11 else 5) for n in range(60)]


def test_what_make_itself_changes_is_seen_at_once(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dj.config, "jobs.read_ahead_seconds", 60.0)
    seen = {}

    def make(table: Any, key: dict[str, Any]) -> None:
        seen[key["n"]] = numbers.product(table, key)
        if key["n"] % 10 == 3:
            numbers.Number.update1({"n": key["n"] + 1, "factor": 7})

    numbers.make = make
    numbers.Product.populate(reserve_jobs=True)
    assert seen == {n: 7 if n % 10 == 4 else 2 for n in range(60)}


def test_what_make_replaces_elsewhere_is_seen_at_once(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dj.config, "jobs.read_ahead_seconds", 60.0)
    numbers.Other.insert([{"n": n, "word": "old"} for n in range(60)])
    words = []

    def make(table: Any, key: dict[str, Any]) -> None:
        words.append((numbers.Other & key).fetch1("word"))
        if key["n"] == 30:
            numbers.Other.insert([{"n": n, "word": "new"} for n in range(40, 60)], replace=True)
        if key["n"] == 31:
            time.sleep(2 * dj.config["jobs.commit_seconds"])  # by now it is written
        numbers.product(table, key)

    numbers.make = make
    numbers.Product.populate()
    assert words == ["old"] * 40 + ["new"] * 20


def test_what_was_rolled_back_was_never_read(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dj.config, "jobs.read_ahead_seconds", 60.0)
    seen = {}

    def make(table: Any, key: dict[str, Any]) -> None:
        if key["n"] % 10 == 3:
            numbers.Number.update1({"n": key["n"] + 1, "factor": 7})
            numbers.product(table, key)
            raise ValueError("no signal")
        seen[key["n"]] = numbers.product(table, key)

    numbers.make = make
    assert len(numbers.Product.populate(suppress_errors=True)["error_list"]) == 6
    assert set(seen.values()) == {2}


def test_blobs_are_read_when_they_are_asked_for(schema: dj.Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, real = [], ahead.lookup_many

    def seen(*what: Any) -> Any:
        asked.append(what)
        return real(*what)

    monkeypatch.setattr(ahead, "lookup_many", seen)

    @schema
    class Picture(dj.Manual):
        definition = """
        n : int32
        ---
        pixels : <blob>
        """

    @schema
    class Size(dj.Computed):
        definition = """
        -> Picture
        ---
        size : int32
        """

        def make(self, key: dict[str, Any]) -> None:
            self.insert1({**key, "size": len((Picture & key).fetch1("pixels"))})

    Picture.insert([{"n": n, "pixels": [0] * n} for n in range(20)])
    Size.populate()
    assert Size.fetch("size", order_by="n").tolist() == list(range(20))
    assert not asked


def test_asked_again_it_asks_the_database_again(numbers: Numbers) -> None:
    twice = []

    def make(table: Any, key: dict[str, Any]) -> None:
        first = numbers.product(table, key)
        numbers.change(key["n"], 9)
        twice.append((first, int((numbers.Number & key).fetch1("factor"))))

    numbers.make = make
    numbers.Product.populate(reserve_jobs=True)
    assert set(twice) == {(2, 9)}


def test_a_row_that_was_not_there_is_looked_for_again(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dj.config, "jobs.read_ahead_seconds", 60.0)
    numbers.Other.insert1({"n": 0, "word": "first"})

    def make(table: Any, key: dict[str, Any]) -> None:
        assert (numbers.Other & key).fetch1("word")
        numbers.product(table, key)
        with numbers.elsewhere.begin() as conn:
            conn.execute(text(f"INSERT INTO {physical(numbers.Other)} (n, word) VALUES ({key['n'] + 1}, 'next')"))

    numbers.make = make
    assert numbers.Product.populate(reserve_jobs=True)["success_count"] == 60


def test_input_in_parts_is_read_anew_before_it_is_used(numbers: Numbers, schema: dj.Schema) -> None:
    changed = []

    @schema
    class Slow(dj.Computed):
        definition = """
        -> Number
        ---
        product : int64
        """

        def make_fetch(self, key: dict[str, Any]) -> tuple[int]:
            return (int((numbers.Number & key).fetch1("factor")),)

        def make_compute(self, key: dict[str, Any], factor: int) -> tuple[int]:
            if key["n"] not in changed:
                changed.append(key["n"])
                numbers.change(key["n"], 4)
            return (factor * key["n"],)

        def make_insert(self, key: dict[str, Any], product: int) -> None:
            self.insert1({**key, "product": product})

    outcome = Slow.populate("n < 6", suppress_errors=True)
    refused = {key["n"] for key, message in outcome["error_list"] if "InputChanged" in message}
    kept = dict(zip(*Slow.fetch("n", "product"), strict=True))
    assert refused | set(kept) == set(range(6))
    assert all(product == 4 * n for n, product in kept.items())


def test_values_of_every_kind_are_the_same_read_ahead(schema: dj.Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(dj.config, "jobs.read_ahead_seconds", 60.0)

    @schema
    class Thing(dj.Manual):
        definition = """
        tag : uuid
        day : date
        exact : decimal(8,2)
        side : enum('left', 'right')
        ---
        large = null : uint64
        real = null : float64
        flag = null : bool
        wall = null : datetime
        moment = null : timestamp
        note = null : json
        words = null : varchar(64)
        picture = null : <blob>
        """

    seen = []

    @schema
    class Copy(dj.Computed):
        definition = """
        -> Thing
        ---
        words : varchar(64)
        """

        def make(self, key: dict[str, Any]) -> None:
            most = ("large", "real", "flag", "wall", "moment", "note", "words")
            seen.append({**key, **dict(zip(most, (Thing & key).fetch1(*most), strict=True))})
            seen[-1]["picture"] = (Thing & key).fetch1("picture")
            self.insert1({**key, "words": "x"})

    rows = [
        {"tag": UUID(int=n), "day": date(2026, 1, 1 + n), "exact": Decimal(n) / 4, "side": "left", "large": 2**62 + n, "real": n / 3,
         "flag": n % 2 == 0, "wall": datetime(2026, 1, 2, 3, 4, 5, n), "moment": datetime(2026, 1, 2, 3, 4, 5, n, UTC),  # noqa: DTZ001
         "note": {"n": [n]}, "words": f"{n} 'ü", "picture": [n, n]}
        for n in range(20)
    ]  # fmt: skip
    Thing.insert(rows)
    Copy.populate(reserve_jobs=True)
    assert sorted(seen, key=lambda row: row["tag"].int) == rows


def test_direct_mode_leaves_what_another_has_made_since_it_looked(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(dj.config, "jobs.recheck_seconds", 0.1)
    called = []

    def make(table: Any, key: dict[str, Any]) -> None:
        called.append(key["n"])
        numbers.product(table, key)
        if key["n"] == 5:
            with numbers.elsewhere.begin() as conn:
                values = ", ".join(f"({n}, 0)" for n in range(20, 60, 2))
                conn.execute(text(f"INSERT INTO {physical(numbers.Product)} (n, product) VALUES {values}"))
            time.sleep(0.15)

    numbers.make = make
    assert numbers.Product.populate(max_calls=40)["success_count"] == 40
    assert called == [*range(20), *range(21, 60, 2)]


@pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="the system has no such policy")
@pytest.mark.parametrize(("ours", "setting", "batch"), [(True, "on", True), (True, "off", False), (False, "on", False)])
def test_only_a_process_of_our_own_asks_for_batch_scheduling(
    numbers: Numbers, ours: bool, setting: str, batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_process, "_ours", ours)
    monkeypatch.setenv("PENSTOCK_BATCH_SCHEDULING", setting)
    policies = set()

    def make(table: Any, key: dict[str, Any]) -> None:
        policies.add(os.sched_getscheduler(0))
        numbers.product(table, key)

    numbers.make = make
    for _ in range(2):
        numbers.Product.populate("n < 2", reserve_jobs=True)
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
        numbers.Product.delete(prompt=False)
    assert policies == {os.SCHED_BATCH if batch else os.SCHED_OTHER}
