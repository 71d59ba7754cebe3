"""What every verb of the queue stands on: the database, the settings, and what may be remembered of both."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from penstock.core.config import Config
from penstock.core.decide import Resolution
from penstock.core.errors import DefinitionArchived, InvalidInput, UnknownDefinition, UnknownTenant
from penstock.core.ids import DEFAULT_TENANT_ID
from penstock.core.marks import NO_MARKS, Marks, marks_of_schema
from penstock.core.nouns import Definition
from penstock.core.payload import Validator, compile_schema
from penstock.core.quota import FREE, Bounds
from penstock.store import definitions, queues, quotas, tenants
from penstock.store.database import Database, Tx
from penstock.store.hot import Gate

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has just moved, in the transaction that moved it: what webhooks are told of."""

    job_id: UUID
    tenant_id: UUID
    run_id: UUID | None
    resolution: Resolution | None
    group_id: UUID | None = None
    group_ended: bool = False


@dataclass(frozen=True, slots=True)
class Queued:
    """How many jobs of a tenant were queued at a time, and how many this process has added since."""

    counted: int
    at: float
    added: int


Outbox = Callable[[Tx, Sequence[Ended]], None]


def _no_outbox(_tx: Tx, _ended: Sequence[Ended]) -> None:
    return None


@dataclass(slots=True)
class Ground:
    db: Database
    config: Config = field(default_factory=Config)
    outbox: Outbox = _no_outbox
    """Called with what ended for tenants that have webhooks, inside the transaction that ended it."""
    known_queues: set[str] = field(default_factory=lambda: {"default"})
    """Queues that are known to be committed."""
    command_checks: dict[str, Validator] = field(default_factory=dict)
    """What the commands file says of params, by key, where one is known in this process."""
    gate: Gate | None = None
    """What the last claim saw. The next one may expect the same; its statement looks again."""
    default_bounds: Bounds = FREE
    """What binds a tenant where the operator has set nothing: the service's defaults, on the ground of its requests."""
    queued: dict[UUID, Queued] = field(default_factory=dict)
    """How full the queues of tenants were that have a quota of queued jobs, when we last looked."""
    _bounds: dict[UUID, tuple[float, Bounds]] = field(default_factory=dict)
    _tenants: dict[str, UUID] = field(default_factory=lambda: {"default": DEFAULT_TENANT_ID})
    _looked_up: dict[str, float] = field(default_factory=dict)
    _definitions: dict[tuple[UUID, str], tuple[Definition, Validator]] = field(default_factory=dict)

    def tenant_id(self, slug: str, tx: Tx | None = None) -> UUID:
        known = self.known_tenant(slug)
        if known is not None:
            return known
        if not isinstance(slug, str) or not slug.isprintable():
            raise UnknownTenant(str(slug))
        found = self._read(tx, lambda reading: tenants.by_slug(reading, slug))
        if found is None:
            raise UnknownTenant(slug)
        self._tenants[slug] = found.id
        self._looked_up[slug] = time.monotonic()
        return found.id

    def bounds(self, tenant_id: UUID, tx: Tx | None = None) -> Bounds:
        """What binds this tenant; `FREE` if nothing does. What is set is remembered for `cache_seconds`."""
        until, own = self._bounds.get(tenant_id, (0.0, FREE))
        if until < time.monotonic():
            own = self._own_bounds(tenant_id, tx)
            self._bounds[tenant_id] = time.monotonic() + self.config.cache_seconds, own
        return own if self.default_bounds is FREE else own.over(self.default_bounds)

    def known_bounds(self, tenant_id: UUID) -> Bounds | None:
        """What is set for this tenant, if it was read a moment ago: what an event loop may ask."""
        until, own = self._bounds.get(tenant_id, (0.0, FREE))
        return None if until < time.monotonic() else own

    def _own_bounds(self, tenant_id: UUID, tx: Tx | None) -> Bounds:
        return self._read(tx, lambda reading: quotas.bounds(reading, tenant_id))

    def forget_bounds(self) -> None:
        self._bounds.clear()
        self.queued.clear()

    def known_tenant(self, slug: str) -> UUID | None:
        """Return the tenant's id if it was looked up a moment ago. On an engine that is not ours it is remembered for longer: there we
        do not open a transaction beside the caller's."""
        known = self._tenants.get(slug)
        if known is None or known == DEFAULT_TENANT_ID or not self.db.owns_engine:
            return known
        return known if time.monotonic() - self._looked_up.get(slug, 0.0) < self.config.cache_seconds else None

    def forget_tenant(self, slug: str) -> None:
        """Look the tenant up again: it was deleted, and another one may have its slug."""
        self._tenants.pop(slug, None)
        self._tenants.setdefault("default", DEFAULT_TENANT_ID)
        self._definitions.clear()

    def require_queue(self, tx: Tx | None, name: str) -> None:
        """Raise unless the queue exists: jobs in a queue whose name was mistyped would wait forever."""
        if name in self.known_queues:
            return
        found = self._read(tx, queues.names)
        if name not in found:
            raise InvalidInput(
                f"There is no queue {name!r}. A queue is created by a definition that names it, by a worker that serves it, or by "
                "`penstock queues create`. Leave queue out to use the definition's."
            )
        if self.db.dialect.many_writers:  # elsewhere the caller's own transaction may have created it
            self.known_queues |= set(found)

    def remembered(self, tenant_id: UUID, key: str) -> tuple[Definition, Validator] | None:
        return self._definitions.get((tenant_id, key))

    def definition(
        self, tx: Tx | None, tenant_id: UUID, key: str, *, fresh: bool = False
    ) -> tuple[Definition, Validator]:
        """What this tenant means by `key`, and the check of its params. What is remembered is checked again by the
        statement that writes the job, so it may be old, but never wrong. Without `tx` it is looked up by a short read, and its
        schema compiled after that."""
        remembered = self.remembered(tenant_id, key)
        if remembered is not None and not fresh:
            return remembered
        self.forget_definition(tenant_id, key)
        found = self._read(tx, lambda reading: definitions.by_key(reading, tenant_id, key))
        if found is None:
            known_keys = self._read(tx, lambda reading: [d.key for d in definitions.visible(reading, tenant_id)])
            raise UnknownDefinition(key, known_keys)
        if not found.is_active:
            raise DefinitionArchived(key)
        known = self._definitions[tenant_id, key] = found, self.validator_of(found)
        return known

    def _read(self, tx: Tx | None, work: Callable[[Tx], T]) -> T:
        """Read in the transaction that is open, or in one of its own."""
        return self.db.look(work) if tx is None else work(tx)

    def marks(self, tenant_id: UUID, key: str) -> Marks:
        """What the definition's schema marks as secret, as it is remembered: for a job that was just written by it."""
        remembered = self.remembered(tenant_id, key)
        return NO_MARKS if remembered is None else marks_of_schema(remembered[0].arg_schema)

    def validator_of(self, definition: Definition) -> Validator:
        """The check of its params: by its schema, then by the command that runs it, where the commands file is known."""
        schema, command = compile_schema(definition.arg_schema), self.command_checks.get(definition.key)
        return schema if command is None else lambda params: schema(params) or command(params)

    def forget_definition(self, tenant_id: UUID, key: str) -> None:
        self._definitions.pop((tenant_id, key), None)

    def forget_definitions(self) -> None:
        self._definitions.clear()
