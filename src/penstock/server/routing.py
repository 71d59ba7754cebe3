"""Routes that nobody gets past: each says what it needs, and the gate stands before its body is even read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from penstock.core.access import Need
from penstock.core.errors import Fault
from penstock.core.scopes import API, rule_of
from penstock.server.bodies import StrictRequest
from penstock.server.calls import Call
from penstock.server.problems import Problem, documented

F = TypeVar("F", bound=Callable[..., Any])


class Guarded(APIRoute):
    """A route that first asks the gate, then reads its body strictly."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        need = (self.openapi_extra or {}).get("x-need")
        rule = rule_of(next(iter(self.methods or {"GET"})), self.path)
        takes_body = self.body_field is not None
        known = query_names(self)
        open_query = (self.openapi_extra or {}).get("x-open-query", False)

        async def guarded(request: Request) -> Response:
            request = StrictRequest(request.scope, request.receive)
            if need is not None:
                state = request.app.state
                request.state.call = replace(await state.gate.admit(request, Need(need), rule), threads=state.threads)
            if takes_body and await request.body() and not _is_json(request):
                raise Problem(415, "unsupported_media_type", "Send the body as Content-Type: application/json.")
            if not open_query:
                _check_query(request, known)
            return await handle(request)

        return guarded


def query_names(route: APIRoute) -> frozenset[str]:
    """The names that a route's query may have."""
    found: set[str] = set()
    for param in route.dependant.query_params:
        kind = param.field_info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= set(kind.model_fields)
        else:
            found.add(param.alias)
    return frozenset(found)


def _check_query(request: Request, known: frozenset[str]) -> None:
    unknown = sorted(set(request.query_params) - known)
    if unknown:
        faults = [Fault(f"query.{name[:100]}", "is not known here") for name in unknown]
        told = f"Known are: {', '.join(sorted(known))}." if known else "This address takes none."
        raise Problem(422, "invalid_input", f"Unknown query parameters: {', '.join(unknown)[:200]}. {told}", faults)


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json"


async def current_call(request: Request) -> Call:
    call: Call = request.state.call
    return call


Caller = Annotated[Call, Depends(current_call)]
"""A handler's parameter: the authenticated request."""


def _on_threads(handler: Callable[..., Any]) -> Callable[..., Any]:
    """A handler that is a plain function is called on the threads of the API, in its tenant's share of them."""
    if inspect.iscoroutinefunction(handler) or "call" not in inspect.signature(handler).parameters:
        return handler

    async def called(**given: Any) -> Any:
        call: Call = given["call"]
        return await call.on_thread(functools.partial(handler, **given))

    called.__name__, called.__doc__ = handler.__name__, handler.__doc__
    called.__signature__ = inspect.signature(handler, eval_str=True)  # type: ignore[attr-defined]
    return called


class Routes:
    """The routes of one resource."""

    def __init__(self, tag: str) -> None:
        self.router = APIRouter(prefix=API, tags=[tag], route_class=Guarded)

    def get(self, path: str, need: Need | None, **options: Any) -> Callable[[F], F]:
        return self._route("GET", path, need, **options)

    def post(self, path: str, need: Need | None, **options: Any) -> Callable[[F], F]:
        return self._route("POST", path, need, **options)

    def patch(self, path: str, need: Need | None, **options: Any) -> Callable[[F], F]:
        return self._route("PATCH", path, need, **options)

    def delete(self, path: str, need: Need | None, **options: Any) -> Callable[[F], F]:
        return self._route("DELETE", path, need, **options)

    def _route(self, method: str, path: str, need: Need | None, **options: Any) -> Callable[[F], F]:
        statuses = [400, 401, 403, 404, 422, 429, 503]
        statuses += [408, 409, 413, 415] if method != "GET" else []
        extra: dict[str, Any] = (
            {} if need is None else {"x-need": need.value, "security": [{"token": []}, {"session": []}]}
        )
        if options.pop("open_query", False):  # what others add to the address is passed over, not refused
            extra["x-open-query"] = True
        scope = rule_of(method, f"{API}{path}").scope
        if need is not None and scope is not None:
            extra["x-scope"] = scope.value
        responses = {**documented(*sorted(statuses)), **options.pop("responses", {})}

        def register(handler: F) -> F:
            self.router.add_api_route(
                path, _on_threads(handler), methods=[method], openapi_extra=extra or None, responses=responses,
                operation_id=handler.__name__, **options,
            )  # fmt: skip
            return handler

        return register
