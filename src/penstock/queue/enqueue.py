"""Asking for work. A job exists when this returns, or, in the caller's transaction, exactly if that commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from penstock.core import check
from penstock.core.caller import OWN, joins
from penstock.core.clock import require_aware
from penstock.core.errors import Conflict, InvalidInput, InvalidPayload, QuotaExceeded, UnknownTenant
from penstock.core.ids import new_id
from penstock.core.nouns import Definition, Job
from penstock.core.outside import outside, preparing
from penstock.core.payload import Validator, dumps, merge, plain, require_object, validate
from penstock.core.quota import FREE
from penstock.core.status import RetryMode, Source, one_of
from penstock.queue import bounds
from penstock.queue.ground import Ground
from penstock.store import definitions, jobs, rows, tenants
from penstock.store.database import Tx
from penstock.store.hot import Alike, NewJob
from penstock.store.unit import savepoint

TRIES = 5
"""How often a definition may change under an enqueue before it gives up."""
_SOURCES = [source.value for source in Source]


@dataclass(frozen=True, slots=True)
class Options:
    """How a job is asked for, beside its key and params."""

    priority: int | None = None
    queue: str | None = None
    scheduled_for: datetime | None = None
    delay: float | None = None
    dedupe_key: str | None = None
    correlation_id: str | None = None
    source: str = Source.MANUAL
    source_ref: str | None = None
    created_by: str | None = None
    max_attempts: int | None = None
    trace: Mapping[str, str] | None = None
    adhoc: bool = False
    group_id: UUID | None = None
    group_position: int | None = None
    waits_for_group: bool = False
    trigger_id: UUID | None = None
    tick_at: datetime | None = None

    def checked(self) -> Options:
        if self is DEFAULTS:
            return self
        if self.priority is not None:
            check.integer("priority", self.priority)
        if self.max_attempts is not None:
            check.integer("max_attempts", self.max_attempts, 1, 1000)
        if self.queue is not None:
            check.text("queue", self.queue)
        if self.scheduled_for is not None:
            require_aware("scheduled_for", self.scheduled_for)
        if self.delay is not None:
            check.seconds("delay", self.delay)
        if self.trace is not None:
            plain("trace", require_object("trace", self.trace))
        one_of("source", self.source, _SOURCES)
        for name in ("dedupe_key", "correlation_id", "source_ref", "created_by"):
            check.maybe_text(name, getattr(self, name))
        return self


DEFAULTS = Options()


def prepare(
    ground: Ground,
    tx: Tx | None,
    tenant_id: UUID,
    key: str,
    given: Mapping[str, Any],
    options: Options,
    *,
    fresh: bool = False,
) -> NewJob:
    """A job ready to be written: defaults merged, params checked. Nothing is written if this raises.

    Without `tx` the definition is looked up by a short read of its own, and no transaction is open while the params are
    checked. That is the way to prepare; with `tx` it is for what turned out otherwise in the transaction that writes."""
    check.text("key", key)
    if options.queue is not None or options.adhoc:
        ground.require_queue(tx, options.queue or ground.config.default_queue)
    if options.adhoc:
        return _adhoc(ground, tenant_id, key, require_object("params", given), options)
    return _checked(tenant_id, key, given, options, *ground.definition(tx, tenant_id, key, fresh=fresh))


def _checked(
    tenant_id: UUID, key: str, given: Mapping[str, Any], options: Options, definition: Definition, validator: Validator
) -> NewJob:
    return _new_job(tenant_id, definition, _text_of(key, given, definition, validator), options)


def _text_of(key: str, given: Mapping[str, Any], definition: Definition, validator: Validator) -> str:
    """The params as they are stored: with the defaults, checked."""
    require_object("params", given)
    name = ("params", definition.id, definition.version)
    return outside(name, given, lambda: _check_text(key, given, definition, validator))


def _check_text(key: str, given: Mapping[str, Any], definition: Definition, validator: Validator) -> str:
    params = merge(definition.default_params, given) if definition.default_params else given
    text = plain("params", params)
    validate(key, validator, params)
    return text


def _new_job(tenant_id: UUID, definition: Definition, params: str, options: Options) -> NewJob:
    return NewJob(
        id=new_id(), tenant_id=tenant_id, definition_id=definition.id, definition_version=definition.version,
        definition_key=definition.key, queue=options.queue or definition.queue,
        priority=definition.priority if options.priority is None else options.priority, params=params,
        max_attempts=options.max_attempts or definition.max_attempts, retry_mode=definition.retry_mode, **_shared(options),
    )  # fmt: skip


def _adhoc(ground: Ground, tenant_id: UUID, key: str, params: Mapping[str, Any], options: Options) -> NewJob:
    config = ground.config
    return NewJob(
        id=new_id(), tenant_id=tenant_id, definition_id=None, definition_version=None, definition_key=key,
        queue=options.queue or config.default_queue,
        priority=config.default_priority if options.priority is None else options.priority, params=plain("params", params),
        max_attempts=options.max_attempts or config.default_max_attempts, retry_mode=RetryMode.REQUEUE, **_shared(options),
    )  # fmt: skip


def _shared(options: Options) -> dict[str, Any]:
    if options is DEFAULTS:
        return {}  # they are those of the job, too
    return {
        "source": options.source, "source_ref": options.source_ref, "dedupe_key": options.dedupe_key,
        "correlation_id": options.correlation_id,
        "scheduled_for": require_aware("scheduled_for", options.scheduled_for) if options.scheduled_for else None,
        "delay": options.delay, "group_id": options.group_id, "group_position": options.group_position,
        "waits_for_group": options.waits_for_group, "trigger_id": options.trigger_id, "tick_at": options.tick_at,
        "created_by": options.created_by, "trace": dumps(dict(options.trace)) if options.trace else None,
    }  # fmt: skip


def enqueue(
    ground: Ground,
    tenant_id: UUID,
    key: str,
    params: Mapping[str, Any],
    options: Options = DEFAULTS,
    connection: Any = OWN,
) -> Job:
    """One job. With a dedupe key that an active job has, the answer is that job."""
    options = options.checked()
    if joins(connection):
        with preparing():
            ready = _before_joining(ground, tenant_id, key, params, options)
            with ground.db.joined(connection) as tx:
                return enqueue_in(ground, tx, tenant_id, key, params, options, ready)
    # Ids are chosen here, once: if the reply to COMMIT is lost, writing again finds the same id and changes nothing.
    first: list[NewJob] = []
    job = _enqueue_at_once(ground, tenant_id, key, params, options, first)
    if job is None:
        if not first:
            first.append(prepare(ground, None, tenant_id, key, params, options))
        job = ground.db.transact(
            lambda tx: enqueue_in(ground, tx, tenant_id, key, params, options, first), retry_disconnects=True
        )
    return job


def _before_joining(
    ground: Ground, tenant_id: UUID, key: str, params: Mapping[str, Any], options: Options
) -> list[NewJob]:
    """The job, prepared before the caller's transaction is joined: on SQLite that may take the write lock. Empty if the
    definition is not there; it may still be there in the caller's transaction. Elsewhere no lock is taken before the job is
    written, and nothing is read beside the caller's transaction: every connection of its pool may be in use."""
    if ground.db.dialect.many_writers and ground.remembered(tenant_id, key) is None:
        return []
    try:
        return [prepare(ground, None, tenant_id, key, params, options)]
    except InvalidInput:
        ground.forget_definition(tenant_id, key)
        return []  # raised again, unless the caller's transaction has another version of the definition


