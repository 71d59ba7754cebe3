"""The heartbeat of this process: one thread that renews every reservation the process holds, while it holds any."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from penstock.pipeline.config import config
from penstock.pipeline.connection import Connection
from penstock.store.pipeline.jobs import JobStore

logger = logging.getLogger("penstock.pipeline")
BEATS_PER_LEASE = 3


class Heart:
    """Renews leases three times as often as they run out."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._held: dict[str, tuple[Connection, JobStore]] = {}
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, token: str, connection: Connection, store: JobStore) -> None:
        """Keep the token's reservations alive until `let_go`."""
        if self._pid != os.getpid():
            self._reset()  # a fork takes the parent's tokens along, but not its thread
        with self._lock:
            self._held[token] = (connection, store)
            if self._thread is None:
                self._changed.clear()
                self._thread = threading.Thread(target=self._run, name="penstock-lease", daemon=True)
                self._thread.start()

    def let_go(self, token: str) -> None:
        with self._lock:
            self._held.pop(token, None)

    @contextmanager
    def holding(self, token: str, connection: Connection, store: JobStore) -> Iterator[None]:
        self.hold(token, connection, store)
        try:
            yield
        finally:
            self.let_go(token)

    def step(self) -> None:
        """Renew everything once."""
        with self._lock:
            held = list(self._held.items())
        for token, (connection, store) in held:
            try:
                connection.apart(partial(store.heartbeat, token=token, lease=config["jobs.lease_seconds"]))
            except Exception:
                if (
                    token not in self._held
                ):  # let go meanwhile: there is nothing left to renew, perhaps not even the table
                    continue
                logger.warning(
                    "A lease of %s could not be renewed; trying again.", store.shape.full_name, exc_info=True
                )

    def _run(self) -> None:
        idle = 0
        while True:
            self._changed.wait(config["jobs.lease_seconds"] / BEATS_PER_LEASE)
            with self._lock:
                idle = 0 if self._held else idle + 1
                if idle > BEATS_PER_LEASE:
                    self._thread = None
                    return
            self.step()


heart = Heart()
