"""The service's settings, checked once."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from penstock.core import quota
from penstock.core.access import is_well_formed
from penstock.core.errors import InvalidInput
from penstock.core.forwarded import Proxies
from penstock.core.ids import DEFAULT_TENANT_ID
from penstock.core.quota import FREE, SERVICE_PRIORITIES, Bounds
from penstock.core.sign_in import parse_role_map
from penstock.core.urls import is_safe_url

PREFIX = "PENSTOCK_"
MIN_BOOTSTRAP = 20
_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator may set; each by the environment as PENSTOCK_<NAME IN CAPITALS>.

    >>> Settings.from_environment({"PENSTOCK_RATE_LIMIT": "50"}).rate_limit
    50.0
    """

    bootstrap_token: str | None = None
    """The first super admin's token. Without it, make one with `penstock tokens create --role super_admin`."""
    max_body_bytes: int = 2 * 1024 * 1024
    body_timeout: float = 30.0
    """Seconds a request's body may take to arrive, as a whole; and a client may leave an answer unread that waits for it."""
    header_timeout: float = 10.0
    """Seconds from a connection, or from the first byte of its next request, to the end of the request's head."""
    idle_timeout: float = 15.0
    """Seconds a connection may stay open after an answer without the first byte of another request."""
    max_connections: int = 2000
    """Connections open at once. If more come, those that have waited longest for a request are closed."""
    connections_per_address: int = 256
    """Connections open at once of one address (IPv6: of one /64). Trusted proxies have no such bound."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks (CIDR) of the proxies in front of the service. Their `X-Forwarded-For`, `X-Forwarded-Proto` and
    `Forwarded` headers are believed; nobody else's are, also not those of this machine."""
    root_path: str = ""
    """The path below which a proxy serves Penstock, such as `/penstock`. The proxy may pass it on or take it off."""
    public_docs: str = "on"
    """`off` takes `/api/v1/openapi.json` and the pages under `/help` away."""
    hsts: str = "max-age=31536000; includeSubDomains"
    """The `Strict-Transport-Security` header of answers under TLS."""
    rate_limit: float = 500.0
    """Requests a second and principal; bursts of twice as many pass."""
    session_seconds: float = 12 * 3600.0
    """The longest that a session of the page lasts, however much it is used."""
    session_idle_seconds: float = 3600.0
    """A session that was not used for this long ends."""
    metrics: str = "token"
    """Who may read /metrics: `token` (anyone who may view, and sees their own tenant) or `loopback` (this machine, all)."""
    metrics_tenants: int = 100
    """How many tenants have a label of their own in the metrics; the rest is summed as `other`."""
    metrics_series: int = 50
    """How many pairs of queue and definition key of a tenant have labels of their own in the metrics; the rest is summed as
    `other`."""
    stream_interval: float = 1.0
    """Seconds between looks at the database for the live stream."""
    stream_limit: int = 100
    """Live streams and log streams open at once for one tenant."""
    waits_per_token: int = 500
    """Requests with `wait_seconds` that may wait at once for one token."""
    waits_per_tenant: int = 1000
    """Requests with `wait_seconds` that may wait at once for one tenant."""
    quotas: tuple[str, ...] = ()
    """What binds a tenant through the service where nothing is set for it: `tokens=100,triggers=unlimited`. See service/quotas.md."""
    threads: int = 40
    """Threads that serve the API; one tenant has at most three quarters of them at a time."""
    tracing: str = "off"
    """`on` makes OpenTelemetry spans, sent where OTEL_* variables say, and carries the trace from enqueue to run."""
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_jwks: str | None = None
    """A file or an https URL with the keys that sign."""
    jwt_tenant_claim: str = "tenant"
    jwt_role_claim: str = "role"
    jwt_algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    jwt_max_seconds: float = 24 * 3600.0
    """The longest lifetime, from `iat` to `exp`, of a JWT that is accepted."""
    jwt_sessions: str = "on"
    """`on` lets a JWT open a session of the page, which ends with the JWT at the latest; `off` keeps JWTs to the API."""
    public_url: str | None = None
    """The address at which people reach the page, such as https://jobs.example.com. Sign-in with OpenID Connect needs it."""
    oidc_issuer: str | None = None
    """The identity provider that people sign in with: its issuer, exactly as its discovery document gives it."""
    oidc_client_id: str | None = None
    oidc_client_secret: str | None = field(default=None, repr=False)
    """The client's secret; leave it out for a public client."""
    oidc_name: str = ""
    """What the page calls the provider: "Sign in with …". Without it, the host of the issuer."""
    oidc_scopes: tuple[str, ...] = ("openid", "profile", "email")
    oidc_role_claim: str = "groups"
    """The claim that gives a person's roles: its name, or a path such as `realm_access.roles`."""
    oidc_role_map: str = ""
    """What the values of the role claim mean: `name=role` or `name=role@tenant` with commas between them, or a JSON object.
    Without it, the values are the names of roles."""
    oidc_tenant_claim: str | None = None
    """The claim with the slugs of a person's tenants. Without it, roles that name no tenant are for the tenant `default`."""
    oidc_userinfo: str = "off"
    """`on` asks the provider's userinfo endpoint for claims that its ID token lacks."""
    oidc_session_seconds: float = 8 * 3600.0
    """The longest that somebody stays signed in before the provider is asked again who they are and what they may do."""
    pipelines: tuple[str, ...] = ()
    """Modules whose pipeline tables the page shows."""

    def __post_init__(self) -> None:
        if self.bootstrap_token is not None and len(self.bootstrap_token) < MIN_BOOTSTRAP:
            raise InvalidInput(
                f"PENSTOCK_BOOTSTRAP_TOKEN has {len(self.bootstrap_token)} characters; at least {MIN_BOOTSTRAP} are needed,"
                " and 40 random ones are right: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        if self.bootstrap_token is not None and not is_well_formed(self.bootstrap_token):
            raise InvalidInput(
                "PENSTOCK_BOOTSTRAP_TOKEN begins with pst_, the mark of Penstock's own tokens, but its checksum does not fit, so "
                "every request with it would be refused. Choose a secret without that mark: "
                "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        Proxies.of(self.trusted_proxies)
        if not _ROOT_PATH.fullmatch(self.root_path):
            raise InvalidInput(
                f"root_path is {self.root_path!r}; expected a path such as /penstock, without a slash at its end."
            )
        if self.public_docs not in ("on", "off"):
            raise InvalidInput(f"public_docs is {self.public_docs!r}; expected on or off.")
        if not self.hsts.isascii() or not self.hsts.isprintable():
            raise InvalidInput("hsts holds characters that a header cannot have; expected such as max-age=31536000.")
        quota.parsed(self.quotas)
        if self.tracing not in ("on", "off"):
            raise InvalidInput(f"tracing is {self.tracing!r}; expected on or off.")
        if self.metrics not in ("token", "loopback"):
            raise InvalidInput(f"metrics is {self.metrics!r}; expected token or loopback.")
        for name in (
            "max_body_bytes",
            "body_timeout",
            "header_timeout",
            "idle_timeout",
            "max_connections",
            "connections_per_address",
            "rate_limit",
            "session_seconds",
            "session_idle_seconds",
            "stream_interval",
            "threads",
            "jwt_max_seconds",
            "oidc_session_seconds",
            "waits_per_token",
            "waits_per_tenant",
        ):
            if getattr(self, name) <= 0:
                raise InvalidInput(f"{name} is {getattr(self, name)!r}; it must be more than 0.")
        if self.jwt_jwks and not (self.jwt_issuer and self.jwt_audience):
            raise InvalidInput(
                "jwt_jwks needs jwt_issuer and jwt_audience too: a key alone says nothing about whom a JWT is for."
            )
        if not set(self.jwt_algorithms) <= {"RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"}:
            raise InvalidInput(
                f"jwt_algorithms is {', '.join(self.jwt_algorithms)}; only signatures by key pairs are taken."
            )

        for name in ("jwt_sessions", "oidc_userinfo"):
            if getattr(self, name) not in ("on", "off"):
                raise InvalidInput(f"{name} is {getattr(self, name)!r}; expected on or off.")
        self._check_sign_in()

    def _check_sign_in(self) -> None:
        if self.public_url is not None and not _is_address(self.public_url):
            raise InvalidInput(
                f"public_url is {self.public_url!r}; expected https://, a host and nothing after its path (http:// only for "
                "this machine itself)."
            )
        if self.oidc_issuer is None:
            return
        if not _is_address(self.oidc_issuer):
            raise InvalidInput(
                f"oidc_issuer is {self.oidc_issuer!r}; expected an https:// address (http:// only for this machine itself), "
                "because whoever can read or change what the issuer says can sign in as anybody."
            )
        if not (self.oidc_client_id and self.public_url):
            raise InvalidInput("oidc_issuer needs oidc_client_id and public_url, too.")
        if "openid" not in self.oidc_scopes:
            raise InvalidInput(f"oidc_scopes is {' '.join(self.oidc_scopes)!r}; it must have openid.")
        parse_role_map(self.oidc_role_map)

    def default_quotas(self) -> Mapping[str, int | None]:
        """The quotas of a tenant for which nothing is set."""
        return quota.changed({**quota.SERVICE_DEFAULTS, "streams": self.stream_limit}, _kept(quota.parsed(self.quotas)))

    def default_bounds(self, operator: bool, tenant_id: UUID) -> Bounds:
        """What binds a caller where nothing is set for the tenant. Nothing binds the operator in the tenant `default`, which is
        the operator's own; there, others are bound in their priorities alone."""
        if tenant_id != DEFAULT_TENANT_ID:
            return _service_bounds(self)
        return FREE if operator else Bounds({}, *SERVICE_PRIORITIES)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
        """From PENSTOCK_* variables; what is given by name wins."""
        values: dict[str, Any] = {}
        source = os.environ if environment is None else environment
        for each in fields(cls):
            text = source.get(PREFIX + each.name.upper())
            if text is None or text == "":
                continue
            values[each.name] = _parsed(each.name, str(each.type), text)
        return cls(**{**values, **given})


@lru_cache
def _service_bounds(settings: Settings) -> Bounds:
    return Bounds(settings.default_quotas(), *SERVICE_PRIORITIES)


def _kept(given: Mapping[str, int | str]) -> dict[str, int | str]:
    return {name: value for name, value in given.items() if value != quota.DEFAULT}


def _is_address(url: str) -> bool:
    return is_safe_url(url) and not urlsplit(url).query


def _parsed(name: str, kind: str, text: str) -> Any:
    try:
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
    except ValueError as error:
        raise InvalidInput(f"{PREFIX}{name.upper()} is {text!r}; expected a number.") from error
    if kind.startswith("tuple"):
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text
