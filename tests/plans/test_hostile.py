"""F31: whatever plan PostgreSQL is made to choose, a claim takes no more than asked, and in order."""

from __future__ import annotations

import itertools

import pytest

from penstock import Penstock
from tests.support.postgres import Server

WAYS = ("nestloop", "hashjoin", "mergejoin", "indexscan", "bitmapscan", "seqscan", "material", "sort")


@pytest.mark.parametrize("backend", ["postgresql"])
def test_a_claim_under_hostile_plans(url: str, postgres: Server) -> None:
    database = url.rpartition("/")[2]
    with Penstock(url) as app:
        app.define("work")
        app.define("rare", queue="other")
        ids = app.enqueue_many("work", [{}] * 500) + app.enqueue_many("rare", [{}] * 5)
    expected = iter(ids[:500])
    for off in itertools.chain(((way,) for way in WAYS), itertools.islice(itertools.combinations(WAYS, 3), 0, None, 5)):
        for way in WAYS:
            postgres.execute(f"ALTER DATABASE {database} SET enable_{way} = {'off' if way in off else 'on'}")
        with Penstock(url) as app:
            claims = app.queue.claim("w:1", 5, queues=["default"])
            assert [claim.job_id for claim in claims] == list(itertools.islice(expected, 5)), off
            assert len(app.queue.claim("w:1", 1, queues=["default", "other"])) <= 1
            next(expected)
