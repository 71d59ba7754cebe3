"""Who may come in: tokens, made, revoked and looked after, beside the service and without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from penstock.core import check
from penstock.core.access import Person, Principal, Role, digest, new_secret, new_token
from penstock.core.errors import Conflict, ExceedsParent, InvalidInput, NotFound
from penstock.core.limits import Limits, covers, limits_of, narrowed
from penstock.core.status import one_of
from penstock.queue import bounds
from penstock.queue.ground import Ground
from penstock.store import principals, quotas, sessions, token_tree
from penstock.store.database import Tx
from penstock.store.principals import NewPrincipal
from penstock.store.sessions import NewSession
from penstock.store.token_tree import Revoked

BOOTSTRAP = "bootstrap"
CONSOLE = "console"
BOOTSTRAP_SETTING = "PENSTOCK_BOOTSTRAP_TOKEN"
OVERLAP_SECONDS = 86_400.0
MAX_OVERLAP_SECONDS = 30 * 86_400.0
LINK_SECONDS = 600.0


def create_token(
    ground: Ground,
    role: str,
    label: str,
    tenant: str | None = None,
    expires_at: datetime | None = None,
    queues: Sequence[str] | None = None,
    created_by: str | None = None,
    *,
    scopes: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    addresses: Sequence[str] | None = None,
    parent: UUID | None = None,
) -> tuple[Principal, str]:
    """Create a token and return its principal and the token, which is shown this once. With `parent` it may no more than that
    one, ends with it, and takes from it what is left open here."""
    kind = Role(one_of("role", role, [each.value for each in Role]))
    tenant_id = None if tenant is None else ground.tenant_id(tenant)
    asked = Limits(
        kind, tenant_id, _tuple(scopes), _tuple(keys), _tuple(addresses), _tuple(queues), expires_at
    ).checked()  # fmt: skip

    def work(tx: Tx) -> tuple[Principal, str]:
        return create_in(ground, tx, label, asked, None if parent is None else parent_of(tx, parent), created_by)

    return ground.db.transact(work)


def _tuple(given: Sequence[str] | None) -> tuple[str, ...] | None:
    return given if given is None or isinstance(given, str) else tuple(given)  # type: ignore[return-value]


def parent_of(tx: Tx, principal_id: UUID) -> Principal:
    """Return the principal that creates a token, locked: whoever revokes it waits, and then finds the new token, too."""
    found = principals.valid_by_id(tx, principal_id, lock=True)
    if found is None:
        raise ExceedsParent("The token that is to be the parent was revoked, has expired, or does not exist.")
    return found


def creator_of(tx: Tx, asking: Principal) -> Principal:
    """Return the one who asks, locked, as the parent of what they create. A person who came with a JWT is stored for it, and
    what they create ends with that JWT."""
    if not asking.is_person:
        return parent_of(tx, asking.id)
    assert asking.issuer is not None
    person = Person(asking.issuer, asking.subject or "", asking.label, asking.role, asking.tenant_id)
    if principals.by_id(tx, person.id) is None:
        principals.remember_person(tx, person)
    return replace(parent_of(tx, person.id), role=asking.role, expires_at=asking.expires_at)


def create_in(
    ground: Ground, tx: Tx, label: str, asked: Limits, parent: Principal | None, created_by: str | None
) -> tuple[Principal, str]:
    """Create a token in the caller's transaction, in which its parent is locked."""
    check.text("label", label)
    limits = asked if parent is None else narrowed(limits_of(parent), asked)
    token, prefix = new_token()
    new = NewPrincipal(
        limits.role, label, prefix, digest(token), tenant_id=limits.tenant_id, queues=limits.queues, created_by=created_by,
        expires_at=limits.expires_at, parent_id=None if parent is None else parent.id, scopes=limits.scopes,
        keys=limits.keys, addresses=limits.addresses,
    )  # fmt: skip
    if limits.tenant_id is not None:
        bounds.require(ground, tx, limits.tenant_id, "tokens", quotas.tokens)
    return principals.add(tx, new), token


