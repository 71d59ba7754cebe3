"""The deletion of a tenant on the wire."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from penstock.core.tenancy import Certificate as CertificateNoun
from penstock.core.tenancy import Deletion as DeletionNoun
from penstock.core.wire.base import Answer, Instant


class Certificate(Answer):
    """What was erased of a tenant. The same stands in the operator's audit as `tenant.delete`."""

    tenant_id: UUID
    slug: str
    requested_by: str
    requested_at: Instant
    erased_at: Instant
    erased: dict[str, int]
    log_files: int
    audit_seq: int
    audit_hash: str | None

    @classmethod
    def of(cls, certificate: CertificateNoun) -> Certificate:
        return cls(**{name: getattr(certificate, name) for name in cls.model_fields})


class Deletion(Answer):
    """A tenant that is closed and being erased, or, with its certificate, one that is gone."""

    tenant_id: UUID
    slug: str
    state: Literal["erasing", "deleted"]
    requested_by: str
    requested_at: Instant
    erased: dict[str, int]
    certificate: Certificate | None

    @classmethod
    def of(cls, found: DeletionNoun | CertificateNoun) -> Deletion:
        done = isinstance(found, CertificateNoun)
        return cls(
            tenant_id=found.tenant_id, slug=found.slug, state="deleted" if done else "erasing",
            requested_by=found.requested_by, requested_at=found.requested_at, erased=dict(found.erased),
            certificate=Certificate.of(found) if isinstance(found, CertificateNoun) else None,
        )  # fmt: skip
