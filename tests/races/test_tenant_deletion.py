"""Others enqueue, claim, heartbeat, finish and emit for a tenant while it is deleted: in the end nothing of it is left."""

from __future__ import annotations

from typing import Any

from penstock import LeaseLost, Penstock, Succeeded
from penstock.core.errors import PenstockError, UnknownTenant
from tests.support.children import race
from tests.support.tenant import fill, left_of

ROUNDS = 60


def enqueue(url: str) -> int:
    done = 0
    with Penstock(url) as app:
        for _ in range(ROUNDS):
            try:
                app.enqueue("work", {"n": 1}, tenant="acme")
                app.as_tenant("acme").emit("acme.seen", {"n": done})
                done += 1
            except (UnknownTenant, PenstockError):
                pass
    return done


def work(url: str) -> int:
    done = 0
    with Penstock(url) as app:
        for _ in range(ROUNDS):
            for claim in app.queue.claim("host:9", 3, lease_seconds=2):
                try:
                    app.queue.heartbeat(claim)
                    app.queue.finish(claim, Succeeded({"n": done}))
                    done += 1
                except LeaseLost:
                    pass
    return done


def delete(url: str) -> dict[str, Any]:
    with Penstock(url) as app:
        return app.tenants.delete("acme").told()


def test_nothing_is_left_whatever_others_do_meanwhile(url: str) -> None:
    with Penstock(url) as app:
        app.define("work")
        tenant_id = fill(app, "acme")
        fill(app, "bolt")
        app.as_tenant("acme").enqueue_many("work", [{}] * 300)
        *_, certificate = race((enqueue, url), (work, url), (work, url), (delete, url))
        assert left_of(app, {str(tenant_id), "'acme'", "acme.seen"}) == []
        assert certificate["erased"]["jobs"] >= 10
        assert app.as_tenant("bolt").jobs.list()
        app.audit.seal()
        app.recover()
        assert app.doctor().clean, app.doctor().violations