def list_tokens(ground: Ground, tenant: str | None = None, limit: int = 1000) -> list[Principal]:
    """Newest first: everyone's, or one tenant's."""
    tenant_id = None if tenant is None else ground.tenant_id(tenant)
    with ground.db.read() as tx:
        return principals.listed(tx, tenant_id, limit)


def get_token(ground: Ground, principal_id: UUID) -> tuple[Principal, int]:
    """Return a token's principal, and how many valid tokens came from it."""
    with ground.db.read() as tx:
        found = principals.by_id(tx, principal_id)
        if found is None:
            raise NotFound("token", principal_id)
        return found, token_tree.descendants(tx, principal_id)


def revoke_token(ground: Ground, principal_id: UUID) -> Revoked:
    """End a token, every token that came from it, and the sessions of all of them."""
    found = ground.db.transact(lambda tx: token_tree.revoke_tree(tx, principal_id))
    if found is None:
        raise NotFound("token", principal_id)
    return found


def rotate_token(ground: Ground, principal_id: UUID, overlap_seconds: float = OVERLAP_SECONDS) -> tuple[Principal, str]:
    """Give a token a new secret, which is shown this once. The old one is accepted for `overlap_seconds` more; with 0 it ends
    at once, and so do the sessions. What the token has created stays."""
    check.seconds("overlap_seconds", overlap_seconds, 0, MAX_OVERLAP_SECONDS)
    return ground.db.transact(lambda tx: rotate_in(tx, principal_id, overlap_seconds))


def rotate_in(
    tx: Tx, principal_id: UUID, overlap_seconds: float, asking: Principal | None = None
) -> tuple[Principal, str]:
    """Rotate in the caller's transaction. Who asks gets the new secret, so they must be allowed all that the token is."""
    found = principals.by_id(tx, principal_id, lock=True)
    if found is None:
        raise NotFound("token", principal_id)
    if found.is_person:
        raise InvalidInput(f"{found.label!r} is a person and has no token to rotate.")
    if found.created_by == BOOTSTRAP_SETTING:
        raise InvalidInput(
            f"This token is the one that {BOOTSTRAP_SETTING} sets. Set another there and start the service again: the tokens "
            "that came from it stay."
        )
    if asking is not None and asking.id != found.id and not covers(limits_of(asking), limits_of(found)):
        raise ExceedsParent(
            "Rotating a token shows its new secret, and this one may do more, or for longer, than the token that asks."
        )
    if principals.valid_by_id(tx, principal_id) is None:
        raise Conflict("The token was revoked or has expired, or its tenant is not active. Create a new one.")
    token, prefix = new_token()
    after = principals.rotate(tx, principal_id, prefix, digest(token), overlap_seconds)
    assert after is not None
    if not overlap_seconds:
        sessions.close_of(tx, [principal_id])
    return after, token


def restore_person(ground: Ground, principal_id: UUID) -> Principal:
    """Let a person sign in again whose access was revoked. The tokens that they had created stay revoked."""
    found = ground.db.transact(lambda tx: principals.restore_person(tx, principal_id))
    if found is None:
        raise NotFound("person", principal_id)
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
            new = NewPrincipal(Role.SUPER_ADMIN, BOOTSTRAP, token[:4], hashed, created_by=BOOTSTRAP_SETTING)
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


def console(ground: Ground) -> Principal:
    """Return the super admin for whom a sign-in link is printed: the operator's own, or one made for this machine's console."""
    with ground.db.read() as tx:
        known = [each for label in (BOOTSTRAP, CONSOLE) for each in principals.named(tx, label, Role.SUPER_ADMIN)]
    return known[0] if known else create_token(ground, "super_admin", CONSOLE, created_by="penstock up")[0]


def sign_in_code(ground: Ground, principal_id: UUID, seconds: float = LINK_SECONDS) -> str:
    """Return a code that opens one session for this principal, once and soon."""
    code = new_secret()
    new = NewSession(digest(code), sessions.ONE_TIME, seconds)
    ground.db.transact(lambda tx: sessions.open_session(tx, principal_id, new))
    return code
