"""The verbs as a program holds them, bound to one tenant. Each method is one line to the verb that does it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from penstock.core import check
from penstock.core.access import AuditEntry, Principal, Session
from penstock.core.audit_chain import Head, Verified
from penstock.core.caller import OWN
from penstock.core.check import UNSET, Unset
from penstock.core.clock import require_aware
from penstock.core.errors import LeaseLost
from penstock.core.masking import hidden_outcome, says_something
from penstock.core.nouns import Claim, Definition, Group, Job, Reservation, Run, Tenant, Why
from penstock.core.outcomes import Outcome
from penstock.core.redact import Redactor
from penstock.core.tenancy import Certificate, Deletion
from penstock.queue import (
    access,
    audit,
    cancel,
    claim,
    define,
    erase,
    group,
    observe,
    order,
    record,
    reserve,
    sign_in,
)
from penstock.queue.enqueue import Options
from penstock.queue.ground import Ground
from penstock.queue.observe import Summary
from penstock.queue.shown import ClaimSecrets, shown_jobs, shown_runs
from penstock.queue.why import why
from penstock.store.token_tree import Revoked

Id = UUID | str


@dataclass(frozen=True, slots=True)
class Door:
    ground: Ground
    tenant: str

    @property
    def tenant_id(self) -> UUID:
        return self.ground.tenant_id(self.tenant)


class Jobs(Door):
    """`app.jobs`: see and steer a tenant's jobs."""

    def get(self, id: Id) -> Job:
        return observe.get(self.ground, self.tenant_id, check.identifier("id", id))

    def list(
        self,
        status: str | Sequence[str] | None = None,
        source: str | None = None,
        limit: int = 50,
        offset: int = 0,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        *,
        before: Id | None = None,
        **narrowed: Any,
    ) -> list[Job]:
        """Newest first; `before` pages on from an id. Also narrowed by key, queue, correlation_id, group_id, search, …"""
        where = observe.filter_of(
            status,
            source=source,
            created_after=require_aware("created_after", created_after) if created_after else None,
            created_before=require_aware("created_before", created_before) if created_before else None,
            **narrowed,
        )
        cursor = check.identifier("before", before) if before else None
        return observe.listed(self.ground, self.tenant_id, where, limit, offset, cursor)

    def summary(self, cap: int | None = None) -> Summary:
        return observe.summary(self.ground, self.tenant_id, cap)

    def runs(self, id: Id) -> Sequence[Run]:
        return observe.runs(self.ground, self.tenant_id, check.identifier("id", id))

    def chain(self, id: Id) -> Sequence[Job]:
        return observe.chain(self.ground, self.tenant_id, check.identifier("id", id))

    def shown(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """These jobs as people may see them: secrets are masked in params, results, errors and progress."""
        return shown_jobs(self.ground, jobs)

    def shown_runs(self, runs: Sequence[Run]) -> Sequence[Run]:
        """These runs as people may see them."""
        return shown_runs(self.ground, runs)

    def why(self, id: Id) -> Why:
        return why(self.ground, self.tenant_id, check.identifier("id", id))

    def cancel(self, id: Id) -> Job:
        return cancel.cancel(self.ground, self.tenant_id, check.identifier("id", id))

    def retry(self, id: Id) -> Job:
        return cancel.retry(self.ground, self.tenant_id, check.identifier("id", id))

    def run_now(self, id: Id) -> Job:
        """Let a job that waits for its time or its backoff run now, at the end of its tenant's queue.

        It keeps its attempts, its dedupe key and its group. A job that is due already is returned as it is: `why(id)` says
        what it waits for. Raises IllegalTransition for one that waits for its turn in a group, runs or has ended.
        """
        return order.run_now(self.ground, self.tenant_id, check.identifier("id", id))

    def update(
        self,
        id: Id,
        params: Mapping[str, Any] | None = None,
        priority: int | None = None,
        scheduled_for: datetime | Unset | None = UNSET,
    ) -> Job:
        """Change a queued job: its params, its priority, or when it is due. `scheduled_for=None` and a time that has passed
        mean now."""
        return order.update(self.ground, self.tenant_id, check.identifier("id", id), params, priority, scheduled_for)

    def move(self, id: Id, *, before: Id | None = None, after: Id | None = None, to: str | None = None) -> Job:
        return order.move(
            self.ground,
            self.tenant_id,
            check.identifier("id", id),
            before=check.identifier("before", before) if before else None,
            after=check.identifier("after", after) if after else None,
            to=to,
        )

    def normalise(self, priority: int | None = None) -> int:
        return order.normalise(self.ground, self.tenant_id, priority)


def _nothing_to_define(_key: str, _connection: Any) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Groups(Door):
    """`app.groups`: jobs that belong together."""

    ensure_defined: Callable[[str, Any], None] = _nothing_to_define
    """Called with each key before it is looked up, so that a program's own functions are defined."""

    def create(
        self,
        jobs: Sequence[tuple[str, Mapping[str, Any]]],
        mode: str = "sequential",
        on_failure: str = "stop",
        *,
        label: str | None = None,
        connection: Any = OWN,
        **options: Any,
    ) -> Group:
        """Create the jobs given as pairs of a key and its params: all of them or none. With `connection`, in the caller's own
        transaction."""
        made = Options(**options)
        for key in sorted({key for key, _ in group.members_of(jobs)}):
            self.ensure_defined(key, connection)
        return group.create(self.ground, self.tenant_id, jobs, mode, on_failure, label, made, connection)

    def get(self, id: Id) -> Group:
        return group.get(self.ground, self.tenant_id, check.identifier("id", id))

    def list(self, limit: int = 50, offset: int = 0) -> list[Group]:
        return group.listed(self.ground, self.tenant_id, limit, offset)

    def cancel(self, id: Id) -> Group:
        return group.cancel(self.ground, self.tenant_id, check.identifier("id", id))


class Definitions(Door):
    """`app.definitions`: what this tenant may ask for."""

    def get(self, key: str) -> Definition:
        return define.get(self.ground, self.tenant_id, key)

    def list(self, archived: bool = False) -> list[Definition]:
        return define.listed(self.ground, self.tenant_id, archived)


@dataclass(frozen=True, slots=True)
class Tenants:
    """`app.tenants`: the walls between customers."""

    ground: Ground

    def create(
        self,
        slug: str,
        name: str | None = None,
        timezone: str = "UTC",
        weight: int = 1,
        max_running: int | None = None,
        *,
        quotas: Mapping[str, int | str | None] | None = None,
        min_priority: int | None = None,
        max_priority: int | None = None,
    ) -> Tenant:
        """Create a tenant. `quotas` are numbers by name, such as `{"queued_jobs": 5000, "tokens": "unlimited"}`."""
        return define.create_tenant(
            self.ground, slug, name, timezone, weight, max_running, quotas, min_priority, max_priority
        )

    def get(self, slug: str) -> Tenant:
        return define.tenant(self.ground, slug)

    def list(self) -> list[Tenant]:
        return define.every_tenant(self.ground)

    def update(self, slug: str, **values: Any) -> Tenant:
        """Change a tenant. Quotas that are not named stay as they are; "default" forgets what was set."""
        return define.update_tenant(self.ground, slug, **values)

    def delete(
        self,
        slug: str,
        *,
        requested_by: str = "python",
        timeout: float | None = None,
        progress: Callable[[Deletion], None] | None = None,
    ) -> Certificate:
        """Delete a tenant and everything of it, and return the certificate.

        The tenant is closed at once: it takes no jobs, its tokens and sessions end, its schedules stop. Runs under way are asked to
        stop, and have as long as their leases. Then all its rows are erased in batches. If this process dies, workers go on.
        Raises Busy if it takes longer than `timeout` seconds; call it again to go on waiting.
        """
        check.text("requested_by", requested_by)
        return erase.delete(self.ground, slug, requested_by, timeout, progress or erase.silent)


class Audit(Door):
    """`app.audit`: who did what, and the hash chain that shows whether somebody changed it.

    A bound app (`app.as_tenant("acme").audit`) sees one tenant; an unbound one sees every tenant and the operator.
    """

    def list(
        self,
        limit: int = 50,
        *,
        before: Id | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        **narrowed: str | None,
    ) -> list[AuditEntry]:
        """Newest first; `before` pages on from an id. Also narrowed by actor, action (`token.*`), subject_type, subject_id, address,
        request_id and text."""
        where = audit.filter_of(since, until, **narrowed)
        cursor = check.identifier("before", before) if before else None
        return audit.listed(self.ground, self._whose(), where, limit, cursor)

    def export(
        self, *, since: datetime | None = None, until: datetime | None = None, **narrowed: str | None
    ) -> Iterator[AuditEntry]:
        """Return every entry, oldest first, in bounded memory."""
        return audit.exported(self.ground, self._whose(), audit.filter_of(since, until, **narrowed))

    def head(self) -> Head:
        """Return the head of this tenant's chain; of an unbound app the operator's. Keep it elsewhere."""
        whose = self._whose()
        return audit.head(self.ground, whose, self.tenant if whose else None)

    def heads(self) -> Sequence[Head]:
        """Return the head of every chain that this app sees."""
        return audit.heads(self.ground) if self._whose() is None else [self.head()]

    def verify(self, heads: Sequence[Head] = ()) -> Verified:
        """Look for entries that were edited, removed, inserted or moved since they were sealed. With heads that were kept
        elsewhere, also for an end that was cut off and for a chain that was rewritten as a whole."""
        whose = self._whose()
        return audit.verify(self.ground, heads, None if whose is None else [whose])

    def seal(self) -> int:
        """Seal what was written since the last time. The service and the workers do so by themselves."""
        return audit.seal(self.ground)

    def _whose(self) -> UUID | None:
        return None if self.tenant == "default" else self.tenant_id


@dataclass(frozen=True, slots=True)
class Tokens:
    """`app.tokens`: who may use the API."""

    ground: Ground

    def create(
        self,
        role: str,
        label: str,
        tenant: str | None = None,
        *,
        expires_at: datetime | None = None,
        queues: Sequence[str] | None = None,
        scopes: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        addresses: Sequence[str] | None = None,
        parent: UUID | None = None,
    ) -> tuple[Principal, str]:
        """Create a token. Returns its principal and the token, which is shown this once. With `parent` it may no more than
        that one, and ends with it."""
        return access.create_token(
            self.ground, role, label, tenant, expires_at, queues, "python", scopes=scopes, keys=keys,
            addresses=addresses, parent=parent,
        )  # fmt: skip

    def get(self, id: UUID) -> Principal:
        return access.get_token(self.ground, id)[0]

    def list(self, tenant: str | None = None, limit: int = 1000) -> list[Principal]:
        """Newest first: everyone's, or one tenant's."""
        return access.list_tokens(self.ground, tenant, limit)

    def rotate(self, id: UUID, overlap_seconds: float = access.OVERLAP_SECONDS) -> tuple[Principal, str]:
        """Give a token a new secret. The old one is accepted for `overlap_seconds` more; 0 ends it at once."""
        return access.rotate_token(self.ground, id, overlap_seconds)

    def revoke(self, id: UUID) -> Revoked:
        """End a token, every token that came from it, and the sessions of all of them."""
        return access.revoke_token(self.ground, id)


@dataclass(frozen=True, slots=True)
class Sessions:
    """`app.sessions`: who is signed in to the page."""

    ground: Ground

    def list(self, principal_id: UUID | None = None, limit: int = 1000) -> list[Session]:
        """The one used last first: everyone's, or one principal's."""
        return sign_in.list_sessions(self.ground, principal_id, limit)

    def end(self, id: UUID) -> None:
        """End one session."""
        sign_in.end_session(self.ground, id)

    def end_all(self, principal_id: UUID) -> int:
        """End every session of a principal. Returns how many."""
        return sign_in.end_sessions(self.ground, principal_id)


@dataclass(frozen=True, slots=True)
class Queues:
    """`app.queues`: create, pause and resume."""

    ground: Ground

    def create(self, name: str) -> None:
        """Create a queue; nothing happens if it exists."""
        define.create_queues(self.ground, [name])

    def list(self) -> dict[str, bool]:
        """Every queue, and whether it is paused."""
        return define.queue_names(self.ground)

    def pause(self, name: str) -> None:
        define.pause_queue(self.ground, name, True)

    def resume(self, name: str) -> None:
        define.pause_queue(self.ground, name, False)


@dataclass(frozen=True, slots=True)
class Queue:
    """`app.queue`: what workers use."""

    ground: Ground

    def claim(
        self,
        worker: str,
        limit: int = 1,
        *,
        queues: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        lease_seconds: float | None = None,
    ) -> list[Claim]:
        return claim.claim(self.ground, worker, limit, queues=queues, keys=keys, lease_seconds=lease_seconds)

    def heartbeat(self, claims: Claim | Sequence[Claim], lease_seconds: float | None = None) -> list[Claim]:
        """Extend the leases; answers those asked to stop. Raises LeaseLost if any is no longer ours (the others are kept)."""
        held = [claims] if isinstance(claims, Claim) else list(claims)
        beats = claim.heartbeat(self.ground, held, lease_seconds)
        lost = [each.run_id for each in held if each.run_id not in beats.kept]
        if lost:
            raise LeaseLost(lost)
        return [each for each in held if each.run_id in beats.asked_to_stop]

    def finish(self, claim: Claim, outcome: Outcome) -> None:
        """Report how a run ended. What its error and output quote of the claim's secrets is masked."""
        record.finish(self.ground, claim, self._hidden(claim, outcome))

    def _hidden(self, claim: Claim, outcome: Outcome) -> Outcome:
        if not says_something(outcome):
            return outcome
        return hidden_outcome(outcome, Redactor(ClaimSecrets(self.ground)(claim)))

    def finish_many(self, reports: Sequence[tuple[Claim, Outcome]]) -> set[UUID]:
        """Answers the run ids that were no longer ours."""
        told = [record.report_of(each, self._hidden(each, outcome)) for each, outcome in reports]
        return record.finish_many(self.ground, told)

    def release(self, claims: Sequence[Claim]) -> int:
        return claim.release(self.ground, claims)


@contextmanager
def reserving(ground: Ground, tenant_id: UUID, wait: float, expires_in: float) -> Iterator[Reservation]:
    with reserve.reserve(ground, tenant_id, wait, expires_in) as held:
        yield held
