"""Signing in on the word of an identity provider: from a reply of the provider to an open session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import structlog
from starlette.concurrency import run_in_threadpool

from penstock.core.access import Person
from penstock.core.errors import Forbidden
from penstock.core.sign_in import Grant, choose, describe, grants, parse_role_map
from penstock.queue.ground import Ground
from penstock.queue.sign_in import Opened, Visit, sign_in_person
from penstock.server.fetching import Unreachable
from penstock.server.oidc import Attempt, Provider, Refused, Untrusted
from penstock.server.problems import Problem
from penstock.server.settings import Settings
from penstock.store import revocations, sessions, tenants
from penstock.store.database import Tx
from penstock.store.unit import Borrowed

ATTEMPT_SECONDS = 600
USED_SECONDS = 24 * 3600.0
MAX_WAITING = 32
"""How many sign-ins may wait for the provider at once."""
MAX_TENANTS = 200
_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")
_WORD = re.compile(r"[\x20-\x21\x23-\x5b\x5d-\x7e]{1,300}")
"""What RFC 6749 allows in `error` and `error_description`."""

STALE = (
    "This sign-in was not begun in this browser, was begun more than ten minutes ago, or is over already. Begin again."
)
_log: Any = structlog.get_logger("penstock.server")


@dataclass(frozen=True, slots=True)
class Reply:
    """What the provider sent back with the browser."""

    state: str | None
    code: str | None
    issuer: str | None
    error: str | None
    description: str | None


class SignIns:
    """Ends sign-ins that were begun at the provider. One for each app."""

    def __init__(self, provider: Provider, settings: Settings, ground: Ground) -> None:
        self.provider = provider
        self._settings = settings
        self._rules = parse_role_map(settings.oidc_role_map)
        self._ground = ground
        self._waiting = 0

    async def begin(self, attempt: Attempt) -> str:
        """Return the address at the provider where the person signs in."""
        try:
            return await self.provider.authorization_url(attempt)
        except Unreachable as error:
            raise _unavailable(error) from error

    async def finish(self, attempt: Attempt | None, reply: Reply, visit: Visit) -> Opened:
        """Open the session of somebody who comes back from the provider; a Problem where that may not be."""
        if attempt is None or not attempt.began(reply.state):
            raise Problem(400, "sign_in_expired", STALE)
        claims = await self._claims(attempt, reply)
        opened = await run_in_threadpool(self._open, attempt, claims, visit)
        if opened is None:
            raise Problem(400, "sign_in_expired", STALE)
        return opened

    async def _claims(self, attempt: Attempt, reply: Reply) -> dict[str, Any]:
        if self._waiting >= MAX_WAITING:
            raise _unavailable("too many sign-ins wait for it")
        self._waiting += 1
        try:
            if reply.error is not None or reply.code is None:
                raise Refused(_said(reply))
            await self.provider.check_issuer(reply.issuer)
            return await self.provider.redeem(reply.code, attempt)
        except Unreachable as error:
            raise _unavailable(error) from error
        except Refused as error:
            raise Problem(
                403, "sign_in_refused", f"The identity provider did not sign you in. It says: {_word(error.code)}"
            ) from error
        except Untrusted as error:
            _log.warning("sign_in_untrusted", reason=str(error))
            raise Problem(
                403,
                "sign_in_untrusted",
                "The identity provider's reply could not be verified, so nobody was signed in.",
            ) from error
        finally:
            self._waiting -= 1

    def _open(self, attempt: Attempt, claims: Mapping[str, Any], visit: Visit) -> Opened | None:
        label = describe(claims)
        found = grants(claims, self._settings.oidc_role_claim, self._rules, self._settings.oidc_tenant_claim)
        known = self._existing(found)
        grant = choose(found, known, attempt.tenant)
        if grant is None:
            where = "" if attempt.tenant is None else " in the tenant that you asked for"
            raise Problem(
                403, "sign_in_no_role",
                f"You are signed in at {self.provider.name} as {label}, but you have no role here{where}. "
                "Ask an administrator of Penstock for one.",
            )  # fmt: skip
        tenant_id = None if grant.tenant is None else known[grant.tenant]
        person = Person(self.provider.issuer, claims["sub"], label, grant.role, tenant_id)
        sid = claims.get("sid")

        def work(tx: Tx) -> Opened | None:
            if not revocations.use_once(tx, self.provider.issuer, f"state:{attempt.state}", USED_SECONDS):
                return None
            ground = replace(self._ground, db=Borrowed(self._ground.db, tx))
            return sign_in_person(
                ground, person, visit, sid=sid if isinstance(sid, str) and sid.isprintable() else None,
                also={None, *known.values()} if grant.tenant is None else known.values(),
            )  # fmt: skip

        try:
            return self._ground.db.transact(work)
        except Forbidden as error:
            raise Problem(403, "forbidden", str(error)) from error

    def _existing(self, found: frozenset[Grant]) -> dict[str, UUID]:
        """Return the tenants of these grants that exist and are active. A claim never creates one."""
        slugs = sorted({grant.tenant for grant in found if grant.tenant and _SLUG.fullmatch(grant.tenant)})[
            :MAX_TENANTS
        ]
        known: dict[str, UUID] = {}
        with self._ground.db.read() as tx:
            for slug in slugs:
                tenant = tenants.by_slug(tx, slug)
                if tenant is not None and tenant.is_active:
                    known[slug] = tenant.id
        return known

    async def end_sessions(self, logout_token: str) -> int:
        """End the sessions that the provider says are over (back-channel logout). Returns how many."""
        try:
            subject, sid, own = await self.provider.ended(logout_token)
        except Unreachable as error:
            raise _unavailable(error) from error
        except Untrusted as error:
            raise Problem(400, "sign_in_untrusted", "The logout token could not be verified.") from error

        def work(tx: Tx) -> int:
            if not revocations.use_once(tx, self.provider.issuer, f"logout:{own}", USED_SECONDS):
                return 0
            return sessions.close_by_sid(tx, self.provider.issuer, sid, None if sid else subject)

        return await run_in_threadpool(self._ground.db.transact, work)


def _said(reply: Reply) -> str:
    told = [each for each in (reply.error, reply.description) if each]
    return ": ".join(told) or "it sent no code"


def _word(text: str) -> str:
    return text if _WORD.fullmatch(text) else "something that cannot be shown"


def _unavailable(reason: object) -> Problem:
    _log.warning("provider_unavailable", reason=str(reason))
    return Problem(
        503, "provider_unavailable", "The identity provider cannot be reached now. Try again soon, or sign in with a token.",
        headers={"retry-after": "5"},
    )  # fmt: skip
