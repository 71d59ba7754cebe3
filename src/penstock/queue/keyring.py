"""The operator's keys: where they come from, what they are used for, and how they are replaced."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from penstock.core.cipher import KeyRing
from penstock.core.errors import InvalidInput
from penstock.core.nouns import Warning_
from penstock.queue.ground import Ground
from penstock.store import rotation
from penstock.store.database import Tx
from penstock.store.rotation import Census

KEYS, KEYS_FILE = "PENSTOCK_KEYS", "PENSTOCK_KEYS_FILE"
MAX_PASSES = 3
"""How often all tables are gone through. What another process goes on writing with an old key is not run after for ever."""


def from_environment(environ: Mapping[str, str] | None = None) -> KeyRing | None:
    """The keys of PENSTOCK_KEYS, or of the file that PENSTOCK_KEYS_FILE names; None if neither is set."""
    given = os.environ if environ is None else environ
    text, path = given.get(KEYS, "").strip(), given.get(KEYS_FILE, "").strip()
    if text and path:
        raise InvalidInput(f"Both {KEYS} and {KEYS_FILE} are set. Set one of them.")
    if path:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise InvalidInput(f"The file that {KEYS_FILE} names cannot be read: {path}: {reason}.") from error
        if not text.strip():
            raise InvalidInput(f"The file that {KEYS_FILE} names has no keys in it: {path}.")
    return KeyRing.parse(text) if text else None


@dataclass(frozen=True, slots=True)
class KeyUse:
    """A key, and how many values in the database are encrypted with it."""

    id: str
    role: str
    """`writes` for the first key of the ring, `reads` for the others, `missing` for one that this process does not have."""
    values: int


@dataclass(frozen=True, slots=True)
class KeysReport:
    """What is encrypted with which key, and what is in clear."""

    keys: tuple[KeyUse, ...]
    in_clear: Mapping[str, int]
    """How many values of each column are in clear."""

    @property
    def unused(self) -> tuple[str, ...]:
        """Keys that are only there to read, and that nothing is encrypted with: they can be taken out of the ring."""
        return tuple(key.id for key in self.keys if key.role == "reads" and not key.values)

    @property
    def missing(self) -> tuple[KeyUse, ...]:
        return tuple(key for key in self.keys if key.role == "missing")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rotation has come."""

    table: str
    sealed: int
    """Values that were encrypted anew so far."""
    total: int
    """How many there were to do when it began."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """What a rotation did, and what is left."""

    sealed: int
    unreadable: Mapping[str, int]
    """Values that were left as they are, by the reason."""
    after: KeysReport


def _silent(_progress: Progress) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Keys:
    """`app.keys`: the keys that encrypt at rest."""

    ground: Ground

    def list(self) -> KeysReport:
        """Count what is encrypted with which key. Reads every table once."""
        with self.ground.db.read(patient=True) as tx:
            return report(self.ground.db.codec.ring, rotation.census(tx))

    def rotate(self, progress: Callable[[Progress], None] = _silent, *, scrub: bool = False) -> Rotation:
        """Encrypt everything with the first key: what an older key has encrypted, and what is in clear.

        It works in small transactions beside a running fleet. If it is interrupted, call it again: it goes on where it was. With
        `scrub`, an SQLite file is rewritten at the end, so that nothing of what was overwritten stays in it.
        """
        ring = self.ground.db.codec.ring
        if ring is None:
            raise InvalidInput(
                f"There are no keys. Set {KEYS} or {KEYS_FILE}, or give Penstock(…, keys=KeyRing(…)); `penstock keys generate` "
                "creates a key."
            )
        total = _to_do(self.list(), ring)
        sealed, unreadable = 0, Counter[str]()
        for _ in range(MAX_PASSES):
            changed, unreadable = self._pass(lambda table, n: progress(Progress(table, n, total)), sealed)
            sealed += changed
            if not changed:
                break
        if scrub:
            rotation.scrub(self.ground.db)
        self.ground.forget_definitions()
        return Rotation(sealed, dict(unreadable), self.list())

    def _pass(self, progress: Callable[[str, int], None], before: int) -> tuple[int, Counter[str]]:
        changed, unreadable = 0, Counter[str]()
        for sealed in rotation.SEALED:
            after: rotation.Key | None = None
            while True:
                began = time.monotonic()
                step = self.ground.db.transact(partial(rotation.step, sealed=sealed, after=after))
                changed += step.sealed
                unreadable += step.unreadable
                if step.sealed:
                    progress(sealed.name, before + changed)
                if step.next is None:
                    break
                after = step.next
                time.sleep(min(0.1, time.monotonic() - began))  # half of the time is the fleet's
        return changed, unreadable


class LookedAt(NamedTuple):
    """What `doctor` says of encryption at rest."""

    warnings: tuple[Warning_, ...]
    notes: tuple[str, ...]


def looked_at(tx: Tx) -> LookedAt:
    """What is in clear though there are keys, and what is encrypted with keys that this process does not have."""
    ring = tx.codec.ring
    found = report(ring, rotation.census(tx))
    warnings = []
    for key in found.missing:
        message = f"{key.values:,} values are encrypted with key {key.id}, which this process does not have. Add it to {KEYS}."
        warnings.append(Warning_("encrypted with a missing key", message))
    if ring is None:
        return LookedAt(tuple(warnings), ("Encryption at rest is off: no keys are configured.",))
    clear = sum(found.in_clear.values())
    if clear:
        where = ", ".join(f"{name} {n:,}" for name, n in found.in_clear.items())
        message = f"{clear:,} values are stored in clear though keys are configured: {where}. `penstock keys rotate` encrypts them."
        warnings.append(Warning_("stored in clear", message))
    used = ", ".join(f"{key.id} ({key.values:,} values)" for key in found.keys if key.role != "missing")
    return LookedAt(tuple(warnings), (f"Encryption at rest is on, with keys {used}.",))


def report(ring: KeyRing | None, found: Census) -> KeysReport:
    counts: Counter[tuple[str, str]] = Counter()
    in_clear: dict[str, int] = {}
    for column, by_key in found.items():
        for used, n in by_key.items():
            if used is None:
                in_clear[column] = n
            elif ring is not None and ring.has(used.id, used.check):
                counts[used.id, "writes" if used.id == ring.first else "reads"] += n
            else:
                counts[used.id, "missing"] += n
    for key_id in ring or ():
        counts[key_id, "writes" if ring and key_id == ring.first else "reads"] += 0
    order = {"writes": 0, "reads": 1, "missing": 2}
    keys = sorted(
        (KeyUse(key_id, role, n) for (key_id, role), n in counts.items()), key=lambda k: (order[k.role], k.id)
    )
    return KeysReport(tuple(keys), dict(sorted(in_clear.items())))


def _to_do(now: KeysReport, ring: KeyRing) -> int:
    return sum(now.in_clear.values()) + sum(key.values for key in now.keys if key.role == "reads")
