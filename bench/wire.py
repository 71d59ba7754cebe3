"""Our own use of libpq's pipeline beside psycopg's public one, in turns, in one process: `python -m bench.wire`.

Each turn claims a batch and closes it through the product, as a worker does. The processor's time of the caller decides: the
server does the same work for both. See docs/decisions/0013-our-own-pipeline.md.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tests.support.postgres import Server

from penstock import Penstock
from penstock.core.outcomes import Succeeded
from penstock.queue.claim import claim_ready, make_ready
from penstock.queue.ground import Ground
from penstock.queue.record import finish_many, report_of
from penstock.store.database import Database
from penstock.store.postgresql import wire
from penstock.store.postgresql.transaction import NAMED
from penstock.store.schema import upgrade


class Turn(NamedTuple):
    jobs: int
    wall: float
    processor: float


class PublicStatement:
    """A statement as psycopg takes it: text with `%(name)s`, and the values by name."""

    def __init__(self, sql: str, params: Mapping[str, Any], binary: bool = False) -> None:
        self.sql, self.params, self.binary = sql, params, binary
        self._ready: tuple[str, dict[str, str | None]] | None = None

    def ready(self) -> tuple[str, dict[str, str | None]]:
        if self._ready is None:
            text, names = _named(self.sql)
            values = {name: wire._encoded(self.params[name]) for name in names}
            self._ready = text, {name: None if value is None else value.decode() for name, value in values.items()}
        return self._ready


@lru_cache(maxsize=256)
def _named(sql: str) -> tuple[str, tuple[str, ...]]:
    names = tuple(dict.fromkeys(NAMED.findall(sql)))
    return NAMED.sub(r"%(\1)s", sql.replace("%", "%%")), names


def ask_publicly(borrowed: Any, statements: Sequence[Any], *, begin: bool) -> list[Any]:
    connection = borrowed.dbapi_connection
    ready = [each.ready() for each in statements]
    connection.autocommit = not begin  # then the server commits what comes together
    try:
        with connection.pipeline():
            cursors = [connection.cursor(binary=each.binary) for each in statements]
            for cursor, (text, given) in zip(cursors, ready, strict=True):
                cursor.execute(text, given, prepare=True)
        return [cursor.pgresult for cursor in cursors]
    finally:
        if not begin:
            connection.autocommit = False


WAYS: dict[str, Any] = {"own": (wire.ask, wire.Statement), "public": (ask_publicly, PublicStatement)}


def turn(ground: Ground, batch: int) -> Turn:
    began, used = time.perf_counter(), time.thread_time()
    claims = claim_ready(ground, make_ready(ground, "bench", batch, starting=8)).claims()
    finish_many(ground, [report_of(claim, Succeeded()) for claim in claims], "bench")
    return Turn(len(claims), time.perf_counter() - began, time.thread_time() - used)


def compare(app: Penstock, batch: int, turns: int) -> None:
    found: dict[str, list[Turn]] = {name: [] for name in WAYS}
    for number in range(2 * turns + 4):
        name = tuple(WAYS)[number % 2]
        wire.ask, wire.Statement = WAYS[name]
        found[name].append(turn(app.ground, batch))
    for name, all_turns in found.items():
        kept = all_turns[2:]
        processor = 1e6 * statistics.median(each.processor for each in kept)
        wall = 1e6 * statistics.median(each.wall for each in kept)
        jobs = sum(each.jobs for each in kept)
        sys.stdout.write(
            f"batch {batch:4} {name:7} {jobs:6} jobs, a turn: processor {processor:6.0f} µs, wall {wall:7.0f} µs\n"
        )


def main() -> None:
    server = Server().start()
    try:
        url = server.url(server.create_database())
        db = Database(url)
        upgrade(db)
        db.close()
        with Penstock(url) as app:
            app.define("noop", runner="python")
            for batch, turns in ((1, 150), (8, 120), (100, 60), (500, 16)):
                for _ in range(2 * turns + 4):
                    app.enqueue_many("noop", [{}] * batch)
                compare(app, batch, turns)
            compare(app, 8, 300)  # nothing is left to claim
    finally:
        server.remove()


if __name__ == "__main__":
    main()
