"""One authenticated request: who asks, for which tenant, and how what they change is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast
from uuid import UUID

from fastapi.responses import JSONResponse
from pydantic import BaseModel

from penstock.app import Penstock
from penstock.core.access import Principal, Role
from penstock.core.errors import NotFound, PenstockError
from penstock.core.nouns import Job
from penstock.core.outside import preparing
from penstock.core.quota import FREE
from penstock.core.wire import jobs as jobs_wire
from penstock.queue import doors
from penstock.queue.ground import Ground
from penstock.queue.shown import MarksOf, marks_for
from penstock.server.problems import Problem
from penstock.server.settings import Settings
from penstock.server.threads import Threads
from penstock.store import audit, idempotency, lookups
from penstock.store.database import Tx
from penstock.store.unit import Borrowed

A = TypeVar("A", bound=BaseModel)
T = TypeVar("T")
_CALLERS_OWN = object()


@dataclass(frozen=True, slots=True)
class Unit:
    """A change under way: the verbs of `ground`, the audit and the idempotency key share one transaction."""

    call: Call
    tx: Tx
    ground: Ground

    @property
    def tenant_id(self) -> UUID:
        return self.call.tenant_id

    def audit(
        self,
        action: str,
        subject_type: str,
        subject_id: object,
        before: Any = None,
        after: Any = None,
        tenant_id: Any = _CALLERS_OWN,
    ) -> None:
        """Write down what changed."""
        whose = self.call.tenant_id if tenant_id is _CALLERS_OWN else tenant_id
        if whose is not None and self.call.principal.tenant_id is None and not lookups.existing(self.tx, {whose}):
            raise NotFound("tenant", whose)  # it was deleted since the request began
        audit.write(
            self.tx, whose, self.call.principal.actor, action, subject_type,
            None if subject_id is None else str(subject_id)[:500], _plain(before), _plain(after), self.call.request_id,
            self.call.address,
        )  # fmt: skip

    def show(self, job: Job) -> jobs_wire.Job:
        """The job as people may see it."""
        return jobs_wire.Job.of(job, self.marks(job.definition_id)[job.definition_id])

    def marks(self, *definition_ids: UUID | None) -> MarksOf:
        """What marks params as secret, of these definitions."""
        return marks_for(self.tx, definition_ids)

    def jobs(self) -> doors.Jobs:
        return doors.Jobs(self.ground, self.call.tenant)

    def groups(self) -> doors.Groups:
        return doors.Groups(self.ground, self.call.tenant)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


@dataclass(frozen=True, slots=True)
class Call:
    """One authenticated request. The tenant comes from the principal; only a super admin names one."""

    penstock: Penstock
    settings: Settings
    principal: Principal
    tenant: str
    tenant_id: UUID
    request_id: str
    by_session: bool = False
    idempotency_key: str | None = None
    request_hash: str = ""
    trace: Mapping[str, str] | None = None
    address: str | None = None
    threads: Threads | None = None

    async def on_thread(self, work: Callable[[], T]) -> T:
        """Call `work` on one of the API's threads, in the tenant's share of them."""
        assert self.threads is not None
        return await self.threads.run(self.tenant_id, work)

    @property
    def ground(self) -> Ground:
        return self.penstock.ground

    @property
    def bound_ground(self) -> Ground:
        """The ground, with the quotas and priorities that bind this caller where the operator has set none."""
        bounds = self.settings.default_bounds(self.principal.role is Role.SUPER_ADMIN, self.tenant_id)
        return self.ground if bounds is FREE else replace(self.ground, default_bounds=bounds)

    def show(self, job: Job) -> jobs_wire.Job:
        """The job as people may see it."""
        return jobs_wire.Job.of(job, self.marks(job.definition_id)[job.definition_id])

    def marks(self, *definition_ids: UUID | None) -> MarksOf:
        """What marks params as secret, of these definitions."""
        with self.read() as tx:
            return marks_for(tx, definition_ids)

    def jobs(self) -> doors.Jobs:
        return doors.Jobs(self.ground, self.tenant)

    def groups(self) -> doors.Groups:
        return doors.Groups(self.ground, self.tenant)

    def read(self) -> AbstractContextManager[Tx]:
        return self.ground.db.read()

    def change(
        self,
        work: Callable[[Unit], A],
        *,
        status: int = 200,
        hide: frozenset[str] = frozenset(),
        retry_disconnects: bool = False,
        prepare: Callable[[], object] | None = None,
    ) -> A:
        """Do `work` in one transaction with its audit. Sent again with the same Idempotency-Key, it answers what it
        answered, but for the fields to `hide`, which are not kept.

        `prepare` computes what takes long, before the transaction: see `core.outside`."""

        def attempt(tx: Tx) -> A:
            if self.idempotency_key is not None:
                known = idempotency.take(tx, self.tenant_id, self._stored_key(), self.request_hash)
                if known is not None:
                    return cast(A, self._again(known))  # FastAPI sends a response as it is
            ground = replace(self.bound_ground, db=Borrowed(self.ground.db, tx))
            answer = work(Unit(self, tx, ground))
            if self.idempotency_key is not None:
                body = answer.model_dump(mode="json")
                kept = {name: None if name in hide else value for name, value in body.items()}
                idempotency.remember(tx, self.tenant_id, self._stored_key(), status, kept)
            return answer

        with preparing():
            if prepare is not None:
                try:
                    prepare()
                except PenstockError:
                    if self.idempotency_key is None:
                        raise
                    # Sent again it has an answer already; if not, `work` raises this once more.
            return self.ground.db.transact(attempt, retry_disconnects=retry_disconnects)

    def _stored_key(self) -> str:
        return f"{self.principal.id}:{self.idempotency_key}"

    def _again(self, known: idempotency.Remembered) -> JSONResponse:
        if known.request_hash != self.request_hash:
            raise Problem(
                422,
                "idempotency_key_reused",
                "This Idempotency-Key was used for another request. Use a new key for new work.",
            )
        return JSONResponse(known.body, known.status or 200, {"idempotency-replayed": "true"})
