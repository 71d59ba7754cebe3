"""The attacks of bench/walls.py, and the sink that the same attacks are sent to for comparison. Each runs in a process of its own.

    python -m bench.attacks attack NAME --port PORT --tokens JSON
    python -m bench.attacks sink --port PORT --hold SECONDS --size BYTES

Both end with SIGTERM. The attacker then prints what it sent and got as JSON, so that the sink can treat the next one the same way.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

ADDRESSES = 16
"""How many addresses an attack comes from, so that it is not the bound for one address that stops it."""
READ = 1 << 16
WAIT = 20
"""Seconds that requests ask to wait: as many as they may."""
HEAD = 10
"""Seconds that the service gives a connection to end its request's head."""


@dataclass
class Tally:
    """What the attacker did, and what it got."""

    responses: int = 0
    seconds: float = 0.0
    received: int = 0
    unanswered: int = 0
    """Requests that still wait for their response."""
    statuses: Counter[int] = field(default_factory=Counter)

    def hold(self, wait: float) -> float:
        """How long the service holds a request, on average. One that has no response yet counts with the time it asked to wait."""
        waiting = self.unanswered if wait else 0
        return (self.seconds + waiting * wait) / max(1, self.responses + waiting)


tally = Tally()
_addresses = itertools.cycle(f"127.0.0.{2 + n}" for n in range(ADDRESSES))


def request(method: str, path: str, token: str, body: Any = None) -> bytes:
    """One whole HTTP request, after which the connection is closed."""
    text = "" if body is None else json.dumps(body)
    return (
        f"{method} /api/v1{path} HTTP/1.1\r\nauthorization: Bearer {token}\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/json\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n{text}"
    ).encode()


async def ask(port: int, sent: bytes, source: str) -> tuple[int, int]:
    """Send the bytes over a new connection. Returns the status and the size of the response once all of it has come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        writer.write(sent)
        line = await reader.readline()
        size = len(line)
        while piece := await reader.read(READ):
            size += len(piece)
        words = line.split()
        return int(words[1]) if len(words) > 1 else 0, size
    finally:
        writer.close()


async def _attempt(port: int, sent: bytes) -> None:
    began = time.monotonic()
    tally.unanswered += 1
    try:
        status, size = await ask(port, sent, next(_addresses))
    except OSError:
        tally.unanswered -= 1
        raise
    tally.unanswered -= 1  # not where the attack ends first
    tally.responses += 1
    tally.seconds += time.monotonic() - began
    tally.received += size
    tally.statuses[status] += 1


# Each attack is what one of many tasks does again and again. Requests are composed once: what the attacker computes is not the attack.
Once = Callable[[int], Awaitable[None]]


def payload(tokens: dict[str, str]) -> Once:
    body = {"definition_key": "tags", "payload": {"tags": [1] * 200_000}}
    return _every(0.0, request("POST", "/jobs", tokens["operator"], body))


def claims(tokens: dict[str, str]) -> Once:
    names = itertools.count()

    async def once(port: int) -> None:
        body = {"worker_id": f"w{next(names) % 100}", "queues": ["none"], "wait_seconds": WAIT}
        await _every(5.0, request("POST", "/worker/jobs/claim", tokens["worker"], body))(port)

    return once


def reservations(tokens: dict[str, str]) -> Once:
    return _every(5.0, request("POST", "/reservations", tokens["operator"], {"wait_seconds": WAIT, "expires_in": 60}))


def streams(tokens: dict[str, str]) -> Once:
    return _every(5.0, request("GET", "/stream", tokens["viewer"]))


def flood(tokens: dict[str, str]) -> Once:
    return _every(0.2, request("GET", "/jobs?limit=200", tokens["viewer"]))


def heads(_tokens: dict[str, str]) -> Once:
    return _every(5.0, b"GET / HTTP/1.1\r\nHost: x\r\n")


def _every(seconds: float, sent: bytes) -> Once:
    """Send a request; the next one not before about these seconds are over, as by an attacker that heeds Retry-After."""

    async def once(port: int) -> None:
        began = time.monotonic()
        try:
            await _attempt(port, sent)
        finally:
            await asyncio.sleep(max(0.0, seconds * random.uniform(0.6, 1.4) - (time.monotonic() - began)))

    return once


@dataclass(frozen=True)
class Attack:
    tasks: int
    make: Callable[[dict[str, str]], Once]
    finding: str
    what: str
    bar: float = 1.5
    wait: float = 0.0
    """Seconds that its requests ask to be held, or that the service gives them to end."""


ATTACKS: dict[str, Attack] = {
    "payload": Attack(3, payload, "1", "three payloads of 0.6 MB that are refused, at a time, without pause"),
    "claims": Attack(300, claims, "2", "300 claims that wait for a job", 1.2, WAIT),
    "reservations": Attack(60, reservations, "2", "60 reservations that wait", wait=WAIT),
    "heads": Attack(2050, heads, "4", "2,050 connections that never end their request's head", wait=HEAD),
    "streams": Attack(1990, streams, "10", "1,990 live streams, opened again every 5 s where refused"),
    "flood": Attack(100, flood, "10", "500 lists of 200 jobs a second by one token"),
}


async def attack(name: str, port: int, tokens: dict[str, str]) -> None:
    chosen = ATTACKS[name]
    once = chosen.make(tokens)

    async def again() -> None:
        await asyncio.sleep(random.uniform(0, 2))
        while True:
            try:
                await once(port)
            except OSError:
                tally.statuses[0] += 1
                await asyncio.sleep(0.5)

    everybody = asyncio.gather(*(again() for _ in range(chosen.tasks)))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, everybody.cancel)
    with suppress(asyncio.CancelledError):
        await everybody


class Sink(asyncio.Protocol):
    """Throws away what comes, and responds after a while with as many bytes as the service did."""

    hold = 0.0
    response = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        asyncio.get_running_loop().call_later(self.hold, self._respond)

    def _respond(self) -> None:
        self._transport.write(self.response)
        self._transport.close()


async def sink(port: int, hold: float, size: int) -> None:
    Sink.hold, Sink.response = hold, b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".ljust(size, b" ")
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, done.set)
    await loop.create_server(Sink, "127.0.0.1", port, backlog=2048)
    print("ready", flush=True)
    await done.wait()


def main() -> None:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    parser = argparse.ArgumentParser(description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True)
    attacker = roles.add_parser("attack")
    attacker.add_argument("name", choices=list(ATTACKS))
    attacker.add_argument("--tokens", type=json.loads, required=True)
    other = roles.add_parser("sink")
    other.add_argument("--hold", type=float, required=True)
    other.add_argument("--size", type=int, required=True)
    for each in (attacker, other):
        each.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    if given.role == "sink":
        asyncio.run(sink(given.port, given.hold, given.size))
        return
    began = time.monotonic()
    asyncio.run(attack(given.name, given.port, given.tokens))
    number = max(1, tally.responses)
    found = {
        "per_second": tally.responses / (time.monotonic() - began), "hold": tally.hold(ATTACKS[given.name].wait),
        "size": tally.received // number, "statuses": {str(status): n for status, n in tally.statuses.most_common()},
    }  # fmt: skip
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
