"""What may be asked for, and for whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from penstock.core import check, quota
from penstock.core.caller import OWN, joins
from penstock.core.cipher import readable
from penstock.core.decide import RetryPolicy
from penstock.core.errors import Conflict, InvalidInput, NotFound, UnknownDefinition
from penstock.core.nouns import Definition, Tenant
from penstock.core.outside import in_transaction, outside_if_large, preparing
from penstock.core.payload import compile_schema, plain, require_object
from penstock.core.status import RetryMode, one_of
from penstock.queue.ground import Ground
from penstock.store import definitions, erase, order, queues, tenants
from penstock.store.database import Database, Tx
from penstock.store.unit import beside


@dataclass(frozen=True, slots=True)
class Archived:
    """An archived definition, and the triggers that were disabled with it."""

    definition: Definition
    disabled_triggers: tuple[str, ...]


def define(ground: Ground, tenant_id: UUID | None, key: str, **given: Any) -> Definition:
    """Create a definition or change it to what is given; what is not given keeps its value, or has its default.

    `tenant_id` None offers it to every tenant."""
    with preparing():
        if not in_transaction():
            checked(given)
        return _define_on(ground, ground.db, tenant_id, key, given)


def _define_on(ground: Ground, db: Database, tenant_id: UUID | None, key: str, given: Mapping[str, Any]) -> Definition:
    made = db.transact(lambda tx: define_in(ground, tx, tenant_id, key, **given))
    ground.forget_definitions()
    ground.known_queues.add(made.queue)
    return made


def ensure(ground: Ground, key: str, given: Mapping[str, Any], connection: Any = OWN) -> bool:
    """Have the definition of a program's own function say what the program says, before it is enqueued on `connection`. Returns
    whether that is committed, so that the program need not look again.

    Nothing is locked that another enqueue waits for. What the database says is read first, without a lock. If it says
    something else, it is changed in a transaction beside the caller's: the definition belongs to the program and stays even if
    the caller's transaction is rolled back. On SQLite that transaction would wait for the caller's own write lock, so there,
    and only there, the definition is changed in the caller's transaction, which must hold that lock for its job anyway."""
    if not joins(connection):
        define(ground, None, key, **given)
        return True
    if not ground.db.dialect.many_writers:
        with ground.db.read() as tx:  # what is committed; the caller's transaction might be rolled back
            if _stands(ground, tx, key, given):
                return True
        with ground.db.joined(connection) as tx:
            define_in(ground, tx, None, key, **given)
        ground.forget_definitions()
        return False
    with ground.db.joined(connection) as tx:
        if _stands(ground, tx, key, given):
            return True
        with beside(ground.db) as db:
            _define_on(ground, db, None, key, given)
        if definitions.owned(tx, None, key) is None:
            raise Conflict(
                f"The definition {key!r} was written just now, and the transaction of this connection cannot see it: its snapshot "
                "is older (REPEATABLE READ or SERIALIZABLE), or it is connected to another database. Roll it back and try again, or "
                "call app.sync_definitions() when the program starts."
            )
    return True


def _stands(ground: Ground, tx: Tx, key: str, given: Mapping[str, Any]) -> bool:
    """Whether the database says what the program says."""
    found = definitions.owned(tx, None, key)
    if found is None or _changes(found, checked(given)):
        return False
    ground.known_queues.add(found.queue)
    return True


def _changes(found: Definition, values: Mapping[str, Any]) -> dict[str, Any]:
    changes = {name: value for name, value in values.items() if readable(_as_stored(getattr(found, name))) != value}
    if not found.is_active and "is_active" not in values:
        changes["is_active"] = True
    return changes


def define_in(ground: Ground, tx: Tx, tenant_id: UUID | None, key: str, **given: Any) -> Definition:
    """`define` in a transaction under way."""
    check.text("key", key)
    values = checked(given)
    if tenant_id is not None and "priority" in values:
        ground.bounds(tenant_id, tx).require_priority(values["priority"])
    found = definitions.owned(tx, tenant_id, key)
    if found is not None and not _changes(found, values):
        return found
    found = definitions.owned(tx, tenant_id, key, lock=True)
    if found is None:
        made = definitions.add(tx, tenant_id, key, {**_defaults(ground), **values})
        if made is not None:
            queues.ensure(tx, made.queue)
            return made
        found = _owned(tx, tenant_id, key)  # another process defined it meanwhile, as the workers of a fleet do
    changes = _changes(found, values)
    if not changes:
        return found
    changed = definitions.change(tx, found.id, changes)
    queues.ensure(tx, changed.queue)
    if changed.max_running is not None and changed.max_running != found.max_running:
        definitions.park(tx, found.id)
    return changed


