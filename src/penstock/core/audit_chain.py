"""The hash chain of the audit: how an entry is hashed, and how a chain is verified. Pure.

Each tenant has a chain of its own, and the operator has one. An entry's hash covers its chain, its number, the hash of the entry
before it and everything it says. So nobody can change, remove, insert or move an entry without every later hash being wrong, and
whoever kept a copy of the last hash (the head) can tell, whatever was done to the database since.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from penstock.core.access import AuditEntry

GENESIS = "0" * 64
"""What the first entry of a chain has in place of a hash before it."""
OPERATOR = UUID(int=0)
"""The chain of what belongs to no tenant."""
PRUNED = "audit.prune"
"""The action of the entry that says up to where a chain was pruned."""
DELETED = "tenant.delete"
"""The action of the operator's entry that certifies the deletion of a tenant."""
MOST_FINDINGS = 20
BACKDATED = timedelta(hours=1)
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Head:
    """The last entry of a chain. Kept elsewhere, it proves later that nothing before it was changed."""

    tenant_id: UUID | None
    """None for the operator's chain."""
    tenant: str | None
    seq: int
    hash: str
    at: datetime
    anchor_seq: int = 0
    """Up to which entry the chain was pruned."""
    anchor_hash: str = GENESIS

    @property
    def name(self) -> str:
        return chain_name(self.tenant_id, self.tenant)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a chain. `seq` is the number of the entry, or None for the chain as a whole."""

    tenant_id: UUID | None
    tenant: str | None
    seq: int | None
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{chain_name(self.tenant_id, self.tenant)}: {self.message}"


@dataclass(frozen=True, slots=True)
class Verified:
    """What a verification found. `notes` are worth a look, but may have an innocent reason."""

    findings: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    chains: int
    entries: int
    unsealed: int
    """Entries that were written a moment ago and are not part of a chain yet."""

    @property
    def clean(self) -> bool:
        return not self.findings


def chain_name(tenant_id: UUID | None, slug: str | None) -> str:
    if tenant_id is None:
        return "the operator's chain"
    return f"the chain of tenant {slug!r}" if slug else f"the chain of tenant {tenant_id}"


def entry_hash(entry: AuditEntry, seq: int, prev_hash: str) -> str:
    """Return the hash of an entry at its place in its chain.

    The encoding does not depend on the database: an audit that is copied from SQLite to PostgreSQL keeps its hashes."""
    content = {
        "v": 1,
        "chain": str(entry.tenant_id or OPERATOR),
        "seq": seq,
        "prev": prev_hash,
        "id": str(entry.id),
        "actor": entry.actor,
        "action": entry.action,
        "subject_type": entry.subject_type,
        "subject_id": entry.subject_id,
        "before": _canonical(entry.before),
        "after": _canonical(entry.after),
        "request_id": entry.request_id,
        "address": entry.address,
        "at": entry.at.astimezone(UTC).isoformat(timespec="microseconds"),
    }
    return hashlib.sha256(_encoded(content)).hexdigest()


def _encoded(content: Mapping[str, Any]) -> bytes:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def _canonical(value: Any) -> Any:
    """Return a JSON value with its numbers written in one way: PostgreSQL reads 1e22 back as an integer."""
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if abs(value) < _EXACT:
        return int(value) if value == int(value) else value
    try:
        return repr(float(value))
    except OverflowError:
        return str(value)


class ChainCheck:
    """Verify one chain: give it the entries by number with `add`, then ask for `finish`."""

    def __init__(self, head: Head, kept: Iterable[Head] = ()) -> None:
        self.head = head
        self.findings: list[Finding] = []
        self.notes: list[Finding] = []
        self.entries = 0
        self._kept: dict[int, list[Head]] = {}
        for each in kept:
            self._kept.setdefault(each.seq, []).append(each)
        self._seq, self._hash = head.anchor_seq, head.anchor_hash
        self._at: datetime | None = None
        self._pruned: tuple[int, str] | None = None
        self._compare_kept(head.anchor_seq, head.anchor_hash)

    def add(self, entry: AuditEntry) -> None:
        seq = entry.seq or 0
        self.entries += 1
        if seq <= self._seq:
            self._find(seq, "inserted", f"entry {seq} was inserted: its number was taken or pruned before.")
            return
        missing = seq - self._seq - 1
        if missing:
            self._removed(self._seq + 1, seq - 1)
        if entry_hash(entry, seq, entry.prev_hash or "") != entry.hash:
            self._find(seq, "edited", f"entry {seq} ({entry.action} by {entry.actor}) was edited.")
        elif not missing and entry.prev_hash != self._hash:
            self._find(
                seq, "moved", f"entry {seq} ({entry.action} by {entry.actor}) does not follow the entry before it."
            )
        if self._at is not None and entry.at < self._at - BACKDATED:
            self._note(
                seq,
                "backdated",
                f"entry {seq} is dated earlier than the one before it: it was written later than it says, or a clock was set back.",
            )
        self._compare_kept(seq, entry.hash or "")
        if entry.action == PRUNED and isinstance(entry.after, Mapping):
            self._pruned = (entry.after.get("through", 0), entry.after.get("hash", ""))
        self._seq, self._hash, self._at = seq, entry.hash or "", entry.at

    def finish(self) -> None:
        """Compare what was read with the head and with the heads that were kept elsewhere."""
        head = self.head
        if self._seq < head.seq:
            self._removed(self._seq + 1, head.seq)
        elif self._seq > head.seq:
            self._find(self._seq, "inserted", f"there are entries after the head, which is entry {head.seq}.")
        elif self._hash != head.hash:
            self._find(head.seq, "head", "the head does not have the hash of the last entry.")
        if head.anchor_seq and self._pruned != (head.anchor_seq, head.anchor_hash):
            self._find(
                None,
                "removed",
                f"entries up to {head.anchor_seq} are missing, and no entry says that they were pruned.",
            )
        for seq in sorted(self._kept):
            if seq > max(head.seq, self._seq):
                self._find(
                    seq, "cut", f"the end was cut off: there was an entry {seq}, and the last one is {self._seq}."
                )
            elif seq < head.anchor_seq:
                self._note(
                    seq, "pruned", f"entry {seq} was pruned since its head was kept, so it cannot be compared any more."
                )

    def _compare_kept(self, seq: int, found: str) -> None:
        for each in self._kept.get(seq, ()):
            if each.hash != found:
                self._find(
                    seq, "rewritten", f"entry {seq} has another hash than the head that was kept: it was rewritten."
                )

    def _removed(self, first: int, last: int) -> None:
        told = f"entry {first} was" if first == last else f"entries {first} to {last} were"
        self._find(first, "removed", f"{told} removed.")

    def _find(self, seq: int | None, kind: str, message: str) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append(Finding(self.head.tenant_id, self.head.tenant, seq, kind, message))

    def _note(self, seq: int | None, kind: str, message: str) -> None:
        if len(self.notes) < MOST_FINDINGS:
            self.notes.append(Finding(self.head.tenant_id, self.head.tenant, seq, kind, message))
