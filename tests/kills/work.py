"""What the victims do until they are killed: every verb, with an acknowledgement said aloud after each."""

from __future__ import annotations

import random

from penstock import Failed, Penstock, Snoozed, Succeeded
from penstock.core.errors import Busy, IllegalTransition, PenstockError
from penstock.queue.identity import process_identity
from tests.support.children import say

RETRY_NOW = {"base": 0, "jitter": 0}


def prepare(url: str) -> None:
    """The definitions that the victims use: requeueing, chaining and limited."""
    with Penstock(url) as app:
        app.define("plain", max_attempts=4, retry_policy=RETRY_NOW)
        app.define("chained", max_attempts=4, retry_mode="chain", retry_policy=RETRY_NOW)
        app.define("limited", max_attempts=4, max_running=2, retry_policy=RETRY_NOW)


def live(url: str, seed: int, steps: int = 1_000_000) -> int:
    """Use every verb at random; says ("job", id) and ("done", run id) for what was acknowledged."""
    chance = random.Random(seed)
    with Penstock(url) as app:
        me = process_identity()
        for _ in range(steps):
            _step(app, me, chance)
    return steps


def _step(app: Penstock, me: str, chance: random.Random) -> None:
    key = chance.choice(["plain", "chained", "limited"])
    match chance.randrange(8):
        case 0:
            say(("job", str(app.enqueue(key, {"n": 1}).id)))
        case 1:
            for job_id in app.enqueue_many(key, [{"n": n} for n in range(3)]):
                say(("job", str(job_id)))
        case 2:
            mode = chance.choice(["sequential", "parallel"])
            for job in app.groups.create([(key, {}), ("plain", {}), (key, {})], mode=mode).jobs:
                say(("job", str(job.id)))
        case 3:
            app.recover()
        case 4:
            try:
                with app.reserve(wait=0, expires_in=0.2):
                    pass
            except Busy:
                pass
        case 5:
            for job in app.jobs.list(status="dead_letter", limit=2):
                try:
                    app.jobs.retry(job.id)
                except IllegalTransition:
                    pass
        case _:
            _work(app, me, chance)


def _work(app: Penstock, me: str, chance: random.Random) -> None:
    claims = app.queue.claim(me, chance.randint(1, 4))
    if not claims:
        return
    app.queue.heartbeat(claims)
    if chance.random() < 0.2:
        app.queue.release(claims)
        return
    for claim in claims:
        outcome = chance.choice([Succeeded({"ok": 1}), Succeeded(), Failed("no", delay=0), Snoozed(0)])
        try:
            app.queue.finish(claim, outcome)
            say(("done", str(claim.run_id)))
        except PenstockError as error:
            say(("lost", type(error).__name__))
