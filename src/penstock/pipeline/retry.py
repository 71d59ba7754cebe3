"""Which errors time may heal, and how often it gets the chance."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.exc import DBAPIError

from penstock.core.chance import chance
from penstock.core.errors import DatabaseLocked, DatabaseUnavailable
from penstock.pipeline.config import config
from penstock.pipeline.errors import InputChanged, TransientError
from penstock.store.faults import is_disconnect, is_transient

TRANSIENT: tuple[type[BaseException], ...] = (
    TransientError, InputChanged, ConnectionError, TimeoutError, DatabaseLocked, DatabaseUnavailable,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How a table's `make` is tried again: set `retry_policy = dj.RetryPolicy(max_attempts=5)` on the class.

    Without it, `jobs.max_attempts` and `jobs.retry_delay` rule. `errors` adds to what counts as transient.
    """

    max_attempts: int | None = None
    delay: float | None = None
    errors: tuple[type[BaseException], ...] = ()

    def delay_after(self, error: BaseException, attempts: int) -> float | None:
        """Seconds to wait before the next try, or None if there is none: doubling, with jitter."""
        limit = self.max_attempts if self.max_attempts is not None else config["jobs.max_attempts"]
        if attempts >= limit or not self._may_heal(error):
            return None
        base = self.delay if self.delay is not None else config["jobs.retry_delay"]
        return float(min(3600.0, base * 2 ** (attempts - 1)) * (0.5 + chance.random() / 2))

    def _may_heal(self, error: BaseException) -> bool:
        if isinstance(error, (*TRANSIENT, *self.errors)):
            return True
        return isinstance(error, DBAPIError) and (is_transient(error) or is_disconnect(error))
