"""P13 at size: backlogs of 100,000, 1,000 and 10 beside a tenant that asks for one job now and then."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock import Penstock, Succeeded
from tests.support.seed import seed


@pytest.fixture
def app(url: str) -> Penstock:
    made = Penstock(url)
    made.define("work")
    for slug in ("large", "middle", "small", "now-and-then"):
        made.tenants.create(slug)
    return made


def serve(app: Penstock, number: int) -> list[str]:
    """Claim one by one, as busy workers do; answers whose turn it was."""
    served = []
    for _ in range(number):
        [claim] = app.queue.claim("w:1", 1)
        app.queue.finish(claim, Succeeded())
        served.append(claim.tenant_slug)
    return served


def test_backlogs_of_any_size_take_turns(app: Penstock) -> None:
    seed(app, "work", 100_000, "queued", tenant="large")
    app.enqueue_many("work", [{}] * 1_000, tenant="middle")
    app.enqueue_many("work", [{}] * 10, tenant="small")
    served = serve(app, 30)
    for start in range(0, 27, 3):  # three wait: any three in a row are one of each, give or take one
        window = Counter(served[start : start + 3])
        assert all(window[slug] <= 2 for slug in ("large", "middle", "small"))
    assert all(9 <= Counter(served)[slug] <= 11 for slug in ("large", "middle", "small"))
    later = serve(app, 40)  # the small one is done: the other two share
    assert abs(Counter(later)["large"] - Counter(later)["middle"]) <= 2
    for _ in range(4):
        app.enqueue("work", tenant="now-and-then")
        assert "now-and-then" in serve(app, 4)
    app.close()


def test_a_batch_is_shared_as_single_claims_are(app: Penstock) -> None:
    for slug, number in (("large", 500), ("middle", 100), ("small", 60)):
        app.enqueue_many("work", [{}] * number, tenant=slug)
    shares = Counter(claim.tenant_slug for claim in app.queue.claim("w:1", 150))
    assert all(abs(shares[slug] - 50) <= 1 for slug in ("large", "middle", "small"))
    app.close()


def test_weights_divide_the_shares(app: Penstock) -> None:
    app.tenants.update("large", weight=1)
    app.tenants.update("middle", weight=2)
    app.tenants.update("small", weight=5)
    for slug in ("large", "middle", "small"):
        app.enqueue_many("work", [{}] * 400, tenant=slug)
    shares = Counter(claim.tenant_slug for claim in app.queue.claim("w:1", 400))
    for slug, weight in (("large", 1), ("middle", 2), ("small", 5)):
        assert abs(shares[slug] - 400 * weight / 8) <= weight + 1
    app.close()


def test_who_comes_back_after_a_pause_has_saved_nothing_up(app: Penstock) -> None:
    """A tenant that was away begins at the queue's clock: neither before the others' backlog nor behind it."""
    app.enqueue_many("work", [{}] * 300, tenant="large")
    serve(app, 100)
    app.enqueue_many("work", [{}] * 100, tenant="middle")
    served = Counter(serve(app, 60))
    assert abs(served["large"] - served["middle"]) <= 2
    app.close()


def test_a_paused_queue_holds_no_clock_and_comes_back_in_turn(app: Penstock) -> None:
    app.define("aside", queue="aside")
    app.enqueue_many("aside", [{}] * 100, tenant="small")
    app.queues.pause("aside")
    app.enqueue_many("work", [{}] * 400, tenant="large")
    serve(app, 100)
    app.enqueue_many("work", [{}] * 100, tenant="middle")  # a newcomer begins where the others are
    served = Counter(serve(app, 60))
    assert abs(served["large"] - served["middle"]) <= 2
    app.queues.resume("aside")
    served = Counter(serve(app, 60))
    assert all(abs(served[slug] - 20) <= 2 for slug in ("large", "middle", "small"))
    assert app.doctor().clean
    app.close()


def test_priority_goes_before_fairness(app: Penstock) -> None:
    app.enqueue_many("work", [{}] * 20, tenant="large")
    app.enqueue_many("work", [{}] * 5, tenant="large", priority=1)
    app.enqueue("work", tenant="small")
    assert serve(app, 5) == ["large"] * 5
    assert "small" in serve(app, 2)
    app.close()
