"""A worker for tests of many processes: `worker_main.py squares|sleeper SECONDS`, on PENSTOCK_DATABASE_URL."""

from __future__ import annotations

import sys
import time
from typing import Any
from uuid import uuid4

import penstock.pipeline as dj

schema = dj.Schema("crowd")
PAUSE = 0.0


@schema
class Number(dj.Manual):
    definition = """
    n : int
    """


@schema
class Effect(dj.Manual):
    definition = """
    # one row for each make() that committed
    effect_id : uuid
    ---
    n : int
    """


@schema
class Square(dj.Computed):
    definition = """
    -> Number
    ---
    square : int64
    """

    class Divisor(dj.Part):
        definition = """
        -> master
        divisor : int
        """

    def make(self, key: dict[str, Any]) -> None:
        n = (Number & key).fetch1("n")
        time.sleep(PAUSE)
        self.insert1({**key, "square": n * n})
        self.Divisor.insert({**key, "divisor": d} for d in (1, 2, 3) if n % d == 0)
        Effect.insert1({"effect_id": uuid4(), "n": n})


def main(verb: str, seconds: str) -> None:
    global PAUSE
    if verb == "sleeper":
        PAUSE = float(seconds)
        print("ready", flush=True)
        Square.populate(reserve_jobs=True)
        return
    deadline = time.monotonic() + float(seconds)
    print("ready", flush=True)
    while time.monotonic() < deadline:
        Square.populate(reserve_jobs=True, suppress_errors=True)
        if Square.progress()[0] == 0:
            return
        time.sleep(0.1)


if __name__ == "__main__":
    dj.config["jobs.lease_seconds"] = 4
    main(*sys.argv[1:])
