"""The Python client, synchronous and asynchronous, and a worker that has no database."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from datetime import UTC, datetime

import httpx
import pytest

from penstock.client import ApiError, AsyncClient, Calls, Client
from penstock.core.redact import Redactor
from penstock.run.context import Context
from penstock.run.python import PythonRunner
from penstock.worker.remote import RemoteWorker
from tests.server.support import Transport, World
from tests.support.waiting import eventually


def client_of(world: World, role: str = "operator", **more: str) -> Client:
    return Client("http://penstock.test", world.token(role), transport=Transport(world.app, world.loop), **more)  # type: ignore[arg-type]


def test_both_clients_have_every_call() -> None:
    calls = {name for name, _ in inspect.getmembers(Calls, inspect.isfunction)}
    assert calls
    assert calls <= set(dir(Client))
    assert calls <= set(dir(AsyncClient))


def test_a_program_enqueues_looks_and_steers(world: World) -> None:
    with client_of(world) as client:
        job = client.enqueue("echo", {"n": 1}, priority=7, correlation_id="c")
        assert (job.status, job.priority, job.payload) == ("queued", 7, {"n": 1})
        assert client.job(job.id) == job
        assert [each.id for each in client.jobs(status="queued", limit=5).items] == [job.id]
        assert client.change(job.id, priority=3).priority == 3
        later = datetime(2099, 1, 1, tzinfo=UTC)
        assert client.change(job.id, scheduled_for=later).scheduled_for == later
        assert client.run_now(job.id).waits_for is None
        assert client.why(job.id).reason == "no_worker"
        assert client.cancel_many({"status": ["queued"]}, dry_run=True).matched == 1
        assert client.cancel(job.id).status == "canceled"
        assert client.summary().counts.canceled == 1
        assert client.retry(job.id).status == "queued"
        group = client.create_group([("echo", {}), ("echo", {})], mode="parallel")
        assert len(client.group(group.id).jobs) == 2
        with pytest.raises(ApiError) as refused:
            client.create_tenant("new")
        assert (refused.value.status, refused.value.code) == (403, "forbidden")


def test_an_operator_of_all_names_the_tenant(world: World) -> None:
    with client_of(world, "super_admin", tenant="bolt") as client:
        job = client.enqueue("echo")
        assert job.tenant_id == world.penstock.tenants.get("bolt").id
        applied = client.apply_definitions([{"key": "echo", "max_attempts": 5}, {"key": "new"}], dry_run=True)
        assert [(each.key, each.action) for each in applied.items] == [("echo", "changed"), ("new", "created")]
        assert client.create_token("viewer", "v", "acme").token is not None


def test_the_same_calls_asynchronously(world: World) -> None:
    async def work() -> str:
        transport = httpx.ASGITransport(world.app)
        async with AsyncClient("http://penstock.test", world.token("operator"), transport=transport) as client:
            job = await client.enqueue("echo", {"n": 1})
            found, summary = await asyncio.gather(client.job(job.id), client.summary())
            assert (found, summary.counts.queued) == (job, 1)
            with pytest.raises(ApiError, match="no such job"):
                await client.job(job.tenant_id)
            return found.status

    assert world.loop.run(work()) == "queued"


class Flaky(httpx.BaseTransport):
    """Loses the answer of the first request of each kind."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner
        self._lost: set[str] = set()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._inner.handle_request(request)
        if request.url.path not in self._lost:
            self._lost.add(request.url.path)
            raise httpx.ReadError("the connection was reset")
        return answer


def test_a_create_whose_answer_was_lost_makes_one_job(world: World) -> None:
    with Client(
        "http://penstock.test", world.token("operator"), transport=Flaky(Transport(world.app, world.loop))
    ) as client:
        job = client.enqueue("echo", {"n": 1})
    assert [each.id for each in world.penstock.as_tenant("acme").jobs.list()] == [job.id]


def test_a_server_that_is_not_there_is_told(world: World) -> None:
    with Client("http://127.0.0.1:9", world.token("operator"), retries=0) as client, pytest.raises(ApiError) as told:
        client.summary()
    assert (told.value.status, told.value.code) == (0, "unreachable")


