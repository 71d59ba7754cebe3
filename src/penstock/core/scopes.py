"""Scopes: what a token may be limited to beside its role. One table names the scope of each route, and how a token that is
limited to definitions is held to them there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.core.access import Principal
from penstock.core.errors import ScopeMissing

API = "/api/v1"


class Scope(StrEnum):
    """A group of routes, to read or to change. A token without scopes has all that its role allows."""

    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    TRIGGERS_READ = "triggers:read"
    TRIGGERS_WRITE = "triggers:write"
    EVENTS_READ = "events:read"
    EVENTS_EMIT = "events:emit"
    DEFINITIONS_READ = "definitions:read"
    DEFINITIONS_WRITE = "definitions:write"
    WEBHOOKS_READ = "webhooks:read"
    WEBHOOKS_WRITE = "webhooks:write"
    METRICS_READ = "metrics:read"
    TOKENS_READ = "tokens:read"
    TOKENS_WRITE = "tokens:write"
    AUDIT_READ = "audit:read"
    QUEUES_READ = "queues:read"
    QUEUES_WRITE = "queues:write"
    TENANTS_READ = "tenants:read"
    TENANTS_WRITE = "tenants:write"
    PIPELINES_READ = "pipelines:read"
    PIPELINES_WRITE = "pipelines:write"
    WORKER = "worker"


AREAS: tuple[tuple[str, Scope | None, Scope | None], ...] = (
    # The beginning of an address, what it takes to read, what it takes to change. The first that fits counts.
    (f"{API}/session", None, None),
    (f"{API}/sessions", None, None),
    (f"{API}/jobs/triggers", Scope.TRIGGERS_READ, Scope.TRIGGERS_WRITE),
    (f"{API}/stats/upcoming", Scope.TRIGGERS_READ, Scope.TRIGGERS_READ),
    (f"{API}/jobs", Scope.JOBS_READ, Scope.JOBS_WRITE),
    (f"{API}/groups", Scope.JOBS_READ, Scope.JOBS_WRITE),
    (f"{API}/reservations", Scope.JOBS_READ, Scope.JOBS_WRITE),
    (f"{API}/stream", Scope.JOBS_READ, Scope.JOBS_READ),
    (f"{API}/events", Scope.EVENTS_READ, Scope.EVENTS_EMIT),
    (f"{API}/webhooks", Scope.WEBHOOKS_READ, Scope.WEBHOOKS_WRITE),
    (f"{API}/stats", Scope.METRICS_READ, Scope.METRICS_READ),
    (f"{API}/workers", Scope.METRICS_READ, Scope.METRICS_READ),
    (f"{API}/admin/stats", Scope.METRICS_READ, Scope.METRICS_READ),
    ("/metrics", Scope.METRICS_READ, Scope.METRICS_READ),
    (f"{API}/definitions", Scope.DEFINITIONS_READ, Scope.DEFINITIONS_WRITE),
    (f"{API}/admin/jobs/definitions", Scope.DEFINITIONS_READ, Scope.DEFINITIONS_WRITE),
    (f"{API}/tokens", Scope.TOKENS_READ, Scope.TOKENS_WRITE),
    (f"{API}/admin/tokens", Scope.TOKENS_READ, Scope.TOKENS_WRITE),
    (f"{API}/admin/revoked-jwts", Scope.TOKENS_READ, Scope.TOKENS_WRITE),
    (f"{API}/audit", Scope.AUDIT_READ, Scope.AUDIT_READ),
    (f"{API}/admin/audit", Scope.AUDIT_READ, Scope.AUDIT_READ),
    (f"{API}/queues", Scope.QUEUES_READ, Scope.QUEUES_WRITE),
    (f"{API}/admin/tenants", Scope.TENANTS_READ, Scope.TENANTS_WRITE),
    (f"{API}/admin/deletions", Scope.TENANTS_READ, Scope.TENANTS_WRITE),
    (f"{API}/pipelines", Scope.PIPELINES_READ, Scope.PIPELINES_WRITE),
    (f"{API}/worker", Scope.WORKER, Scope.WORKER),
)
READ_BY_POST = frozenset({f"{API}/jobs/triggers/preview"})
"""What only reads although it is a POST, because it takes a body."""


class Keys(StrEnum):
    """How a route treats a token that is limited to some definitions."""

    CHECKED = "checked"
    """It shows and changes only what belongs to those definitions."""
    FREE = "free"
    """It has nothing to do with definitions."""
    CLOSED = "closed"
    """It covers all definitions at once, so such a token may not use it."""


KEYS_FREE = (f"{API}/session", f"{API}/sessions", f"{API}/tokens", f"{API}/admin/tokens", f"{API}/admin/revoked-jwts")
KEYS_CHECKED = frozenset({
    f"POST {API}/jobs", f"GET {API}/jobs", f"GET {API}/jobs/export.csv", f"POST {API}/jobs/cancel",
    f"POST {API}/jobs/retry", f"GET {API}/jobs/{{job_id}}", f"PATCH {API}/jobs/{{job_id}}",
    f"POST {API}/jobs/{{job_id}}/cancel", f"POST {API}/jobs/{{job_id}}/retry", f"POST {API}/jobs/{{job_id}}/run-now",
    f"GET {API}/jobs/{{job_id}}/attempts", f"GET {API}/jobs/{{job_id}}/chain", f"GET {API}/jobs/{{job_id}}/why",
    f"GET {API}/jobs/{{job_id}}/logs", f"GET {API}/jobs/{{job_id}}/logs/stream", f"POST {API}/groups",
    f"GET {API}/definitions", f"POST {API}/worker/jobs/claim", f"POST {API}/worker/jobs/heartbeat",
    f"POST {API}/worker/jobs/release", f"POST {API}/worker/jobs/{{job_id}}/heartbeat",
    f"POST {API}/worker/jobs/{{job_id}}/complete", f"POST {API}/worker/jobs/{{job_id}}/fail",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """What a route asks of a limited token."""

    known: bool
    """False for a route that the table does not name. A token with scopes may not use it."""
    scope: Scope | None
    keys: Keys


def rule_of(method: str, path: str) -> Rule:
    """Return the rule of a route, by its method and its path with the names of its parameters.

    >>> rule_of("POST", "/api/v1/jobs/{job_id}/cancel").scope.value
    'jobs:write'
    """
    keys = Keys.CHECKED if f"{method} {path}" in KEYS_CHECKED else Keys.CLOSED
    if any(_is_under(path, each) for each in KEYS_FREE):
        keys = Keys.FREE
    for beginning, read, change in AREAS:
        if _is_under(path, beginning):
            reads = method in ("GET", "HEAD") or path in READ_BY_POST
            return Rule(True, read if reads else change, keys)
    return Rule(False, None, keys)


def _is_under(path: str, beginning: str) -> bool:
    return path == beginning or path.startswith(f"{beginning}/")


def check_scope(principal: Principal, rule: Rule) -> None:
    """Raise unless the token's scopes and definitions allow this route."""
    if principal.scopes is not None and not rule.known:
        raise ScopeMissing("This address is open only to tokens that are not limited to scopes.")
    if principal.scopes is not None and rule.scope is not None and rule.scope not in principal.scopes:
        raise ScopeMissing(
            f"This token lacks the scope {rule.scope.value}. It has: {', '.join(principal.scopes) or 'none'}. Use a token "
            f"that has {rule.scope.value}, or one without scopes."
        )
    if principal.keys is not None and rule.keys is Keys.CLOSED:
        raise ScopeMissing(
            f"This token is limited to the definitions {', '.join(principal.keys)}, and this address covers all of them. Use a "
            "token that is not limited to definitions."
        )


def check_key(principal: Principal, key: str) -> None:
    """Raise unless the token may use this definition."""
    if not allows_key(principal.keys, key):
        raise ScopeMissing(
            f"This token is limited to the definitions {', '.join(principal.keys or ())}; {key!r} is not among them."
        )


def allows_key(keys: tuple[str, ...] | None, key: str) -> bool:
    """Whether patterns such as `report.*` include a definition's key.

    >>> allows_key(("report.*", "sync"), "report.daily"), allows_key(("report.*",), "reports")
    (True, False)
    """
    return keys is None or any(key.startswith(each[:-1]) if each.endswith("*") else key == each for each in keys)