def _enqueue_at_once(
    ground: Ground, tenant_id: UUID, key: str, given: Mapping[str, Any], options: Options, first: list[NewJob]
) -> Job | None:
    """What is remembered is enough for most jobs. None if it was not; what was prepared is then in `first`."""
    if ground.bounds(tenant_id) is not FREE:
        return None
    remembered = None if options.adhoc or not ground.db.has_short_way else ground.remembered(tenant_id, key)
    if remembered is None or (options.queue is not None and options.queue not in ground.known_queues):
        return None
    new = _checked(tenant_id, key, given, options, *remembered)
    first.append(new)
    written = ground.db.at_once(lambda tx: jobs.insert(tx, [new]).get(new.id), retry_disconnects=True)
    return None if written is None else rows.fresh_job(new, written, merge(remembered[0].default_params, given))


def enqueue_in(
    ground: Ground,
    tx: Tx,
    tenant_id: UUID,
    key: str,
    params: Mapping[str, Any],
    options: Options,
    remembered: list[NewJob] | None = None,
) -> Job:
    """One job in a transaction under way. `remembered` carries the prepared job from one try to the next."""
    remembered = [] if remembered is None else remembered
    try:
        bounds.admit(ground, tx, tenant_id, 1, options.priority)
    except QuotaExceeded:
        found = _there_already(tx, tenant_id, options, remembered)
        if found is None:
            raise
        return found
    for attempt in range(TRIES):
        if not remembered:
            remembered.append(prepare(ground, tx, tenant_id, key, params, options, fresh=attempt > 0))
        new = remembered[0]
        written = jobs.insert(tx, [new]).get(new.id)
        if written is not None:
            return rows.fresh_job(new, written, _merged(ground, tx, new, params))
        found = jobs.get(tx, tenant_id, new.id)
        if found is not None:  # an earlier try was committed after all
            return found
        if options.dedupe_key is not None:
            active = jobs.active_with_dedupe_key(tx, tenant_id, options.dedupe_key)
            if active is not None:
                return active
        _require_active(tx, tenant_id)
        remembered.clear()  # the definition changed since we read it, or the job of that key has just ended: look again
    raise Conflict(
        f"The definition {key!r} or the job with its dedupe key kept changing; nothing was enqueued. Try again."
    )


