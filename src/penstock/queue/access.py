"""Who may come in: tokens, made, revoked and looked after, beside the service and without it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from penstock.core import check
from penstock.core.access import Principal, Role, digest, new_secret, new_token
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.status import one_of
from penstock.queue import bounds
from penstock.queue.ground import Ground
from penstock.store import principals, quotas, sessions, token_tree
from penstock.store.database import Tx
from penstock.store.principals import NewPrincipal
from penstock.store.sessions import NewSession
from penstock.store.token_tree import Revoked

BOOTSTRAP = "bootstrap"
LINK_SECONDS = 600.0


def create_token(
    ground: Ground,
    role: str,
    label: str,
    tenant: str | None = None,
    expires_at: datetime | None = None,
    queues: Sequence[str] | None = None,
    created_by: str | None = None,
) -> tuple[Principal, str]:
    """A principal and its token, which is shown this once."""
    kind = Role(one_of("role", role, [each.value for each in Role]))
    check.text("label", label)
    if kind is Role.SUPER_ADMIN and tenant is not None:
        raise InvalidInput("A super admin belongs to no tenant; leave the tenant out.")
    if kind not in (Role.SUPER_ADMIN, Role.WORKER) and tenant is None:
        raise InvalidInput(f"A token of the role {role} belongs to a tenant; name it.")
    tenant_id = None if tenant is None else ground.tenant_id(tenant)
    token, prefix = new_token()

    new = NewPrincipal(
        kind, label, prefix, digest(token), tenant_id=tenant_id, queues=queues, created_by=created_by,
        expires_at=expires_at,
    )  # fmt: skip

    def work(tx: Tx) -> Principal:
        if tenant_id is not None:
            bounds.require(ground, tx, tenant_id, "tokens", quotas.tokens)
        return principals.add(tx, new)

    return ground.db.transact(work), token


def list_tokens(ground: Ground, tenant: str | None = None, limit: int = 1000) -> list[Principal]:
    """Newest first: everyone's, or one tenant's."""
    tenant_id = None if tenant is None else ground.tenant_id(tenant)
    with ground.db.read() as tx:
        return principals.listed(tx, tenant_id, limit)


def revoke_token(ground: Ground, principal_id: UUID) -> Revoked:
    """End a token, every token that came from it, and the sessions of all of them."""
    found = ground.db.transact(lambda tx: token_tree.revoke_tree(tx, principal_id))
    if found is None:
        raise NotFound("token", principal_id)
    return found


def ensure_bootstrap(ground: Ground, token: str) -> Principal:
    """Return the super admin of the operator's own token.

    Another token takes the place of the one before: the principal stays and so does everything that came from it, but the
    old secret and the sessions are worth nothing from now on.
    """

    def work(tx: Tx) -> Principal:
        hashed = digest(token)
        found = principals.by_hash(tx, hashed)
        if found is None:
            known = principals.named(tx, BOOTSTRAP, Role.SUPER_ADMIN)
            if known:
                return _replaced(tx, known, token)
            new = NewPrincipal(Role.SUPER_ADMIN, BOOTSTRAP, token[:4], hashed, created_by="PENSTOCK_BOOTSTRAP_TOKEN")
            return principals.add(tx, new)
        if found.revoked_at is not None:
            raise InvalidInput("PENSTOCK_BOOTSTRAP_TOKEN is a token that was revoked. Choose another.")
        if found.role is not Role.SUPER_ADMIN:
            raise InvalidInput(
                f"PENSTOCK_BOOTSTRAP_TOKEN is the token {found.label!r}, which has the role {found.role}. The first super "
                "admin needs a secret of its own."
            )
        return found

    return ground.db.transact(work)


def _replaced(tx: Tx, known: Sequence[Principal], token: str) -> Principal:
    """Give the operator's principal another secret. The one before is kept as a revoked token, so that it stays refused."""
    current, *others = sorted(known, key=lambda each: each.created_at, reverse=True)
    before = principals.take_secret(tx, current.id, token[:4], digest(token))
    if before == digest(token):  # another process was faster
        return current
    gone = NewPrincipal(Role.SUPER_ADMIN, BOOTSTRAP, current.token_prefix, before, created_by=current.created_by)
    token_tree.revoke_tree(tx, principals.add(tx, gone).id)
    for other in others:
        token_tree.revoke_tree(tx, other.id)
    sessions.close_of(tx, [current.id])
    found = principals.by_id(tx, current.id)
    assert found is not None
    return found


def sign_in_code(ground: Ground, principal_id: UUID, seconds: float = LINK_SECONDS) -> str:
    """Return a code that opens one session for this principal, once and soon."""
    code = new_secret()
    new = NewSession(digest(code), sessions.ONE_TIME, seconds)
    ground.db.transact(lambda tx: sessions.open_session(tx, principal_id, new))
    return code
