"""A machine that drives the engine at random beside the model, and compares the two after every step."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock import (
    Busy,
    Canceled,
    Claim,
    Failed,
    IllegalTransition,
    InvalidInput,
    LeaseLost,
    ManualClock,
    Penstock,
    Skipped,
    Snoozed,
    Succeeded,
    TimedOut,
)  # fmt: skip
from penstock.core.outcomes import Outcome
from penstock.queue import reserve as reserving
from penstock.queue.claim import claim_ready, make_ready
from penstock.store.doctor import CHECKS
from penstock.store.tables import job_view, ready, running, waiting
from penstock.store.types import UtcTime
from tests.properties.model import ENDED, INTERRUPTIONS, LEASE, Model, Work

KEYS = ("plain", "chain", "narrow")
OUTCOMES: list[Outcome] = [
    Succeeded(1),
    Failed("no"),
    Failed("no", delay=5),
    Failed("no", fatal=True),
    TimedOut(),
    Canceled("stopped"),
    Canceled("shutdown", by_shutdown=True),
    Failed("outside", blameless=True),
    Skipped("nothing"),
    Snoozed(7),
]
BACKOFF = {attempt: min(3600.0, 10.0 * 2 ** (attempt - 1)) for attempt in range(1, 60)}
index = st.integers(0, 30)


def is_interruption(outcome: Outcome) -> bool:
    return (isinstance(outcome, Canceled) and outcome.by_shutdown) or (
        isinstance(outcome, Failed) and outcome.blameless
    )


# doctor()'s queries in one statement, because they run after each of many thousand steps. A lease or a reservation that
# ended long ago, with nobody to recover it, is the one thing that they may report between two steps. No worker is there to
# keep a timeout, or to say what it has in hand.
UNRECOVERED = ("running past its lease", "active reservation past its expiry")
OF_WORKERS = ("running for longer than its timeout", "lease that ends later", "worker that holds")
EVERY_CHECK = sa.text(
    "SELECT "
    + ", ".join(
        f"(SELECT count(*) FROM ({check.sql}) AS q{number})"
        for number, check in enumerate(CHECKS)
        if not check.name.startswith((*UNRECOVERED, *OF_WORKERS))
    )
).bindparams(sa.bindparam("now", type_=UtcTime()), sa.bindparam("overdue", type_=UtcTime()))


class Machine(RuleBasedStateMachine):
    """Subclasses say on which database, by `fresh_app`."""

    def fresh_app(self, clock: ManualClock) -> Penstock:
        raise NotImplementedError

    @initialize()
    def start(self) -> None:
        self.clock = ManualClock()
        self.app = self.fresh_app(self.clock)
        self.app.tenants.create("acme")
        policy = {"base": 10, "factor": 2, "jitter": 0}
        self.app.queues.create("side")
        self.app.define("plain", retry_policy=policy)
        self.app.define("chain", retry_mode="chain", retry_policy=policy)
        self.app.define("narrow", max_running=2, retry_policy=policy)
        self.model = Model(self.clock.now(), limits={"narrow": 2})
        self.held: list[Claim] = []
        self.reservations: list[tuple[str, Any]] = []
        self.numbers = 0

    # Asking.

    @rule(
        key=st.sampled_from(KEYS), acme=st.booleans(), priority=st.sampled_from([100, 100, 5]),
        delay=st.sampled_from([0, 0, 20]), dedupe=st.sampled_from([None, None, "a", "b"]),
        queue=st.sampled_from(["default", "default", "side"]),
    )  # fmt: skip
    def enqueue(self, key: str, acme: bool, priority: int, delay: int, dedupe: str | None, queue: str) -> None:
        tenant = "acme" if acme and key != "narrow" else "default"
        params = self.next_params()
        known = self.model.active_with(tenant, dedupe) if dedupe else None
        job = self.app.enqueue(
            key, params, tenant=tenant, priority=priority, delay=delay, dedupe_key=dedupe, queue=queue
        )
        if known is not None:
            assert job.id == known.id
            return
        now = self.model.now
        due = now + timedelta(seconds=delay)
        self.model.add(Work(job.id, key, tenant, queue, priority, params, now, due, dedupe=dedupe, root=job.id))

    @rule(key=st.sampled_from(KEYS), many=st.integers(1, 4), delay=st.sampled_from([0, 0, 15]))
    def enqueue_many(self, key: str, many: int, delay: int) -> None:
        params = [self.next_params() for _ in range(many)]
        now = self.model.now
        due = now + timedelta(seconds=delay)
        for id, given in zip(self.app.enqueue_many(key, params, delay=delay), params, strict=True):
            self.model.add(Work(id, key, "default", "default", 100, given, now, due, root=id))

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3), mode=st.sampled_from(["sequential", "parallel"]),
        on_failure=st.sampled_from(["stop", "continue", "skip"]),
    )  # fmt: skip
    def group(self, keys: list[str], mode: str, on_failure: str) -> None:
        params = [self.next_params() for _ in keys]
        made = self.app.groups.create(list(zip(keys, params, strict=True)), mode=mode, on_failure=on_failure)
        self.model.groups[made.id] = (mode, on_failure)
        for number, (job, key, given) in enumerate(zip(made.jobs, keys, params, strict=True), start=1):
            work = Work(
                job.id, key, "default", "default", 100, given, self.model.now, self.model.now, root=job.id,
                group=made.id, place_in_group=number,
            )  # fmt: skip
            self.model.add(work, waits_for_group=mode == "sequential" and number > 1)

    def next_params(self) -> dict[str, int]:
        self.numbers += 1
        return {"n": self.numbers}

    # Working.

    @rule(limit=st.integers(1, 4))
    def claim(self, limit: int) -> None:
        expected = self.model.newly_claimable()
        assert self.app.queue.claim("host:1", 0) == []  # lets through what is due or has a slot, and claims nothing
        self.take_places(expected)
        first = self.model.claimable()[:limit]
        taken = self.app.queue.claim("host:1", limit)
        assert [each.job_id for each in taken] == [job.id for job in first]
        for each, job in zip(taken, first, strict=True):
            self.model.claim(job, each.run_id)
            assert (each.attempt_no, each.params) == (job.attempt, job.params)
        self.held += taken

    @rule(limit=st.integers(1, 4), starting=st.integers(0, 3))
    def claim_ahead(self, limit: int, starting: int) -> None:
        """Claim as a worker does: some begin at once, the others wait in its buffer. The batch ends with the first suspect."""
        expected = self.model.newly_claimable()
        assert self.app.queue.claim("host:1", 0) == []
        self.take_places(expected)
        first = self.model.claimable()[:limit]
        suspects = [number for number, job in enumerate(first, 1) if job.suspect]
        first = first[: suspects[0]] if suspects else first
        taken = claim_ready(self.app.ground, make_ready(self.app.ground, "host:1", limit, starting=starting)).claims()
        assert [(each.job_id, bool(each.suspicion)) for each in taken] == [(job.id, job.suspect) for job in first]
        for number, (each, job) in enumerate(zip(taken, first, strict=True), 1):
            self.model.claim(job, each.run_id)
            job.begun = number <= starting and not job.suspect
        self.held += taken

    def take_places(self, expected: set[UUID]) -> None:
        """Their places are the engine's choice, as long as each is behind all that its tenant had waiting."""
        if not expected:
            return
        stored = {id: row for id, row in self.rows().items() if id in expected}
        before = [job for job in self.model.jobs.values() if job.claimable and job.id not in expected]
        for id in expected:
            job = self.model.jobs[id]
            job.position = stored[id].position
            lane = [o.position for o in before if (o.tenant, o.priority) == (job.tenant, job.priority)]
            assert job.position > max(lane, default=0)

    @precondition(lambda self: self.held)
    @rule(which=index)
    def heartbeat(self, which: int) -> None:
        claim = self.held[which % len(self.held)]
        job = self.model.jobs[claim.job_id]
        if self.is_ours(claim):
            asked = self.app.queue.heartbeat(claim)
            assert asked == ([claim] if job.asked_to_stop else [])
            job.lease = self.model.now + timedelta(seconds=LEASE)
            job.begun = True
        else:
            self.refused(LeaseLost, lambda: self.app.queue.heartbeat(claim))

    def is_ours(self, claim: Claim) -> bool:
        job = self.model.jobs[claim.job_id]
        return job.status == "running" and job.run == claim.run_id

    def refused(self, kind: type[Exception], call: Any) -> None:
        try:
            call()
        except kind:
            return
        raise AssertionError(f"expected {kind.__name__}")

    @precondition(lambda self: self.held)
    @rule(which=index, outcome=st.sampled_from(OUTCOMES))
    def finish(self, which: int, outcome: Outcome) -> None:
        claim = self.held[which % len(self.held)]
        if not self.is_ours(claim):
            self.refused(LeaseLost, lambda: self.app.queue.finish(claim, outcome))
            return
        self.app.queue.finish(claim, outcome)
        self.model_end(self.model.jobs[claim.job_id], outcome)

    def model_end(self, job: Work, outcome: Outcome) -> None:
        asked, crashed = job.asked_to_stop, isinstance(outcome, Failed) and outcome.crashed
        if not asked and is_interruption(outcome) and job.interruptions < INTERRUPTIONS:
            job.interruptions += 1
            job.max_attempts += 1
            self.again(job, 0 if isinstance(outcome, Canceled) else BACKOFF[job.interruptions])
            return
        job.crashes = job.crashes + 1 if crashed else 0
        job.suspect = crashed
        match outcome:
            case Succeeded() | Skipped():
                self.model.end(job, "succeeded")
            case _ if asked:
                self.model.end(job, "canceled")
            case Canceled(by_shutdown=False):
                self.model.end(job, "canceled")
            case Failed(fatal=True):
                self.model.end(job, "dead_letter", "no")
            case Failed(crashed=True) if job.crashes >= 3:
                self.model.end(job, "dead_letter", "poison")
            case Snoozed(seconds):
                job.max_attempts += 1
                self.again(job, seconds)
            case _ if job.attempt >= job.max_attempts:
                self.model.end(job, "dead_letter", "no")
            case Canceled():
                self.again(job, 0)
            case Failed(delay=delay) if delay is not None:
                self.again(job, delay)
            case _:
                self.again(job, BACKOFF[job.attempt])

    def again(self, job: Work, wait: float) -> None:
        self.model.again(job, wait, "no", self.retry_of(job) if job.key == "chain" else None)

    def retry_of(self, job: Work) -> UUID:
        (found,) = [row.id for row in self.rows().values() if row.retry_of == job.id]
        assert isinstance(found, UUID)
        return found

    @rule(limit=st.integers(1, 3), outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=3, max_size=3))
    def work(self, limit: int, outcomes: list[Outcome]) -> None:
        """Claim and finish at once, in one batch: what a worker does most of the time."""
        before = len(self.held)
        self.claim(limit)
        reports = list(zip(self.held[before:], outcomes, strict=False))
        assert self.app.queue.finish_many(reports) == set()
        for claim, outcome in reports:
            self.model_end(self.model.jobs[claim.job_id], outcome)

    @precondition(lambda self: self.held)
    @rule(which=index)
    def release(self, which: int) -> None:
        claim = self.held[which % len(self.held)]
        ours = self.is_ours(claim)
        assert self.app.queue.release([claim]) == int(ours)
        if ours:
            self.model.release(self.model.jobs[claim.job_id])

    # Time and crashes.

    @rule(seconds=st.sampled_from([0.5, 5, 12, 31, 100]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.model.now = self.clock.now()

    @precondition(lambda self: any(job.status == "running" for job in self.model.jobs.values()))
    @rule()
    def every_worker_dies(self) -> None:
        """Nobody sends a heartbeat any more; what they held is only known to the database."""
        self.clock.advance(LEASE + 1)
        self.model.now = self.clock.now()
        self.recover()

    @rule()
    def recover(self) -> None:
        over = [j for j in self.model.jobs.values() if j.lease is not None and j.lease <= self.model.now]
        waited = [j for j in over if not (j.begun or j.key == "chain" or j.attempt >= j.max_attempts)]
        back = [j for j in waited if not j.asked_to_stop]
        found = self.app.recover()
        assert (found.abandoned, found.given_back) == (len(over) - len(back), len(back))
        assert found.total == len(over) + self.expired_reservations()
        for job in sorted(over, key=lambda job: job.id):
            if job in back:
                self.model.release(job, suspect=True)
                continue
            if job in waited:
                self.model_end(job, Canceled("canceled on request"))
                continue
            self.model_end(job, Failed("crash", crashed=True, delay=0))
            leaf = self.model.leaf(job)
            if leaf.waits == "time" and leaf.status == "queued":
                leaf.due = self.rows()[leaf.id].scheduled_for
                assert self.model.now <= leaf.due <= self.model.now + timedelta(seconds=1)
        assert self.app.recover().total == 0

    def expired_reservations(self) -> int:
        over = [tenant for tenant, until in self.model.reserved.items() if until <= self.model.now]
        for tenant in over:
            del self.model.reserved[tenant]
        return len(over)

    # Steering.

    def some_job(self, which: int) -> Work:
        return list(self.model.jobs.values())[which % len(self.model.jobs)]

    @precondition(lambda self: self.model.jobs)
    @rule(which=index)
    def cancel(self, which: int) -> None:
        job = self.some_job(which)
        tenant = self.app.as_tenant(job.tenant)
        if job.status in ENDED:
            self.refused(IllegalTransition, lambda: tenant.jobs.cancel(job.id))
            return
        tenant.jobs.cancel(job.id)
        if job.status == "running":
            job.asked_to_stop = True
        else:
            self.model.end(job, "canceled", "canceled on request")

    @precondition(lambda self: self.model.jobs)
    @rule(which=index)
    def retry(self, which: int) -> None:
        job = self.some_job(which)
        tenant = self.app.as_tenant(job.tenant)
        if not self.model.can_retry(job):
            self.refused(IllegalTransition, lambda: tenant.jobs.retry(job.id))
            return
        chained = job.key == "chain" and job.has_run and job.run is not None
        made = tenant.jobs.retry(job.id)
        assert (made.id != job.id) == chained
        status = job.status
        self.model.retry(job, made.id if chained else None)
        if chained:
            job.status = status

    @precondition(lambda self: self.model.jobs)
    @rule(which=index, priority=st.sampled_from([5, 100, 7]))
    def update(self, which: int, priority: int) -> None:
        job = self.some_job(which)
        tenant = self.app.as_tenant(job.tenant)
        params = self.next_params()
        if job.status != "queued":
            self.refused(IllegalTransition, lambda: tenant.jobs.update(job.id, params=params, priority=priority))
            return
        tenant.jobs.update(job.id, params=params, priority=priority)
        if priority != job.priority:
            if job.claimable:
                job.position = self.model.next_place(job.tenant, priority)
            job.priority = priority
        job.params = params

    @precondition(lambda self: self.model.jobs)
    @rule(which=index)
    def run_now(self, which: int) -> None:
        job = self.some_job(which)
        tenant = self.app.as_tenant(job.tenant)
        if job.status != "queued" or job.waits == "group":
            self.refused(IllegalTransition, lambda: tenant.jobs.run_now(job.id))
            return
        tenant.jobs.run_now(job.id)
        self.model.run_now(job)

    @precondition(lambda self: self.model.jobs)
    @rule(which=index, seconds=st.sampled_from([-60, 0, 45, 600]))
    def reschedule(self, which: int, seconds: int) -> None:
        job = self.some_job(which)
        tenant = self.app.as_tenant(job.tenant)
        due = self.model.now + timedelta(seconds=seconds)
        if job.status != "queued":
            self.refused(IllegalTransition, lambda: tenant.jobs.update(job.id, scheduled_for=due))
            return
        tenant.jobs.update(job.id, scheduled_for=due)
        self.model.reschedule(job, due)

    @precondition(lambda self: self.model.jobs)
    @rule(which=index, other=index, how=st.sampled_from(["before", "after", "top", "bottom"]))
    def move(self, which: int, other: int, how: str) -> None:
        job, target = self.some_job(which), self.some_job(other)
        tenant = self.app.as_tenant(job.tenant)
        edge = how in ("top", "bottom")
        aim: dict[str, Any] = {"to": how} if edge else {how: target.id}
        if job.status != "queued" or (not edge and target.tenant == job.tenant and target.status != "queued"):
            kinds: Any = (IllegalTransition, InvalidInput)
            self.refused(kinds, lambda: tenant.jobs.move(job.id, **aim))
            return
        if not job.claimable or (not edge and (target.tenant != job.tenant or not target.claimable)):
            self.refused(Exception, lambda: tenant.jobs.move(job.id, **aim))
            return
        lane = [o for o in self.model.jobs.values() if o.claimable and o.tenant == job.tenant and o is not job]
        priority = job.priority if edge else target.priority
        wanted = sorted((o for o in lane if o.priority == priority), key=lambda o: o.order)
        tenant.jobs.move(job.id, **aim)
        if target is job and not edge:
            return
        at = {"top": 0, "bottom": len(wanted)}.get(how)
        if at is None:
            at = wanted.index(target) + (how == "after")
        wanted.insert(at, job)
        stored = self.rows()
        job.priority = priority
        for each in wanted:
            each.position = stored[each.id].position
        if len(wanted) > 1:
            assert sorted(wanted, key=lambda o: o.order) == wanted

    # Holding back.

    @rule(acme=st.booleans())
    def reserve(self, acme: bool) -> None:
        tenant = "acme" if acme else "default"
        busy = self.model.reserved.get(tenant, self.model.now) > self.model.now
        running = any(job.status == "running" and job.tenant == tenant for job in self.model.jobs.values())
        tenant_id = self.app.ground.tenant_id(tenant)
        if busy or running:
            self.refused(Busy, lambda: reserving.take(self.app.ground, tenant_id, 0, 50))
            if not busy:
                self.model.reserved.pop(tenant, None)  # one that was over is ended by whoever comes next
            return
        held = reserving.take(self.app.ground, tenant_id, 0, 50)
        self.model.reserved[tenant] = held.expires_at
        self.reservations.append((tenant, held))

    @precondition(lambda self: self.reservations)
    @rule()
    def end_reservation(self) -> None:
        tenant, held = self.reservations.pop()
        ended = reserving.release(self.app.ground, held.id)
        known = self.model.reserved.get(tenant) == held.expires_at
        assert ended == (known and held.expires_at > self.model.now)  # one whose time was over has ended by itself
        if known:
            del self.model.reserved[tenant]

    @rule()
    def pause_or_resume_a_queue(self) -> None:
        if "side" in self.model.paused_queues:
            self.app.queues.resume("side")
            self.model.resume_queue("side")
        else:
            self.app.queues.pause("side")
            self.model.paused_queues.add("side")

    @rule(key=st.sampled_from(KEYS))
    def pause_or_resume_a_definition(self, key: str) -> None:
        if key in self.model.paused:
            self.app.resume(key)
            self.model.paused.remove(key)
            return
        self.app.pause(key)
        self.model.paused.add(key)
        for job in self.model.jobs.values():
            if job.claimable and job.key == key:
                job.waits, job.slot = "limit", False

    # What must hold after every step.

    def rows(self) -> dict[UUID, Any]:
        """Every job as it is shown."""
        with self.app.db.read() as tx:
            return {row.id: row for row in tx.rows(sa.select(job_view))}

    def carried(self) -> dict[UUID, tuple[Any, ...]]:
        """What only the engine needs of a job that has not ended: whether it holds a slot, its crashes and interruptions, suspicion."""
        found: dict[UUID, tuple[Any, ...]] = {}
        with self.app.db.read() as tx:
            for table in (waiting, ready, running):
                slot = table.c.slot if "slot" in table.c else sa.false()
                names = (table.c.crashes, table.c.interruptions, table.c.suspect)
                for row in tx.rows(sa.select(table.c.job_id, slot, *names)):
                    assert row.job_id not in found, f"job {row.job_id} is in two tables"
                    found[row.job_id] = (bool(row[1]), *tuple(row)[2:])
        return found

    @invariant()
    def the_rows_are_the_models(self) -> None:
        if not hasattr(self, "model"):
            return
        stored = {
            id: (
                row.status, row.waits_for, row.attempt_no, row.max_attempts, row.priority, row.params, row.retry_of,
                row.root_id, row.scheduled_for if row.waits_for == "time" else None,
                row.position if row.status == "queued" and row.waits_for is None else None,
                row.run_id if row.status == "running" else None,
            )
            for id, row in self.rows().items()
        }  # fmt: skip
        expected = {
            job.id: (
                job.status, job.waits, job.attempt, job.max_attempts, job.priority, job.params, job.retry_of, job.root,
                job.due if job.waits == "time" else None, job.position if job.claimable else None,
                job.run if job.status == "running" else None,
            )
            for job in self.model.jobs.values()
        }  # fmt: skip
        assert stored == expected
        assert self.carried() == {
            job.id: (job.slot, job.crashes, job.interruptions, job.suspect)
            for job in self.model.jobs.values()
            if job.status in ("queued", "running")
        }

    @invariant()
    def the_doctor_finds_nothing(self) -> None:
        if not hasattr(self, "model"):
            return
        with self.app.db.read() as tx:
            now = tx.time()
            overdue = now - timedelta(seconds=self.app.config.grace_seconds)
            counts = tx.first(EVERY_CHECK, {"now": now, "overdue": overdue})
        assert not any(counts), self.app.doctor().violations

    def teardown(self) -> None:
        if hasattr(self, "app"):
            self.app.recover()
            self.clock.advance(0)
            health = self.app.doctor()
            assert health.clean, health.violations
