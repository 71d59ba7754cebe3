"""Who comes to the service in the matrix of routes, actors and ids, and what each may expect.

The expectations follow from `tests/server/table.py`, which pins them: a change of what the service asks for must be
made there, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx

from penstock.core.access import Person, Role
from penstock.queue.access import create_token, revoke_token
from penstock.queue.sign_in import Opened, Visit, sign_in, sign_in_person
from tests.server.support import World
from tests.server.table import MAY, Route
from tests.support.issuer import Issuer

READ = tuple(
    f"{each}:read"
    for each in (
        "jobs", "triggers", "events", "definitions", "webhooks", "metrics", "tokens", "audit", "queues", "tenants",
        "pipelines",
    )
)  # fmt: skip
WRITE = (
    *(f"{each}:write" for each in ("jobs", "triggers", "definitions", "webhooks", "tokens", "queues", "tenants", "pipelines")),
    "events:emit", "worker",
)  # fmt: skip
MINE = ("echo", "no-such-key")
"""The keys of a token for the definition of all jobs in the matrix; the second is the one that the claim of the table names."""
OTHERS = ("report.*",)
OUT = (401, "unauthenticated")


@dataclass(frozen=True)
class Actor:
    """Somebody who sends requests. `refused` is what they get wherever a token is needed; without it, the rest decides."""

    name: str
    role: str = "viewer"
    scopes: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    by: str = "token"
    """How they show who they are: `token`, `jwt`, `session`, `person` (a session of somebody from an identity provider)
    or `no csrf` (a session without its CSRF token)."""
    refused: tuple[int, str] | None = None

    @property
    def for_others(self) -> bool:
        """Whether they are limited to definitions that no job of the matrix has."""
        return self.keys == OTHERS


ACTORS = (
    *(Actor(role, role) for role in MAY),
    Actor("nobody", refused=OUT),
    Actor("a token that has expired", "super_admin", refused=OUT),
    Actor("a token that was revoked", "super_admin", refused=OUT),
    Actor("the child of a revoked token", "tenant_admin", refused=OUT),
    Actor("a token of a deleted tenant", "tenant_admin", refused=OUT),
    Actor("a token of a tenant that is switched off", "tenant_admin", refused=OUT),
    Actor("a session that was ended", "tenant_admin", refused=OUT),
    Actor("a JWT of another issuer", "super_admin", refused=OUT),
    Actor("a token for another network", "super_admin", refused=(403, "address_refused")),
    Actor("super admin who reads", "super_admin", READ),
    Actor("tenant admin who reads", "tenant_admin", READ),
    Actor("tenant admin who writes", "tenant_admin", WRITE),
    Actor("operator for jobs", "operator", ("jobs:read", "jobs:write")),
    Actor("operator who emits", "operator", ("events:emit",)),
    Actor("viewer of metrics", "viewer", ("metrics:read",)),
    Actor("viewer with every scope", "viewer", READ + WRITE),
    Actor("worker with its scope", "worker", ("worker",)),
    Actor("worker without its scope", "worker", ("jobs:read",)),
    Actor("super admin who works", "super_admin", ("worker",)),
    Actor("super admin for definitions", "super_admin", keys=MINE),
    Actor("tenant admin for definitions", "tenant_admin", keys=MINE),
    Actor("tenant admin for others", "tenant_admin", keys=OTHERS),
    Actor("worker for definitions", "worker", keys=MINE),
    Actor("worker for others", "worker", keys=OTHERS),
    Actor("operator for jobs of definitions", "operator", ("jobs:read", "jobs:write"), MINE),
    Actor("operator for jobs of others", "operator", ("jobs:read", "jobs:write"), OTHERS),
    Actor("operator by session", "operator", by="session"),
    Actor("tenant admin by session of a limited token", "tenant_admin", READ, MINE, by="session"),
    Actor("operator by session without CSRF token", "operator", by="no csrf"),
    Actor("operator by OpenID Connect", "operator", by="person"),
    Actor("super admin by OpenID Connect", "super_admin", by="person"),
    Actor("operator by JWT", "operator", by="jwt"),
)


def refusal(actor: Actor, method: str, route: Route) -> tuple[int, str] | None:
    """What the gate says to this actor, whatever the id; None if it lets them in."""
    if actor.refused is not None:
        return actor.refused
    if route.need not in MAY[actor.role]:
        return 403, "forbidden"
    if actor.scopes is not None and route.scope is not None and route.scope not in actor.scopes:
        return 403, "scope_missing"
    if actor.keys is not None and route.keys == "closed":
        return 403, "scope_missing"
    if actor.by == "no csrf" and method != "GET":
        return 403, "csrf"
    return None


@dataclass
class Cast:
    """The actors on one service: their tokens and sessions, made once and again when a request has ended them."""

    world: World
    issuer: Issuer
    _clients: dict[str, httpx.Client] = field(default_factory=dict)
    _tokens: dict[str, str] = field(default_factory=dict)

    def client(self, actor: Actor) -> httpx.Client:
        if actor.name not in self._clients:
            self._clients[actor.name] = self._enter(actor)
        return self._clients[actor.name]

    def again(self) -> None:
        """Sign everybody in again who comes by session."""
        for actor in ACTORS:
            if actor.by in ("session", "no csrf", "person"):
                self._clients.pop(actor.name, None)

    def session_of(self, actor: Actor) -> str:
        """The id of one more session of this actor."""
        if actor.by == "person":
            return str(self._person(actor).session.id)
        if actor.by == "jwt":
            signed_in = self.world.bare().post("/api/v1/session", json={"token": self._tokens[actor.name]})
            assert signed_in.status_code == 201, signed_in.text
            return str(self.client(actor).get("/api/v1/sessions").json()["items"][0]["id"])
        opened = sign_in(self.world.penstock.ground, self._token(actor), Visit(3600))
        assert opened is not None
        return str(opened.session.id)

    def _enter(self, actor: Actor) -> httpx.Client:
        tenant = {"x_tenant": "acme"} if actor.role == "super_admin" else {}
        if actor.name == "nobody":
            return self.world.bare()
        if actor.by == "jwt" or actor.name == "a JWT of another issuer":
            iss = {} if actor.refused is None else {"iss": "https://elsewhere.example"}
            claims = self.issuer.claims(role=actor.role, tenant="acme", exp=int(time.time()) + 36_000, **iss)
            token = self._tokens[actor.name] = self.issuer.sign(claims)
            return self.world.bare(Authorization=f"Bearer {token}", **tenant)
        if actor.by == "person":
            return self._browser(self._person(actor), True, tenant)
        token = self._token(actor)
        if actor.by != "token" or actor.name == "a session that was ended":
            opened = sign_in(self.world.penstock.ground, token, Visit(3600))
            assert opened is not None
            client = self._browser(opened, actor.by != "no csrf", tenant)
            if actor.refused is not None:
                assert client.delete(f"/api/v1/sessions/{opened.session.id}").status_code == 204
            return client
        return self.world.bare(Authorization=f"Bearer {token}", **tenant)

    def _browser(self, opened: Opened, csrf: bool, headers: dict[str, str]) -> httpx.Client:
        return self.world.bare(
            Cookie=f"penstock_session={opened.secret}",
            **({"x_csrf_token": opened.csrf_token} if csrf else {}),
            **headers,
        )

    def _person(self, actor: Actor) -> Opened:
        acme = None if actor.role == "super_admin" else self.world.penstock.tenants.get("acme").id
        person = Person("https://id.example", actor.name, actor.name, Role(actor.role), acme)
        return sign_in_person(self.world.penstock.ground, person, Visit(3600))

    def _token(self, actor: Actor) -> str:
        if actor.name not in self._tokens:
            self._tokens[actor.name] = _END.get(actor.name, _plain)(self.world, actor)
        return self._tokens[actor.name]


def _plain(world: World, actor: Actor, tenant: str = "acme", **more: Any) -> str:
    limits = {"scopes": actor.scopes, "keys": actor.keys, **more}
    owner = None if actor.role == "super_admin" else tenant
    return create_token(world.penstock.ground, actor.role, actor.name, owner, **limits)[1]


def _revoked(world: World, actor: Actor) -> str:
    gone, token = create_token(world.penstock.ground, actor.role, actor.name)
    revoke_token(world.penstock.ground, gone.id)
    return token


def _child(world: World, actor: Actor) -> str:
    """The child outlives its parent's revocation in nobody's memory: it was used just before."""
    parent, token = create_token(world.penstock.ground, "tenant_admin", "parent", "acme")
    made = world.bare(Authorization=f"Bearer {token}").post(
        "/api/v1/tokens", json={"role": actor.role, "label": actor.name}
    )
    child = str(made.json()["token"])
    assert world.bare(Authorization=f"Bearer {child}").get("/api/v1/jobs").status_code == 200
    revoked = world.client("tenant_admin").delete(f"/api/v1/tokens/{parent.id}")
    assert revoked.json()["revoked_tokens"] == 2
    return child


def _deleted(world: World, actor: Actor) -> str:
    world.penstock.tenants.create("gone")
    token = _plain(world, actor, "gone")
    assert world.bare(Authorization=f"Bearer {token}").get("/api/v1/jobs").status_code == 200
    done = world.client().delete("/api/v1/admin/tenants/gone", params={"confirm": "gone"})
    assert done.status_code == 202
    return token


def _switched_off(world: World, actor: Actor) -> str:
    world.penstock.tenants.create("still")
    token = _plain(world, actor, "still")
    assert world.client().patch("/api/v1/admin/tenants/still", json={"is_active": False}).status_code == 200
    return token


_END: dict[str, Callable[[World, Actor], str]] = {
    "a token that has expired": lambda world, actor: _plain(world, actor, expires_at=datetime(2020, 1, 1, tzinfo=UTC)),
    "a token that was revoked": _revoked,
    "the child of a revoked token": _child,
    "a token of a deleted tenant": _deleted,
    "a token of a tenant that is switched off": _switched_off,
    "a token for another network": lambda world, actor: _plain(world, actor, addresses=["10.0.0.0/8"]),
}
