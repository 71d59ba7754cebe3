"""A worker's side of a run, kept in memory: the plainest thing that satisfies `Control`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock.core.nouns import Claim
from penstock.core.status import RetryMode
from tests.support.waiting import eventually


class Desk:
    """Keeps what a run reports."""

    def __init__(self, timeout: float | None = 60.0) -> None:
        self.timeout = timeout
        self.canceled = threading.Event()
        self.reason = ""
        self.by_shutdown = False
        self.progress: list[tuple[float, float | None, str]] = []
        self.tails: list[tuple[str, str]] = []
        self.artifacts: list[Mapping[str, Any]] = []
        self.heartbeats = 0
        self.pids: list[int] = []
        self.transactions: list[str] = []

    def cancel(self, reason: str = "asked to", by_shutdown: bool = False) -> None:
        self.reason, self.by_shutdown = reason, by_shutdown
        self.canceled.set()

    def report_progress(self, done: float, total: float | None, message: str) -> None:
        self.progress.append((done, total, message))

    def report_tails(self, stdout: str, stderr: str) -> None:
        self.tails.append((stdout, stderr))

    def report_pid(self, pid: int) -> None:
        self.pids.append(pid)

    def add_artifact(self, artifact: Mapping[str, Any]) -> None:
        self.artifacts.append(artifact)

    def heartbeat(self) -> None:
        self.heartbeats += 1

    def open_transaction(self) -> AbstractContextManager[Any]:
        return self._transaction()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[str]:
        self.transactions.append("begin")
        yield "connection"
        self.transactions.append("commit")


def claim(key: str, params: Mapping[str, Any] | None = None, attempt: int = 1) -> Claim:
    now = datetime.now(UTC)
    job = uuid4()
    return Claim(
        job_id=job,
        run_id=uuid4(),
        tenant_id=uuid4(),
        tenant_slug="acme",
        definition_id=None,
        key=key,
        queue="default",
        params=params or {},
        attempt_no=attempt,
        max_attempts=3,
        retry_mode=RetryMode.REQUEUE,
        root_id=job,
        group_id=None,
        worker_id="host:1:boot",
        started_at=now,
        lease_expires_at=now + timedelta(seconds=60),
    )


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def read_pid(path: Path) -> int:
    eventually(lambda: path.exists() and path.read_text().strip().isdigit(), what=f"a pid in {path.name}")
    return int(path.read_text())
