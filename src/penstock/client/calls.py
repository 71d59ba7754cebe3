"""Every call of the API as plain values: what is sent, and how the answer is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel

from penstock.core.errors import Fault, PenstockError
from penstock.core.wire import access, groups, reach, sign_in, stats, tenancy, worker
from penstock.core.wire import audit as audited
from penstock.core.wire import definitions as defined
from penstock.core.wire import jobs as work

T = TypeVar("T")
Id = UUID | str
API = "/api/v1"


class ApiError(PenstockError):
    """The service refused, could not be reached (`status` 0, code `unreachable`), or somebody else returned something
    that is not Penstock's (code `not_penstock`). `code` says why, `faults` where."""

    def __init__(self, status: int, code: str, detail: str, faults: Sequence[Fault] = ()) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """A call as plain values, and how its answer is read. `safe` calls may be sent again when the answer was lost."""

    method: str
    path: str
    answer: Callable[[Any], T]
    body: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)
    safe: bool = False
    keyed: bool = False


def _model(kind: type[BaseModel]) -> Callable[[Any], Any]:
    return lambda found: kind.model_validate(found)


def _nothing(_found: Any) -> None:
    return None


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _get(path: str, answer: Callable[[Any], T], **query: Any) -> Ask[T]:
    plain = {
        name: value.isoformat() if isinstance(value, datetime) else value for name, value in _given(**query).items()
    }
    return Ask("GET", f"{API}{path}", answer, query=plain, safe=True)


def _post(path: str, answer: Callable[[Any], T], body: BaseModel | None = None, *, create: bool = False) -> Ask[T]:
    plain = None if body is None else body.model_dump(mode="json", exclude_unset=True)
    return Ask("POST", f"{API}{path}", answer, plain, safe=create, keyed=create)


def _tokens(everyone: bool) -> str:
    return "/admin/tokens" if everyone else "/tokens"


