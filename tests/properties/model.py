"""What the rows must be, kept in plain Python: no SQL, no code of the engine. Written from DESIGN and the seeds."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

ENDED = ("succeeded", "failed", "canceled", "dead_letter")
LEASE = 30.0
INTERRUPTIONS = 2


@dataclass
class Work:
    """One job as it must be."""

    id: UUID
    key: str
    tenant: str
    queue: str
    priority: int
    params: dict[str, int]
    queued_at: datetime
    due: datetime
    max_attempts: int = 3
    status: str = "queued"
    waits: str | None = None
    position: int = 0
    slot: bool = False
    attempt: int = 0
    run: UUID | None = None
    lease: datetime | None = None
    asked_to_stop: bool = False
    crashes: int = 0
    interruptions: int = 0
    suspect: bool = False
    begun: bool = True
    dedupe: str | None = None
    group: UUID | None = None
    place_in_group: int | None = None
    root: UUID | None = None
    retry_of: UUID | None = None
    error: str | None = None
    has_run: bool = False

    @property
    def claimable(self) -> bool:
        return self.status == "queued" and self.waits is None

    @property
    def order(self) -> tuple[int, int, datetime, UUID]:
        return (self.priority, self.position, self.queued_at, self.id)


@dataclass
class Model:
    now: datetime
    jobs: dict[UUID, Work] = field(default_factory=dict)
    groups: dict[UUID, tuple[str, str]] = field(default_factory=dict)
    reserved: dict[str, datetime] = field(default_factory=dict)
    paused_queues: set[str] = field(default_factory=set)
    paused: set[str] = field(default_factory=set)
    limits: dict[str, int] = field(default_factory=dict)

    def limited(self, job: Work) -> bool:
        return job.key in self.limits or job.key in self.paused

    def next_place(self, tenant: str, priority: int) -> int:
        """DESIGN, "Position is fairness"."""
        at = [job for job in self.jobs.values() if job.claimable and job.priority == priority]
        largest = max((job.position for job in at if job.tenant == tenant), default=0)
        return max(largest, self.clock(priority) - 100) + 100

    def clock(self, priority: int) -> int:
        """The first place of anyone. A paused queue does not hold it, unless there is nothing else."""
        at = [job for job in self.jobs.values() if job.claimable and job.priority == priority]
        open_ = [job for job in at if job.queue not in self.paused_queues]
        return min((job.position for job in open_ or at), default=0)

    def resume_queue(self, queue: str) -> None:
        """What waited in it begins at the clock, in its order."""
        here = [job for job in self.jobs.values() if job.claimable and job.queue == queue]
        behind = {
            priority: self.clock(priority) - min(job.position for job in here if job.priority == priority)
            for priority in {job.priority for job in here}
        }
        for job in here:
            job.position += max(0, behind[job.priority])
        self.paused_queues.discard(queue)

    def add(self, job: Work, waits_for_group: bool = False) -> None:
        if waits_for_group:
            job.waits = "group"
        elif job.due > self.now:
            job.waits = "time"
        elif self.limited(job):
            job.waits = "limit"
        else:
            job.position = self.next_place(job.tenant, job.priority)
        self.jobs[job.id] = job

    def active_with(self, tenant: str, dedupe: str) -> Work | None:
        found = [j for j in self.jobs.values() if j.tenant == tenant and j.dedupe == dedupe and j.status not in ENDED]
        return found[0] if found else None

    def newly_claimable(self) -> set[UUID]:
        """What a claim lets through before it claims: what is due and free, and what gets a slot."""
        let = set()
        for job in self.jobs.values():
            if job.status == "queued" and job.waits == "time" and job.due <= self.now:
                if self.limited(job):
                    job.waits = "limit"
                else:
                    let.add(job.id)
        for key in {job.key for job in self.jobs.values() if job.waits == "limit"}:
            waiting = sorted(
                (j for j in self.jobs.values() if j.waits == "limit" and j.key == key),
                key=lambda j: (j.priority, j.queued_at, j.id),
            )
            if key in self.paused:
                continue
            free = len(waiting)
            if key in self.limits:
                holders = [j for j in self.jobs.values() if j.key == key and (j.status == "running" or j.slot)]
                free = self.limits[key] - len(holders)
            for job in waiting[: max(0, free)]:
                job.slot = key in self.limits
                let.add(job.id)
        for id in let:
            self.jobs[id].waits = None
        return let

    def claimable(self) -> list[Work]:
        closed = {tenant for tenant, until in self.reserved.items() if until > self.now}
        found = [
            job
            for job in self.jobs.values()
            if job.claimable and job.queue not in self.paused_queues and job.tenant not in closed
        ]
        return sorted(found, key=lambda job: job.order)

    def claim(self, job: Work, run: UUID) -> None:
        job.status, job.run, job.attempt, job.has_run, job.begun = "running", run, job.attempt + 1, True, True
        job.lease = self.now + timedelta(seconds=LEASE)

    def release(self, job: Work, suspect: bool = False) -> None:
        job.suspect = job.suspect or suspect
        job.status, job.attempt, job.run, job.lease = "queued", job.attempt - 1, None, None
        if job.key in self.paused or (job.key in self.limits and not job.slot):
            job.waits, job.slot = "limit", False

    def leaf(self, job: Work) -> Work:
        newer = [other for other in self.jobs.values() if other.retry_of == job.id]
        return self.leaf(newer[0]) if newer else job

    def end(self, job: Work, status: str, error: str | None = None) -> None:
        job.status, job.waits, job.slot, job.lease, job.error = status, None, False, None, error
        if job.group is not None:
            self.advance(job.group)

    def again(self, job: Work, wait: float, error: str, new_id: UUID | None) -> None:
        """Back to the queue, or in chain mode a new job that retries it."""
        job.slot, job.lease, job.error = False, None, error
        if new_id is None:
            job.status, job.waits, job.due, job.asked_to_stop = (
                "queued",
                "time",
                self.now + timedelta(seconds=wait),
                False,
            )
            return
        job.status = "failed"
        self.jobs[new_id] = Work(
            new_id, job.key, job.tenant, job.queue, job.priority, job.params, self.now,
            self.now + timedelta(seconds=wait), max_attempts=job.max_attempts, waits="time", attempt=job.attempt,
            crashes=job.crashes, interruptions=job.interruptions, suspect=job.suspect, dedupe=job.dedupe, group=job.group, place_in_group=job.place_in_group, root=job.root,
            retry_of=job.id,
        )  # fmt: skip

    def run_now(self, job: Work) -> None:
        if job.waits != "time":
            return
        job.due = min(job.due, self.now)
        if self.limited(job):
            job.waits = "limit"
            return
        job.position = self.next_place(job.tenant, job.priority)
        job.waits = None

    def reschedule(self, job: Work, due: datetime) -> None:
        if due > self.now:
            job.due, job.slot = due, False
            job.waits = "group" if job.waits == "group" else "time"
        elif job.waits == "group":
            job.due = min(job.due, self.now)
        else:
            self.run_now(job)

    def members(self, group: UUID) -> list[Work]:
        mine = [job for job in self.jobs.values() if job.group == group]
        retried = {job.retry_of for job in mine}
        return sorted((job for job in mine if job.id not in retried), key=lambda job: job.place_in_group or 0)

    def advance(self, group: UUID) -> None:
        mode, on_failure = self.groups[group]
        if mode == "parallel":
            return
        members = self.members(group)
        for index, member in enumerate(members):
            if member.status not in ENDED:
                if member.waits == "group":
                    member.waits = "time"
                return
            if member.status != "succeeded" and on_failure == "stop":
                for other in members[index + 1 :]:
                    if other.waits == "group":
                        other.status, other.waits, other.error = "canceled", None, "predecessor failed"
                return

    def can_retry(self, job: Work) -> bool:
        if job.status not in ("failed", "dead_letter", "canceled"):
            return False
        if any(other.retry_of == job.id for other in self.jobs.values()):
            return False
        if job.dedupe and self.active_with(job.tenant, job.dedupe):
            return False
        return not any(other.status == "running" for other in self.behind(job))

    def behind(self, job: Work) -> list[Work]:
        if job.group is None or self.groups[job.group][0] == "parallel":
            return []
        mine = [other for other in self.jobs.values() if other.group == job.group]
        return [other for other in mine if (other.place_in_group or 0) > (job.place_in_group or 0)]

    def retry(self, job: Work, new_id: UUID | None) -> None:
        waits = "time"
        for other in self.behind(job):
            if other.status == "canceled" and other.error == "predecessor failed" and other.attempt == 0:
                other.status, other.error = "queued", None
            if other.status == "queued":
                other.waits, other.slot = "group", False
        if job.group is not None and self.groups[job.group][0] == "sequential":
            before = [o for o in self.jobs.values() if o.group == job.group and o.place_in_group < job.place_in_group]  # type: ignore[operator]
            waits = "group" if any(other.status not in ENDED for other in before) else "time"
        job.max_attempts = max(job.max_attempts, job.attempt + 1)
        if new_id is not None:
            self.again(job, 0, job.error or "", new_id)
            job.status = "failed" if job.status == "failed" else job.status
            self.jobs[new_id].waits, self.jobs[new_id].crashes, self.jobs[new_id].interruptions = waits, 0, 0
            return
        job.status, job.waits, job.due, job.asked_to_stop = "queued", waits, self.now, False
        job.crashes = job.interruptions = 0
