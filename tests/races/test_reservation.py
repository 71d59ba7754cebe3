"""A reservation against claims under way (P9): no claim commits inside an active reservation."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from penstock import Busy, Penstock, Succeeded
from penstock.store import failpoints
from penstock.store.database import Database
from tests.support.children import race, say, start, together
from tests.support.waiting import eventually


def pause_at(point: str, until: Path) -> None:
    """Say so when the point is reached, and go on once that file is there."""

    def reached() -> None:
        say(point)
        eventually(lambda: until.exists())

    failpoints.arm(point, reached)


def hold(url: str, go: Path, claimed: Path) -> None:
    with Penstock(url) as app:
        pause_at("reserve.after_insert", go)
        with app.reserve(wait=30, expires_in=60):
            eventually(lambda: claimed.exists())


def claim_some(url: str, limit: int) -> int:
    with Penstock(url) as app:
        say("claiming")
        return len(app.queue.claim("host:1", limit))


def claim_and_pause(url: str, limit: int, go: Path) -> int:
    with Penstock(url) as app:
        pause_at("commit.before", go)
        return len(app.queue.claim("host:1", limit))


def claims_inside_reservations(url: str) -> int:
    db = Database(url)
    with db.read() as tx:
        found = tx.scalar(
            text(
                "SELECT count(*) FROM (SELECT tenant_id, started_at FROM penstock_runs"
                "  UNION ALL SELECT tenant_id, started_at FROM penstock_running) r"
                " JOIN penstock_reservations v ON v.tenant_id = r.tenant_id"
                " WHERE r.started_at > v.reserved_at AND r.started_at < coalesce(v.ended_at, v.expires_at)"
            )
        )
    db.close()
    return int(found)


def test_a_claim_that_waits_for_a_reservation_being_made_sees_it(url: str, tmp_path: Path) -> None:
    with Penstock(url) as app:
        app.define("work")
        app.enqueue_many("work", [{}] * 10)
        # The reservation is written and pauses before its commit; the claim starts meanwhile and must wait for it.
        go, claimed = tmp_path / "go", tmp_path / "claimed"
        holder = start(hold, url, go, claimed)
        assert holder.said() == "reserve.after_insert"
        claimer = start(claim_some, url, 5)
        assert claimer.said() == "claiming"
        threading.Timer(0.5, go.touch).start()  # the claim has come to the lock by then, or it comes after the commit
        assert claimer.result() == 0
        claimed.touch()
        holder.result()
        assert len(app.queue.claim("host:1", 10)) == 10  # then the queue, unchanged
    assert claims_inside_reservations(url) == 0


def test_a_reservation_waits_for_a_claim_under_way(url: str, tmp_path: Path) -> None:
    with Penstock(url) as app:
        app.define("work")
        app.enqueue_many("work", [{}] * 3)
        claimer = start(claim_and_pause, url, 3, tmp_path / "go")
        assert claimer.said() == "commit.before"
        threading.Timer(0.5, (tmp_path / "go").touch).start()
        with pytest.raises(Busy), app.reserve(wait=0.2):
            pass
        assert claimer.result() == 3
    assert claims_inside_reservations(url) == 0


def claim_and_finish(url: str, seconds: float, number: int) -> int:
    until = time.monotonic() + seconds
    done = 0
    with Penstock(url) as app:
        while time.monotonic() < until:
            for claim in app.queue.claim(f"host:{number}", 2):
                app.queue.finish(claim, Succeeded())
                done += 1
            time.sleep(0.003)  # SQLite's one write lock is not handed out in turn
    return done


def reserve_often(url: str, seconds: float, number: int = 0) -> int:
    until = time.monotonic() + seconds
    held = 0
    with Penstock(url) as app:
        while time.monotonic() < until:
            try:
                with app.reserve(wait=2):
                    with app.db.read() as tx:
                        running = tx.scalar(text("SELECT count(*) FROM penstock_running"))
                    assert running == 0, "something of the tenant runs inside the reservation"
                    held += 1
            except Busy:
                pass
    return held


def test_reservations_and_claims_take_turns_under_load(url: str) -> None:
    with Penstock(url) as app:
        app.define("work")
        app.enqueue_many("work", [{}] * 3_000)
    *done, held = race(*((claim_and_finish, url, 2.0, n) for n in range(4)), (reserve_often, url, 2.0))
    assert held >= 1
    assert sum(done) > 0
    assert claims_inside_reservations(url) == 0
    with Penstock(url) as app:
        assert app.doctor().violations == ()


def reserve_until_the_others_tried(url: str, refused: Path, number: int) -> bool:
    with Penstock(url) as app:
        try:
            with app.reserve(wait=0, expires_in=600):
                eventually(lambda: len(list(refused.iterdir())) == 5, 30)
                return True
        except Busy:
            (refused / str(number)).touch()
            return False


def test_of_many_reservations_at_once_one_is_had(url: str, tmp_path: Path) -> None:
    refused = tmp_path / "refused"
    refused.mkdir()
    assert sum(together(6, reserve_until_the_others_tried, url, refused)) == 1
