"""What waits and no worker that is alive serves: told to the operator, and passed by by the clock of fairness.

A job's place depends on the first place of anyone's at its priority (`core.position`). A job that nobody serves keeps its
place for ever, so it would hold that clock, and a newcomer would go before everybody who came since. A floor says from where
on the clock is read in a queue at a priority. Floors are set by the workers' chores, not by enqueue, which only reads them:
they are a few seconds old, there are none while everything is served, and none while there is one tenant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, and_, delete, false, func, or_, select, true, update

from penstock.core.nouns import Warning_
from penstock.core.position import GAP
from penstock.store import waiting
from penstock.store.database import Tx
from penstock.store.jobs import smallest_position
from penstock.store.tables import floors, queues, ready, tenants, workers

SHOWN = 20
MAX_LANES = 500


class Offer(NamedTuple):
    """What a worker that is alive takes; None stands for everything."""

    queues: frozenset[str] | None
    keys: frozenset[str] | None
    tenant_id: UUID | None

    def takes(self, tenant_id: UUID, queue: str, key: str) -> bool:
        return (
            (self.queues is None or queue in self.queues)
            and (self.keys is None or key in self.keys)
            and self.tenant_id in (None, tenant_id)
        )

    def condition(self) -> ColumnElement[bool]:
        """Which jobs of one of its queues it takes."""
        keys = true() if self.keys is None else ready.c.definition_key.in_(sorted(self.keys))
        return keys if self.tenant_id is None else and_(keys, ready.c.tenant_id == self.tenant_id)


def offers(tx: Tx, seen_within: float) -> list[Offer]:
    """Return what the workers lately seen offer, each offer once."""
    query = select(workers).where(workers.c.stopped_at.is_(None), workers.c.last_seen_at > tx.later(-seen_within))
    found = set()
    for row in tx.run(query).mappings():
        bound = (row["metadata"] or {}).get("tenant_id")
        names = frozenset(row["queues"]) if row["queues"] else None
        keys = None if row["keys"] is None else frozenset(row["keys"])
        found.add(Offer(names, keys, UUID(bound) if bound else None))
    return list(found)


def warnings(tx: Tx, seen_within: float) -> list[Warning_]:
    """Name each queue and key with jobs that could run and that no live worker takes, oldest first."""
    known = [row.id for row in tx.rows(select(tenants.c.id).order_by(tenants.c.id).limit(1000))]
    paused = {row.name for row in tx.rows(select(queues.c.name).where(queues.c.paused))}
    there = offers(tx, seen_within)
    left: defaultdict[tuple[str, str], list[waiting.Depth]] = defaultdict(list)
    for lane, depth in waiting.depths(tx, known).items():
        if depth.ready and lane.queue not in paused and not any(offer.takes(*lane) for offer in there):
            left[lane.queue, lane.definition_key].append(depth)
    now = tx.time()
    aged = sorted((min(each.oldest for each in depths if each.oldest), at, depths) for at, depths in left.items())
    return [
        Warning_(
            "waiting jobs that no live worker serves",
            f"No live worker offers {key!r} on the queue {queue!r}: {sum(each.ready for each in depths)} job(s) wait, the "
            f"oldest for {_span((now - oldest).total_seconds())}. Start a worker that offers it, or cancel the jobs.",
        )
        for oldest, (queue, key), depths in aged[:SHOWN]
    ]


def _span(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def set_floors(tx: Tx, seen_within: float) -> None:
    """Set the floors by what is served now. What has become served again begins at the clock, as whoever was away does."""
    floor_of = {
        (row.queue, row.priority): row.position
        for row in tx.rows(select(floors).order_by(floors.c.queue, floors.c.priority).with_for_update())
    }
    several = len(tx.rows(select(tenants.c.id).where(tenants.c.is_active).limit(2))) > 1
    if not several:
        if floor_of:
            tx.run(delete(floors))
        return
    there = offers(tx, seen_within)
    if not there:
        return  # nobody serves anything: the clock stands still
    paused = {row.name: row.paused for row in tx.rows(select(queues.c.name, queues.c.paused))}
    lanes = {lane for name in paused for lane in _lanes(tx, name)} | floor_of.keys()
    for queue, priority in sorted(lanes)[:MAX_LANES]:
        if not paused.get(queue, False):
            _set_floor(tx, queue, priority, floor_of.get((queue, priority)), there)


def _lanes(tx: Tx, queue: str) -> Iterator[tuple[str, int]]:
    """The priorities at which something waits in the queue, by hops through the index."""
    here = select(func.min(ready.c.priority)).where(ready.c.queue == queue)
    priority = tx.scalar(here)
    for _ in range(MAX_LANES):
        if priority is None:
            return
        yield queue, priority
        priority = tx.scalar(here.where(ready.c.priority > priority))


def _set_floor(tx: Tx, queue: str, priority: int, floor: int | None, there: Sequence[Offer]) -> None:
    lane = and_(ready.c.queue == queue, ready.c.priority == priority)
    line = (
        select(ready.c.position, ready.c.tenant_id, ready.c.definition_key)
        .where(lane)
        .order_by(ready.c.position)
        .limit(1)
    )
    head = tx.first(line)
    served = or_(
        false(), *(offer.condition() for offer in there if offer.queues is None or queue in offer.queues)
    )  # one look at the head is enough while all is well
    is_served = head is not None and any(offer.takes(head.tenant_id, queue, head.definition_key) for offer in there)
    first = head if is_served or head is None else tx.first(line.where(served))
    if floor is not None and first is not None and first.position < floor - GAP:
        _catch_up(tx, lane, priority, floor, first.position)
        is_served = True
    if head is None or is_served:
        if floor is not None:
            tx.run(delete(floors).where(floors.c.queue == queue, floors.c.priority == priority))
        return
    begin = tx.scalar(select(func.max(ready.c.position)).where(lane)) + 1 if first is None else first.position
    if floor is None or begin > floor:
        made = tx.insert(floors).values(queue=queue, priority=priority, position=begin)
        tx.run(made.on_conflict_do_update(index_elements=["queue", "priority"], set_={"position": begin}))


def _catch_up(tx: Tx, lane: ColumnElement[bool], priority: int, floor: int, first: int) -> None:
    """What was passed by and is served again goes to the clock, in its order: its old places would all go before what the
    others have now."""
    behind = (smallest_position(tx, priority) or 0) - first
    if behind > 0:
        tx.run(update(ready).where(lane, ready.c.position < floor).values(position=ready.c.position + behind))
