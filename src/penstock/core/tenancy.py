"""The end of a tenant: how far its deletion is, and the certificate of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion under way: rows erased so far, by table."""

    tenant_id: UUID
    slug: str
    requested_by: str
    requested_at: datetime
    erased: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was erased of a tenant, by whose order and when. It stands in the operator's audit, and nothing else of the tenant is left."""

    tenant_id: UUID
    slug: str
    requested_by: str
    requested_at: datetime
    erased_at: datetime
    erased: Mapping[str, int]
    """Rows by table."""
    log_files: int
    """Logs of runs that were removed from this machine. Other machines keep theirs until their own retention ends."""
    audit_seq: int
    audit_hash: str | None
    """The head of the tenant's own audit, which was erased too: whoever kept it can show that it was this one."""

    def told(self) -> dict[str, Any]:
        """The certificate as JSON."""
        return {
            "tenant_id": str(self.tenant_id), "slug": self.slug, "requested_by": self.requested_by,
            "requested_at": _shown(self.requested_at), "erased_at": _shown(self.erased_at), "erased": dict(self.erased),
            "log_files": self.log_files, "audit_head": {"seq": self.audit_seq, "hash": self.audit_hash},
        }  # fmt: skip

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Certificate:
        head = told["audit_head"]
        return cls(
            UUID(told["tenant_id"]), told["slug"], told["requested_by"], datetime.fromisoformat(told["requested_at"]),
            datetime.fromisoformat(told["erased_at"]), told["erased"], told["log_files"], head["seq"], head["hash"],
        )  # fmt: skip


def _shown(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
