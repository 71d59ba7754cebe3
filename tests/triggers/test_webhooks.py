"""Webhooks on real databases and real sockets: the deliveries table tells the story."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from penstock import Succeeded
from penstock.core.errors import InvalidInput, NotFound
from penstock.core.outcomes import Failed, Skipped
from penstock.core.webhook import DELIVERY_KEY, Egress, verify
from penstock.run.webhook import WebhookRunner
from penstock.store import failpoints
from penstock.triggers.webhooks import Webhooks
from tests.triggers.conftest import LOCAL, Room
from tests.triggers.receiver import OK, listening_socket, receiving

PATIENCE = 60.0
"""How long a delivery may take where time is not what the test is about."""


class Unattended:
    """The worker's side of a run that nobody cancels."""

    timeout = None
    canceled = threading.Event()
    reason = ""
    by_shutdown = False


@contextmanager
def runner(
    room: Room, egress: Egress = LOCAL, total_seconds: float = PATIENCE, tls: ssl.SSLContext | None = None
) -> Iterator[WebhookRunner]:
    made = WebhookRunner(room.post, egress, total_seconds=total_seconds, tls=tls)
    try:
        yield made
    finally:
        made.close()


def finish_work(room: Room, outcome: Any = None) -> None:
    """Run one job of `work` to its end."""
    room.app.enqueue("work", {"n": 1, "password": "hunter22"})
    (claim,) = room.app.queue.claim("host:1", 1, keys=["work"])
    room.app.queue.finish(claim, outcome or Succeeded({"done": 1}))


def deliver(
    room: Room, egress: Egress = LOCAL, total_seconds: float = PATIENCE, rounds: int = 5, tls: Any = None
) -> int:
    """Run delivery jobs until none is left to run."""
    ran = 0
    with runner(room, egress, total_seconds, tls) as delivering:
        for _ in range(rounds):
            claims = room.app.queue.claim("host:1", 100, keys=[DELIVERY_KEY])
            for claim in claims:
                room.app.queue.finish(claim, delivering.run(claim, Unattended()))  # type: ignore[arg-type]
                ran += 1
            room.clock.advance(minutes=5)
    return ran


def told(room: Room, id: Any) -> list[tuple[int, str, int | None]]:
    return [(d.attempt, d.status, d.response_status) for d in reversed(room.webhooks.deliveries(id))]


def test_a_message_is_signed_delivered_and_recorded(room: Room) -> None:
    with receiving() as receiver:
        made = room.webhooks.create(receiver.url, ["job.run.completed"])
        finish_work(room)
        assert deliver(room) == 1
    ((headers, body),) = receiver.requests
    assert headers["request"] == "POST /hook?x=1 HTTP/1.1"
    assert headers["content-type"] == "application/json"
    assert verify(made.secret, headers, body, room.app.jobs.list(status="succeeded")[-1].queued_at)
    message = json.loads(body)
    assert message["type"] == "job.run.completed"
    assert message["data"]["definition_key"] == "work"
    assert message["data"]["status"] == "succeeded"
    assert message["data"]["result"] == {"done": 1}
    assert message["data"]["payload"] == {"n": 1, "password": "***"}
    (delivery,) = room.webhooks.deliveries(made.webhook.id)
    assert (delivery.status, delivery.response_status, delivery.attempt) == ("delivered", 200, 1)
    assert str(delivery.subject_id) == message["data"]["id"]
    assert headers["webhook-id"] == f"msg_{delivery.message_id.hex}"


def test_a_receiver_that_fails_is_tried_three_times(room: Room) -> None:
    with receiving(b"HTTP/1.1 500 Oh\r\ncontent-length: 4\r\n\r\noops") as receiver:
        made = room.webhooks.create(receiver.url)
        finish_work(room)
        assert deliver(room) == 3
    assert told(room, made.webhook.id) == [(1, "failed", 500), (2, "failed", 500), (3, "failed", 500)]
    assert room.webhooks.deliveries(made.webhook.id)[0].response_excerpt == "oops"
    (job,) = room.app.jobs.list(key=DELIVERY_KEY)
    assert str(job.status) == "dead_letter"
    ids = {headers["webhook-id"] for headers, _ in receiver.requests}
    assert len(ids) == 1


