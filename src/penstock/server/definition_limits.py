"""Tokens that are limited to some definitions, held to them where a request names a job or a definition.

Lists are narrowed where they are read: `queries.where` and `list_definitions`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from penstock.core.access import Principal
from penstock.core.errors import NotFound, ScopeMissing
from penstock.core.scopes import allows_key, check_key
from penstock.server.calls import Call
from penstock.store import jobs


async def check_keys(request: Request, call: Call, principal: Principal) -> None:
    """Raise if the request is about a definition that the token is not for. Another definition's job is not found."""
    named = request.path_params.get("job_id")
    if named is not None:
        await run_in_threadpool(_check_job, call, principal, str(named))
    if request.method == "POST" and await request.body():
        _check_body(request, principal, await request.json())


def _check_job(call: Call, principal: Principal, named: str) -> None:
    try:
        job_id = UUID(named)
    except ValueError:
        return  # the handler says that it is no id
    with call.read() as tx:
        key = jobs.key_of(tx, job_id, None if principal.tenant_id is None else call.tenant_id)
    if key is None or not allows_key(principal.keys, key):
        raise NotFound("job", job_id)


def _check_body(request: Request, principal: Principal, body: Any) -> None:
    if not isinstance(body, dict):
        return  # the handler says what it expects
    members = body.get("jobs")
    for each in [body, *(members if isinstance(members, list) else [])]:
        key = each.get("definition_key") if isinstance(each, dict) else None
        if isinstance(key, str):
            check_key(principal, key)
    if request.url.path.endswith("/worker/jobs/claim"):
        wanted = body.get("keys")
        if not isinstance(wanted, list) or not wanted:
            raise ScopeMissing(
                f"This token is limited to the definitions {', '.join(principal.keys or ())}. Name the keys to claim."
            )
        for key in wanted:
            check_key(principal, str(key))
