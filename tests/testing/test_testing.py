"""`penstock.testing`, used as its users use it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Context, ManualClock, Snooze
from penstock.core.status import JobStatus
from penstock.testing import PenstockTest


def test_what_is_due_runs_inline_and_in_order(penstock_app: PenstockTest) -> None:
    ran: list[int] = []

    @penstock_app.job(key="note")
    def note(i: int) -> int:
        ran.append(i)
        if i == 1:
            note.enqueue(i=9)
        return i * 10

    for i in (1, 2, 3):
        note.enqueue(i=i)
    assert [job.result for job in penstock_app.drain()] == [10, 20, 30, 90]
    assert ran == [1, 2, 3, 9]
    assert penstock_app.drain() == []


def test_time_moves_when_told_to(penstock_app: PenstockTest, penstock_clock: ManualClock) -> None:
    @penstock_app.job(key="flaky", max_attempts=2, retry_policy={"base": 60, "jitter": 0})
    def flaky(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ValueError("first time")
        return "well"

    job = flaky.enqueue()
    (failed,) = penstock_app.drain()
    assert (failed.status, failed.last_error) == (JobStatus.QUEUED, "ValueError: first time")
    penstock_clock.advance(seconds=59)
    assert penstock_app.drain() == []
    penstock_app.clock.advance(seconds=1)
    assert [each.result for each in penstock_app.drain()] == ["well"]
    assert penstock_app.jobs.get(job.id).attempt_no == 2


def test_assert_enqueued_finds_or_tells_what_there_is(penstock_app: PenstockTest) -> None:
    @penstock_app.job(key="mail")
    def mail(to: str, urgent: bool = False) -> None: ...

    job = mail.using(priority=10)(to="ada", urgent=True)
    assert penstock_app.assert_enqueued("mail", {"to": "ada"}).id == job.id
    assert penstock_app.assert_enqueued("mail", priority=10).id == job.id
    with pytest.raises(AssertionError, match=r"No 'mail' with \{'to': 'bob'\} is enqueued. What waits:\n  mail .*ada"):
        penstock_app.assert_enqueued("mail", {"to": "bob"})
    with pytest.raises(AssertionError, match="priority=5"):
        penstock_app.assert_enqueued("mail", {"to": "ada"}, priority=5)
    penstock_app.drain()
    with pytest.raises(AssertionError, match="nothing"):
        penstock_app.assert_enqueued("mail")


def test_a_job_that_snoozes_for_ever_does_not_hang_the_test(penstock_app: PenstockTest) -> None:
    @penstock_app.job(key="never")
    def never() -> None:
        raise Snooze(0)

    never.enqueue()
    assert len(penstock_app.drain(most=5)) == 5


def test_every_tenants_jobs_are_drained(penstock_app: PenstockTest) -> None:
    @penstock_app.job(key="who")
    def who(ctx: Context) -> str:
        return ctx.tenant

    penstock_app.tenants.create("acme")
    penstock_app.enqueue("who")
    penstock_app.enqueue("who", tenant="acme")
    assert sorted(str(job.result) for job in penstock_app.drain()) == ["acme", "default"]
    assert penstock_app.as_tenant("acme").jobs.summary().counts[JobStatus.SUCCEEDED] == 1


def test_the_effect_of_a_job_and_its_end_commit_together(penstock_app: PenstockTest) -> None:
    with penstock_app.db.write() as tx:
        tx.conn.exec_driver_sql("CREATE TABLE paid (id INTEGER)")

    @penstock_app.job(key="pay", max_attempts=1)
    def pay(ctx: Context, well: bool) -> None:
        with ctx.transaction() as conn:
            conn.exec_driver_sql("INSERT INTO paid VALUES (1)")
        if not well:
            raise ValueError("after the block")

    pay.enqueue(well=False)
    (failed,) = penstock_app.drain()
    assert failed.status is JobStatus.DEAD_LETTER
    pay.enqueue(well=True)
    (done,) = penstock_app.drain()
    assert done.status is JobStatus.SUCCEEDED
    with penstock_app.db.read() as tx:
        assert tx.conn.exec_driver_sql("SELECT count(*) FROM paid").scalar() == 1


def test_its_file_goes_with_it() -> None:
    with PenstockTest() as app:
        path = Path(str(app.db.url.database))
        assert path.exists()
    assert not path.parent.exists()


def test_the_plugin_costs_other_projects_nothing() -> None:
    heavy = "[name for name in ('sqlalchemy', 'alembic', 'pydantic', 'structlog') if name in sys.modules]"
    program = f"import sys, penstock.testing; print({heavy})"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"
