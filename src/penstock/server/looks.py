"""Look-ups that requests share: who looks for what somebody else is just looking for waits for the same look."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool

T = TypeVar("T")


class Looks:
    """The look-ups under way. However many requests need the same thing at a time, one thread looks for it."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}

    async def look(self, name: Hashable, work: Callable[[], T]) -> T:
        """Call `work` on a thread, or return what the call that is under way for this name returns."""
        key = (asyncio.get_running_loop(), name)
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(run_in_threadpool(work))
            task.add_done_callback(lambda done: self._end(key, done))
        found: T = await asyncio.shield(task)
        return found

    def forget(self) -> None:
        """Let nobody share a look that began before now: what it finds may have changed since."""
        self._under_way.clear()

    def _end(self, key: Hashable, done: asyncio.Task[Any]) -> None:
        if self._under_way.get(key) is done:
            del self._under_way[key]
        if not done.cancelled():
            done.exception()  # whoever waited has it; if all have gone, nobody needs it
