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
    body: dict[str, Any] | None = None
    owned: str | None = None
    """The kind of thing that its id names, when a tenant owns it."""
    names: dict[str, str] = field(default_factory=dict)
    """Values of path parameters that are no ids."""


RUN = {"run_id": ANY_ID}
NO_TABLE = {"schema": "no-such-schema", "table": "NoSuchTable"}
ROUTES: dict[tuple[str, str], Route] = {
    ("GET", "/health/live"): Route(None),
    ("GET", "/health/ready"): Route(None),
    ("GET", "/metrics"): Route("view"),
    ("POST", "/api/v1/session"): Route(None, {"token": "x"}),
    ("GET", "/api/v1/session"): Route(None),
    ("DELETE", "/api/v1/session"): Route(None),
    ("GET", "/api/v1/sign-in"): Route(None),
    ("GET", "/api/v1/sign-in/oidc"): Route(None),
    ("GET", "/api/v1/sign-in/oidc/callback"): Route(None),
    ("GET", "/api/v1/sign-in/oidc/sign-out"): Route(None),
    ("POST", "/api/v1/sign-in/oidc/back-channel-logout"): Route(None),
    ("GET", "/api/v1/jobs"): Route("view"),
    ("POST", "/api/v1/jobs"): Route("operate", {"definition_key": "echo", "payload": {}}),
    ("POST", "/api/v1/jobs/cancel"): Route("operate", {"filter": {"status": ["canceled"]}, "dry_run": True}),
    ("POST", "/api/v1/jobs/retry"): Route("operate", {"filter": {"status": ["queued"]}, "dry_run": True}),
    ("GET", "/api/v1/jobs/export.csv"): Route("view"),
    ("GET", "/api/v1/jobs/summary"): Route("view"),
    ("GET", "/api/v1/jobs/{job_id}"): Route("view", owned="job"),
    ("PATCH", "/api/v1/jobs/{job_id}"): Route("operate", {"priority": 5}, "job"),
    ("POST", "/api/v1/jobs/{job_id}/cancel"): Route("operate", owned="job"),
    ("POST", "/api/v1/jobs/{job_id}/retry"): Route("operate", owned="job"),
    ("POST", "/api/v1/jobs/{job_id}/run-now"): Route("operate", owned="job"),
    ("POST", "/api/v1/jobs/{job_id}/move"): Route("operate", {"to": "top"}, "job"),
    ("GET", "/api/v1/jobs/{job_id}/attempts"): Route("view", owned="job"),
    ("GET", "/api/v1/jobs/{job_id}/chain"): Route("view", owned="job"),
    ("GET", "/api/v1/jobs/{job_id}/why"): Route("view", owned="job"),
    ("GET", "/api/v1/jobs/{job_id}/logs"): Route("view", owned="job"),
    ("GET", "/api/v1/jobs/{job_id}/logs/stream"): Route("view", owned="job"),
    ("GET", "/api/v1/stream"): Route("view"),
    ("GET", "/api/v1/jobs/triggers"): Route("view"),
    ("POST", "/api/v1/jobs/triggers"): Route(
        "manage", {"label": "t", "trigger_type": "event", "event_name": "a.b", "definition_key": "echo"}
    ),
    ("POST", "/api/v1/jobs/triggers/preview"): Route("view", {"cron_expr": "0 2 * * *"}),
    ("GET", "/api/v1/jobs/triggers/{trigger_id}"): Route("view", owned="trigger"),
    ("PATCH", "/api/v1/jobs/triggers/{trigger_id}"): Route("manage", {"is_enabled": True}, "trigger"),
    ("DELETE", "/api/v1/jobs/triggers/{trigger_id}"): Route("manage", owned="trigger"),
    ("POST", "/api/v1/jobs/triggers/{trigger_id}/fire"): Route("operate", {}, "trigger"),
    ("GET", "/api/v1/jobs/triggers/{trigger_id}/preview"): Route("view", owned="trigger"),
    ("GET", "/api/v1/jobs/triggers/{trigger_id}/ticks"): Route("view", owned="trigger"),
    ("GET", "/api/v1/groups"): Route("view"),
    ("POST", "/api/v1/groups"): Route("operate", {"jobs": [{"definition_key": "echo"}]}),
    ("GET", "/api/v1/groups/{group_id}"): Route("view", owned="group"),
    ("POST", "/api/v1/groups/{group_id}/cancel"): Route("operate", owned="group"),
    ("GET", "/api/v1/reservations"): Route("view"),
    ("POST", "/api/v1/reservations"): Route("operate", {"expires_in_seconds": 0.1}),
    ("DELETE", "/api/v1/reservations/{reservation_id}"): Route("operate", owned="reservation"),
    ("GET", "/api/v1/events"): Route("view"),
    ("POST", "/api/v1/events"): Route("operate", {"name": "nobody.listens", "context": {}}),
    ("GET", "/api/v1/events/{event_id}"): Route("view", owned="event"),
    ("GET", "/api/v1/webhooks"): Route("manage"),
    ("POST", "/api/v1/webhooks"): Route("manage", {"url": "https://example.com/hook"}),
    ("GET", "/api/v1/webhooks/{webhook_id}"): Route("manage", owned="webhook"),
    ("PATCH", "/api/v1/webhooks/{webhook_id}"): Route("manage", {"description": "d"}, "webhook"),
    ("DELETE", "/api/v1/webhooks/{webhook_id}"): Route("manage", owned="webhook"),
    ("POST", "/api/v1/webhooks/{webhook_id}/rotate-secret"): Route("manage", owned="webhook"),
    ("POST", "/api/v1/webhooks/{webhook_id}/test"): Route("manage", owned="webhook"),
    ("GET", "/api/v1/webhooks/{webhook_id}/deliveries"): Route("manage", owned="webhook"),
    ("GET", "/api/v1/stats/timeline"): Route("view"),
    ("GET", "/api/v1/stats/failures"): Route("view"),
    ("GET", "/api/v1/stats/upcoming"): Route("view"),
    ("GET", "/api/v1/workers"): Route("view"),
    ("GET", "/api/v1/definitions"): Route("view"),
    ("GET", "/api/v1/tokens"): Route("manage"),
    ("POST", "/api/v1/tokens"): Route("manage", {"role": "viewer", "label": "v"}),
    ("DELETE", "/api/v1/tokens/{token_id}"): Route("manage", owned="token"),
    ("GET", "/api/v1/tokens/{token_id}"): Route("manage", owned="token"),
    ("POST", "/api/v1/tokens/{token_id}/rotate"): Route("manage", {"overlap_seconds": 60}, "token"),
    ("DELETE", "/api/v1/tokens/{token_id}/sessions"): Route("manage", owned="token"),
    ("GET", "/api/v1/sessions"): Route("self"),
    ("DELETE", "/api/v1/sessions"): Route("self"),
    ("DELETE", "/api/v1/sessions/{session_id}"): Route("self", owned="session"),
    ("GET", "/api/v1/audit"): Route("manage"),
    ("GET", "/api/v1/audit/export"): Route("manage"),
    ("GET", "/api/v1/audit/head"): Route("manage"),
    ("POST", "/api/v1/worker/jobs/claim"): Route("work", {"worker_id": "w", "keys": ["no-such-key"]}),
    ("POST", "/api/v1/worker/jobs/heartbeat"): Route("work", {"runs": [{**RUN, "job_id": ANY_ID}]}),
    ("POST", "/api/v1/worker/jobs/release"): Route("work", {"runs": [{**RUN, "job_id": ANY_ID}]}),
    ("POST", "/api/v1/worker/jobs/{job_id}/heartbeat"): Route("work", RUN, "run"),
    ("POST", "/api/v1/worker/jobs/{job_id}/complete"): Route("work", RUN, "run"),
    ("POST", "/api/v1/worker/jobs/{job_id}/fail"): Route("work", {**RUN, "error": "e"}, "run"),
    ("GET", "/api/v1/queues"): Route("admin"),
    ("POST", "/api/v1/queues/{name}/pause"): Route("admin", names={"name": "no-such-queue"}),
    ("POST", "/api/v1/queues/{name}/resume"): Route("admin", names={"name": "no-such-queue"}),
    ("GET", "/api/v1/admin/stats"): Route("admin"),
    ("GET", "/api/v1/admin/audit"): Route("admin"),
    ("GET", "/api/v1/admin/audit/export"): Route("admin"),
    ("GET", "/api/v1/admin/audit/head"): Route("admin"),
    ("DELETE", "/api/v1/admin/tenants/{slug}"): Route("admin"),
    ("GET", "/api/v1/admin/deletions/{tenant_id}"): Route("admin"),
    ("GET", "/api/v1/admin/tenants"): Route("admin"),
    ("POST", "/api/v1/admin/tenants"): Route("admin", {"slug": "default"}),
    ("PATCH", "/api/v1/admin/tenants/{slug}"): Route("admin", {"name": "N"}, names={"slug": "no-such-tenant"}),
    ("GET", "/api/v1/admin/tokens"): Route("admin"),
    ("POST", "/api/v1/admin/tokens"): Route("admin", {"role": "viewer", "tenant": "no-such-tenant", "label": "x"}),
    ("DELETE", "/api/v1/admin/tokens/{token_id}"): Route("admin"),
    ("GET", "/api/v1/admin/tokens/{token_id}"): Route("admin"),
    ("POST", "/api/v1/admin/tokens/{token_id}/rotate"): Route("admin", {"overlap_seconds": 60}),
    ("DELETE", "/api/v1/admin/tokens/{token_id}/sessions"): Route("admin"),
    ("GET", "/api/v1/admin/revoked-jwts"): Route("admin"),
    ("POST", "/api/v1/admin/revoked-jwts"): Route("admin", {"subject": "s", "issuer": "https://id.test"}),
    ("GET", "/api/v1/admin/jobs/definitions"): Route("admin"),
    ("POST", "/api/v1/admin/jobs/definitions"): Route("admin", {"key": "echo"}),
    ("PATCH", "/api/v1/admin/jobs/definitions/{definition_id}"): Route("admin", {"description": "d"}),
    ("POST", "/api/v1/admin/jobs/definitions/apply"): Route("admin", {"definitions": []}),
    ("GET", "/api/v1/pipelines"): Route("admin"),
    ("GET", "/api/v1/pipelines/{schema}/{table}"): Route("admin", names=NO_TABLE),
    ("GET", "/api/v1/pipelines/{schema}/{table}/jobs"): Route("admin", names=NO_TABLE),
    ("POST", "/api/v1/pipelines/{schema}/{table}/refresh"): Route("admin", {}, names=NO_TABLE),
    ("POST", "/api/v1/pipelines/{schema}/{table}/clear"): Route("admin", {}, names=NO_TABLE),
    ("POST", "/api/v1/pipelines/{schema}/{table}/ignore"): Route("admin", {"keys": [{"a": 1}]}, names=NO_TABLE),
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
