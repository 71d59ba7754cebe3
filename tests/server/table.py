"""Every route of the service: what it needs, a body that it takes, and whose its ids are.

A new route fails `test_every_route_is_in_the_table` until it is listed here; then every attack is tried on it, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

ANY_ID = "0191d2a0-0000-7000-8000-00000000abcd"


@dataclass(frozen=True)
class Route:
    need: str | None
    scope: str | None = None
    """The scope that a token with scopes must have. Pinned here: whoever changes the service's own table must change this one, too."""
    keys: str = "free"
    """How it treats a token for some definitions: `checked` (only what is theirs), `free` (no matter) or `closed`."""
    body: dict[str, Any] | None = None
    owned: str | None = None
    """The kind of thing that its id names, when a tenant owns it."""
    names: dict[str, str] = field(default_factory=dict)
    """Values of path parameters that are no ids."""
    any: str | None = None
    """The kind of thing that its id names, when it belongs to the operator or may be of any tenant."""


RUN = {"run_id": ANY_ID}
NO_TABLE = {"schema": "no-such-schema", "table": "NoSuchTable"}
ROUTES: dict[tuple[str, str], Route] = {
    ("GET", "/health/live"): Route(None),
    ("GET", "/health/ready"): Route(None),
    ("GET", "/metrics"): Route("view", "metrics:read", "closed"),
    ("POST", "/api/v1/session"): Route(None, body={"token": "x"}),
    ("GET", "/api/v1/session"): Route(None),
    ("DELETE", "/api/v1/session"): Route(None),
    ("GET", "/api/v1/sign-in"): Route(None),
    ("GET", "/api/v1/sign-in/oidc"): Route(None),
    ("GET", "/api/v1/sign-in/oidc/callback"): Route(None),
    ("GET", "/api/v1/sign-in/oidc/sign-out"): Route(None),
    ("POST", "/api/v1/sign-in/oidc/back-channel-logout"): Route(None),
    ("GET", "/api/v1/jobs"): Route("view", "jobs:read", "checked"),
    ("POST", "/api/v1/jobs"): Route("operate", "jobs:write", "checked", {"definition_key": "echo", "payload": {}}),
    ("POST", "/api/v1/jobs/cancel"): Route(
        "operate", "jobs:write", "checked", {"filter": {"status": ["canceled"]}, "dry_run": True}
    ),
    ("POST", "/api/v1/jobs/retry"): Route(
        "operate", "jobs:write", "checked", {"filter": {"status": ["queued"]}, "dry_run": True}
    ),
    ("GET", "/api/v1/jobs/export.csv"): Route("view", "jobs:read", "checked"),
    ("GET", "/api/v1/jobs/summary"): Route("view", "jobs:read", "closed"),
    ("GET", "/api/v1/jobs/{job_id}"): Route("view", "jobs:read", "checked", owned="job"),
    ("PATCH", "/api/v1/jobs/{job_id}"): Route("operate", "jobs:write", "checked", {"priority": 5}, "job"),
    ("POST", "/api/v1/jobs/{job_id}/cancel"): Route("operate", "jobs:write", "checked", owned="job"),
    ("POST", "/api/v1/jobs/{job_id}/retry"): Route("operate", "jobs:write", "checked", owned="job"),
    ("POST", "/api/v1/jobs/{job_id}/run-now"): Route("operate", "jobs:write", "checked", owned="job"),
    ("POST", "/api/v1/jobs/{job_id}/move"): Route("operate", "jobs:write", "closed", {"to": "top"}, "job"),
    ("GET", "/api/v1/jobs/{job_id}/attempts"): Route("view", "jobs:read", "checked", owned="job"),
    ("GET", "/api/v1/jobs/{job_id}/chain"): Route("view", "jobs:read", "checked", owned="job"),
    ("GET", "/api/v1/jobs/{job_id}/why"): Route("view", "jobs:read", "checked", owned="job"),
    ("GET", "/api/v1/jobs/{job_id}/logs"): Route("view", "jobs:read", "checked", owned="job"),
    ("GET", "/api/v1/jobs/{job_id}/logs/stream"): Route("view", "jobs:read", "checked", owned="job"),
    ("GET", "/api/v1/stream"): Route("view", "jobs:read", "closed"),
    ("GET", "/api/v1/jobs/triggers"): Route("view", "triggers:read", "closed"),
    ("POST", "/api/v1/jobs/triggers"): Route(
        "manage",
        "triggers:write",
        "closed",
        {"label": "t", "trigger_type": "event", "event_name": "a.b", "definition_key": "echo"},
    ),
    ("POST", "/api/v1/jobs/triggers/preview"): Route("view", "triggers:read", "closed", {"cron_expr": "0 2 * * *"}),
    ("GET", "/api/v1/jobs/triggers/{trigger_id}"): Route("view", "triggers:read", "closed", owned="trigger"),
    ("PATCH", "/api/v1/jobs/triggers/{trigger_id}"): Route(
        "manage", "triggers:write", "closed", {"is_enabled": True}, "trigger"
    ),
    ("DELETE", "/api/v1/jobs/triggers/{trigger_id}"): Route("manage", "triggers:write", "closed", owned="trigger"),
    ("POST", "/api/v1/jobs/triggers/{trigger_id}/fire"): Route("operate", "triggers:write", "closed", {}, "trigger"),
    ("GET", "/api/v1/jobs/triggers/{trigger_id}/preview"): Route("view", "triggers:read", "closed", owned="trigger"),
    ("GET", "/api/v1/jobs/triggers/{trigger_id}/ticks"): Route("view", "triggers:read", "closed", owned="trigger"),
    ("GET", "/api/v1/groups"): Route("view", "jobs:read", "closed"),
    ("POST", "/api/v1/groups"): Route("operate", "jobs:write", "checked", {"jobs": [{"definition_key": "echo"}]}),
    ("GET", "/api/v1/groups/{group_id}"): Route("view", "jobs:read", "closed", owned="group"),
    ("POST", "/api/v1/groups/{group_id}/cancel"): Route("operate", "jobs:write", "closed", owned="group"),
    ("GET", "/api/v1/reservations"): Route("view", "jobs:read", "closed"),
    ("POST", "/api/v1/reservations"): Route("operate", "jobs:write", "closed", {"expires_in_seconds": 0.1}),
    ("DELETE", "/api/v1/reservations/{reservation_id}"): Route("operate", "jobs:write", "closed", owned="reservation"),
    ("GET", "/api/v1/events"): Route("view", "events:read", "closed"),
    ("POST", "/api/v1/events"): Route("operate", "events:emit", "closed", {"name": "nobody.listens", "context": {}}),
    ("GET", "/api/v1/events/{event_id}"): Route("view", "events:read", "closed", owned="event"),
    ("GET", "/api/v1/webhooks"): Route("manage", "webhooks:read", "closed"),
    ("POST", "/api/v1/webhooks"): Route("manage", "webhooks:write", "closed", {"url": "https://example.com/hook"}),
    ("GET", "/api/v1/webhooks/{webhook_id}"): Route("manage", "webhooks:read", "closed", owned="webhook"),
    ("PATCH", "/api/v1/webhooks/{webhook_id}"): Route(
        "manage", "webhooks:write", "closed", {"description": "d"}, "webhook"
    ),
    ("DELETE", "/api/v1/webhooks/{webhook_id}"): Route("manage", "webhooks:write", "closed", owned="webhook"),
    ("POST", "/api/v1/webhooks/{webhook_id}/rotate-secret"): Route(
        "manage", "webhooks:write", "closed", owned="webhook"
    ),
    ("POST", "/api/v1/webhooks/{webhook_id}/test"): Route("manage", "webhooks:write", "closed", owned="webhook"),
    ("GET", "/api/v1/webhooks/{webhook_id}/deliveries"): Route("manage", "webhooks:read", "closed", owned="webhook"),
    ("GET", "/api/v1/stats/timeline"): Route("view", "metrics:read", "closed"),
    ("GET", "/api/v1/stats/failures"): Route("view", "metrics:read", "closed"),
    ("GET", "/api/v1/stats/upcoming"): Route("view", "triggers:read", "closed"),
    ("GET", "/api/v1/workers"): Route("view", "metrics:read", "closed"),
    ("GET", "/api/v1/definitions"): Route("view", "definitions:read", "checked"),
    ("GET", "/api/v1/tokens"): Route("manage", "tokens:read", "free"),
    ("POST", "/api/v1/tokens"): Route("manage", "tokens:write", "free", {"role": "viewer", "label": "v"}),
    ("DELETE", "/api/v1/tokens/{token_id}"): Route("manage", "tokens:write", "free", owned="token"),
    ("GET", "/api/v1/tokens/{token_id}"): Route("manage", "tokens:read", "free", owned="token"),
    ("POST", "/api/v1/tokens/{token_id}/rotate"): Route(
        "manage", "tokens:write", "free", {"overlap_seconds": 60}, "token"
    ),
    ("DELETE", "/api/v1/tokens/{token_id}/sessions"): Route("manage", "tokens:write", "free", owned="token"),
    ("GET", "/api/v1/sessions"): Route("self", None, "free"),
    ("DELETE", "/api/v1/sessions"): Route("self", None, "free"),
    ("DELETE", "/api/v1/sessions/{session_id}"): Route("self", None, "free", owned="session"),
    ("GET", "/api/v1/audit"): Route("manage", "audit:read", "closed"),
    ("GET", "/api/v1/audit/export"): Route("manage", "audit:read", "closed"),
    ("GET", "/api/v1/audit/head"): Route("manage", "audit:read", "closed"),
    ("POST", "/api/v1/worker/jobs/claim"): Route(
        "work", "worker", "checked", {"worker_id": "w", "keys": ["no-such-key"]}
    ),
    ("POST", "/api/v1/worker/jobs/heartbeat"): Route(
        "work", "worker", "checked", {"runs": [{**RUN, "job_id": ANY_ID}]}
    ),
    ("POST", "/api/v1/worker/jobs/release"): Route("work", "worker", "checked", {"runs": [{**RUN, "job_id": ANY_ID}]}),
    ("POST", "/api/v1/worker/jobs/{job_id}/heartbeat"): Route("work", "worker", "checked", RUN, "run"),
    ("POST", "/api/v1/worker/jobs/{job_id}/complete"): Route("work", "worker", "checked", RUN, "run"),
    ("POST", "/api/v1/worker/jobs/{job_id}/fail"): Route("work", "worker", "checked", {**RUN, "error": "e"}, "run"),
    ("GET", "/api/v1/queues"): Route("admin", "queues:read", "closed"),
    ("POST", "/api/v1/queues/{name}/pause"): Route("admin", "queues:write", "closed", names={"name": "no-such-queue"}),
    ("POST", "/api/v1/queues/{name}/resume"): Route("admin", "queues:write", "closed", names={"name": "no-such-queue"}),
    ("GET", "/api/v1/admin/stats"): Route("admin", "metrics:read", "closed"),
    ("GET", "/api/v1/admin/audit"): Route("admin", "audit:read", "closed"),
    ("GET", "/api/v1/admin/audit/export"): Route("admin", "audit:read", "closed"),
    ("GET", "/api/v1/admin/audit/head"): Route("admin", "audit:read", "closed"),
    ("DELETE", "/api/v1/admin/tenants/{slug}"): Route("admin", "tenants:write", "closed", any="tenant"),
    ("GET", "/api/v1/admin/deletions/{tenant_id}"): Route("admin", "tenants:read", "closed", any="deletion"),
    ("GET", "/api/v1/admin/tenants"): Route("admin", "tenants:read", "closed"),
    ("POST", "/api/v1/admin/tenants"): Route("admin", "tenants:write", "closed", {"slug": "default"}),
    ("PATCH", "/api/v1/admin/tenants/{slug}"): Route(
        "admin", "tenants:write", "closed", {"name": "N"}, names={"slug": "no-such-tenant"}, any="tenant"
    ),
    ("GET", "/api/v1/admin/tokens"): Route("admin", "tokens:read", "free"),
    ("POST", "/api/v1/admin/tokens"): Route(
        "admin", "tokens:write", "free", {"role": "viewer", "tenant": "no-such-tenant", "label": "x"}
    ),
    ("DELETE", "/api/v1/admin/tokens/{token_id}"): Route("admin", "tokens:write", "free", any="token"),
    ("GET", "/api/v1/admin/tokens/{token_id}"): Route("admin", "tokens:read", "free", any="token"),
    ("POST", "/api/v1/admin/tokens/{token_id}/rotate"): Route(
        "admin", "tokens:write", "free", {"overlap_seconds": 60}, any="token"
    ),
    ("DELETE", "/api/v1/admin/tokens/{token_id}/sessions"): Route("admin", "tokens:write", "free", any="token"),
    ("GET", "/api/v1/admin/revoked-jwts"): Route("admin", "tokens:read", "free"),
    ("POST", "/api/v1/admin/revoked-jwts"): Route(
        "admin", "tokens:write", "free", {"subject": "s", "issuer": "https://id.test"}
    ),
    ("GET", "/api/v1/admin/jobs/definitions"): Route("admin", "definitions:read", "closed"),
    ("POST", "/api/v1/admin/jobs/definitions"): Route("admin", "definitions:write", "closed", {"key": "echo"}),
    ("PATCH", "/api/v1/admin/jobs/definitions/{definition_id}"): Route(
        "admin", "definitions:write", "closed", {"description": "d"}, any="definition"
    ),
    ("POST", "/api/v1/admin/jobs/definitions/apply"): Route(
        "admin", "definitions:write", "closed", {"definitions": []}
    ),
    ("GET", "/api/v1/pipelines"): Route("admin", "pipelines:read", "closed"),
    ("GET", "/api/v1/pipelines/{schema}/{table}"): Route("admin", "pipelines:read", "closed", names=NO_TABLE),
    ("GET", "/api/v1/pipelines/{schema}/{table}/jobs"): Route("admin", "pipelines:read", "closed", names=NO_TABLE),
    ("POST", "/api/v1/pipelines/{schema}/{table}/refresh"): Route(
        "admin", "pipelines:write", "closed", {}, names=NO_TABLE
    ),
    ("POST", "/api/v1/pipelines/{schema}/{table}/clear"): Route(
        "admin", "pipelines:write", "closed", {}, names=NO_TABLE
    ),
    ("POST", "/api/v1/pipelines/{schema}/{table}/ignore"): Route(
        "admin", "pipelines:write", "closed", {"keys": [{"a": 1}]}, names=NO_TABLE
    ),
}

STREAMS = {("GET", "/api/v1/stream"), ("GET", "/api/v1/jobs/{job_id}/logs/stream")}
"""Answers that do not end by themselves; their own tests read them."""

OPEN = {("GET", "/api/v1/sign-in/oidc/callback")}
"""Addresses to which others add what they like; it is passed over."""

MAY = {
    "super_admin": {"self", "view", "operate", "manage", "admin", "work"},
    "tenant_admin": {"self", "view", "operate", "manage"},
    "operator": {"self", "view", "operate"},
    "viewer": {"self", "view"},
    "worker": {"self", "work"},
}


def address(path: str, route: Route, id: str = ANY_ID) -> str:
    """The path with its parameters filled in."""
    for name, value in route.names.items():
        path = path.replace(f"{{{name}}}", value)
    while "{" in path:
        start, end = path.index("{"), path.index("}")
        path = path[:start] + id + path[end + 1 :]
    return path
