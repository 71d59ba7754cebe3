"""Settings of how people and programs sign in to the service."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from penstock.core.access import is_well_formed
from penstock.core.errors import InvalidInput
from penstock.core.settings.base import SWITCH, Group, setting
from penstock.core.sign_in import parse_role_map
from penstock.core.urls import is_safe_url

MIN_BOOTSTRAP = 20


@dataclass(frozen=True, kw_only=True)
class SignInSettings(Group):
    """Tokens, sessions, JWTs and OpenID Connect."""

    bootstrap_token: str | None = None
    """The first super admin's token. Without it, make one with `penstock tokens create --role super_admin`."""
    session_seconds: float = setting(12 * 3600.0, more_than=0)
    """The longest that a session of the page lasts, however much it is used."""
    session_idle_seconds: float = setting(3600.0, more_than=0)
    """A session that was not used for this long ends."""
    jwt_issuer: str | None = None
    """Who signs the JWTs that are accepted: their `iss` claim."""
    jwt_audience: str | None = None
    """Whom the JWTs must be for: their `aud` claim."""
    jwt_jwks: str | None = None
    """A file or an https URL with the keys that sign."""
    jwt_tenant_claim: str = "tenant"
    """The claim of a JWT that names the tenant."""
    jwt_role_claim: str = "role"
    """The claim of a JWT that names the role."""
    jwt_algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    """Algorithms of signatures that are accepted."""
    jwt_max_seconds: float = setting(24 * 3600.0, more_than=0)
    """The longest lifetime, from `iat` to `exp`, of a JWT that is accepted."""
    jwt_sessions: str = setting("on", one_of=SWITCH)
    """`on` lets a JWT open a session of the page, which ends with the JWT at the latest; `off` keeps JWTs to the API."""
    public_url: str | None = None
    """The address at which people reach the page, such as https://jobs.example.com. Sign-in with OpenID Connect needs it."""
    oidc_issuer: str | None = None
    """The identity provider that people sign in with: its issuer, exactly as its discovery document gives it."""
    oidc_client_id: str | None = None
    """The client that the provider knows this installation as."""
    oidc_client_secret: str | None = setting(None, repr=False)
    """The client's secret; leave it out for a public client."""
    oidc_name: str = ""
    """What the page calls the provider: "Sign in with …". Without it, the host of the issuer."""
    oidc_scopes: tuple[str, ...] = ("openid", "profile", "email")
    """The scopes that are asked of the provider."""
    oidc_role_claim: str = "groups"
    """The claim that gives a person's roles: its name, or a path such as `realm_access.roles`."""
    oidc_role_map: str = ""
    """What the values of the role claim mean: `name=role` or `name=role@tenant` with commas between them, or a JSON object.
    Without it, the values are the names of roles."""
    oidc_tenant_claim: str | None = None
    """The claim with the slugs of a person's tenants. Without it, roles that name no tenant are for the tenant `default`."""
    oidc_userinfo: str = setting("off", one_of=SWITCH)
    """`on` asks the provider's userinfo endpoint for claims that its ID token lacks."""
    oidc_session_seconds: float = setting(8 * 3600.0, more_than=0)
    """The longest that somebody stays signed in before the provider is asked again who they are and what they may do."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_bootstrap()
        self._check_jwts()
        self._check_oidc()

    def _check_bootstrap(self) -> None:
        token = self.bootstrap_token
        if token is not None and len(token) < MIN_BOOTSTRAP:
            raise InvalidInput(
                f"PENSTOCK_BOOTSTRAP_TOKEN has {len(token)} characters; at least {MIN_BOOTSTRAP} are needed,"
                " and 40 random ones are right: python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )
        if token is not None and not is_well_formed(token):
            raise InvalidInput(
                "PENSTOCK_BOOTSTRAP_TOKEN begins with pst_, the mark of Penstock's own tokens, but its checksum does not fit, so "
                "every request with it would be refused. Choose a secret without that mark: "
                "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
            )

    def _check_jwts(self) -> None:
        if self.jwt_jwks and not (self.jwt_issuer and self.jwt_audience):
            raise InvalidInput(
                "jwt_jwks needs jwt_issuer and jwt_audience too: a key alone says nothing about whom a JWT is for."
            )
        if not set(self.jwt_algorithms) <= {"RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"}:
            raise InvalidInput(
                f"jwt_algorithms is {', '.join(self.jwt_algorithms)}; only signatures by key pairs are taken."
            )

    def _check_oidc(self) -> None:
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


def _is_address(url: str) -> bool:
    return is_safe_url(url) and not urlsplit(url).query
