"""What the service writes into the audit beside changes: sign-ins, refusals and lookups across tenants.

Requests only leave a note. A thread writes the notes once a second, so that no request waits for the database because of them. What
happens again and again within a minute is counted in one entry, and the number of entries in a minute is bounded: nobody can fill the
table by knocking. The same thread seals the hash chains and goes on with deletions of tenants.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from penstock.core.access import Outcome, Principal
from penstock.core.chance import chance
from penstock.core.forwarded import counted_as
from penstock.queue import audit, erase
from penstock.queue.ground import Ground
from penstock.store import lookups
from penstock.store.database import Tx
from penstock.worker.service import Service

SECONDS = 1.0
WINDOW = 60.0
MOST_KEYS = 200
"""Different things that are noted in a minute. The rest is counted together."""
MOST_LOOKUPS = 1000
SUBJECTS = {
    "session.open": "session",
    "session.close": "session",
    "session.refused": "session",
    "token.refused": "token",
}
NOBODY = "unknown"


class Key(NamedTuple):
    """What is counted together."""

    action: str
    tenant_id: UUID | None
    actor: str
    subject_type: str
    address: str | None


@dataclass(slots=True)
class Note:
    count: int = 0
    written: int = 0
    detail: Any = None
    request_id: str | None = None


@dataclass(slots=True)
class Window:
    """The notes of a minute."""

    began: float
    notes: dict[Key, Note] = field(default_factory=dict)


class Missed(NamedTuple):
    """An id that a caller's own tenant does not have."""

    noun: str
    id: UUID
    tenant_id: UUID
    actor: str
    address: str


class AuditLog(Service):
    """`step()` writes what was noted. One for each app."""

    name = "audit"

    def __init__(self, ground: Ground, clock: Any) -> None:
        super().__init__()
        self._ground = ground
        self._clock = clock
        self._lock = threading.Lock()
        self._window = Window(clock())
        self._missed: list[Missed] = []
        self._woken = False

    # Called by requests; none of these waits.

    def outcome(self, told: Outcome) -> None:
        """Note how an attempt to come in, to leave or to do something ended."""
        who = told.principal
        refused = told.kind.endswith(".refused")
        address = counted_as(told.address) if refused and who is None else told.address
        key = Key(
            told.kind,
            None if who is None else who.tenant_id,
            NOBODY if who is None else who.actor,
            SUBJECTS.get(told.kind, "request"),
            address or None,
        )
        self.note(key, told.detail[:300] or None, told.request_id)

    def note(self, key: Key, detail: Any = None, request_id: str | None = None) -> None:
        with self._lock:
            notes = self._window.notes
            if key not in notes and len(notes) >= MOST_KEYS:
                key = Key(key.action, None, "many", key.subject_type, None)
            found = notes.setdefault(key, Note(detail=detail, request_id=request_id))
            found.count += 1

    def missed(self, noun: str, id: object, principal: Principal, tenant_id: UUID, address: str) -> None:
        """Note that an id was not found, so that we can look whether it is another tenant's. The caller learns nothing of it."""
        if not isinstance(id, UUID) or principal.tenant_id is None:
            return
        with self._lock:
            if len(self._missed) < MOST_LOOKUPS:
                actor = f"token {principal.token_prefix} ({principal.role.value})"
                self._missed.append(Missed(noun, id, tenant_id, actor, address))

    def wake(self) -> None:
        """There is something to do."""
        self._woken = True

    # On our own thread.

    def pause(self) -> float:
        return 0.05 if self._woken else SECONDS * (0.5 + chance.random())

    def step(self) -> None:
        self._woken = False
        self._look_up()
        self._write()
        audit.seal(self._ground)
        erase.resume(self._ground)

    def close(self) -> None:
        """Write what is left, when the service ends."""
        self.stop()
        self.join(5.0)
        with suppress(Exception):
            self._window.began -= WINDOW  # the minute is over
            self._look_up()
            self._write()
            audit.seal(self._ground)

    def _write(self) -> None:
        due: list[tuple[Key, int, Note]] = []
        with self._lock:
            over = self._clock() - self._window.began >= WINDOW
            for key, note in self._window.notes.items():
                # The first at once, the others together when the minute is over.
                if note.count > note.written and (over or note.written == 0):
                    due.append((key, note.count - note.written, note))
                    note.written = note.count
            if over:
                self._window = Window(self._clock())
        if due:
            self._ground.db.transact(lambda tx: _write_all(tx, due))

    def _look_up(self) -> None:
        with self._lock:
            missed, self._missed = self._missed, []
        if not missed:
            return
        wanted: dict[str, set[UUID]] = {}
        for each in missed:
            wanted.setdefault(each.noun, set()).add(each.id)
        with self._ground.db.read() as tx:
            owners = {noun: lookups.owners(tx, noun, ids) for noun, ids in wanted.items()}
        for each in missed:
            owner = owners[each.noun].get(each.id)
            if owner is not None and owner != each.tenant_id:
                self.note(Key("access.other_tenant", None, each.actor, each.noun, each.address or None))


def _write_all(tx: Tx, due: list[tuple[Key, int, Note]]) -> None:
    there = lookups.existing(tx, {key.tenant_id for key, _, _ in due if key.tenant_id is not None})
    for key, number, note in due:
        if key.tenant_id is not None and key.tenant_id not in there:
            continue  # it was deleted meanwhile
        lookups.note(
            tx,
            key.tenant_id,
            key.actor,
            key.action,
            key.subject_type,
            _told(note, number),
            note.request_id,
            key.address,
        )


def _told(note: Note, number: int) -> Mapping[str, Any]:
    return {"count": number, **({} if note.detail is None else {"detail": note.detail})}