def test_a_receiver_that_recovers_gets_the_same_message(room: Room) -> None:
    with receiving(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", OK) as receiver:
        made = room.webhooks.create(receiver.url)
        finish_work(room)
        deliver(room)
    assert told(room, made.webhook.id) == [(1, "failed", 503), (2, "delivered", 200)]
    assert receiver.requests[0][1] == receiver.requests[1][1]


@pytest.mark.parametrize(
    ("answer", "drip", "expected", "says"),
    [
        (None, False, "failed", "no answer within 0.5 s"),
        (OK + b"x" * 10_000, True, "failed", "no answer within 0.5 s"),
        (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", False, "failed", "redirects"),
        (b"HTTP/1.1 307 Moved\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n", False, "failed", "redirects"),
        (b"", False, "failed", "before an answer"),
        (b"not http at all\r\n\r\n", False, "failed", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 500 + b"\r\n", False, "failed", "headers"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\nshort", False, "delivered", None),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nodd", False, "delivered", None),
        (b"HTTP/1.1 204 No Content\r\n\r\n", False, "delivered", None),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\nbroken", False, "delivered", None),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"y" * 500_000, False, "delivered", None),
    ],
)  # fmt: skip
def test_a_receiver_that_misbehaves(
    room: Room, answer: bytes | None, drip: bool, expected: str, says: str | None
) -> None:
    with receiving(answer, drip=drip) as receiver:
        made = room.webhooks.create(receiver.url)
        finish_work(room)
        in_time = says != "no answer within 0.5 s"
        began = time.monotonic()
        assert deliver(room, total_seconds=PATIENCE if in_time else 0.5, rounds=1) == 1
        assert time.monotonic() - began < PATIENCE  # a receiver that hangs or drips does so for much longer
    (delivery,) = room.webhooks.deliveries(made.webhook.id)
    assert delivery.status == expected
    if says is None:
        assert delivery.error is None
    else:
        assert says in str(delivery.error)
    assert len(delivery.response_excerpt or "") <= 200
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("stall", [True, False], ids=["stalls", "hangs up"])
def test_a_receiver_that_never_ends_its_headers_has_not_answered(room: Room, stall: bool) -> None:
    with receiving(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nx-more: ", stall=stall) as receiver:
        made = room.webhooks.create(receiver.url)
        finish_work(room)
        assert deliver(room, total_seconds=3 if stall else PATIENCE, rounds=1) == 1
    (delivery,) = room.webhooks.deliveries(made.webhook.id)
    assert (delivery.status, delivery.response_status) == ("failed", None)
    assert ("no answer within 3 s" if stall else "before its headers did") in str(delivery.error)


def test_a_host_that_nothing_can_reach_is_refused_when_saved(room: Room) -> None:
    strict = Webhooks(room.app.ground, "default")
    for url in ("https://localhost/", "https://example.com:0/", "https://printer/", "https://hook.invalid/"):
        with pytest.raises(InvalidInput):
            strict.create(url)
    made = strict.create("https://example.com/")
    with pytest.raises(InvalidInput, match="this machine"):
        strict.update(made.webhook.id, url="https://localhost/")
    assert strict.list() == [made.webhook]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1, signed by itself, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "receiver")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = tmp_path_factory.mktemp("tls") / "receiver.pem"
    path.write_bytes(made.public_bytes(Encoding.PEM) + secret)
    return path


def test_over_tls_only_a_trusted_certificate_will_do(room: Room, certificate: Path) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with receiving(tls=serving) as receiver:
        made = room.webhooks.create(receiver.url)
        room.webhooks.test(made.webhook.id)
        deliver(room, rounds=1)
        assert receiver.requests == []
        deliver(room, rounds=1, tls=trusting)
        assert len(receiver.requests) == 1
    latest, first = room.webhooks.deliveries(made.webhook.id)
    assert "TLS failed" in str(first.error)
    assert latest.status == "delivered"


def test_a_receiver_that_is_gone_for_good_is_not_tried_again(room: Room) -> None:
    with receiving(b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n") as receiver:
        made = room.webhooks.create(receiver.url)
        finish_work(room)
        assert deliver(room) == 1
    assert told(room, made.webhook.id) == [(1, "failed", 410)]


def test_nobody_listens(room: Room) -> None:
    with listening_socket() as server:
        port = server.getsockname()[1]
    made = room.webhooks.create(f"http://127.0.0.1:{port}/")
    finish_work(room)
    deliver(room, rounds=1)
    assert "refused" in str(room.webhooks.deliveries(made.webhook.id)[0].error).lower()


def test_an_address_that_became_private_is_refused_at_delivery(room: Room) -> None:
    with receiving() as receiver:
        made = room.webhooks.create(receiver.url)
        by_name = room.webhooks.create(f"http://localhost:{receiver.port}/")
        finish_work(room)
        deliver(room, Egress.of([], allow_http=True, ports=None))
    assert receiver.requests == []
    for hook in (made, by_name):
        (delivery,) = room.webhooks.deliveries(hook.webhook.id)
        assert "cannot go to" in str(delivery.error)
        assert delivery.response_status is None


def test_failures_and_dead_letters_are_told_apart(room: Room) -> None:
    made = room.webhooks.create("http://127.0.0.1:9/", ["job.run.failed", "job.run.dead_letter", "job.run.canceled"])
    room.app.define("work", max_attempts=2)
    room.app.enqueue("work")
    for _ in range(2):
        (claim,) = room.app.queue.claim("host:1", 1, keys=["work"])
        room.app.queue.finish(claim, Failed("no"))
        room.clock.advance(hours=1)
    waiting = room.app.enqueue("work")
    room.app.jobs.cancel(waiting.id)
    types = [job.params["message"]["type"] for job in reversed(room.app.jobs.list(key=DELIVERY_KEY))]
    assert sorted(types) == ["job.run.canceled", "job.run.dead_letter", "job.run.failed", "job.run.failed"]
    assert {job.params["webhook_id"] for job in room.app.jobs.list(key=DELIVERY_KEY)} == {str(made.webhook.id)}


def test_what_was_not_subscribed_to_is_not_told(room: Room) -> None:
    room.webhooks.create("http://127.0.0.1:9/", ["job.run.failed"])
    finish_work(room)
    finish_work(room, Skipped("nothing"))
    assert room.app.jobs.list(key=DELIVERY_KEY) == []


def test_the_end_of_a_group_is_told_once(room: Room) -> None:
    room.webhooks.create("http://127.0.0.1:9/", ["group.completed"])
    group = room.app.groups.create([("work", {}), ("work", {})], mode="parallel")
    for claim in room.app.queue.claim("host:1", 5, keys=["work"]):
        room.app.queue.finish(claim, Succeeded())
    (job,) = room.app.jobs.list(key=DELIVERY_KEY)
    assert job.params["message"]["data"]["id"] == str(group.id)
    assert job.params["message"]["data"]["status"] == "completed"


def test_a_delivery_is_not_told_of(room: Room) -> None:
    with receiving() as receiver:
        room.webhooks.create(receiver.url)
        finish_work(room)
        deliver(room)
    assert len(room.app.jobs.list(key=DELIVERY_KEY)) == 1


def test_the_delivery_is_written_with_the_end_or_not_at_all(room: Room) -> None:
    room.webhooks.create("http://127.0.0.1:9/")
    room.app.enqueue("work")
    (claim,) = room.app.queue.claim("host:1", 1, keys=["work"])
    with failpoints.armed("commit.before", "error"), pytest.raises(failpoints.InjectedError):
        room.app.queue.finish(claim, Succeeded())
    assert room.app.jobs.list(key=DELIVERY_KEY) == []
    assert str(room.app.jobs.get(claim.job_id).status) == "running"
    room.app.queue.finish(claim, Succeeded())
    assert len(room.app.jobs.list(key=DELIVERY_KEY)) == 1


def test_rotating_a_secret_signs_with_both_for_a_while(room: Room) -> None:
    with receiving() as receiver:
        made = room.webhooks.create(receiver.url)
        new = room.webhooks.rotate_secret(made.webhook.id, overlap_seconds=3600)
        room.webhooks.test(made.webhook.id)
        sent_at = room.clock.now()
        deliver(room, rounds=1)
        room.clock.advance(hours=2)
        room.webhooks.test(made.webhook.id)
        later = room.clock.now()
        deliver(room, rounds=1)
    (first, body1), (second, body2) = receiver.requests
    assert json.loads(body1)["type"] == "webhook.test"
    assert verify(new.secret, first, body1, sent_at)
    assert verify(made.secret, first, body1, sent_at)
    assert verify(new.secret, second, body2, later)
    assert not verify(made.secret, second, body2, later)


def test_a_disabled_or_deleted_webhook_is_not_told(room: Room) -> None:
    with receiving() as receiver:
        made = room.webhooks.create(receiver.url)
        finish_work(room)
        room.webhooks.update(made.webhook.id, enabled=False)
        assert deliver(room) == 1
        finish_work(room)
        assert deliver(room) == 0
        room.webhooks.delete(made.webhook.id)
        with pytest.raises(NotFound):
            room.webhooks.get(made.webhook.id)
    assert receiver.requests == []


def test_bad_input_is_refused(room: Room) -> None:
    strict = Webhooks(room.app.ground, "default")
    for url in ("http://example.com", "https://10.0.0.1/", "https://user@example.com/", ""):
        with pytest.raises(InvalidInput):
            strict.create(url)
    for types in ([], ["job.run.paused"], "job.run.failed", [1]):
        with pytest.raises(InvalidInput):
            room.webhooks.create("http://127.0.0.1/", types)  # type: ignore[arg-type]
    made = room.webhooks.create("http://127.0.0.1/")
    for change in ({"url": "ftp://x"}, {"event_types": []}, {"secret": "mine"}):
        with pytest.raises(InvalidInput):
            room.webhooks.update(made.webhook.id, **change)
    assert room.webhooks.list() == [made.webhook]
    assert not hasattr(made.webhook, "secret")


def test_tenants_do_not_see_each_others_webhooks(room: Room) -> None:
    room.app.tenants.create("acme")
    acme = room.of("acme")
    theirs = acme.webhooks.create("http://127.0.0.1:9/")
    finish_work(room)
    assert room.app.jobs.list(key=DELIVERY_KEY) == []
    assert acme.app.jobs.list() == []
    for call in (
        room.webhooks.get,
        room.webhooks.delete,
        room.webhooks.test,
        room.webhooks.rotate_secret,
        room.webhooks.deliveries,
    ):
        with pytest.raises(NotFound):
            call(theirs.webhook.id)
