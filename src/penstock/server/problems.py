"""One error shape for all: RFC 9457 problem details, with a code and the path of each fault."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from penstock.core import errors
from penstock.core.errors import Fault
from penstock.core.quota import QUOTAS
from penstock.pipeline.errors import JobTransitionError, PipelineError

MEDIA_TYPE = "application/problem+json"
root_path: ContextVar[str] = ContextVar("penstock_root_path", default="")
"""The path below which the service of the request at hand is seen."""
MAX_FAULTS = 20

TITLES = {
    400: "The request cannot be read", 401: "Sign in first", 403: "Not allowed", 404: "Not found",
    405: "Method not allowed", 408: "The request took too long", 409: "Conflict", 413: "Too large",
    415: "Unsupported content", 422: "Invalid input", 429: "Too many requests", 500: "Something broke here",
    503: "Not available now",
}  # fmt: skip

STATUS_OF: Sequence[tuple[type[errors.PenstockError], int]] = (
    (errors.NotFound, 404),
    (errors.Forbidden, 403),
    (errors.IllegalTransition, 409),
    (errors.LeaseLost, 409),
    (errors.Busy, 409),
    (errors.Conflict, 409),
    (errors.InvalidInput, 422),
    (JobTransitionError, 409),
    (PipelineError, 422),
    (errors.KeyMissing, 503),
    (errors.CiphertextInvalid, 503),
    (errors.DatabaseError, 503),
)


class FaultModel(BaseModel):
    path: str
    message: str


class QuotaModel(BaseModel):
    name: str
    limit: int
    used: int


class ProblemModel(BaseModel):
    """What went wrong (RFC 9457)."""

    type: str = Field(examples=["/help/errors/not_found"])
    title: str
    status: int
    detail: str
    code: str
    faults: list[FaultModel]
    quota: QuotaModel | None = Field(
        None, description="With `quota_exceeded`: which quota, how large, and how much is in use"
    )


class Problem(HTTPException):
    """A refusal of the service's own, with its code."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
        quota: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers) if headers else None)
        self.code = code
        self.faults = tuple(faults)
        self.quota = quota


def quota_problem(name: str, limit: int, used: int, wait: float) -> Problem:
    """The refusal of one request or stream too many: it passes with time."""
    seconds = int(wait) + 1
    detail = (
        f"The quota {name} of this tenant is {limit} ({QUOTAS[name]}), and {used} are in use. Try again in {seconds} s, or ask the "
        "operator for a larger quota."
    )
    quota = {"name": name, "limit": limit, "used": used}
    return Problem(429, errors.QuotaExceeded.code, detail, headers={"retry-after": str(seconds)}, quota=quota)


def render(
    status: int,
    code: str,
    detail: str,
    faults: Sequence[Fault] = (),
    headers: Mapping[str, str] | None = None,
    quota: Mapping[str, Any] | None = None,
) -> Response:
    body: dict[str, Any] = {
        "type": f"{root_path.get()}/help/errors/{code}",
        "title": TITLES.get(status, "Error"),
        "status": status,
        "detail": detail,
        "code": code,
        "faults": [{"path": fault.path, "message": fault.message} for fault in faults[:MAX_FAULTS]],
    }
    if quota is not None:
        body["quota"] = dict(quota)
    content = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
    return Response(content, status, dict(headers or {}), MEDIA_TYPE)


def status_of(error: errors.PenstockError) -> int:
    return next((status for kind, status in STATUS_OF if isinstance(error, kind)), 500)


def from_error(error: errors.PenstockError) -> Response:
    status = status_of(error)
    if isinstance(error, errors.NotFound):
        # Without the id: another tenant's and an unknown one answer the same bytes
        return render(404, error.code, f"There is no such {error.noun}.")
    if isinstance(error, errors.DatabaseError):
        structlog.get_logger("penstock.server").error("database", code=error.code, detail=str(error))
        return render(503, error.code, "The database cannot be used now; try again soon.", headers={"retry-after": "5"})
    if status == 500:
        return unexpected(error)
    quota = None
    if isinstance(error, errors.QuotaExceeded):
        quota = {"name": error.quota, "limit": error.limit, "used": error.used}
    return render(status, error.code, str(error), _faults_of(error), quota=quota)


def _faults_of(error: errors.PenstockError) -> Sequence[Fault]:
    found: Sequence[Fault] | None = getattr(error, "faults", None)
    if found:
        return found
    where = getattr(error, "field", None) or getattr(error, "path", None)
    return (Fault(str(where), str(error)),) if where else ()


def unexpected(error: Exception) -> Response:
    structlog.get_logger("penstock.server").error("unexpected", exc_info=error)
    return render(
        500,
        "internal_error",
        "An unexpected error; nothing is known to have changed. Quote the X-Request-ID header when you report it.",
    )


def install(app: FastAPI) -> None:
    """Every way to fail answers in the one shape."""

    async def on_http(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if isinstance(error, Problem):
            return render(error.status_code, error.code, error.detail, error.faults, error.headers, error.quota)
        code = {404: "not_found", 405: "method_not_allowed", 400: "bad_request"}.get(error.status_code, "http_error")
        details = {404: "There is nothing at this address.", 405: "This address does not take that method."}
        return render(error.status_code, code, details.get(error.status_code, str(error.detail)), (), error.headers)

    async def on_invalid(_request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        faults = [Fault(_path(each["loc"]), str(each["msg"])) for each in error.errors()[:MAX_FAULTS]]
        told = "; ".join(str(fault) for fault in faults[:3])
        return render(422, "invalid_input", f"The request does not fit: {told}", faults)

    async def on_known(request: Request, error: Exception) -> Response:
        assert isinstance(error, errors.PenstockError)
        call = getattr(request.state, "call", None)
        if isinstance(error, errors.NotFound) and call is not None:
            address = request.client.host if request.client else ""
            request.app.state.audit_log.missed(error.noun, error.id, call.principal, call.tenant_id, address)
        return from_error(error)

    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(errors.PenstockError, on_known)


def _path(parts: Sequence[Any]) -> str:
    kind, *rest = parts
    start = "$" if kind == "body" else str(kind)
    return start + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in rest)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route in the OpenAPI document."""
    return {
        status: {
            "description": TITLES[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for status in statuses
    }
