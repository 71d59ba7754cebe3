"""Whether the service can work, found out without waiting for those who work."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from penstock.core.errors import DatabaseUnavailable, PenstockError
from penstock.store import schema
from penstock.store.database import Database

LOOK_SECONDS = 5.0


class Readiness:
    """Looks at the database with a thread and a connection of its own. Those who ask at the same time share one look."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._own: Database | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._starting = threading.Lock()
        self._looked = float("-inf")
        self._found: str | None = None

    async def fault(self) -> str | None:
        """Return the code of what is wrong with the database; None if nothing is."""
        look = asyncio.get_running_loop().run_in_executor(self._started(), self._look, time.monotonic())
        try:
            return await asyncio.wait_for(look, LOOK_SECONDS)
        except TimeoutError:
            return DatabaseUnavailable.code

    def _started(self) -> ThreadPoolExecutor:
        with self._starting:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "penstock-readiness")
                self._db.before_close.append(self._stop)
            return self._thread

    def _look(self, asked: float) -> str | None:
        if self._looked < asked:
            self._looked = time.monotonic()
            self._found = self._checked()
        return self._found

    def _checked(self) -> str | None:
        try:
            if self._own is None:
                self._own = self._db.beside(1, LOOK_SECONDS)
            schema.check(self._own)
        except PenstockError as error:
            return error.code
        return None

    def _stop(self) -> None:
        with self._starting:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown(wait=True)
        own, self._own = self._own, None
        if own is not None:
            own.close()
