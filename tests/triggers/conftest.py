from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from penstock import ManualClock, Penstock
from penstock.core.webhook import Egress
from penstock.triggers.events import Events
from penstock.triggers.scheduler import Scheduler
from penstock.triggers.schedules import Triggers
from penstock.triggers.webhooks import Post, Webhooks, install_outbox

LOCAL = Egress.of(["127.0.0.0/8"], allow_http=True, ports=None)


@dataclass
class Room:
    """The triggers room on one database, for one tenant."""

    app: Penstock
    clock: ManualClock
    triggers: Triggers
    events: Events
    webhooks: Webhooks
    scheduler: Scheduler

    def of(self, slug: str) -> Room:
        ground = self.app.ground
        app = self.app.as_tenant(slug)
        return Room(
            app, self.clock, Triggers(ground, slug), Events(ground, slug), Webhooks(ground, slug, LOCAL), self.scheduler
        )

    @property
    def post(self) -> Post:
        return Post(self.app.ground)

    def run_all(self) -> int:
        """Claim everything and let it succeed."""
        from penstock import Succeeded

        claims = self.app.queue.claim("host:1", 1000)
        for claim in claims:
            self.app.queue.finish(claim, Succeeded())
        return len(claims)


@pytest.fixture
def room(url: str, clock: ManualClock) -> Iterator[Room]:
    """The room on each database, with a definition `work`. Whatever a test does, doctor() is clean after it."""
    app = Penstock(url, clock=clock)
    app.define("work")
    install_outbox(app.ground)
    ground = app.ground
    yield Room(
        app,
        clock,
        Triggers(ground, "default"),
        Events(ground, "default"),
        Webhooks(ground, "default", LOCAL),
        Scheduler(ground),
    )
    health = app.doctor()
    app.close()
    assert health.clean, health.violations
