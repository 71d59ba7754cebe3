"""One event loop in a thread of its own, for every `async def` job of the worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

STOP_GRACE = 5.0
"""How long a coroutine that was told to stop may take to clean up before it is given up on."""

TICK = 0.1


class Abandoned(Exception):
    """The coroutine neither ended nor let itself be canceled."""


class LoopThread:
    """Runs coroutines for threads that wait for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, start: Callable[[], Coroutine[Any, Any, Any]], stop: Callable[[], bool]) -> Any:
        """The coroutine's result. It is canceled as soon as `stop()` says so, and has a moment to clean up."""
        loop = self._running_loop()
        ended = threading.Event()
        task: asyncio.Task[tuple[bool, Any]] | None = None

        def begin() -> None:
            nonlocal task
            task = loop.create_task(_contained(start))
            task.add_done_callback(lambda _task: ended.set())

        loop.call_soon_threadsafe(begin)
        while not ended.wait(TICK):
            if stop():
                loop.call_soon_threadsafe(lambda: task and task.cancel())
                if not ended.wait(STOP_GRACE):
                    raise Abandoned("the coroutine was canceled and did not end")
        assert task is not None
        succeeded, value = task.result()
        if succeeded:
            return value
        raise value

    def close(self) -> None:
        """Cancel what is left and end the thread."""
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="penstock-async", daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=STOP_GRACE))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


async def _contained(start: Callable[[], Coroutine[Any, Any, Any]]) -> tuple[bool, Any]:
    """A SystemExit that leaves a task would end the whole loop."""
    try:
        return True, await start()
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return False, error
