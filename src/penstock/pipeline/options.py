"""What populate() was asked for, what it has left to do, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

ORDERS = ("original", "reverse", "random")
Key = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """The parameters of populate()."""

    restrictions: tuple[Any, ...] = ()
    suppress_errors: bool = False
    return_exception_objects: bool = False
    reserve_jobs: bool = False
    order: str = "original"
    limit: int | None = None
    max_calls: int | None = None
    display_progress: bool = False
    processes: int = 1
    make_kwargs: Mapping[str, Any] = field(default_factory=dict)
    priority: int | None = None
    refresh: bool | None = None


@dataclass(slots=True)
class Outcome:
    """What came of it."""

    success_count: int = 0
    error_list: list[tuple[Key, Any]] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.success_count += other.success_count
        self.error_list += other.error_list

    def as_dict(self) -> dict[str, Any]:
        return {"success_count": self.success_count, "error_list": self.error_list}


class Budget:
    """How many more make() calls, and how many more keys. Processes share one by a lock of their own."""

    def __init__(self, max_calls: int | None, limit: int | None) -> None:
        self.calls, self.keys = max_calls, limit

    def room(self) -> int | None:
        """How many keys may still be taken; None for any number."""
        left = [number for number in (self.calls, self.keys) if number is not None]
        return min(left) if left else None

    def take(self, wanted: int) -> int:
        """Take up to `wanted` keys from what is left."""
        room = self.room()
        taken = wanted if room is None else max(0, min(wanted, room))
        self.calls = None if self.calls is None else self.calls - taken
        self.keys = None if self.keys is None else self.keys - taken
        return taken

    def give_back(self, number: int, *, keys: bool) -> None:
        """Return what was taken and not called; the keys too, if they were not even looked at."""
        self.calls = None if self.calls is None else self.calls + number
        if keys:
            self.keys = None if self.keys is None else self.keys + number


@contextmanager
def progress_bar(shown: bool, name: str, total: Callable[[], int]) -> Iterator[Callable[[], None]]:
    """A bar on standard error; gives the function that moves it by one."""
    if not shown:
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=total())
        yield lambda: bar.advance(task)
