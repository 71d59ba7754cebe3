"""What every verb of the queue stands on: the database, the settings, and what may be remembered of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from penstock.core.config import Config
from penstock.core.decide import Resolution
from penstock.core.errors import DefinitionArchived, InvalidInput, UnknownDefinition, UnknownTenant
from penstock.core.ids import DEFAULT_TENANT_ID
from penstock.core.nouns import Definition
from penstock.core.payload import Validator, compile_schema
from penstock.store import definitions, queues, tenants
from penstock.store.database import Database, Tx
from penstock.store.hot import Gate


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that has just moved, in the transaction that moved it: what webhooks are told of."""

    job_id: UUID
    tenant_id: UUID
    run_id: UUID | None
    resolution: Resolution | None
    group_id: UUID | None = None
    group_ended: bool = False


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
    _tenants: dict[str, UUID] = field(default_factory=lambda: {"default": DEFAULT_TENANT_ID})
    _definitions: dict[tuple[UUID, str], tuple[Definition, Validator]] = field(default_factory=dict)

    def tenant_id(self, slug: str, tx: Tx | None = None) -> UUID:
        if slug in self._tenants:
            return self._tenants[slug]
        if not isinstance(slug, str) or not slug.isprintable():
            raise UnknownTenant(str(slug))
        if tx is None:
            with self.db.read() as tx:
                found = tenants.by_slug(tx, slug)
        else:
            found = tenants.by_slug(tx, slug)
        if found is None:
            raise UnknownTenant(slug)
        self._tenants[slug] = found.id
        return found.id

    def require_queue(self, tx: Tx, name: str) -> None:
        """Raise unless the queue exists: jobs in a queue whose name was mistyped would wait forever."""
        if name in self.known_queues:
            return
        found = queues.names(tx)
        if name not in found:
            raise InvalidInput(
                f"There is no queue {name!r}. A queue is created by a definition that names it, by a worker that serves it, or by "
                "`penstock queues create`. Leave queue out to use the definition's."
            )
        if self.db.dialect.many_writers:  # elsewhere the caller's own transaction may have created it
            self.known_queues |= set(found)

    def remembered(self, tenant_id: UUID, key: str) -> tuple[Definition, Validator] | None:
        return self._definitions.get((tenant_id, key))

    def definition(self, tx: Tx, tenant_id: UUID, key: str, *, fresh: bool = False) -> tuple[Definition, Validator]:
        """What this tenant means by `key`, and the check of its params. What is remembered is checked again by the
        statement that writes the job, so it may be old, but never wrong."""
        remembered = self.remembered(tenant_id, key)
        if remembered is not None and not fresh:
            return remembered
        found = definitions.by_key(tx, tenant_id, key)
        if found is None:
            raise UnknownDefinition(key, [d.key for d in definitions.visible(tx, tenant_id)])
        if not found.is_active:
            raise DefinitionArchived(key)
        self._definitions[tenant_id, key] = found, self.validator_of(found)
        return self._definitions[tenant_id, key]

    def validator_of(self, definition: Definition) -> Validator:
        """The check of its params: by its schema, then by the command that runs it, where the commands file is known."""
        schema, command = compile_schema(definition.arg_schema), self.command_checks.get(definition.key)
        return schema if command is None else lambda params: schema(params) or command(params)

    def forget_definitions(self) -> None:
        self._definitions.clear()
