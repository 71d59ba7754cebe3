"""Keys are replaced under a running fleet, by one rotation or two, killed and resumed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Failed, KeyRing, ManualClock, Penstock, Succeeded
from penstock.core.errors import InvalidInput
from penstock.core.status import JobStatus
from penstock.store import claims
from tests.encryption.support import K1, K2, OTHER_K1, dump
from tests.encryption.test_at_rest import SECRET, check_views, live
from tests.support import children

BOTH = f"{K2},{K1}"


def used(app: Penstock) -> dict[str, int]:
    return {key.id: key.values for key in app.keys.list().keys}


def rotate(url: str) -> int:
    with Penstock(url, keys=KeyRing.parse(BOTH)) as app:
        return app.keys.rotate().sealed


def fill(app: Penstock, number: int = 450) -> None:
    app.define("work", max_attempts=3)
    app.enqueue_many("work", [{"n": f"{SECRET}-{n}"} for n in range(number)])


def test_everything_is_encrypted_with_the_first_key_then(url: str, clock: ManualClock) -> None:
    with Penstock(url, clock=clock) as plain:
        plain.define("work", max_attempts=3)
        job_id, signing = live(plain)
        plain.queue.finish_many([(each, Failed("crash recovery: no")) for each in plain.queue.claim("w:1", 5)])
    assert SECRET.encode() in dump(url)
    with Penstock(url, clock=clock, keys=KeyRing.parse(K1)) as app:
        in_clear = sum(app.keys.list().in_clear.values())
        told: list[Any] = []
        done = app.keys.rotate(told.append, scrub=True)
        assert done.sealed == in_clear > 10
        assert not done.unreadable
        assert not done.after.in_clear
        assert told[-1].sealed == told[-1].total == in_clear
        found = dump(url)  # of SQLite every byte of the file and its log
        assert SECRET.encode() not in found
        assert signing.encode() not in found
        check_views(app, job_id, signing)
        assert app.keys.rotate().sealed == 0
    with Penstock(url, clock=clock, keys=KeyRing.parse(BOTH)) as app:
        done = app.keys.rotate()
        assert done.sealed == in_clear
        assert done.after.unused == ("k1",)
    with Penstock(url, clock=clock, keys=KeyRing.parse(K2)) as app:
        check_views(app, job_id, signing)
        assert used(app) == {"k2": in_clear}
        assert app.doctor().clean


def test_what_an_open_run_has_said_so_far_is_rotated_and_goes_with_it(url: str, clock: ManualClock) -> None:
    said = {"message": f"{SECRET}-progress"}
    with Penstock(url, clock=clock) as plain:
        plain.define("work")
        plain.enqueue("work")
        (held,) = plain.queue.claim("host:1", 1)
        with plain.db.write() as tx:
            assert claims.report_progress(tx, held.job_id, held.run_id, said)
            assert claims.report_tails(tx, held.job_id, held.run_id, f"{SECRET}-out", f"{SECRET}-err")
    for keys in (K1, BOTH):
        with Penstock(url, clock=clock, keys=KeyRing.parse(keys)) as app:
            found = app.keys.list()
            (before,) = {found.in_clear["running.progress"]} if keys == K1 else {found.keys[1].values // 3}
            assert before == 1
            assert app.keys.rotate(scrub=True).sealed == 3
            assert SECRET.encode() not in dump(url)
            (run,) = app.jobs.runs(held.job_id)
            assert (run.stdout_tail, run.stderr_tail) == (f"{SECRET}-out", f"{SECRET}-err")
            assert app.jobs.get(held.job_id).progress == said
    with Penstock(url, clock=clock, keys=KeyRing.parse(K2)) as app:
        app.queue.finish(held, Succeeded())
        (run,) = app.jobs.runs(held.job_id)
        assert (run.status, run.stdout_tail, run.stderr_tail) == ("succeeded", f"{SECRET}-out", f"{SECRET}-err")
        assert app.jobs.get(held.job_id).progress == said
        assert used(app) == {"k2": 3}
        assert SECRET.encode() not in dump(url)


def test_a_rotation_that_is_killed_is_resumed(url: str) -> None:
    with Penstock(url, keys=KeyRing.parse(K1)) as app:
        fill(app)
    killed = children.start(rotate, url, failpoints="rotate.after_update=exit:0:2")
    assert killed.killed()
    with Penstock(url, keys=KeyRing.parse(BOTH)) as app:
        half = used(app)
        assert half == {"k2": 200, "k1": 250}
        done = app.keys.rotate()
        assert done.sealed == 250
        assert used(app) == {"k2": 450, "k1": 0}
        assert {job.params["n"] for job in app.jobs.list(limit=500)} == {f"{SECRET}-{n}" for n in range(450)}
        assert app.doctor().clean


def test_two_rotations_at_once_are_as_one(url: str) -> None:
    with Penstock(url, keys=KeyRing.parse(K1)) as app:
        fill(app)
    assert sum(children.race((rotate, url), (rotate, url))) >= 450
    with Penstock(url, keys=KeyRing.parse(BOTH)) as app:
        assert used(app) == {"k2": 450, "k1": 0}
        assert {job.params["n"] for job in app.jobs.list(limit=500)} == {f"{SECRET}-{n}" for n in range(450)}


def drain(url: str, ring: str) -> int:
    """Work until nothing is left, as a worker whose ring has the old key first would. Returns how many jobs were done."""
    done = 0
    with Penstock(url, keys=KeyRing.parse(ring)) as app:
        while app.jobs.summary().counts[JobStatus.QUEUED]:
            held = app.queue.claim("worker:1", 7)  # those that the rotation holds at this moment are passed over
            assert all(each.params["n"].startswith(SECRET) for each in held)
            assert app.queue.finish_many([(each, Succeeded({"was": each.params["n"]})) for each in held]) == set()
            done += len(held)
    return done


def test_a_worker_with_the_old_key_first_works_on_during_a_rotation(url: str) -> None:
    with Penstock(url, keys=KeyRing.parse(K1)) as app:
        fill(app, 300)
    sealed, done = children.race((rotate, url), (drain, url, f"{K1},{K2}"))
    assert done == 300
    assert sealed >= 1
    with Penstock(url, keys=KeyRing.parse(BOTH)) as app:
        app.keys.rotate()
        assert used(app) == {"k2": 600, "k1": 0}
        assert {job.result["was"] for job in app.jobs.list(limit=500)} == {f"{SECRET}-{n}" for n in range(300)}
        assert app.doctor().clean


def test_a_worker_that_lacks_the_new_key_gives_jobs_back(url: str, clock: ManualClock) -> None:
    with Penstock(url, clock=clock, keys=KeyRing.parse(BOTH)) as app:
        app.define("work", max_attempts=1)
        job = app.enqueue("work", {"n": SECRET})
        with Penstock(url, clock=clock, keys=KeyRing.parse(K1)) as old:
            for _ in range(5):
                assert old.queue.claim("old:1", 5) == []
                clock.advance(601)
        assert [each.job_id for each in app.queue.claim("new:1", 5)] == [job.id]
        assert len(app.jobs.runs(job.id)) == 6


def test_what_cannot_be_read_is_left_and_told(url: str, clock: ManualClock) -> None:
    with Penstock(url, clock=clock, keys=KeyRing.parse(OTHER_K1)) as app:
        app.define("work")
        app.enqueue("work", {"n": 1})
    with Penstock(url, clock=clock, keys=KeyRing.parse(BOTH)) as app:
        app.enqueue("work", {"n": 2})
        done = app.keys.rotate()
        assert done.unreadable == {"encrypted with another key that is also called k1": 1}
        assert [(key.id, key.role, key.values) for key in done.after.keys] == [
            ("k2", "writes", 1), ("k1", "reads", 0), ("k1", "missing", 1),
        ]  # fmt: skip


def test_without_keys_there_is_nothing_to_rotate(url: str, clock: ManualClock) -> None:
    with Penstock(url, clock=clock) as app, pytest.raises(InvalidInput, match="no keys"):
        app.keys.rotate()


def test_by_the_command_line(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from penstock.cli import app as program

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as ended:
            program(list(arguments))
        assert ended.value.code == 0
        return capsys.readouterr().out

    generated = run("keys", "generate", "--id", "k7").strip()
    assert generated.startswith("k7:")
    with Penstock(url) as app:
        fill(app, 3)
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", url)
    assert "3 values: jobs.params 3" in run("keys", "list")
    assert "Encryption at rest is off" in run("doctor")
    monkeypatch.setenv("PENSTOCK_KEYS", f"{generated},{K1}")
    assert "stored in clear" in run("doctor")
    said = run("keys", "rotate")
    assert "3 values were encrypted with the first key." in said
    assert "may be removed from the ring: k1" in said
    assert json.loads(run("keys", "list", "--json")) == {
        "keys": [{"id": "k7", "role": "writes", "values": 3}, {"id": "k1", "role": "reads", "values": 0}],
        "in_clear": {},
        "unused": ["k1"],
    }
