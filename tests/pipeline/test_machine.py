"""Random lives of a pipeline: keys come and go, make() fails, workers vanish and come back late. Whatever happens, doctor is
content, no result is without its source, and in the end everything is made exactly once (I38, I39)."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

import penstock.pipeline as dj
from penstock.core.clock import ManualClock
from penstock.pipeline.jobs import identity
from penstock.pipeline.keysource import keys_to_make
from penstock.store.database import Database
from penstock.store.pipeline import doctor
from penstock.store.pipeline.jobs import Picking

KEYS = st.integers(0, 7)
LEASE = 30.0
_numbers = count()


class Machine(RuleBasedStateMachine):
    """One worker that lives, and others that take keys and vanish."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.clock = ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
        self.db = Database(url, self.clock)
        self.broken: set[int] = set()
        self.tokens: list[tuple[str, list[dict[str, Any]]]] = []
        self.settings = dj.config.override(
            {"jobs.lease_seconds": LEASE, "jobs.stale_timeout": 0, "jobs.max_crashes": 100}
        )
        self.settings.__enter__()
        schema = dj.Schema(f"machine{next(_numbers)}", self)
        machine = self

        class Number(dj.Manual):
            definition = """
            n : int
            """

        class Square(dj.Computed):
            definition = """
            -> Number
            ---
            square : int
            """

            class Digit(dj.Part):
                definition = """
                -> master
                place : int
                ---
                digit : int
                """

            def make(self, key: dict[str, Any]) -> None:
                n = int((Number & key).fetch1("n"))
                self.insert1({**key, "square": n * n})
                for place, digit in enumerate(str(n * n)):
                    self.Digit.insert1({**key, "place": place, "digit": int(digit)})
                    if n in machine.broken:
                        raise ValueError("half of its digits are in")

        self.Number = schema(Number)
        self.Square = schema(Square, context={"Number": self.Number})
        self.store = self.Square().jobs.store
        self.picking = Picking(self.Square().jobs.target_source(), keys_to_make(self.Square()))

    @rule(n=KEYS)
    def add(self, n: int) -> None:
        self.Number.insert1({"n": n}, skip_duplicates=True)

    @rule(n=KEYS)
    def remove(self, n: int) -> None:
        (self.Number & {"n": n}).delete(prompt=False)

    @rule(n=KEYS)
    def unmake(self, n: int) -> None:
        (self.Square & {"n": n}).delete(prompt=False)

    @rule(n=KEYS)
    def break_or_mend(self, n: int) -> None:
        self.broken ^= {n}

    @rule()
    def refresh(self) -> None:
        self.Square().jobs.refresh()

    @rule(reserve=st.booleans(), most=st.integers(1, 4))
    def populate(self, reserve: bool, most: int) -> None:
        self.Square.populate(reserve_jobs=reserve, suppress_errors=True, max_calls=most)

    @rule(most=st.integers(1, 3))
    def take_keys_and_vanish(self, most: int) -> None:
        token = f"ghost {len(self.tokens)}"
        taken = self.db.transact(lambda tx: self.store.claim(tx, token, identity(), LEASE, most, self.picking))
        self.tokens.append((token, [job.key for job in taken]))

    @rule()
    def come_back_late(self) -> None:
        """A ghost reports what it holds no longer: nothing must change by it."""
        for token, keys in self.tokens:
            for key in keys:
                row = self._job(key)
                if row is None or row.token != token:
                    assert not self.db.transact(
                        lambda tx, key=key, token=token: self.store.complete(tx, key, token, 1.0, keep=False)  # type: ignore[misc]
                    )
                    assert self._job(key) == row

    @rule(seconds=st.sampled_from([1, 20, 40]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule(n=KEYS)
    def ignore(self, n: int) -> None:
        jobs = self.Square().jobs
        job = self._job({"n": n})
        if job is None or job.status == "pending":
            jobs.ignore({"n": n})

    @rule()
    def clear_errors(self) -> None:
        self.Square().jobs.errors.delete()

    @invariant()
    def what_is_there_is_whole(self) -> None:
        sources = {row["n"] for row in self.Number()}
        made = {row["n"]: row["square"] for row in self.Square()}
        assert set(made) <= sources
        assert made == {n: n * n for n in made}
        digits: dict[int, str] = {}
        for row in self.Square.Digit().fetch(as_dict=True, order_by="KEY"):
            digits[row["n"]] = digits.get(row["n"], "") + str(row["digit"])
        assert digits == {n: str(n * n) for n in made}

    @invariant()
    def doctor_is_content(self) -> None:
        with self.db.read() as tx:
            assert doctor.violations(tx) == []

    def _job(self, key: dict[str, Any]) -> Any:
        with self.db.read() as tx:
            return self.store.row(tx, key)

    def teardown(self) -> None:
        """Nothing is broken any more and the ghosts' leases are over: then all there is gets made, and the queue is empty."""
        try:
            self.broken.clear()
            self.wait(100)
            jobs = self.Square().jobs
            jobs.errors.delete()
            jobs.ignored.delete()
            jobs.refresh()
            self.Square.populate(reserve_jobs=True)
            jobs.refresh()
            assert {row["n"] for row in self.Square()} == {row["n"] for row in self.Number()}
            assert len(jobs) == 0
            self.what_is_there_is_whole()
        finally:
            self.settings.__exit__(None, None, None)
            self.db.close()


def test_random_lives_of_a_pipeline(url: str) -> None:
    run_state_machine_as_test(
        lambda: Machine(url),
        settings=settings(
            max_examples=20,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )
