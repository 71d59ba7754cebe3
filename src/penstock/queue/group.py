"""Jobs that belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from penstock.core import check
from penstock.core.caller import OWN, joins
from penstock.core.errors import Conflict, InvalidInput, NotFound
from penstock.core.groups import MODES, ON_FAILURE, derive
from penstock.core.ids import new_id
from penstock.core.nouns import Group
from penstock.core.outside import Missing, in_transaction, preparing
from penstock.core.status import TERMINAL, one_of
from penstock.queue import bounds
from penstock.queue.cancel import cancel_in
from penstock.queue.enqueue import DEFAULTS, TRIES, Options, prepare
from penstock.queue.ground import Ground
from penstock.store import groups, jobs
from penstock.store.database import Tx
from penstock.store.hot import NewJob
from penstock.store.unit import savepoint

Member = tuple[str, Mapping[str, Any]]
MAX_MEMBERS = 10_000


def create(
    ground: Ground,
    tenant_id: UUID,
    members: Sequence[Member],
    mode: str = "sequential",
    on_failure: str = "stop",
    label: str | None = None,
    options: Options = DEFAULTS,
    connection: Any = OWN,
) -> Group:
    """All members or none. In a sequential group the first can run at once, each other waits for its predecessor."""
    one_of("mode", mode, MODES)
    one_of("on_failure", on_failure, ON_FAILURE)
    check.maybe_text("label", label)
    members = members_of(members)
    options = options.checked()
    group_id = new_id()

    def work(tx: Tx) -> Group:
        if groups.header(tx, tenant_id, group_id) is not None:
            return read(tx, tenant_id, group_id)  # an earlier try was committed after all
        bounds.admit(ground, tx, tenant_id, len(members), options.priority)
        for attempt in range(TRIES):
            try:
                with savepoint(tx):
                    write(tx, fresh=attempt > 0)
                return read(tx, tenant_id, group_id)
            except _Changed:
                continue
        raise Conflict("The definitions of the group's jobs kept changing; none of them was enqueued. Try again.")

    def write(tx: Tx, fresh: bool) -> None:
        new = _jobs_of(ground, tx, tenant_id, group_id, members, mode, options, fresh)
        groups.add(tx, tenant_id, group_id, mode, on_failure, label, options.created_by)
        if len(jobs.insert(tx, new)) != len(new):
            raise _Changed

    with preparing():
        if joins(connection):
            if not ground.db.dialect.many_writers:
                try:
                    prepare_members(ground, tenant_id, members, options)
                except InvalidInput:  # raised again, unless the caller's transaction has other definitions
                    ground.forget_definitions()
            with ground.db.joined(connection) as tx:
                return work(tx)
        if not in_transaction():
            prepare_members(ground, tenant_id, members, options)
        return ground.db.transact(work, retry_disconnects=True)


def prepare_members(ground: Ground, tenant_id: UUID, members: Sequence[Member], options: Options = DEFAULTS) -> None:
    """Check the params of every member before the transaction that writes the group."""
    for key, params in members:
        prepare(ground, None, tenant_id, key, params, options)


def _jobs_of(
    ground: Ground,
    tx: Tx,
    tenant_id: UUID,
    group_id: UUID,
    members: Sequence[Member],
    mode: str,
    options: Options,
    fresh: bool,
) -> list[NewJob]:
    new, missing, looked_up = [], Missing(), set[str]()
    for number, (key, params) in enumerate(members, start=1):
        waits = mode == "sequential" and number > 1
        place = replace(options, group_id=group_id, group_position=number, waits_for_group=waits, dedupe_key=None)
        with missing.gathering():
            new.append(prepare(ground, tx, tenant_id, key, params, place, fresh=fresh and key not in looked_up))
            looked_up.add(key)
    missing.check()
    return new


class _Changed(Exception):
    """A definition, or the tenant, changed while the group was being written."""


def members_of(given: Sequence[Member]) -> Sequence[Member]:
    """The jobs of a group as they were given, checked."""
    if not given:
        raise InvalidInput("A group needs at least one job.")
    if len(given) > MAX_MEMBERS:
        raise InvalidInput(f"A group has at most {MAX_MEMBERS} jobs; got {len(given)}.")
    for number, member in enumerate(given, start=1):
        if not isinstance(member, tuple | list) or len(member) != 2:
            raise InvalidInput(
                f"Job {number} of the group is {member!r:.200}; expected a pair of a key and its params, like "
                '("resize", {"image_id": 7}).'
            )
        check.text("key", member[0])
    return given


def read(tx: Tx, tenant_id: UUID, group_id: UUID) -> Group:
    header = groups.header(tx, tenant_id, group_id)
    if header is None:
        raise NotFound("group", group_id)
    found = groups.members(tx, group_id)
    status = derive([job.status for job in found], str(header["on_failure"]))
    names = ("id", "tenant_id", "mode", "on_failure", "label", "created_at")
    return Group(**{name: header[name] for name in names}, status=status, jobs=tuple(found))  # type: ignore[arg-type]


def get(ground: Ground, tenant_id: UUID, group_id: UUID) -> Group:
    with ground.db.read() as tx:
        return read(tx, tenant_id, group_id)


def listed(ground: Ground, tenant_id: UUID, limit: int = 50, offset: int = 0) -> list[Group]:
    check.integer("limit", limit, 1, 1000)
    check.integer("offset", offset, 0, 1_000_000)
    with ground.db.read() as tx:
        return [read(tx, tenant_id, group_id) for group_id in groups.listed(tx, tenant_id, limit, offset)]


def cancel(ground: Ground, tenant_id: UUID, group_id: UUID) -> Group:
    """Cancel what waits, ask what runs to stop. Members that have ended stay as they are."""

    def work(tx: Tx) -> Group:
        group = read(tx, tenant_id, group_id)
        for member in reversed(group.jobs):  # from the end, so that no member is let go by its predecessor's cancel
            if member.status not in TERMINAL:
                cancel_in(ground, tx, tenant_id, member.id, "its group was canceled")
        return read(tx, tenant_id, group_id)

    return ground.db.transact(work)
