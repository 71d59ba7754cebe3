"""The audit on the wire."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from penstock.core.access import AuditEntry as AuditNoun
from penstock.core.audit_chain import Head
from penstock.core.wire.base import Answer, Instant


class AuditEntry(Answer):
    """Who did what. `seq` is its number in the hash chain of its tenant; null until it is sealed, a moment after it was written."""

    id: UUID
    tenant_id: UUID | None
    actor: str
    action: str
    subject_type: str
    subject_id: str | None
    before: Any
    after: Any
    request_id: str | None
    address: str | None
    at: Instant
    seq: int | None
    hash: str | None

    @classmethod
    def of(cls, entry: AuditNoun) -> AuditEntry:
        return cls(**{name: getattr(entry, name) for name in cls.model_fields})


class AuditPage(Answer):
    items: list[AuditEntry]
    next_cursor: str | None


class AuditHead(Answer):
    """The last entry of a hash chain. Keep it elsewhere: `penstock audit verify --head` compares the chain with it later."""

    tenant_id: UUID | None
    tenant: str | None
    seq: int
    hash: str
    at: Instant

    @classmethod
    def of(cls, head: Head) -> AuditHead:
        return cls(**{name: getattr(head, name) for name in cls.model_fields})


class AuditHeads(Answer):
    items: list[AuditHead]