def test_a_worker_without_a_database_runs_jobs(world: World) -> None:
    acme = world.penstock.as_tenant("acme")
    started = threading.Event()

    def add(a: int, b: int) -> int:
        return a + b

    def break_() -> None:
        raise ValueError("no luck")

    def wait(ctx: Context) -> None:
        ctx.progress(1, 2, "half")
        started.set()
        while not ctx.canceled():
            time.sleep(0.02)

    runner = PythonRunner(Redactor())
    for key, call in (("add", add), ("break", break_), ("wait", wait)):
        world.penstock.define(key, runner="python", max_attempts=1)
        runner.register(key, call, "thread")
    with client_of(world, "worker") as client:
        worker = RemoteWorker(client, [runner], concurrency=3, grace=5, lease=1.5, wait=0.2)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        good, bad, long = acme.enqueue("add", {"a": 2, "b": 3}), acme.enqueue("break"), acme.enqueue("wait")
        other = world.penstock.as_tenant("bolt").enqueue("add", {"a": 1, "b": 1})
        eventually(lambda: acme.jobs.get(good.id).finished and acme.jobs.get(bad.id).finished and started.is_set())
        assert acme.jobs.get(good.id).result == 5
        dead = acme.jobs.get(bad.id)
        assert dead.status == "dead_letter"
        assert "no luck" in str(dead.last_error)
        eventually(lambda: acme.jobs.get(long.id).progress is not None)
        acme.jobs.cancel(long.id)
        eventually(lambda: acme.jobs.get(long.id).status == "canceled")
        worker.stop()
        thread.join(60)
        assert not thread.is_alive()
    assert world.penstock.as_tenant("bolt").jobs.get(other.id).status == "queued"


BROKEN = {
    "html": httpx.Response(200, html="<h1>Sign in</h1>"),
    "empty": httpx.Response(200),
    "cut": httpx.Response(200, content=b'{"counts": {"queued"'),
    "another shape": httpx.Response(200, json={"counts": 7}),
    "a list": httpx.Response(200, json=[1]),
    "deep": httpx.Response(200, content=b"[" * 100_000),
    "not utf-8": httpx.Response(200, content=b'{"a": "\xff"}'),
    "redirect": httpx.Response(302, headers={"location": "/login"}),
    "gateway": httpx.Response(502, html="<h1>Bad gateway</h1>", headers=[(b"retry-after", b"\xb2")]),
    "odd error": httpx.Response(500, json={"code": 7, "detail": [], "faults": 3}),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_an_answer_that_is_not_penstocks_is_an_api_error(kind: str) -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        given = BROKEN[kind]
        return httpx.Response(given.status_code, headers=given.headers, content=given.content)

    transport = httpx.MockTransport(answer)
    with (
        Client("http://penstock.test", "t", retries=1, transport=transport) as client,
        pytest.raises(ApiError) as told,
    ):
        client.summary()

    async def asynchronously() -> None:
        async with AsyncClient("http://penstock.test", "t", retries=1, transport=transport) as client:
            await client.summary()

    with pytest.raises(ApiError) as also:
        asyncio.run(asynchronously())
    for error in (told.value, also.value):
        assert (error.status, error.code) == (BROKEN[kind].status_code, "not_penstock")
        assert "http://penstock.test/api/v1/jobs/summary" in str(error)


def test_a_body_that_cannot_be_decompressed_is_an_api_error() -> None:
    transport = httpx.MockTransport(
        lambda _request: httpx.Response(200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(b"no gzip"))
    )
    with Client("http://penstock.test", "t", retries=0, transport=transport) as client, pytest.raises(ApiError) as told:
        client.summary()
    assert told.value.code == "not_penstock"


def test_a_client_with_other_options_has_connections_of_its_own() -> None:
    with (
        Client("http://penstock.test", "t", tenant="acme") as client,
        client.with_options(timeout=2, retries=0) as other,
    ):
        assert (other.timeout, other.retries, client.timeout, client.retries) == (2, 0, 30.0, 3)
        assert other.headers == client.headers
        assert other._http is not client._http


def test_tokens_and_sessions_by_the_client(world: World) -> None:
    with client_of(world, "tenant_admin") as client:
        made = client.create_tenant_token("tenant_admin", "ann", scopes=["tokens:write", "tokens:read"])
        assert made.token is not None
        with Client("http://penstock.test", made.token, transport=Transport(world.app, world.loop)) as ann:
            child = ann.create_tenant_token("viewer", "bob")
            assert (child.parent_id, child.scopes) == (made.id, ["tokens:read", "tokens:write"])
            with pytest.raises(ApiError) as refused:
                ann.jobs()
            assert (refused.value.status, refused.value.code) == (403, "scope_missing")
        assert client.token(made.id).descendants == 1
        assert {each.id for each in client.tokens(limit=10).items} >= {made.id, child.id}
        rotated = client.rotate_token(made.id, overlap_seconds=0)
        assert (rotated.id, rotated.token == made.token) == (made.id, False)
        assert client.sessions().items == []
        assert client.sign_out_everywhere().ended == client.sign_out_token(made.id).ended == 0
        assert client.revoke_token(made.id).revoked_tokens == 2
    with client_of(world, "super_admin") as operator:
        assert operator.token(made.id, everyone=True).revoked_at is not None
