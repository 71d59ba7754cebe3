"""A request's trace goes from the caller through the service to the job's worker."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock import Penstock
from penstock.server import Settings, create_app
from penstock.server.tracing import Traced
from tests.server.support import Loop, World

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_without_tracing_the_callers_trace_is_carried(world: World) -> None:
    job = world.client("operator", traceparent=PARENT).post("/api/v1/jobs", json={"definition_key": "echo"}).json()
    assert world.penstock.as_tenant("acme").jobs.get(job["id"]).trace == {"traceparent": PARENT}
    [claim] = world.client("worker").post("/api/v1/worker/jobs/claim", json={"worker_id": "w"}).json()["items"]
    assert claim["trace"] == {"traceparent": PARENT}
    odd = world.client("operator", traceparent="nonsense").post("/api/v1/jobs", json={"definition_key": "echo"}).json()
    assert world.penstock.as_tenant("acme").jobs.get(odd["id"]).trace is None


@pytest.fixture(scope="module")
def spans() -> InMemorySpanExporter:
    """What was traced. A process has one provider, for good."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def test_with_tracing_the_job_continues_the_requests_span(url: str, loop: Loop, spans: InMemorySpanExporter) -> None:
    with Penstock(url) as penstock:
        penstock.define("echo", runner="command")
        world = World(penstock, create_app(penstock, Settings(tracing="on")), loop)
        job = world.client(traceparent=PARENT).post("/api/v1/jobs", json={"definition_key": "echo"}).json()
        kept = penstock.jobs.get(job["id"]).trace
        assert kept is not None
        span = spans.get_finished_spans()[-1]
        assert span.context is not None
        assert span.name == "POST /api/v1/jobs"
        assert kept["traceparent"].split("-")[2] == f"{span.context.span_id:016x}"
        assert kept["traceparent"].split("-")[1] == PARENT.split("-")[1]


def test_a_span_quotes_nothing_of_an_error(loop: Loop, spans: InMemorySpanExporter) -> None:
    async def broken(_scope: Any, _receive: Any, _send: Any) -> None:
        raise ValueError("the code is 4711-of-the-vault")

    before = len(spans.get_finished_spans())
    with pytest.raises(ValueError, match="4711"):
        loop.run(Traced(broken)({"type": "http", "method": "GET", "headers": []}, None, None))  # type: ignore[arg-type]
    [span] = spans.get_finished_spans()[before:]
    assert "of-the-vault" not in span.to_json() and span.status.description == "ValueError"