def _defaults(ground: Ground) -> dict[str, Any]:
    config = ground.config
    return {
        "description": "", "runner": "python", "queue": config.default_queue, "arg_schema": {}, "default_params": {},
        "timeout_seconds": config.default_timeout_seconds, "max_attempts": config.default_max_attempts,
        "retry_mode": RetryMode.REQUEUE, "retry_policy": RetryPolicy().as_dict(), "priority": config.default_priority,
        "max_running": None, "is_active": True, "paused": False,
    }  # fmt: skip


def _as_stored(value: Any) -> Any:
    return value.as_dict() if isinstance(value, RetryPolicy) else value


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a definition, each checked; its schema is compiled."""
    values = dict(given)
    unknown = set(values) - {
        "description", "runner", "queue", "arg_schema", "default_params", "timeout_seconds", "max_attempts", "retry_mode",
        "retry_policy", "priority", "max_running", "is_active",
    }  # fmt: skip
    if unknown:
        raise InvalidInput(f"A definition has no {', '.join(sorted(unknown))}.")
    if "description" in values:
        check.text("description", values["description"], 10_000, empty=True)
    for name in ("runner", "queue"):
        if name in values:
            check.text(name, values[name])
    if "arg_schema" in values:
        compile_schema(values["arg_schema"])
    if "default_params" in values:
        require_object("default_params", values["default_params"])
        defaults = values["default_params"]
        outside_if_large("default_params", defaults, lambda: plain("default_params", defaults))
    if "timeout_seconds" in values:
        check.integer("timeout_seconds", values["timeout_seconds"], 1, 365 * 86400)
    if "max_attempts" in values:
        check.integer("max_attempts", values["max_attempts"], 1, 1000)
    if "retry_mode" in values:
        one_of("retry_mode", values["retry_mode"], [mode.value for mode in RetryMode])
    if "retry_policy" in values:
        policy = values["retry_policy"]
        values["retry_policy"] = (
            policy if isinstance(policy, RetryPolicy) else RetryPolicy.from_dict(policy)
        ).as_dict()
    if "priority" in values:
        check.integer("priority", values["priority"])
    if values.get("max_running") is not None:
        check.integer("max_running", values["max_running"], 0)
    return values


def archive(ground: Ground, tenant_id: UUID | None, key: str) -> Archived:
    """It takes no new jobs; those there are unaffected. Its triggers are disabled, and named in the answer."""

    def work(tx: Tx) -> Archived:
        found = _owned(tx, tenant_id, key)
        changed = definitions.change(tx, found.id, {"is_active": False}) if found.is_active else found
        disabled = definitions.disable_triggers(tx, found.id, f"The definition {key!r} was archived.")
        return Archived(changed, tuple(disabled))

    done = ground.db.transact(work)
    ground.forget_definitions()
    return done


def pause(ground: Ground, tenant_id: UUID | None, key: str, paused: bool = True) -> Definition:
    """Hold back the jobs of a definition, or let them go again."""

    def work(tx: Tx) -> Definition:
        found = _owned(tx, tenant_id, key)
        changed = definitions.change(tx, found.id, {"paused": paused}) if found.paused != paused else found
        if paused:
            definitions.park(tx, found.id)
        else:
            tx.dialect.wake(tx.conn, [found.queue])
        return changed

    done = ground.db.transact(work)
    ground.forget_definitions()
    return done


def _owned(tx: Tx, tenant_id: UUID | None, key: str) -> Definition:
    found = definitions.owned(tx, tenant_id, key, lock=True)
    if found is None:
        raise UnknownDefinition(key, [d.key for d in definitions.visible(tx, tenant_id)])
    return found


def get(ground: Ground, tenant_id: UUID | None, key: str) -> Definition:
    with ground.db.read() as tx:
        found = definitions.by_key(tx, tenant_id, key)
        if found is None:
            raise UnknownDefinition(key, [d.key for d in definitions.visible(tx, tenant_id)])
        return found


def listed(ground: Ground, tenant_id: UUID | None, archived: bool = False) -> list[Definition]:
    with ground.db.read() as tx:
        return definitions.visible(tx, tenant_id, archived=archived)


def keys_run_by(ground: Ground, runner: str) -> list[str]:
    """The keys of every definition, of whichever tenant, that this runner runs."""
    with ground.db.read() as tx:
        return definitions.keys_run_by(tx, runner)


def pause_queue(ground: Ground, name: str, paused: bool = True) -> None:
    """Nothing of a paused queue is claimed, by anyone."""
    check.text("queue", name)

    def work(tx: Tx) -> None:
        known = queues.names(tx)
        if name not in known:
            raise NotFound("queue", name)
        if not paused and known[name]:
            order.catch_up(tx, name)
        queues.set_paused(tx, name, paused)
        if not paused:
            tx.dialect.wake(tx.conn, [name])

    ground.db.transact(work)


def create_queues(ground: Ground, names: Iterable[str]) -> None:
    """Have these queues exist."""
    new = {check.text("queue", name) for name in names} - ground.known_queues
    if new:
        ground.db.transact(lambda tx: queues.ensure(tx, *sorted(new)))
        ground.known_queues |= new


def queue_names(ground: Ground) -> dict[str, bool]:
    with ground.db.read() as tx:
        return queues.names(tx)


def create_tenant(
    ground: Ground,
    slug: str,
    name: str | None = None,
    timezone: str = "UTC",
    weight: int = 1,
    max_running: int | None = None,
    quotas: Mapping[str, Any] | None = None,
    min_priority: int | None = None,
    max_priority: int | None = None,
) -> Tenant:
    check.text("slug", slug, 100)
    values = _checked_tenant({"name": name or slug, "timezone": timezone, "weight": weight, "max_running": max_running})
    quota.check_range(min_priority, max_priority)
    bounds: dict[str, Any] = {
        "quotas": quota.changed({}, quotas or {}),
        "min_priority": min_priority,
        "max_priority": max_priority,
    }

    def work(tx: Tx) -> Tenant:
        if tenants.by_slug(tx, slug) is not None:
            raise Conflict(f"There is a tenant {slug!r} already.")
        return tenants.create(tx, slug, **values, **bounds)

    return ground.db.transact(work)


def _checked_tenant(values: dict[str, Any]) -> dict[str, Any]:
    if "name" in values:
        check.text("name", values["name"])
    if "timezone" in values:
        try:
            ZoneInfo(check.text("timezone", values["timezone"]))
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise InvalidInput(
                f"{values['timezone']!r} is not a time zone; expected a name like Europe/Paris."
            ) from error
    if "weight" in values:
        check.integer("weight", values["weight"], 1, 100)
    if values.get("max_running") is not None:
        check.integer("max_running", values["max_running"], 0)
    return values


def update_tenant(ground: Ground, slug: str, **values: Any) -> Tenant:
    """Change a tenant's name, timezone, weight, max_running, quotas, min_priority, max_priority or is_active. Quotas that are not named
    stay as they are. Nothing of an inactive tenant is taken or claimed."""
    unknown = set(values) - {
        "name", "timezone", "weight", "max_running", "is_active", "quotas", "min_priority", "max_priority",
    }  # fmt: skip
    if unknown:
        raise InvalidInput(f"A tenant has no {', '.join(sorted(unknown))}.")
    _checked_tenant(values)
    if "quotas" in values:
        quota.changed({}, values["quotas"])
    tenant_id = ground.tenant_id(slug)

    def work(tx: Tx) -> Tenant:
        before = tenants.by_id(tx, tenant_id, lock=True)
        if before is None:
            raise NotFound("tenant", slug)
        if erase.deletion(tx, tenant_id) is not None:
            raise Conflict(f"The tenant {slug!r} is being deleted; that cannot be undone.")
        wanted = dict(values)
        if "quotas" in wanted:
            wanted["quotas"] = quota.changed(before.quotas, wanted["quotas"])
        quota.check_range(
            wanted.get("min_priority", before.min_priority), wanted.get("max_priority", before.max_priority)
        )
        changed = tenants.change(tx, tenant_id, wanted) if wanted else before
        assert changed is not None
        if values.get("max_running") is not None or values.get("is_active") is False:
            definitions.park_tenant(tx, tenant_id)
        return changed

    done = ground.db.transact(work)
    ground.forget_bounds()
    return done


def tenant(ground: Ground, slug: str) -> Tenant:
    with ground.db.read() as tx:
        found = tenants.by_slug(tx, slug)
        if found is None:
            raise NotFound("tenant", slug)
        return found


def every_tenant(ground: Ground) -> list[Tenant]:
    with ground.db.read() as tx:
        return tenants.every(tx)
