"""How many connections there may be, of everybody and of one address, and which one makes room for a new one.

A connection that waits for a request is worth less than one that may bring a request. So where there is no room, the one that
has waited longest is closed; a client that sends its request at once is never in that place. Where all are busy with requests,
a few more are let in as crowded: the service answers health checks on them, and tells everybody else to come again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

SPARE = 32
"""How many connections there may be beyond the bounds, for health checks."""


@dataclass(eq=False, slots=True)
class Place:
    """What one connection takes up."""

    address: str | None
    """Under which name it is counted; None for a trusted proxy, which speaks for many."""
    evict: Callable[[], None]
    crowded: bool = False
    left: bool = False


@dataclass(slots=True)
class _Share:
    """The connections of one address."""

    count: int = 0
    waiting: OrderedDict[Place, None] = field(default_factory=OrderedDict)


class Connections:
    """The connections of one server.

    >>> closed = []
    >>> connections = Connections(most=10, per_address=2)
    >>> for name in ("first", "second", "third"):
    ...     place = connections.enter("192.0.2.1", lambda name=name: closed.append(name))
    >>> closed, connections.count
    (['first'], 2)
    """

    def __init__(self, most: int, per_address: int) -> None:
        self.most = most
        self.per_address = per_address
        self.count = 0
        self.crowded = 0
        self._waiting: OrderedDict[Place, None] = OrderedDict()
        self._waiting_crowded: OrderedDict[Place, None] = OrderedDict()
        self._shares: dict[str, _Share] = {}

    def enter(self, address: str | None, evict: Callable[[], None]) -> Place | None:
        """Take a place, which waits for a request; None if there is none to be had."""
        place = Place(address, evict)
        place.crowded = not (self._make_room_for(address) and self._make_room())
        if place.crowded:
            if self.crowded >= SPARE and not self._evict_one_of(self._waiting_crowded):
                return None
            self.crowded += 1
        else:
            self.count += 1
            if address is not None:
                self._shares.setdefault(address, _Share()).count += 1
        self.wait(place)
        return place

    def _make_room_for(self, address: str | None) -> bool:
        share = None if address is None else self._shares.get(address)
        return share is None or share.count < self.per_address or self._evict_one_of(share.waiting)

    def _make_room(self) -> bool:
        return self.count < self.most or self._evict_one_of(self._waiting)

    def _evict_one_of(self, waiting: OrderedDict[Place, None]) -> bool:
        if not waiting:
            return False
        place = next(iter(waiting))
        self.leave(place)
        place.evict()
        return True

    def wait(self, place: Place) -> None:
        """Note that the connection waits for a request from now on."""
        if place.left:
            return
        for waiting in self._queues(place):
            waiting[place] = None

    def work(self, place: Place) -> None:
        """Note that the connection has a request that is being answered."""
        for waiting in self._queues(place):
            waiting.pop(place, None)

    def leave(self, place: Place) -> None:
        """Give the place back; once or more often."""
        if place.left:
            return
        self.work(place)
        place.left = True
        if place.crowded:
            self.crowded -= 1
            return
        self.count -= 1
        if place.address is not None:
            share = self._shares[place.address]
            share.count -= 1
            if not share.count:
                del self._shares[place.address]

    def _queues(self, place: Place) -> tuple[OrderedDict[Place, None], ...]:
        if place.crowded:
            return (self._waiting_crowded,)
        share = None if place.address is None else self._shares.get(place.address)
        return (self._waiting,) if share is None else (self._waiting, share.waiting)
