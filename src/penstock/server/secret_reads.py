"""Who was given secrets in clear. Workers are, all the time: that is what params are for. Everybody else is written down."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from penstock.core.access import Role
from penstock.core.nouns import Claim
from penstock.server.calls import Call
from penstock.store import audit
from penstock.store.database import Tx


def note_claims(call: Call, taken: Sequence[Claim]) -> None:
    """Write into the audit of each tenant that somebody who is not a worker claimed its jobs, and so read their params in clear."""
    if not taken or call.principal.role is Role.WORKER:
        return
    jobs: dict[UUID, list[str]] = {}
    for claim in taken:
        jobs.setdefault(claim.tenant_id, []).append(str(claim.job_id))

    def work(tx: Tx) -> None:
        for tenant_id, ids in sorted(jobs.items()):
            audit.write(
                tx, tenant_id, call.principal.actor, "secret.read", "job", ids[0] if len(ids) == 1 else None,
                after={"jobs": ids}, request_id=call.request_id, address=call.address,
            )  # fmt: skip

    call.ground.db.transact(work)
