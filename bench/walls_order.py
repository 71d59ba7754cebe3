"""How long one tenant's jobs wait to start beside another tenant's backlog."""

from __future__ import annotations

import time
from contextlib import suppress

import httpx

from penstock import Penstock
from penstock.core.errors import PenstockError

NAP = 0.02
"""Seconds that each of alpha's jobs takes a slot of the worker."""
EVERY = 0.03
"""Seconds between two jobs of beta's."""
USUAL = 100
ENOUGH = 600
"""Alpha's backlog is filled up when it is shorter than this."""


def waits(url: str, port: int, tokens: dict[str, dict[str, str]], *, most_urgent: bool, seconds: float) -> list[float]:
    """Return the milliseconds from enqueue to start of each job of beta's, while alpha always has work that waits."""
    with Penstock(url) as app, httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", timeout=60) as client:
        alpha, beta = app.as_tenant("alpha"), app.as_tenant("beta")
        priority = _most_urgent(client, tokens["alpha"]["operator"]) if most_urgent else USUAL

        def fill() -> None:
            if len(alpha.jobs.list(status="queued", key="nap", limit=ENOUGH)) < ENOUGH:
                alpha.enqueue_many("nap", [{"seconds": NAP}] * ENOUGH, priority=priority)

        fill()
        time.sleep(1)
        ids = []
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ids.append(beta.enqueue("nap", {"seconds": 0.001}).id)
            if len(ids) % 10 == 0:
                fill()
            time.sleep(EVERY)
        while waiting := alpha.jobs.list(status="queued", key="nap", limit=200):
            for each in waiting:
                with suppress(PenstockError):  # it has started meanwhile
                    alpha.jobs.cancel(each.id)
        found = []
        for job_id in ids:
            while (job := beta.jobs.get(job_id)).started_at is None:
                time.sleep(0.02)
            found.append(1000 * (job.started_at - job.queued_at).total_seconds())
        return found


def _most_urgent(client: httpx.Client, token: str) -> int:
    """The most urgent priority that the service lets this tenant ask for."""
    low, high = -(2**31), USUAL
    while low < high:
        middle = (low + high) // 2
        job = {"definition_key": "nap", "payload": {"seconds": NAP}, "priority": middle}
        response = client.post("/jobs", headers={"authorization": f"Bearer {token}"}, json=job)
        low, high = (low, middle) if response.status_code == 201 else (middle + 1, high)
    return low
