"""OpenTelemetry spans, where the operator asks for them: one for each request, and its trace goes along with the job."""

from __future__ import annotations

from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.errors import InvalidInput


def _telemetry() -> tuple[Any, Any]:
    try:
        from opentelemetry import propagate, trace
    except ModuleNotFoundError as error:
        raise InvalidInput("PENSTOCK_TRACING needs opentelemetry: pip install opentelemetry-sdk") from error
    return propagate, trace


class Traced:
    """A span around every request, a child of the caller's if it sends one."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._propagate, self._trace = _telemetry()
        self._tracer = self._trace.get_tracer("penstock.server")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        parent = self._propagate.extract(headers)
        kind = self._trace.SpanKind.SERVER
        # Without the exception's text: it may quote params, and a trace goes to another system
        with self._tracer.start_as_current_span(
            str(scope["method"]), context=parent, kind=kind, record_exception=False, set_status_on_exception=False
        ) as span:

            async def tell(message: Message) -> None:
                if message["type"] == "http.response.start":
                    route = getattr(scope.get("route"), "path", None)
                    span.update_name(f"{scope['method']} {route}" if route else str(scope["method"]))
                    span.set_attribute("http.response.status_code", message["status"])
                await send(message)

            try:
                await self.app(scope, receive, tell)
            except BaseException as error:
                span.set_status(self._trace.StatusCode.ERROR, type(error).__name__)
                raise


def current_trace() -> dict[str, str] | None:
    """The trace of the span under way, for the job that is about to be written."""
    propagate, _ = _telemetry()
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier or None
