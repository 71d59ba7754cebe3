"""Sessions: opened for a token, for the code of a sign-in link, or for a person on the word of an identity provider."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from penstock.core.access import Person, Principal, Session, csrf_token, digest, is_well_formed, new_secret
from penstock.core.errors import AddressRefused, Forbidden, NotFound
from penstock.core.limits import allows_address
from penstock.queue.ground import Ground
from penstock.store import principals, sessions, token_tree
from penstock.store.database import Tx
from penstock.store.sessions import NewSession


@dataclass(frozen=True, slots=True)
class Visit:
    """How somebody came to sign in: from where, with which browser, and with which session before."""

    seconds: float
    """The longest that the session may last."""
    address: str | None = None
    user_agent: str | None = None
    replaces: str | None = None
    """The secret of the session that the browser had until now. It ends."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A session that was opened just now. The secret goes into the cookie and nowhere else."""

    principal: Principal
    session: Session
    secret: str
    csrf_token: str


def sign_in(ground: Ground, secret: str, visit: Visit) -> Opened | None:
    """Open a session for whoever has this token, or the code of a sign-in link; None when it is not valid."""
    if not is_well_formed(secret):
        return None

    def work(tx: Tx) -> Opened | None:
        hashed = digest(secret)
        found = principals.valid_by_hash(tx, hashed)
        principal = found[0] if found else None
        if principal is None:
            owner = sessions.take_code(tx, hashed)
            principal = principals.valid_by_id(tx, owner) if owner else None
        return None if principal is None else _open(tx, principal, visit)

    return ground.db.transact(work)


def sign_in_person(
    ground: Ground,
    person: Person,
    visit: Visit,
    *,
    until: datetime | None = None,
    sid: str | None = None,
    also: Collection[UUID | None] | None = (),
) -> Opened:
    """Open a session for a person, on the word of an identity provider and without a token.

    `until` ends the session earlier, `sid` is the provider's own session, by which `sign_out_person` finds it. `also`
    names the other tenants that the provider says the person belongs to; None where it says nothing of them. What the
    person had elsewhere ends here: the sessions, and the tokens that they created. So do the tokens that somebody of their present role could not create.
    """

    def work(tx: Tx) -> Opened:
        principal = principals.remember_person(tx, person)
        if principal.revoked_at is not None:
            raise Forbidden(
                f"The access of {person.label!r} was revoked here. An administrator of Penstock can allow it again with "
                f"`penstock tokens restore {principal.id}`."
            )
        token_tree.revoke_children(tx, principal.id, person.role)
        for other in principals.of_subject(tx, person.issuer, person.subject):
            if also is not None and other.id != principal.id and other.tenant_id not in also:
                token_tree.revoke_children(tx, other.id)
                sessions.close_of(tx, [other.id])
        return _open(tx, principal, visit, until, person.issuer, sid)

    return ground.db.transact(work)


def sign_out_person(ground: Ground, issuer: str, *, sid: str | None = None, subject: str | None = None) -> int:
    """End the sessions that an identity provider says are over. Returns how many."""
    return ground.db.transact(lambda tx: sessions.close_by_sid(tx, issuer, sid, subject))


def list_sessions(ground: Ground, principal_id: UUID | None = None, limit: int = 1000) -> list[Session]:
    """Return the sessions whose time is not over, the one used last first: everyone's, or one principal's."""
    with ground.db.read() as tx:
        return sessions.listed(tx, None, principal_id, limit)


def end_session(ground: Ground, session_id: UUID) -> None:
    if not ground.db.transact(lambda tx: sessions.close_by_id(tx, session_id)):
        raise NotFound("session", session_id)


def end_sessions(ground: Ground, principal_id: UUID) -> int:
    """End every session of a principal. Returns how many."""

    def work(tx: Tx) -> int:
        if principals.by_id(tx, principal_id) is None:
            raise NotFound("token", principal_id)
        return sessions.close_of(tx, [principal_id])

    return ground.db.transact(work)


def _open(
    tx: Tx,
    principal: Principal,
    visit: Visit,
    until: datetime | None = None,
    issuer: str | None = None,
    sid: str | None = None,
) -> Opened:
    if not allows_address(principal.addresses, visit.address or ""):
        raise AddressRefused("This token may not be used from the address that the request came from.")
    secret = new_secret()  # never one that the browser brought along
    csrf = csrf_token(secret)
    ends = [each for each in (until, principal.expires_at) if each is not None]
    new = NewSession(
        digest(secret),
        digest(csrf),
        visit.seconds,
        min(ends, default=None),
        visit.address,
        visit.user_agent,
        issuer,
        sid,
    )
    if visit.replaces is not None:
        sessions.close_session(tx, digest(visit.replaces))
    return Opened(principal, sessions.open_session(tx, principal.id, new), secret, csrf)
