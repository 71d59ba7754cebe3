"""The job table of an auto-populated table: `FilteredImage.jobs`."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from penstock.pipeline import kinds
from penstock.pipeline.blob import pack, unpack
from penstock.pipeline.config import config, job_version
from penstock.pipeline.declare import check_job_key
from penstock.pipeline.describe import describe
from penstock.pipeline.errors import JobTransitionError, PipelineError, QueryError, ReservationLost
from penstock.pipeline.keysource import keys_to_make
from penstock.pipeline.lease import heart
from penstock.pipeline.relation import Relation
from penstock.pipeline.rows import TableRows
from penstock.store.database import Tx
from penstock.store.pipeline import catalog, history
from penstock.store.pipeline.algebra import Source
from penstock.store.pipeline.jobs import Identity, JobStore
from penstock.store.pipeline.jobs import drop as drop_jobs
from penstock.store.pipeline.shape import Shape

if TYPE_CHECKING:
    from penstock.pipeline.auto import AutoPopulate

T = TypeVar("T")


class JobsTable(TableRows):
    """The queue of one table: a hidden table that can be queried, refreshed, and cleared like any other.

    `FilteredImage.jobs & 'status="error"'`, `FilteredImage.jobs.refresh()`, `FilteredImage.jobs.errors.delete()`
    """

    def __init__(self, target: AutoPopulate) -> None:
        cls = type(target)
        shape: Shape = cls.declared_shape()
        state = cls.__dict__.get("_job_state")
        if state is None or state.store.target != shape:
            state = cls._job_state = JobState(target.connection.backend, shape)
        self.target = target
        self.store: JobStore = state.store
        self._state: JobState = state
        self.connection = target.connection
        super().__init__(
            target.connection, self.store.shape, Source.of(self.store.table), frozenset((self.store.shape.full_name,))
        )
        if not state.ensured:
            self.declare()

    @property
    def definition(self) -> str:
        """The job table in the definition language, derived from the target's key."""
        return describe(self.store.shape)

    @property
    def is_declared(self) -> bool:
        """Whether the table is in the database with the target's key."""
        return self.connection.look(self.store.is_there)

    def drop_quick(self) -> None:
        """Drop the job table without asking; it comes back when next asked for."""
        self.connection.apart(lambda tx: drop_jobs(tx, self.store.target))
        self._state.ensured = False

    def declare(self) -> None:
        """Create the table unless it is there."""

        def ready(tx: Tx) -> bool:
            return self.store.is_there(tx) and catalog.has_table(tx, self.store.shape.schema, history.NAME)

        def make(tx: Tx) -> None:
            catalog.lock(tx)
            self.store.ensure(tx)
            history.ensure(tx, self.store.shape.schema)

        if not self.connection.look(ready):
            self.connection.apart(make)
        self._state.ensured = True

    @property
    def table_name(self) -> str:
        """`~~` and the target's name."""
        return self.store.shape.name

    @property
    def full_table_name(self) -> str:
        return self.store.shape.full_name

    def refresh(
        self,
        *restrictions: Any,
        scheduled_time: datetime | None = None,
        delay: float = 0,
        priority: int | None = None,
        stale_timeout: float | None = None,
        orphan_timeout: float | None = None,
    ) -> dict[str, int]:
        """Bring the queue in step with the key source, in one transaction.

        Adds keys of `(key_source & restrictions) - target` as pending; gives a `priority` that is named to those already
        pending; re-pends successes whose result is gone; removes pending jobs whose source is gone for longer than
        `stale_timeout` or whose result is there; returns reservations that died, or are older than `orphan_timeout`.
        """  # fmt: skip
        return self._refresh(
            restrictions, scheduled_time, delay, priority, stale_timeout, orphan_timeout, rerank=priority is not None
        )

    def add_missing(self, *restrictions: Any, priority: int | None = None) -> dict[str, int]:
        """Refresh as populate() does: a `priority` is for the keys that this adds, and leaves those already pending alone."""
        return self._refresh(restrictions, None, 0, priority, None, None, rerank=False)

    def _refresh(
        self,
        restrictions: tuple[Any, ...],
        scheduled_time: datetime | None,
        delay: float,
        priority: int | None,
        stale_timeout: float | None,
        orphan_timeout: float | None,
        *,
        rerank: bool,
    ) -> dict[str, int]:
        if delay and scheduled_time is not None:
            raise PipelineError("refresh() takes a delay or a scheduled_time, not both.")
        urgency = check_priority(config["jobs.default_priority"] if priority is None else priority)
        at = kinds.instant(scheduled_time) if scheduled_time is not None else None
        stale = config["jobs.stale_timeout"] if stale_timeout is None else stale_timeout
        wanted, everything = keys_to_make(self.target, *restrictions), keys_to_make(self.target)
        target = self.target_source()

        def run(tx: Tx) -> dict[str, int]:
            orphaned = self.store.return_orphans(tx, config["jobs.max_crashes"], orphan_timeout)
            removed = self.store.remove_stale(tx, everything, target, stale)
            re_pended = self.store.repend(tx, wanted, target)
            changed = self.store.reprioritise(tx, wanted, urgency) if rerank else 0
            added = self.store.add(tx, wanted, target, urgency, at, delay)
            return {
                "added": added, "removed": removed, "orphaned": orphaned, "re_pended": re_pended, "reprioritised": changed,
            }  # fmt: skip

        return self._write(run)

    def reserve(self, key: Mapping[str, Any]) -> bool:
        """Reserve one pending, due job for this process, which keeps the lease alive; False if it is not to be had."""
        own, token = self._key(key), str(uuid4())
        lease = config["jobs.lease_seconds"]
        if not self._write(lambda tx: self.store.reserve(tx, own, token, identity(), lease)):
            return False
        self._state.tokens[self._frozen(own)] = token
        heart.hold(token, self.connection, self.store)
        return True

    def complete(self, key: Mapping[str, Any], duration: float | None = None) -> None:
        """Reserved becomes success, or is deleted unless `jobs.keep_completed`. A job that is gone is left in peace."""
        own = self._key(key)
        keep = config["jobs.keep_completed"]
        self._report("complete", own, lambda tx, token: self.store.complete(tx, own, token, duration, keep=keep))

    def error(self, key: Mapping[str, Any], error_message: str, error_stack: str | None = None) -> None:
        """Reserved becomes error. The message is cut at 2,047 characters; the stack is kept whole."""
        own = self._key(key)
        stack = pack(error_stack) if error_stack is not None else None
        self._report("error", own, lambda tx, token: self.store.fail(tx, own, token, error_message, stack, None))

    def ignore(self, key: Mapping[str, Any]) -> None:
        """Set a key aside, queued or not. To bring it back: `jobs.ignored.delete(); jobs.refresh()`."""
        own = self._key(key)
        hindrance = self._write(lambda tx: self.store.ignore(tx, own, config["jobs.default_priority"]))
        if hindrance is not None:
            raise JobTransitionError("ignore", own, hindrance, "pending, error or not queued")

    def progress(self) -> dict[str, int]:
        """How many jobs there are in each status, and in all."""
        return self.connection.look(self.store.progress)

    @property
    def pending(self) -> TableRows:
        """Jobs that wait."""
        return self._in("pending")

    @property
    def reserved(self) -> TableRows:
        """Jobs that a worker holds."""
        return self._in("reserved")

    @property
    def errors(self) -> TableRows:
        """Jobs that failed."""
        return self._in("error")

    @property
    def ignored(self) -> TableRows:
        """Jobs that were set aside."""
        return self._in("ignore")

    @property
    def completed(self) -> TableRows:
        """Jobs that are done, where `jobs.keep_completed` keeps them."""
        return self._in("success")

    def history(self, key: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Every error there ever was, latest last, cleared or not; of one key if given."""
        found = self.connection.look(lambda tx: history.read(tx, self.store.target))
        wanted = history.plain(self._key(key)) if key is not None else None
        return [
            {**row, "error_stack": unpack(row["error_stack"]) if row["error_stack"] is not None else None}
            for row in found
            if wanted is None or row["key"] == wanted
        ]

    def why(self, key: Mapping[str, Any]) -> str:
        """In a sentence: what becomes of this key, or what keeps it from being made."""
        own = self._key(key)

        def look(tx: Tx) -> str:
            row = self.store.row(tx, own)
            if self._has(tx, self.target_source(), own):
                return "Its result is there already."
            if not self._has(tx, keys_to_make(self.target), own):
                return "It is not in the key source: a parent row is missing, or key_source leaves it out."
            if row is None:
                return "It is not queued: run refresh(), or populate(reserve_jobs=True) with refresh on."
            return _explain(tx, self.store, row)

        return self.connection.look(look)

    def target_source(self) -> Source:
        """The rows that are made already."""
        return self.target.source.embed()

    def _has(self, tx: Tx, source: Source, key: Mapping[str, Any]) -> bool:
        relation = Relation(self.connection, {n: self.attributes[n] for n in self.store.keys}, source, frozenset())
        return tx.first((relation & dict(key)).source.select().limit(1)) is not None

    def _in(self, status: str) -> TableRows:
        found = self & {"status": status}
        assert isinstance(found, TableRows)
        return found

    def _report(self, verb: str, own: Mapping[str, Any], write: Callable[[Tx, str], bool]) -> None:
        token = self._state.tokens.get(self._frozen(own), "")

        def run(tx: Tx) -> str | None:
            return None if write(tx, token) else self.store.status(tx, own) or "gone"

        hindrance = self._write(run)
        if token:
            self._state.tokens.pop(self._frozen(own), None)
            heart.let_go(token)
        if hindrance == "reserved" or (token and hindrance == "pending"):
            raise ReservationLost(f"The job {own} is not held by this process: its lease ran out, or another holds it.")
        if hindrance not in (None, "gone"):
            raise JobTransitionError(verb, own, str(hindrance), "reserved")

    def _key(self, key: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return encode_key(self.store.target, key, self.connection.backend)
        except (ValueError, TypeError) as error:
            raise QueryError(f"{key!r} is no key of {self.store.target.class_name}: {error}.") from error

    def _frozen(self, own: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(own[name] for name in self.store.keys)

    def _write(self, work: Callable[[Tx], T]) -> T:
        return self.connection.write(work)


class JobState:
    """What one process knows of a job table: its statements, and the tokens of what it reserved by hand."""

    def __init__(self, backend: str, target: Shape) -> None:
        check_job_key(target)
        self.store = JobStore(backend, target)
        self.ensured = False
        self.tokens: dict[tuple[Any, ...], str] = {}


def encode_key(target: Shape, key: Mapping[str, Any], backend: str) -> dict[str, Any]:
    """The job key in `key`, as the database takes it; what else is in there is left out."""
    if missing := [a.name for a in target.job_key if a.name not in key]:
        raise ValueError(f"{missing[0]!r} is missing")
    return {a.name: kinds.encode(a, key[a.name], backend) for a in target.job_key}


def check_priority(priority: Any) -> int:
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority < 2**31:
        raise PipelineError(f"priority takes a whole number from 0, the most urgent, not {priority!r}.")
    return priority


def identity() -> Identity:
    """Who this process is, for job rows."""
    return Identity(_user(), _host(), os.getpid(), job_version())


@lru_cache(maxsize=1)
def _user() -> str:
    try:
        return getpass.getuser()[:255]
    except (KeyError, OSError):
        return ""


@lru_cache(maxsize=1)
def _host() -> str:
    return socket.gethostname()[:255]


def _explain(tx: Tx, store: JobStore, row: Any) -> str:
    if row.status == "ignore":
        return "It is ignored. To bring it back: jobs.ignored.delete(); jobs.refresh()"
    if row.status == "error":
        return (
            f"It failed at {row.completed_time:%Y-%m-%d %H:%M:%S} UTC: {row.error_message} Delete the job to try again."
        )
    if row.status == "success":
        return "It was made, but its result is gone: refresh() makes it pending again."
    now = tx.time()
    if row.status == "reserved":
        if row.lease_until < (tx.lease_time() or now):
            return (
                f"The worker {row.host}:{row.pid} that held it vanished; the next refresh() or populate() returns it."
            )
        return f"{row.user}@{row.host}, process {row.pid}, is at it since {row.reserved_time:%Y-%m-%d %H:%M:%S} UTC."
    if row.scheduled_time > now:
        again = f" after: {row.error_message}" if row.error_message else ""
        return f"It is scheduled for {row.scheduled_time:%Y-%m-%d %H:%M:%S} UTC{again}."
    ahead = store.ahead(tx, row)
    return f"It is pending at priority {row.priority}, behind {ahead} more urgent job{'' if ahead == 1 else 's'}."
