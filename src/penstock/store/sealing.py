"""What is encrypted at rest, and where it is: the one place that turns values into sealed ones and back.

Every store verb asks the `Codec` of its transaction on the way to a row and on the way back. Without keys it writes values as they
are, and recognizes sealed ones when it reads. Null and empty objects are left as they are: there is nothing in them to hide.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from penstock.core.cipher import (
    BUCKET_BYTES,
    MEMBER,
    TEXT_MARK,
    KeyRing,
    Unreadable,
    is_sealed,
    is_sealed_text,
    parts,
    readable,
)
from penstock.core.decide import Resolution
from penstock.core.errors import CiphertextInvalid, InvalidInput, KeyMissing
from penstock.core.nouns import Claim
from penstock.core.outcomes import NOTHING
from penstock.core.payload import dumps
from penstock.store.hot import Alike, Closing, NewJob

_NO_TENANT = UUID(int=0)
_LOOKS_SEALED = f'{{"{MEMBER}":"v1:'


class Place(NamedTuple):
    """What a sealed value belongs to, authenticated with it: a kind, which stands for the column, a tenant and a row."""

    kind: bytes
    tenant_id: UUID | None
    row: UUID

    @property
    def context(self) -> bytes:
        return self.kind + b"\0" + (self.tenant_id or _NO_TENANT).bytes + self.row.bytes

    @property
    def bucket(self) -> bytes:
        return self.row.bytes[:BUCKET_BYTES]


def params_of(tenant_id: UUID, root_id: UUID) -> Place:
    """A retry in chain mode copies its params from the job before it, inside the database. So they belong to the first job of the
    chain, which is most often the job itself."""
    return Place(b"params", tenant_id, root_id)


def snapshot_of(tenant_id: UUID, job_id: UUID) -> Place:
    return Place(b"snapshot", tenant_id, job_id)


def result_of(tenant_id: UUID, job_id: UUID) -> Place:
    return Place(b"result", tenant_id, job_id)


def progress_of(tenant_id: UUID, job_id: UUID) -> Place:
    return Place(b"progress", tenant_id, job_id)


def error_of(tenant_id: UUID, job_id: UUID) -> Place:
    """A run's error is what its job shows, and recovery closes runs that it knows only by their job."""
    return Place(b"error", tenant_id, job_id)


def stdout_of(tenant_id: UUID, run_id: UUID) -> Place:
    return Place(b"stdout", tenant_id, run_id)


def stderr_of(tenant_id: UUID, run_id: UUID) -> Place:
    return Place(b"stderr", tenant_id, run_id)


def defaults_of(tenant_id: UUID | None, definition_id: UUID) -> Place:
    return Place(b"defaults", tenant_id, definition_id)


def template_of(tenant_id: UUID, trigger_id: UUID) -> Place:
    return Place(b"template", tenant_id, trigger_id)


def event_of(tenant_id: UUID, event_id: UUID) -> Place:
    return Place(b"event", tenant_id, event_id)


def secret_of(tenant_id: UUID, webhook_id: UUID) -> Place:
    """A rotation copies the secret to the column of the previous one, inside the database: both have the same place."""
    return Place(b"secret", tenant_id, webhook_id)


def answer_of(tenant_id: UUID, delivery_id: UUID) -> Place:
    """What the receiver of a webhook said."""
    return Place(b"answer", tenant_id, delivery_id)


def response_of(tenant_id: UUID, key: str) -> Place:
    """An idempotency key is a text; its hash stands for it."""
    return Place(b"response", tenant_id, UUID(bytes=sha256(key.encode()).digest()[:16]))