class Calls:
    """Every call of the API that programs need."""

    @staticmethod
    def enqueue(definition_key: str, payload: Mapping[str, Any] | None = None, **options: Any) -> Ask[work.Job]:
        """Ask for work: priority, queue, scheduled_for, delay_seconds, dedupe_key, correlation_id."""
        body = work.NewJob(definition_key=definition_key, payload=dict(payload or {}), **options)
        return _post("/jobs", _model(work.Job), body, create=True)

    @staticmethod
    def job(id: Id) -> Ask[work.Job]:
        return _get(f"/jobs/{id}", _model(work.Job))

    @staticmethod
    def jobs(**query: Any) -> Ask[work.JobPage]:
        """Newest first, by status, source, definition_key, created_after, search, limit, offset, cursor and more."""
        return _get("/jobs", _model(work.JobPage), **query)

    @staticmethod
    def summary() -> Ask[work.Summary]:
        return _get("/jobs/summary", _model(work.Summary))

    @staticmethod
    def attempts(id: Id) -> Ask[work.AttemptList]:
        return _get(f"/jobs/{id}/attempts", _model(work.AttemptList))

    @staticmethod
    def why(id: Id) -> Ask[work.Why]:
        return _get(f"/jobs/{id}/why", _model(work.Why))

    @staticmethod
    def logs(id: Id, attempt_no: int | None = None) -> Ask[work.Logs]:
        return _get(f"/jobs/{id}/logs", _model(work.Logs), attempt_no=attempt_no)

    @staticmethod
    def cancel(id: Id) -> Ask[work.Job]:
        return _post(f"/jobs/{id}/cancel", _model(work.Job))

    @staticmethod
    def retry(id: Id) -> Ask[work.Job]:
        return _post(f"/jobs/{id}/retry", _model(work.Job))

    @staticmethod
    def run_now(id: Id) -> Ask[work.Job]:
        """Let a job that waits for its time or its backoff run now."""
        return _post(f"/jobs/{id}/run-now", _model(work.Job))

    @staticmethod
    def move(id: Id, **where: Any) -> Ask[work.Job]:
        """before=, after= or to="top" or "bottom"."""
        return _post(f"/jobs/{id}/move", _model(work.Job), work.MoveJob(**where))

    @staticmethod
    def change(id: Id, **changes: Any) -> Ask[work.Job]:
        """Change payload, priority or scheduled_for of a queued job. `scheduled_for=None` makes it due now."""
        body = work.ChangeJob(**changes).model_dump(mode="json", exclude_unset=True)
        return Ask("PATCH", f"{API}/jobs/{id}", _model(work.Job), body)

    @staticmethod
    def cancel_many(filter: Mapping[str, Any], dry_run: bool = False) -> Ask[work.BulkDone]:
        return _post("/jobs/cancel", _model(work.BulkDone), work.Bulk(filter=work.JobFilter(**filter), dry_run=dry_run))

    @staticmethod
    def retry_many(filter: Mapping[str, Any], dry_run: bool = False) -> Ask[work.BulkDone]:
        return _post("/jobs/retry", _model(work.BulkDone), work.Bulk(filter=work.JobFilter(**filter), dry_run=dry_run))

    @staticmethod
    def create_group(members: Sequence[tuple[str, Mapping[str, Any]]], **options: Any) -> Ask[groups.Group]:
        """mode, on_failure, label, priority, correlation_id."""
        asked = [groups.Member(definition_key=key, payload=dict(payload)) for key, payload in members]
        return _post("/groups", _model(groups.Group), groups.NewGroup(jobs=asked, **options), create=True)

    @staticmethod
    def group(id: Id) -> Ask[groups.Group]:
        return _get(f"/groups/{id}", _model(groups.Group))

    @staticmethod
    def emit(name: str, context: Mapping[str, Any] | None = None) -> Ask[reach.Event]:
        return _post(
            "/events", _model(reach.Event), reach.NewEvent(name=name, context=dict(context or {})), create=True
        )

    @staticmethod
    def triggers(**query: Any) -> Ask[reach.TriggerList]:
        return _get("/jobs/triggers", _model(reach.TriggerList), **query)

    @staticmethod
    def create_trigger(**given: Any) -> Ask[reach.Trigger]:
        return _post("/jobs/triggers", _model(reach.Trigger), reach.NewTrigger(**given), create=True)

    @staticmethod
    def change_trigger(id: Id, **changes: Any) -> Ask[reach.Trigger]:
        body = reach.ChangeTrigger(**changes).model_dump(mode="json", exclude_unset=True)
        return Ask("PATCH", f"{API}/jobs/triggers/{id}", _model(reach.Trigger), body)

    @staticmethod
    def delete_trigger(id: Id) -> Ask[None]:
        return Ask("DELETE", f"{API}/jobs/triggers/{id}", _nothing)

    @staticmethod
    def fire_trigger(id: Id, payload: Mapping[str, Any] | None = None) -> Ask[work.Job]:
        body = reach.Fire(payload=dict(payload or {}))
        return _post(f"/jobs/triggers/{id}/fire", _model(work.Job), body, create=True)

    @staticmethod
    def definitions() -> Ask[defined.DefinitionList]:
        return _get("/definitions", _model(defined.DefinitionList))

    @staticmethod
    def apply_definitions(wanted: Sequence[Mapping[str, Any]], **options: Any) -> Ask[defined.Applied]:
        """archive_others, dry_run."""
        asked = [defined.NewDefinition(**each) for each in wanted]
        body = defined.ApplyDefinitions(definitions=asked, **options)
        return _post("/admin/jobs/definitions/apply", _model(defined.Applied), body)

    @staticmethod
    def create_tenant(slug: str, name: str | None = None, **options: Any) -> Ask[defined.Tenant]:
        body = defined.NewTenant(slug=slug, name=name, **options)
        return _post("/admin/tenants", _model(defined.Tenant), body, create=True)

    @staticmethod
    def change_tenant(slug: str, **changes: Any) -> Ask[defined.Tenant]:
        """name, timezone, weight, max_running, quotas, min_priority, max_priority, is_active."""
        body = defined.ChangeTenant(**changes).model_dump(mode="json", exclude_unset=True)
        return Ask("PATCH", f"{API}/admin/tenants/{slug}", _model(defined.Tenant), body)

    @staticmethod
    def delete_tenant(slug: str, confirm: str) -> Ask[tenancy.Deletion]:
        """Close a tenant and have everything of it erased. `confirm` is the slug once more."""
        ask = Ask(
            "DELETE", f"{API}/admin/tenants/{slug}", _model(tenancy.Deletion), query={"confirm": confirm}, safe=True
        )
        return ask

    @staticmethod
    def deletion(tenant_id: Id) -> Ask[tenancy.Deletion]:
        """How far the deletion of a tenant is, or its certificate."""
        return _get(f"/admin/deletions/{tenant_id}", _model(tenancy.Deletion))

    @staticmethod
    def create_token(role: str, label: str, tenant: str | None = None, **options: Any) -> Ask[access.CreatedToken]:
        given = _given(role=role, label=label, tenant=tenant, **options)
        return _post("/admin/tokens", _model(access.CreatedToken), access.NewToken.model_validate(given))

    @staticmethod
    def revoke_jwt(
        jti: str | None = None, subject: str | None = None, issuer: str | None = None
    ) -> Ask[sign_in.RevokedJwt]:
        """Revoke a JWT by its `jti`, or all that a `subject` was issued until now."""
        body = sign_in.RevokeJwt.model_validate(_given(jti=jti, subject=subject, issuer=issuer))
        return _post("/admin/revoked-jwts", _model(sign_in.RevokedJwt), body)

    @staticmethod
    def revoked_jwts() -> Ask[sign_in.RevokedJwtList]:
        return _get("/admin/revoked-jwts", _model(sign_in.RevokedJwtList))

    @staticmethod
    def create_tenant_token(role: str, label: str, **options: Any) -> Ask[access.CreatedToken]:
        """A token of the caller's own tenant: expires_at, queues, scopes, keys, addresses."""
        given = _given(role=role, label=label, **options)
        return _post("/tokens", _model(access.CreatedToken), access.NewTenantToken.model_validate(given))

    @staticmethod
    def tokens(everyone: bool = False, **query: Any) -> Ask[access.TokenList]:
        """Newest first: the tenant's, or for a super admin `everyone`'s."""
        return _get(_tokens(everyone), _model(access.TokenList), **query)

    @staticmethod
    def token(id: Id, everyone: bool = False) -> Ask[access.TokenDetail]:
        """One token, with the number of those that came from it."""
        return _get(f"{_tokens(everyone)}/{id}", _model(access.TokenDetail))

    @staticmethod
    def rotate_token(id: Id, overlap_seconds: float = 86400.0, everyone: bool = False) -> Ask[access.CreatedToken]:
        """Give a token a new secret. The old one is accepted for `overlap_seconds` more; 0 ends it at once."""
        body = access.RotateToken(overlap_seconds=overlap_seconds)
        return _post(f"{_tokens(everyone)}/{id}/rotate", _model(access.CreatedToken), body)

    @staticmethod
    def revoke_token(id: Id, everyone: bool = False) -> Ask[access.RevokedToken]:
        """Revoke a token and every token that came from it."""
        return Ask("DELETE", f"{API}{_tokens(everyone)}/{id}", _model(access.RevokedToken))

    @staticmethod
    def sign_out_token(id: Id, everyone: bool = False) -> Ask[access.EndedSessions]:
        """End every session that was opened with a token. The token stays valid."""
        return Ask("DELETE", f"{API}{_tokens(everyone)}/{id}/sessions", _model(access.EndedSessions))

    @staticmethod
    def sessions() -> Ask[access.OpenSessionList]:
        """The caller's own sessions of the page."""
        return _get("/sessions", _model(access.OpenSessionList))

    @staticmethod
    def end_session(id: Id) -> Ask[None]:
        """End one of the caller's own sessions."""
        return Ask("DELETE", f"{API}/sessions/{id}", _nothing)

    @staticmethod
    def sign_out_everywhere() -> Ask[access.EndedSessions]:
        """End every session of the caller. The token stays valid."""
        return Ask("DELETE", f"{API}/sessions", _model(access.EndedSessions))

    @staticmethod
    def session() -> Ask[access.Session]:
        """Who the token belongs to, and what they may do."""
        return _get("/session", _model(access.Session))

    @staticmethod
    def audit(**query: Any) -> Ask[audited.AuditPage]:
        """Newest first, by actor, action, subject_type, subject_id, address, since, until, text, limit and cursor."""
        return _get("/audit", _model(audited.AuditPage), **query)

    @staticmethod
    def audit_head() -> Ask[audited.AuditHead]:
        """The head of the hash chain of the caller's tenant."""
        return _get("/audit/head", _model(audited.AuditHead))

    @staticmethod
    def workers() -> Ask[stats.WorkerList]:
        return _get("/workers", _model(stats.WorkerList))

    @staticmethod
    def claim(worker_id: str, limit: int = 1, **options: Any) -> Ask[worker.Claims]:
        """Take jobs to run: queues, keys, lease_seconds, wait_seconds, hostname, pid, version, concurrency, and
        claim_id with again for a claim whose answer was lost."""
        body = worker.ClaimRequest(worker_id=worker_id, limit=limit, **options)
        return _post("/worker/jobs/claim", _model(worker.Claims), body)

    @staticmethod
    def heartbeat(job_id: Id, run_id: Id, **report: Any) -> Ask[worker.Beaten]:
        """Keep a run: lease_seconds, progress, stdout_tail, stderr_tail."""
        body = worker.Beat(run_id=UUID(str(run_id)), **report)
        return _again(_post(f"/worker/jobs/{job_id}/heartbeat", _model(worker.Beaten), body))

    @staticmethod
    def heartbeat_many(runs: Sequence[Mapping[str, Any]], lease_seconds: float | None = None) -> Ask[worker.BeatenMany]:
        """Keep many runs in one request. Each has job_id and run_id, and may have progress, stdout_tail, stderr_tail."""
        body = worker.BeatMany.model_validate(_given(runs=list(runs), lease_seconds=lease_seconds))
        return _again(_post("/worker/jobs/heartbeat", _model(worker.BeatenMany), body))

    @staticmethod
    def release(runs: Sequence[tuple[Id, Id]]) -> Ask[worker.Released]:
        """Give back claims that were never started, as pairs of job_id and run_id."""
        held = [worker.HeldRun(job_id=UUID(str(job_id)), run_id=UUID(str(run_id))) for job_id, run_id in runs]
        return _again(_post("/worker/jobs/release", _model(worker.Released), worker.Release(runs=held)))

    @staticmethod
    def complete(job_id: Id, run_id: Id, **report: Any) -> Ask[worker.Recorded]:
        """result, skipped, reason, exit_code, stdout_tail, stderr_tail, artifacts."""
        body = worker.Complete(run_id=UUID(str(run_id)), **report)
        return _again(_post(f"/worker/jobs/{job_id}/complete", _model(worker.Recorded), body))

    @staticmethod
    def fail(job_id: Id, run_id: Id, error: str, **report: Any) -> Ask[worker.Recorded]:
        """kind, fatal, by_shutdown, blameless, delay_seconds, exit_code, stdout_tail, stderr_tail, artifacts."""
        body = worker.Fail(run_id=UUID(str(run_id)), error=error, **report)
        return _again(_post(f"/worker/jobs/{job_id}/fail", _model(worker.Recorded), body))


def _again(ask: Ask[T]) -> Ask[T]:
    """A call that its run's id makes safe to send again."""
    return Ask(ask.method, ask.path, ask.answer, ask.body, ask.query, safe=True)
