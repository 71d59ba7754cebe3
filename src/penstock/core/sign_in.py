"""What an identity provider says of a person, and what that person may do here because of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from penstock.core.access import Role
from penstock.core.errors import InvalidInput

RANK = (Role.SUPER_ADMIN, Role.TENANT_ADMIN, Role.OPERATOR, Role.VIEWER)
"""The roles that a person can have, the most powerful first. `worker` is for programs."""
ONLY_TENANT = "default"
MAX_LABEL = 200
MAX_SUBJECT = 255
MAX_RETURN = 1000


@dataclass(frozen=True, slots=True)
class Rule:
    """Whoever has `value` in the role claim has `role`: in `tenant`, or in each tenant that the tenant claim names."""

    value: str
    role: Role
    tenant: str | None


@dataclass(frozen=True, slots=True)
class Grant:
    """A role, and the tenant it is for; None for the whole installation."""

    role: Role
    tenant: str | None


def parse_role_map(text: str) -> tuple[Rule, ...]:
    """Read `oidc_role_map`: pairs with commas between them, or a JSON object for names that hold a comma.

    >>> parse_role_map("penstock-admins=super_admin, acme-ops=operator@acme")[1]
    Rule(value='acme-ops', role=<Role.OPERATOR: 'operator'>, tenant='acme')
    """
    return tuple(_rule(name, meaning) for name, meaning in _pairs(text.strip()))


def _pairs(text: str) -> Sequence[tuple[str, str]]:
    if not text.startswith("{"):
        parts = (part.strip().rpartition("=") for part in text.split(",") if part.strip())
        return [(name.strip(), meaning.strip()) for name, _, meaning in parts]
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"oidc_role_map begins with a brace but is not a JSON object: {error}") from error
    if not all(isinstance(meaning, str) for meaning in found.values()):
        raise InvalidInput("oidc_role_map maps each name to a text such as operator or operator@acme.")
    return list(found.items())


def _rule(name: str, meaning: str) -> Rule:
    role, at, tenant = meaning.partition("@")
    if not name or role not in RANK:
        raise InvalidInput(
            f"oidc_role_map has {f'{name}={meaning}'!r}; expected name=role or name=role@tenant, where the role is one of "
            f"{', '.join(RANK)}."
        )
    if at and (role == Role.SUPER_ADMIN or not tenant):
        raise InvalidInput(
            f"oidc_role_map has {f'{name}={meaning}'!r}; "
            + ("name the tenant after the @." if not tenant else "a super admin belongs to no tenant.")
        )
    return Rule(name, Role(role), tenant or None)


def claim_at(claims: Mapping[str, Any], path: str) -> Any:
    """Return the claim of this name, or the one that a path with dots leads to, as in Keycloak's `realm_access.roles`."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        if not isinstance(found, Mapping) or part not in found:
            return None
        found = found[part]
    return found


def _texts(value: Any) -> list[str]:
    several = value if isinstance(value, list) else [value]
    return [each for each in several if isinstance(each, str) and each]


def grants(
    claims: Mapping[str, Any], role_claim: str, rules: Sequence[Rule], tenant_claim: str | None
) -> frozenset[Grant]:
    """Return all that the claims give. Without rules, the role claim holds the names of roles.

    An address of which the provider does not say that it was verified gives nothing: anybody could have typed it.
    """
    if role_claim == "email" and claims.get("email_verified") is not True:
        return frozenset()
    named = set(_texts(claim_at(claims, role_claim)))
    tenants = [ONLY_TENANT] if tenant_claim is None else _texts(claim_at(claims, tenant_claim))
    known = rules or [Rule(role.value, role, None) for role in RANK]
    found: set[Grant] = set()
    for rule in known:
        if rule.value not in named:
            continue
        if rule.role is Role.SUPER_ADMIN:
            found.add(Grant(rule.role, None))
        else:
            found |= {Grant(rule.role, slug) for slug in ([rule.tenant] if rule.tenant else tenants)}
    return frozenset(found)


def choose(found: Collection[Grant], existing: Collection[str], wanted: str | None = None) -> Grant | None:
    """Return the one grant that a session gets, always the same for the same claims; None when there is none.

    A super admin is one, whatever else they are. Tenants that do not exist are passed over. Then the tenant that was asked
    for counts and no other; without one, the highest role, and among equals the tenant that comes first in the alphabet.

    >>> choose([Grant(Role.VIEWER, "acme"), Grant(Role.OPERATOR, "bolt")], {"acme", "bolt"})
    Grant(role=<Role.OPERATOR: 'operator'>, tenant='bolt')
    """
    if any(grant.tenant is None for grant in found):
        return Grant(Role.SUPER_ADMIN, None)
    allowed = [
        (RANK.index(grant.role), grant.tenant, grant)
        for grant in found
        if grant.tenant in existing and wanted in (None, grant.tenant)
    ]
    return min(allowed, key=lambda each: each[:2])[2] if allowed else None


def describe(claims: Mapping[str, Any]) -> str:
    """Return how a person is shown and audited: the subject, which is the provider's and cannot be chosen, then the name.

    >>> describe({"sub": "7f3", "name": "Ann Lee", "email": "ann@example.com"})
    'oidc:7f3 (Ann Lee, ann@example.com)'
    """
    given = [claims.get("name") or claims.get("preferred_username")]
    if claims.get("email_verified") is not False:
        given.append(claims.get("email"))
    names = ", ".join(_printable(each) for each in given if isinstance(each, str) and each)
    subject = f"oidc:{_printable(str(claims['sub']))}"
    return (f"{subject} ({names})" if names else subject)[:MAX_LABEL]


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text[:MAX_LABEL])


def safe_return(path: str | None) -> str:
    """Return the path of the page to go back to after signing in; `/` for anything that could lead off this site.

    >>> safe_return("/t/acme/jobs?status=failed"), safe_return("//evil.test"), safe_return("https://evil.test")
    ('/t/acme/jobs?status=failed', '/', '/')
    """
    if not path or len(path) > MAX_RETURN or not path.startswith("/") or path.startswith(("//", "/api/")):
        return "/"
    if any(sign in "\\#" or not "\x21" <= sign <= "\x7e" for sign in path):
        return "/"  # browsers read a backslash as a slash, and drop tabs and line breaks
    try:
        parts = urlsplit(path)
    except ValueError:
        return "/"
    return "/" if parts.scheme or parts.netloc else path