def _there_already(tx: Tx, tenant_id: UUID, options: Options, remembered: Sequence[NewJob]) -> Job | None:
    """The job that would have been the answer though there is no room for another: an earlier try's, or that of the dedupe key."""
    found = jobs.get(tx, tenant_id, remembered[0].id) if remembered else None
    if found is None and options.dedupe_key is not None:
        found = jobs.active_with_dedupe_key(tx, tenant_id, options.dedupe_key)
    return found


def _require_active(tx: Tx, tenant_id: UUID) -> None:
    tenant = tenants.by_id(tx, tenant_id)
    if tenant is None or not tenant.is_active:
        raise UnknownTenant(tenant.slug if tenant else str(tenant_id))


def _merged(ground: Ground, tx: Tx, new: NewJob, given: Mapping[str, Any]) -> Mapping[str, Any]:
    if new.definition_id is None:
        return given
    definition, _ = ground.definition(tx, new.tenant_id, new.definition_key)
    return merge(definition.default_params, given)


def enqueue_many(
    ground: Ground,
    tenant_id: UUID,
    key: str,
    many: Iterable[Mapping[str, Any]],
    options: Options = DEFAULTS,
    connection: Any = OWN,
) -> list[UUID]:
    """All of them or none, in the order given. Answers their ids."""
    options = options.checked()
    given = list(many)
    if options.dedupe_key is not None:
        raise Conflict("enqueue_many takes no dedupe_key: it would make one job of many. Enqueue them one by one.")
    ids = [new_id() for _ in given]
    if not given:
        return ids
    wanted = Many(tenant_id, key, given, options, ids)
    if joins(connection):
        ready = _many_before_joining(ground, wanted)
        with ground.db.joined(connection) as tx:
            bounds.admit(ground, tx, tenant_id, len(ids), options.priority)
            _many_joined(ground, tx, wanted, ready)
    else:
        bounds.admit(ground, None, tenant_id, len(ids), options.priority)
        _many_alone(ground, wanted)
    return ids


