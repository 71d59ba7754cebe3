"""Long computations run while no transaction is open.

On SQLite a transaction that writes holds the one write lock, and everybody waits for it; on PostgreSQL it holds rows. So params
are validated, templates rendered, schemas compiled and secrets masked outside. A verb computes what it needs first, inside
`preparing()`, by a short read of what is there, and then writes; in the transaction `outside` finds the result. If something
else is there by then, such as another version of a definition, the result does not fit, and `outside` raises `Unprepared`. That
ends the transaction; whoever opened it (`Database.transact`) computes what was missing and begins again.

So no verb can hold a lock for a long computation, also one that prepared nothing or did not expect what it found.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

ROUNDS = 10
"""How often a transaction is left to compute what it lacks."""

SMALL_PARTS = 200
SMALL_TEXT = 16 * 1024
"""What is no larger than this is computed at once: in less time than a transaction takes to begin again."""

COMPARED = 200
"""With how many results what is asked for is compared; what is asked for in order is found at once."""

SMALL_SUM = 500
"""How many parts one transaction may have computed at once, in all."""


class Task(NamedTuple):
    name: Hashable
    given: Any
    compute: Callable[[], Any]


class Unprepared(Exception):
    """Something is to be computed first, outside the transaction under way."""

    def __init__(self, tasks: list[Task]) -> None:
        super().__init__("to be computed outside the transaction")
        self.tasks = tasks


class _Done:
    """What a computation came to. One that raised raises again."""

    __slots__ = ("error", "given", "value")

    def __init__(self, task: Task) -> None:
        self.given = task.given
        self.value: Any = None
        self.error: Exception | None = None
        try:
            self.value = task.compute()
        except Exception as error:
            self.error = error

    def result(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class _Results:
    """The results of one name. They are mostly asked for in the order in which they were computed."""

    __slots__ = ("_by_id", "_in_order", "_next")

    def __init__(self) -> None:
        self._in_order: list[_Done] = []
        self._by_id: dict[int, _Done] = {}
        self._next = 0

    def add(self, done: _Done) -> None:
        self._in_order.append(done)
        self._by_id[id(done.given)] = done

    def find(self, given: Any) -> _Done | None:
        same = self._by_id.get(id(given))
        if same is not None and same.given is given:
            return same
        start, known = self._next, len(self._in_order)
        for number in islice(chain(range(start, known), range(start)), COMPARED):
            done = self._in_order[number]
            if done.given == given:
                self._next = number + 1
                return done
        return None


class Prepared:
    """What was computed so far for the verb under way on this thread."""

    __slots__ = ("_by_name", "_steady", "is_open", "spent")

    def __init__(self) -> None:
        self.is_open = False
        """Whether the transaction is open."""
        self.spent = 0
        """How many small parts were computed in it."""
        self._by_name: dict[Hashable, _Results] = {}
        self._steady: dict[Hashable, Any] = {}

    def find(self, name: Hashable, given: Any) -> _Done | None:
        known = self._by_name.get(name)
        return None if known is None else known.find(given)

    def add(self, task: Task) -> _Done:
        done = _Done(task)
        self._by_name.setdefault(task.name, _Results()).add(done)
        return done

    def run(self, work: Callable[[], T]) -> T:
        """Call `work`, which opens a transaction and closes it, until it lacks nothing. If what it needs changes each time,
        it is computed in the transaction in the end: that is bounded, too, and better than never to finish."""
        for _ in range(ROUNDS):
            self.is_open, self.spent = True, 0
            try:
                return work()
            except Unprepared as missing:
                tasks = missing.tasks
            finally:
                self.is_open = False
            for task in tasks:
                self.add(task)
        return work()

    def steady(self, name: Hashable, choose: Callable[[], T]) -> T:
        if name not in self._steady:
            self._steady[name] = choose()
        chosen: T = self._steady[name]
        return chosen


class _Here(threading.local):
    prepared: Prepared | None = None


_here = _Here()


@contextmanager
def preparing() -> Iterator[None]:
    """Remember what `outside` computes in the block, for the transaction that follows in it."""
    if _here.prepared is not None:
        yield
        return
    _here.prepared = Prepared()
    try:
        yield
    finally:
        _here.prepared = None


def transacting(work: Callable[[], T]) -> T:
    """Call `work`, which opens a transaction and closes it; again when it lacked something that has been computed since."""
    prepared = _here.prepared
    if prepared is not None:
        return work() if prepared.is_open else prepared.run(work)
    prepared = _here.prepared = Prepared()
    try:
        return prepared.run(work)
    finally:
        _here.prepared = None


def in_transaction() -> bool:
    """Whether a transaction of ours is open on this thread, so that it is too late to prepare."""
    prepared = _here.prepared
    return prepared is not None and prepared.is_open


def outside(name: Hashable, given: Any, compute: Callable[[], T]) -> T:
    """Return what `compute` returns, or raise what it raises. It is called while no transaction of ours is open.

    `name` and `given` say what is computed: the same name with an equal `given` has the same result."""
    prepared = _here.prepared
    if prepared is None:
        return compute()
    done = prepared.find(name, given)
    if done is None:
        task = Task(name, given, compute)
        if prepared.is_open:
            raise Unprepared([task])
        done = prepared.add(task)
    result: T = done.result()
    return result


def outside_if_large(name: Hashable, given: Any, compute: Callable[[], T]) -> T:
    """As `outside`, but what is small is computed at once."""
    prepared = _here.prepared
    if prepared is None:
        return compute()
    size = small_size(given)
    if size is not None and prepared.is_open:
        prepared.spent += size
    if size is None or prepared.spent > SMALL_SUM:
        return outside(name, given, compute)
    return compute()


def steady(name: Hashable, choose: Callable[[], T]) -> T:
    """Return a value that stays the same when the transaction begins again, such as the time or a new id."""
    prepared = _here.prepared
    return choose() if prepared is None else prepared.steady(name, choose)


def small_size(value: Any) -> int | None:
    """How many parts JSON has, or None if it is not small. Never looks at more than a small part of it.

    >>> small_size({"a": [1, 2]}), small_size([0] * 1000), small_size("x" * 100_000)
    (4, None, None)
    """
    parts = text = 0
    stack = [value]
    while stack:
        item = stack.pop()
        parts += 1
        if isinstance(item, str):
            text += len(item)
        elif isinstance(item, Mapping | list | tuple):
            if parts + len(stack) + len(item) > SMALL_PARTS:
                return None
            if isinstance(item, Mapping):
                text += sum(len(key) for key in item if isinstance(key, str))
                stack.extend(item.values())
            else:
                stack.extend(item)
        if text > SMALL_TEXT:
            return None
    return parts


class Missing:
    """Gathers what several steps of one transaction lack, so that all of it is computed before the next try.

    ```python
    missing = Missing()
    for each in many:
        with missing.gathering():
            step(each)
    missing.check()
    ```
    """

    def __init__(self) -> None:
        self._tasks: list[Task] = []

    @contextmanager
    def gathering(self) -> Iterator[None]:
        try:
            yield
        except Unprepared as missing:
            self._tasks += missing.tasks

    def check(self) -> None:
        """Raise Unprepared if a step lacked something."""
        if self._tasks:
            raise Unprepared(self._tasks)
