"""The HTTP worker against the real service, behind a proxy that misbehaves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import Penstock
from penstock.client import Client
from penstock.core.errors import DatabaseUnavailable
from penstock.core.redact import Redactor
from penstock.queue.access import create_token
from penstock.run.context import Context
from penstock.run.python import PythonRunner
from penstock.server import Settings, create_app
from penstock.worker import remote_services
from penstock.worker.remote import RemoteWorker
from tests.server.support import Loop, World, served
from tests.support.http_proxy import HTML, MALFORMED, PATIENCE, Proxy, instead, misbehaving, undelivered, unreachable
from tests.worker.conftest import ended, eventually

CLAIM, BEAT, COMPLETE, FAIL = "/jobs/claim", "/heartbeat", "/complete", "/fail"


class Site:
    """A service, a proxy before it, and workers that know the proxy alone."""

    def __init__(self, app: Penstock, proxy: Proxy, token: str) -> None:
        self.app, self.proxy, self.token = app, proxy, token
        self.runner = PythonRunner(Redactor())
        self.started: list[Any] = []
        """The job ids of every run that began."""
        self.stopped: list[str] = []
        """Why runs were told to stop."""
        self.let_go = threading.Event()

    def offer(self, key: str, work: Callable[[Context], Any], **options: Any) -> None:
        def noted(ctx: Context) -> Any:
            self.started.append(ctx.job_id)
            return work(ctx)

        self.app.define(key, runner="python", **options)
        self.runner.register(key, noted, "thread")

    def wait(self, ctx: Context) -> str:
        """A job that goes on until the test lets it go, or it is told to stop."""
        while not self.let_go.wait(0.01):
            if ctx.canceled():
                self.stopped.append(ctx._control.reason)
                return "stopped"
        return "done"

    @contextmanager
    def worker(self, **options: Any) -> Iterator[RemoteWorker]:
        given = {"concurrency": 4, "grace": 5.0, "wait": 0.2, **options}
        with Client(self.proxy.url, self.token) as client:
            made = RemoteWorker(client, [self.runner], **given)
            thread = threading.Thread(target=made.run, daemon=True)
            thread.start()
            try:
                yield made
            finally:
                self.let_go.set()
                self.proxy.mend()
                self.proxy.released.set()
                made.stop()
                thread.join(PATIENCE)
            assert not thread.is_alive()


@pytest.fixture
def site(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(remote_services, "BEAT_SECONDS", 0.1)
    loop = Loop()
    with Penstock(url) as app:
        world = World(app, create_app(app, Settings()), loop)
        _, token = create_token(app.ground, "worker", "the worker's", "default")
        with served(world) as address, misbehaving(address) as proxy:
            yield Site(app, proxy, token)
    loop.close()


@pytest.mark.parametrize("trouble", MALFORMED)
def test_no_answer_however_malformed_costs_a_job_anything(site: Site, trouble: str) -> None:
    """Every answer of every kind is spoiled at first, although the service has done what it was asked."""

    def keep(ctx: Context) -> str:
        for part in range(1_000_000):
            ctx.progress(part, None, "under way")
            if site.let_go.wait(0.02) or ctx.canceled():
                break
        return "kept"

    def break_(_ctx: Context) -> None:
        site.let_go.wait(PATIENCE)
        raise ValueError("no luck")

    site.offer("keep", keep, max_attempts=3)
    site.offer("break", break_, max_attempts=1)
    for ending, times in ((CLAIM, 1), (BEAT, 2), (COMPLETE, 1), (FAIL, 1)):
        site.proxy.trouble(ending, MALFORMED[trouble], times)
    good, bad = site.app.enqueue("keep"), site.app.enqueue("break")
    with site.worker():
        site.proxy.wait(BEAT, 5, delivered=True)
        eventually(lambda: (site.app.jobs.get(good.id).progress or {}).get("message") == "under way", PATIENCE)
        site.let_go.set()
        good, bad = ended(site.app, good, PATIENCE), ended(site.app, bad, PATIENCE)
    assert (good.status, good.result, good.attempt_no) == ("succeeded", "kept", 1)
    assert (bad.status, bad.attempt_no) == ("dead_letter", 1)
    assert "no luck" in str(bad.last_error)
    assert sorted(site.started) == sorted([good.id, bad.id])


def test_a_run_is_told_to_stop_when_the_service_cannot_be_reached(site: Site) -> None:
    site.offer("long", site.wait, max_attempts=3)
    job = site.app.enqueue("long")
    with site.worker(lease=2.0):
        eventually(lambda: site.started, PATIENCE)
        for ending in (CLAIM, BEAT, COMPLETE, FAIL):
            site.proxy.trouble(ending, unreachable)
        eventually(lambda: site.stopped, PATIENCE, "the order to stop")
        assert "could not be renewed" in site.stopped[0]
        site.proxy.mend()  # then the worker goes on as if nothing had been
        eventually(lambda: len(site.started) >= 2, PATIENCE, "the second attempt")
        site.let_go.set()
        assert ended(site.app, job, PATIENCE).status == "succeeded"


@pytest.mark.parametrize("trouble", ["unreachable", "502", "503"])
def test_an_outcome_is_reported_when_the_service_comes_back(site: Site, trouble: str) -> None:
    site.offer("short", lambda _ctx: "done")
    site.offer("broken", lambda _ctx: 1 / 0, max_attempts=1)
    kinds = {"unreachable": unreachable, "502": undelivered(502, HTML), "503": undelivered(503, b"{}")}
    for ending in (COMPLETE, FAIL):
        site.proxy.trouble(ending, kinds[trouble])
    good, bad = site.app.enqueue("short"), site.app.enqueue("broken")
    with site.worker():
        site.proxy.wait(COMPLETE, 5)  # more often than the client alone tries
        site.proxy.wait(FAIL, 5)
        assert site.app.jobs.get(good.id).status == site.app.jobs.get(bad.id).status == "running"
        site.proxy.mend()
        good, bad = ended(site.app, good, PATIENCE), ended(site.app, bad, PATIENCE)
    assert (good.status, good.result, bad.status) == ("succeeded", "done", "dead_letter")
    assert sorted(site.started) == sorted([good.id, bad.id])


@pytest.mark.parametrize("how", ["hang", "drip"])
def test_an_answer_that_does_not_come_starves_nobody(site: Site, how: str) -> None:
    """One heartbeat and one report are never answered, nor is a byte late enough to be a timeout of the connection."""
    site.offer("long", site.wait)
    site.offer("short", lambda _ctx: "done")
    long, first = site.app.enqueue("long"), site.app.enqueue("short")
    site.proxy.trouble(BEAT, getattr(site.proxy, how), times=1)
    site.proxy.trouble(COMPLETE, getattr(site.proxy, how), times=1)
    with site.worker(lease=8.0):
        site.proxy.wait(COMPLETE, 1)
        second = site.app.enqueue("short")
        assert ended(site.app, second, PATIENCE).status == "succeeded"
        site.proxy.wait(BEAT, 5, delivered=True)
        assert not site.proxy.released.is_set()
        assert not site.stopped
        assert site.app.jobs.get(long.id).status == "running"
        assert ended(site.app, first, PATIENCE).status == "succeeded"
        site.let_go.set()
        assert ended(site.app, long, PATIENCE).result == "done"
    assert len(site.started) == 3


def test_a_hundred_leases_are_renewed_in_one_request(site: Site) -> None:
    site.offer("long", site.wait)
    jobs = site.app.enqueue_many("long", [{}] * 100)
    with site.worker(concurrency=100):
        eventually(lambda: len(site.started) == 100, PATIENCE)
        before = {id: site.app.jobs.get(id).lease_expires_at for id in jobs}
        after = len(site.proxy.requests(BEAT))
        site.proxy.wait(BEAT, after + 2, delivered=True)
        beats = site.proxy.requests(BEAT, delivered=True)[after:]
        assert {len(beat.body["runs"]) for beat in beats} == {100}
        assert all(site.app.jobs.get(id).lease_expires_at > until for id, until in before.items())  # type: ignore[operator]
        site.app.jobs.cancel(jobs[0])
        eventually(lambda: site.stopped, PATIENCE, "the order to stop")
        assert ended(site.app, site.app.jobs.get(jobs[0]), PATIENCE).status == "canceled"


def test_a_run_that_passed_on_is_stopped_and_its_neighbours_go_on(site: Site) -> None:
    site.offer("long", site.wait, max_attempts=1)
    lost, kept = site.app.enqueue("long"), site.app.enqueue("long")
    with site.worker():
        eventually(lambda: len(site.started) == 2, PATIENCE)
        [run] = site.app.jobs.runs(lost.id)
        site.app.ground.db.transact(lambda tx: close_as_another(site, tx, lost.id, run.id))
        eventually(lambda: site.stopped, PATIENCE, "the order to stop")
        assert "lease was lost" in site.stopped[0]
        site.proxy.wait(BEAT, len(site.proxy.requests(BEAT)) + 2, delivered=True)
        assert len(site.stopped) == 1
        site.let_go.set()
        assert ended(site.app, kept, PATIENCE).status == "succeeded"
    assert site.app.jobs.get(lost.id).status == "dead_letter"
    assert not [each for each in site.proxy.requests(COMPLETE) + site.proxy.requests(FAIL) if str(lost.id) in each.path]


def close_as_another(site: Site, tx: Any, job_id: Any, run_id: Any) -> None:
    from penstock.core.outcomes import Failed
    from penstock.queue.record import Report, close_in

    assert not close_in(site.app.ground, tx, [Report(job_id, run_id, Failed("recovered by another"))])


def test_work_whose_result_cannot_be_stored_is_done(site: Site) -> None:
    site.offer("surrogate", lambda _ctx: {"text": "\ud800"}, max_attempts=3)
    site.offer("large", lambda _ctx: "x" * 3_000_000, max_attempts=3)
    jobs = [site.app.enqueue("surrogate"), site.app.enqueue("large")]
    with site.worker():
        found = [ended(site.app, job, PATIENCE) for job in jobs]
    assert [(job.status, job.result, job.attempt_no) for job in found] == [("succeeded", None, 1)] * 2
    for job in found:
        [run] = site.app.jobs.runs(job.id)
        assert "result" in (run.stderr_tail or "")


def test_progress_that_the_service_refuses_costs_no_lease(site: Site) -> None:
    def odd(ctx: Context) -> str:
        ctx._control.report_progress(-1, None, "less than nothing")
        ctx._control.report_tails("x" * 250_000, "\x01" * 250_000)
        return site.wait(ctx)

    site.offer("odd", odd)
    jobs = [site.app.enqueue("odd") for _ in range(3)]
    with site.worker():
        eventually(lambda: len(site.started) == 3, PATIENCE)
        for job in jobs:
            first = site.app.jobs.get(job.id).lease_expires_at
            eventually(lambda: site.app.jobs.get(job.id).lease_expires_at > first, PATIENCE)  # type: ignore[operator]  # noqa: B023
        assert not site.stopped


def test_a_claim_that_comes_while_stopping_goes_back_untouched(site: Site) -> None:
    site.offer("short", lambda _ctx: "done")
    site.proxy.trouble(CLAIM, site.proxy.hang)
    job = site.app.enqueue("short")
    with site.worker() as worker:
        site.proxy.wait(CLAIM, 1, delivered=True)
        assert site.app.jobs.get(job.id).status == "running"
        worker.stop()
        site.proxy.released.set()
    found = site.app.jobs.get(job.id)
    assert (found.status, found.attempt_no, site.started) == ("queued", 0, [])


def test_shutdown_goes_on_reporting_what_has_ended(site: Site) -> None:
    site.offer("short", lambda _ctx: "done")
    site.proxy.trouble(COMPLETE, instead(503, b"", retry_after="1"), times=3)
    job = site.app.enqueue("short")
    with site.worker() as worker:
        site.proxy.wait(COMPLETE, 1)
        worker.stop()
    assert site.app.jobs.get(job.id).status == "succeeded"


def test_shutdown_stops_what_goes_on_and_reports_it(site: Site) -> None:
    site.offer("long", site.wait, max_attempts=2)
    job = site.app.enqueue("long")
    with site.worker(grace=0.1) as worker:
        eventually(lambda: site.started, PATIENCE)
        worker.stop()
        eventually(lambda: site.stopped, PATIENCE, "the order to stop")
    assert "shut down" in site.stopped[0]
    assert site.app.jobs.get(job.id).status == "queued"


def test_a_database_that_is_away_costs_the_job_no_attempt(site: Site) -> None:
    def work(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise DatabaseUnavailable("The database does not answer.")
        return ctx.attempt

    site.offer("work", work, max_attempts=1, retry_policy={"base": 0.01})
    with site.worker():
        assert ended(site.app, site.app.enqueue("work"), 60).result == 2
