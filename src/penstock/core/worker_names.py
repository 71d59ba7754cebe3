"""How a tenant is told which worker has its job: by the name that its own worker gave itself, and for the operator's workers by a
name that is always the same for one worker and tells nothing of the machine, the process or the boot."""

from __future__ import annotations

import hashlib
import re
from uuid import UUID

_IDENTITY = re.compile(
    r"(?:(?P<tenant>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/)?"
    r"[^\s:/]+:\d+:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


def row_id(tenant_id: UUID | None, name: str) -> str:
    """The id of a worker. A tenant chooses the names of its own workers, so they are kept apart from everybody else's: a name that
    somebody else has is another worker, and nobody learns that it is taken.

    >>> row_id(None, "host:1:x")
    'host:1:x'
    """
    return name if tenant_id is None else f"{tenant_id}/{name}"


def own_name(tenant_id: UUID | None, id: str) -> str:
    """The name that a worker gave itself."""
    return id if tenant_id is None else id.removeprefix(f"{tenant_id}/")


def opaque(id: str) -> str:
    """
    >>> opaque("host:1:x")
    'worker-d2a8bae305'
    """
    return f"worker-{hashlib.sha256(b'penstock worker ' + id.encode('utf-8', 'replace')).hexdigest()[:10]}"


def shown(tenant_id: UUID | str, id: str) -> str:
    """What the tenant of a job is told of the worker that has it."""
    mine = f"{tenant_id}/"
    return id.removeprefix(mine) if id.startswith(mine) else opaque(id)


def unnamed(text: str) -> str:
    """A text in which every process is "a worker", so that texts about different ones are the same."""
    return _IDENTITY.sub("a worker", text) if ":" in text else text


def masked(tenant_id: UUID | str, text: str) -> str:
    """A text for a tenant, such as "its worker … vanished", without the identities of processes."""
    return _IDENTITY.sub(lambda found: shown(tenant_id, found[0]), text) if ":" in text else text
