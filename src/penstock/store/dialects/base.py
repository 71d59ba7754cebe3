"""What a dialect must say for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, ClassVar, Protocol
from uuid import UUID

from sqlalchemy import Connection, Engine
from sqlalchemy.engine import URL
from sqlalchemy.sql import ColumnElement, Executable

from penstock.core.nouns import Claim
from penstock.store.hot import Alike, ClaimRequest, Closed, Closing, Gate, NewJob, Written


class Dialect(Protocol):
    name: ClassVar[str]
    driver_name: ClassVar[str]
    bare_url: ClassVar[str]
    guest_options: ClassVar[Mapping[str, Any]]
    skip_locked: ClassVar[Mapping[str, Any]]
    """Arguments of `with_for_update` that take only rows nobody else holds (empty where one writer rules)."""

    def create_engine(
        self, url: URL, factory: Callable[..., Engine], pool_size: int, busy_timeout: float
    ) -> Engine: ...

    def is_raw_connection(self, given: Any) -> bool: ...

    def plain_rows(self, given: Any) -> AbstractContextManager[None]: ...

    def machine_time(self) -> datetime | None: ...

    def not_before(self, moment: datetime) -> None: ...

    def now(self) -> ColumnElement[datetime]: ...

    def select_now(self) -> Executable: ...

    def add_seconds(self, moment: ColumnElement[datetime], seconds: Any) -> ColumnElement[datetime]: ...

    def greatest(self, *values: ColumnElement[Any]) -> ColumnElement[Any]: ...

    # The hot path: one round trip each, whatever the size of the batch.

    def insert_jobs(self, conn: Connection, moment: datetime | None, new: Sequence[NewJob]) -> Sequence[Written]: ...

    def insert_alike(self, conn: Connection, moment: datetime | None, many: Alike) -> int: ...

    def gate(self, conn: Connection, moment: datetime | None) -> Gate: ...

    def claim(self, conn: Connection, moment: datetime | None, request: ClaimRequest) -> Sequence[Claim]: ...

    def heartbeat(
        self, conn: Connection, moment: datetime | None, pairs: Sequence[tuple[UUID, UUID]], lease_seconds: float
    ) -> Sequence[tuple[UUID, bool]]: ...

    def close(
        self, conn: Connection, moment: datetime | None, closings: Sequence[Closing], shard: int
    ) -> Sequence[Closed]: ...

    def wake(self, conn: Connection, queues: Sequence[str]) -> None: ...
