"""The heartbeat of this process: one thread that renews every reservation the process holds, while it holds any."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from penstock.pipeline.config import config

if TYPE_CHECKING:
    from penstock.pipeline.connection import Connection
    from penstock.store.pipeline.jobs import JobStore

logger = logging.getLogger("penstock.pipeline")
BEATS_PER_LEASE = 3


@dataclass(slots=True)
class _Hold:
    """What a token holds in one job table."""

    connection: Connection
    store: JobStore
    lasting: bool
    """Whether the holder lets go by itself, so that nothing to renew is no sign that it lost what it held."""
    missed: int = 0
    """How many beats in a row renewed nothing."""


class Heart:
    """Renews leases three times as often as they run out."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._beating = threading.Lock()
        self._held: dict[str, _Hold] = {}
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, token: str, connection: Connection, store: JobStore, *, lasting: bool = False) -> None:
        """Keep the token's reservations alive until `let_go`, or until they were lost for as long as a lease."""
        if self._pid != os.getpid():
            self._reset()  # a fork takes the parent's tokens along, but not its thread
        with self._lock:
            self._held[token] = _Hold(connection, store, lasting)
            if self._thread is None:
                self._changed.clear()
                self._thread = threading.Thread(target=self._run, name="penstock-lease", daemon=True)
                self._thread.start()

    def let_go(self, token: str) -> None:
        with self._lock:
            self._held.pop(token, None)

    def leave(self, connection: Connection) -> None:
        """Let go of everything held there. When this returns, no beat uses the connection any more."""
        with self._lock:
            for token in [token for token, hold in self._held.items() if hold.connection is connection]:
                del self._held[token]
        with self._beating:
            pass

    @contextmanager
    def holding(self, token: str, connection: Connection, store: JobStore) -> Iterator[None]:
        self.hold(token, connection, store, lasting=True)
        try:
            yield
        finally:
            self.let_go(token)

    def step(self) -> None:
        """Renew everything once."""
        with self._lock:
            tokens = list(self._held)
        for token in tokens:
            with self._beating:
                hold = self._held.get(token)
                if hold is not None:
                    self._renew(token, hold)

    def _renew(self, token: str, hold: _Hold) -> None:
        name = hold.store.shape.full_name
        try:
            beat = partial(hold.store.heartbeat, token=token, lease=config["jobs.lease_seconds"])
            hold.missed = 0 if hold.connection.apart(beat, patient=False) else hold.missed + 1
        except Exception:
            if token not in self._held:  # let go meanwhile: there is nothing left to renew, perhaps not even the table
                return
            hold.missed += 1
            logger.warning("A lease of %s could not be renewed; trying again.", name, exc_info=True)
        if hold.missed > BEATS_PER_LEASE and not hold.lasting:
            logger.warning("A reservation in %s was lost: there was nothing to renew for the length of a lease.", name)
            self.let_go(token)

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
