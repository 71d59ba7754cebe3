"""How far a long copy is: a bar in a terminal, a line now and then in a pipe. On stderr, so that the answer stays the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TaskID

from penstock.cli._common import err

EVERY_SECONDS = 5.0
"""How often a pipe is told."""

Tell = Callable[[str, int, int], None]
"""Takes what is copied, how many are done, and how many there are."""


@contextmanager
def progress() -> Iterator[Tell]:
    console = err()
    if not console.is_terminal:
        yield _Lines(console).tell
        return
    with Progress(console=console, transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield tell


class _Lines:
    """The first and the last line of everything that is more than a moment's work, and one every few seconds between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._told_at = time.monotonic()
        self._unfinished = ""

    def tell(self, what: str, done: int, total: int) -> None:
        ends = done >= total and self._unfinished == what
        if not ends and time.monotonic() - self._told_at < EVERY_SECONDS:
            return
        self._told_at = time.monotonic()
        self._unfinished = "" if done >= total else what
        self._console.print(f"{what}: {done:,} of {total:,}", markup=False)
