"""Definitions kept in git: say how they shall be, see the difference, write it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from penstock.core.decide import RetryPolicy
from penstock.core.errors import InvalidInput
from penstock.core.marks import marks_of_schema
from penstock.core.masking import hidden_params
from penstock.core.nouns import Definition
from penstock.core.outside import Missing
from penstock.core.redact import redact_schema
from penstock.core.wire.definitions import Action, Applied, ApplyDefinitions, DefinitionDiff, FieldChange
from penstock.queue import define
from penstock.queue.ground import Ground
from penstock.store import catalogue, definitions
from penstock.store.database import Tx


class DryRun(Exception):
    """Carries the difference out of a transaction that must not be committed."""

    def __init__(self, applied: Applied) -> None:
        super().__init__("dry run")
        self.applied = applied


def apply_definitions(ground: Ground, tx: Tx, wanted: ApplyDefinitions) -> Applied:
    """Make the definitions what is wanted, in the transaction under way. Idempotent.

    A dry run does all of it inside a savepoint that is rolled back, so that it finds what a real run would."""
    keys = [(each.tenant, each.key) for each in wanted.definitions]
    if len(set(keys)) != len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidInput(f"The definition {twice[1]!r} is given twice.")
    try:
        with tx.conn.begin_nested():
            done = Applied(dry_run=wanted.dry_run, items=_apply(ground, tx, wanted))
            if wanted.dry_run:
                raise DryRun(done)
            return done
    except DryRun as dry:
        ground.forget_definitions()
        return dry.applied


def _apply(ground: Ground, tx: Tx, wanted: ApplyDefinitions) -> list[DefinitionDiff]:
    found = []
    kept: dict[str | None, set[str]] = {}
    missing = Missing()
    for each in wanted.definitions:
        owner = _owner(ground, tx, each.tenant)
        kept.setdefault(each.tenant, set()).add(each.key)
        with missing.gathering():
            before = definitions.owned(tx, owner, each.key)
            after = define.define(ground, owner, each.key, **each.values())
            changes = _changes(before, after)
            action: Action = "created" if before is None else ("changed" if changes else "unchanged")
            found.append(DefinitionDiff(key=each.key, tenant=each.tenant, action=action, changes=changes))
    missing.check()
    if wanted.archive_others:
        for tenant, keys in (kept or {None: set()}).items():
            owner = _owner(ground, tx, tenant)
            for other in catalogue.owned_by(tx, owner):
                if other.key not in keys:
                    define.archive(ground, owner, other.key)
                    found.append(DefinitionDiff(key=other.key, tenant=tenant, action="archived", changes=[]))
    return found


def _owner(ground: Ground, tx: Tx, tenant: str | None) -> UUID | None:
    return None if tenant is None else ground.tenant_id(tenant, tx)


def _changes(before: Definition | None, after: Definition) -> list[FieldChange]:
    if before is None:
        return []
    names = set(Definition.__dataclass_fields__) - {"id", "version", "created_at", "updated_at", "tenant_id", "key"}
    return [
        FieldChange(field=name, before=_plain(name, before), after=_plain(name, after))
        for name in sorted(names)
        if getattr(before, name) != getattr(after, name)
    ]


def _plain(name: str, definition: Definition) -> Any:
    value = getattr(definition, name)
    if name == "arg_schema":
        return redact_schema(value)
    if name == "default_params":
        return hidden_params(value, marks_of_schema(definition.arg_schema))
    return value.as_dict() if isinstance(value, RetryPolicy) else value