class Codec:
    """Seals what is written and opens what is read, with the keys that this process has."""

    __slots__ = ("ring", "writes")

    def __init__(self, ring: KeyRing | None = None) -> None:
        self.ring = ring
        self.writes = ring is not None
        """Whether what is written is sealed."""

    def seal(self, document: Any, place: Place) -> Any:
        """A JSON document as it is stored."""
        if self.ring is None or document is None or document == {}:
            return document
        return {MEMBER: self._sealed(dumps(readable(document)).encode(), place)}

    def seal_text(self, text: str | None, place: Place) -> str | None:
        if self.ring is None or not text:
            return text
        return TEXT_MARK + self._sealed(text.encode("utf-8", "surrogatepass"), place)

    def open(self, document: Any, place: Callable[[], Place]) -> Any:
        """A JSON document as it was given; `Unreadable` if it cannot be opened here."""
        if not is_sealed(document):
            return document
        try:
            return json.loads(self._opened(document[MEMBER], place()))
        except (KeyMissing, CiphertextInvalid) as error:
            return Unreadable(error)

    def open_text(self, text: str | None, place: Callable[[], Place]) -> str | None:
        """A text as it was given. One that cannot be opened here is a sentence that says why."""
        if not is_sealed_text(text):
            return text
        try:
            return self.open_secret(text, place)
        except (KeyMissing, CiphertextInvalid) as error:
            return f"({error.short})"

    def open_secret(self, text: str | None, place: Callable[[], Place]) -> str | None:
        """The same for a text that is of no use unless it can be opened: raises KeyMissing or CiphertextInvalid."""
        if text is None or not is_sealed_text(text):
            return text
        return self._opened(text[len(TEXT_MARK) :], place()).decode("utf-8", "surrogatepass")

    def new_jobs(self, new: Sequence[NewJob]) -> Sequence[NewJob]:
        if self.ring is None:
            for job in new:
                _refuse_lookalike(job.params)
            return new
        return [job._replace(params=self._text(job.params, params_of(job.tenant_id, job.id))) for job in new]

    def alike(self, many: Alike) -> Alike:
        if self.ring is None:
            for text in many.params:
                _refuse_lookalike(text)
            return many
        tenant_id = many.first.tenant_id
        texts = [self._text(text, params_of(tenant_id, id_)) for id_, text in zip(many.ids, many.params, strict=True)]
        return replace(many, params=texts)

    def claims(self, claims: list[Claim]) -> list[Claim]:
        """Claims with their params opened. Those that cannot be read here have `Unreadable` ones."""
        for claim in claims:
            if MEMBER in claim.params:
                return [self._claim(each) for each in claims]
        return claims

    def _claim(self, claim: Claim) -> Claim:
        opened = self.open(claim.params, lambda: params_of(claim.tenant_id, claim.root_id))
        return claim if opened is claim.params else claim._replace(params=opened)

    def closing(self, closing: Closing, tenant_id: UUID) -> Closing:
        resolution, evidence = closing.resolution, closing.resolution.evidence
        job_id, run_id = closing.job_id, closing.run_id
        if evidence is not NOTHING:
            evidence = replace(
                evidence,
                stdout_tail=self.seal_text(evidence.stdout_tail, stdout_of(tenant_id, run_id)),
                stderr_tail=self.seal_text(evidence.stderr_tail, stderr_of(tenant_id, run_id)),
            )
        sealed = replace(
            resolution,
            error=self.seal_text(resolution.error, error_of(tenant_id, job_id)),
            result=self.seal(resolution.result, result_of(tenant_id, job_id)),
            evidence=evidence,
        )
        return closing._replace(resolution=sealed)

    def for_audit(self, document: Any) -> Any:
        """What an audit entry says of a change. The audit is never rewritten, so no key could be taken out of use that it was
        sealed with: where values are sealed elsewhere, they are not written here at all."""
        if self.ring is None or not isinstance(document, Mapping):
            return document
        return {
            name: NOT_KEPT if name in _VALUES and value not in (None, {}) else value for name, value in document.items()
        }

    def _text(self, text: str, place: Place) -> str:
        return text if text == "{}" else f'{{"{MEMBER}":"{self._sealed(text.encode(), place)}"}}'

    def _sealed(self, plain: bytes, place: Place) -> str:
        assert self.ring is not None
        return self.ring.seal(plain, place.context, place.bucket)

    def _opened(self, sealed: str, place: Place) -> bytes:
        if self.ring is None:
            raise KeyMissing(parts(sealed)[0])
        return self.ring.open(sealed, place.context, place.bucket)


PLAIN = Codec()
"""The codec of a process without keys."""

NOT_KEPT = "(encrypted at rest, so not kept in the audit)"
_VALUES = frozenset({"payload", "params", "payload_template", "default_params", "context", "result", "last_error"})


def has_secrets(resolution: Resolution) -> bool:
    """Whether something of how a run ended is to be sealed. Of most successes nothing is."""
    evidence = resolution.evidence
    return bool(resolution.error or resolution.result is not None or evidence.stdout_tail or evidence.stderr_tail)


def _refuse_lookalike(params: str) -> None:
    """Params that look like sealed ones would be taken for such when they are read."""
    if params.startswith(_LOOKS_SEALED) and is_sealed(json.loads(params)):
        raise InvalidInput(
            f"Params of the form {{{MEMBER!r}: 'v1:…'}} are kept for encrypted values. Use another name."
        )