@dataclass(frozen=True, slots=True)
class Many:
    """What `enqueue_many` was called with, and the ids that the jobs get."""

    tenant_id: UUID
    key: str
    given: Sequence[Mapping[str, Any]]
    options: Options
    ids: Sequence[UUID]

    def kept_changing(self) -> Conflict:
        return Conflict(f"The definition {self.key!r} kept changing; none of its jobs was enqueued. Try again.")


class _Changed(Exception):
    """The definition changed since the params were checked."""


def _many_alone(ground: Ground, wanted: Many) -> None:
    """Write all of them or none, in a transaction of our own. If the definition changed since the params were checked, as in a
    rolling deploy, leave the transaction and check them again."""
    tried: list[bool] = []

    def work(tx: Tx, ready: Alike) -> None:
        if tried and jobs.get(tx, wanted.tenant_id, wanted.ids[0]) is not None:
            return  # an earlier try was committed after all, and with the first all of them
        tried.append(True)
        _write_chunks(tx, ready, ground.config.enqueue_batch)

    for attempt in range(TRIES):
        ready = _prepare_many(ground, None, wanted, fresh=attempt > 0)
        try:
            ground.db.transact(partial(work, ready=ready), retry_disconnects=True)
            return
        except _Changed:
            with ground.db.read() as tx:
                _require_active(tx, wanted.tenant_id)
    raise wanted.kept_changing()


def _many_before_joining(ground: Ground, wanted: Many) -> Alike | InvalidPayload | None:
    """As `_before_joining`, for many."""
    if ground.db.dialect.many_writers and ground.remembered(wanted.tenant_id, wanted.key) is None:
        return None
    try:
        return _prepare_many(ground, None, wanted)
    except InvalidPayload as error:
        return error
    except InvalidInput:
        return None


def _many_joined(ground: Ground, tx: Tx, wanted: Many, ready: Alike | InvalidPayload | None) -> None:
    """Write all of them or none, in the caller's transaction. That is the caller's to end: what changed is checked in it."""
    if isinstance(ready, InvalidPayload):
        _raise_if_still_so(ground, tx, wanted, ready)
        ready = None
    batch = ground.config.enqueue_batch
    for attempt in range(TRIES):
        if ready is None:
            ready = _prepare_many(ground, tx, wanted, fresh=attempt > 0)
        try:
            # One chunk is one statement, which writes all or none by itself.
            with nullcontext() if len(wanted.ids) <= batch else savepoint(tx):
                _write_chunks(tx, ready, batch)
            return
        except _Changed:
            _require_active(tx, wanted.tenant_id)
            ready = None
    raise wanted.kept_changing()


def _raise_if_still_so(ground: Ground, tx: Tx, wanted: Many, error: InvalidPayload) -> None:
    """Raise what was found before the caller's transaction was joined, unless that has another version of the definition."""
    checked = ground.remembered(wanted.tenant_id, wanted.key)
    now = definitions.by_key(tx, wanted.tenant_id, wanted.key)
    if checked is None or now is None or (checked[0].id, checked[0].version) == (now.id, now.version):
        raise error
    ground.forget_definition(wanted.tenant_id, wanted.key)


def _prepare_many(ground: Ground, tx: Tx | None, wanted: Many, *, fresh: bool = False) -> Alike:
    """Check the params of all of them."""
    key, options = wanted.key, wanted.options
    first = prepare(ground, tx, wanted.tenant_id, key, wanted.given[0], options, fresh=fresh)
    if options.adhoc:
        texts = [plain("params", require_object("params", given)) for given in wanted.given]
    else:
        definition, validator = ground.definition(tx, wanted.tenant_id, key)
        texts = [_text_of(key, given, definition, validator) for given in wanted.given]
        first = _new_job(wanted.tenant_id, definition, texts[0], options)
    return Alike(first, wanted.ids, texts)


def _write_chunks(tx: Tx, ready: Alike, batch: int) -> None:
    for start in range(0, len(ready.ids), batch):
        ids, texts = ready.ids[start : start + batch], ready.params[start : start + batch]
        if jobs.insert_alike(tx, Alike(ready.first, ids, texts)) < len(ids):
            raise _Changed
