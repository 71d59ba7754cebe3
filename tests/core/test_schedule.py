from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.cron import Cron
from penstock.core.schedule import BATCH, CATCH_UP, GRACE, OVERLAP, Decision, Facts, Plan, decide, jitter

ID = UUID(int=7)
START = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
HOURLY = Cron.parse("0 * * * *")
MINUTELY = Cron.parse("* * * * *")


def plan(cron: Cron = HOURLY, **policies: object) -> Plan:
    return Plan(ID, cron, START, **policies)  # type: ignore[arg-type]


def story(decision: Decision) -> list[tuple[str, str]]:
    return [(tick.moment.strftime("%H:%M"), tick.outcome) for tick in decision.ticks]


def at(hours: float) -> datetime:
    return START.replace(second=0) + timedelta(hours=hours)


def test_nothing_is_due_before_its_moment() -> None:
    decision = decide(plan(), Facts(), at(1), at(1) - timedelta(microseconds=1))
    assert decision == Decision((), at(1))


def test_a_moment_fires_on_time_and_the_next_is_named() -> None:
    decision = decide(plan(), Facts(), at(1), at(1))
    assert story(decision) == [("01:00", "fired")]
    assert decision.next_at == at(2)


def test_catch_up_after_downtime() -> None:
    late = at(4.5)
    assert story(decide(plan(catch_up="all"), Facts(), at(1), late)) == [(f"0{h}:00", "fired") for h in (1, 2, 3, 4)]
    assert story(decide(plan(catch_up="latest"), Facts(), at(1), late)) == [
        ("01:00", "skipped"),
        ("02:00", "skipped"),
        ("03:00", "skipped"),
        ("04:00", "fired"),
    ]
    assert {outcome for _, outcome in story(decide(plan(catch_up="skip"), Facts(), at(1), late))} == {"skipped"}
    just_late = at(4) + timedelta(seconds=GRACE)
    assert story(decide(plan(catch_up="skip"), Facts(), at(1), just_late))[-1] == ("04:00", "fired")


def test_what_is_older_than_the_window_shares_one_tick() -> None:
    decision = decide(plan(catch_up="all", catch_up_window=7200), Facts(), at(1), at(10.5))
    assert story(decision) == [("01:00", "skipped"), ("09:00", "fired"), ("10:00", "fired")]
    assert "every other moment before 2026-01-01T08:30:00+00:00" in str(decision.ticks[0].reason)
    year = decide(plan(MINUTELY), Facts(), START, START + timedelta(days=365))
    assert len(year.ticks) == BATCH + 1


def test_a_window_without_any_moment_in_it() -> None:
    yearly = plan(Cron.parse("@yearly"), catch_up_window=60)
    decision = decide(yearly, Facts(), datetime(2027, 1, 1, tzinfo=UTC), datetime(2029, 6, 1, tzinfo=UTC))
    assert [(tick.moment.year, tick.outcome) for tick in decision.ticks] == [(2027, "skipped")]
    assert decision.next_at == datetime(2030, 1, 1, tzinfo=UTC)


def test_disabled_and_faulty_schedules_say_so() -> None:
    off = decide(plan(), Facts(enabled=False, disabled_reason="holiday"), at(1), at(2))
    assert [(tick.outcome, tick.reason) for tick in off.ticks] == [("skipped", "disabled: holiday")] * 2
    broken = decide(plan(), Facts(fault="archived"), at(1), at(2))
    assert story(broken) == [("01:00", "skipped"), ("02:00", "error")]
    assert broken.disable == "archived"
    both = decide(plan(), Facts(enabled=False, fault="archived"), at(1), at(2))
    assert both.disable is None


def test_overlap_skip_lets_one_through_at_a_time() -> None:
    busy = decide(plan(overlap="skip"), Facts(active=1), at(1), at(1))
    assert story(busy) == [("01:00", "skipped")]
    assert "still active" in str(busy.ticks[0].reason)
    free = decide(plan(overlap="skip", catch_up="all"), Facts(), at(1), at(3))
    assert story(free) == [("01:00", "fired"), ("02:00", "skipped"), ("03:00", "skipped")]


def test_overlap_buffer_one_holds_the_moment_until_the_job_has_ended() -> None:
    waiting = plan(overlap="buffer_one", catch_up="skip")
    held = decide(waiting, Facts(active=1), at(1), at(3.5))
    assert held == Decision((), at(1))
    ended = at(3.5) + timedelta(seconds=5)
    freed = decide(waiting, Facts(busy_until=ended), at(1), ended + timedelta(seconds=1))
    assert story(freed) == [("01:00", "skipped"), ("02:00", "skipped"), ("03:00", "fired")]
    assert "waited together" in str(freed.ticks[0].reason)
    missed = decide(waiting, Facts(busy_until=at(0.5)), at(1), at(3.5))
    assert {outcome for _, outcome in story(missed)} == {"skipped"}


def test_overlap_cancel_running_replaces_what_is_active() -> None:
    decision = decide(plan(overlap="cancel_running", catch_up="all"), Facts(active=2), at(1), at(3))
    assert story(decision) == [("01:00", "skipped"), ("02:00", "skipped"), ("03:00", "fired")]
    assert decision.cancel_active
    assert not decide(plan(overlap="cancel_running"), Facts(), at(1), at(1)).cancel_active


def test_jitter_is_the_same_everywhere_and_within_bounds() -> None:
    spread = {jitter(ID, at(hour), 600) for hour in range(100)}
    assert len(spread) == 100
    assert all(timedelta() <= delay <= timedelta(seconds=600) for delay in spread)
    assert jitter(ID, at(1), 600) == jitter(UUID(int=7), at(1), 600)
    tick = decide(plan(jitter=600), Facts(), at(1), at(1)).ticks[0]
    assert tick.run_at == at(1) + jitter(ID, at(1), 600)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "0 */2 * * *", "30 1 * * *"]),
    st.sampled_from(CATCH_UP),
    st.sampled_from(OVERLAP),
    st.integers(0, 3600),
    st.lists(st.tuples(st.integers(1, 40_000), st.integers(0, 2), st.booleans()), min_size=1, max_size=12),
)
def test_over_any_history_each_moment_is_decided_once_or_told_of(
    expression: str, catch_up: str, overlap: str, spread: int, steps: list[tuple[int, int, bool]]
) -> None:
    cron = Cron.parse(expression, "America/New_York")
    schedule = Plan(ID, cron, START, catch_up, 86400.0, overlap, float(spread))
    now, pending = START, cron.next_after(START)
    seen: dict[datetime, str] = {}
    told_until = START
    for seconds, active, enabled in steps:
        now += timedelta(seconds=seconds)
        while True:
            decision = decide(schedule, Facts(enabled=enabled, active=active), pending, now)
            for tick in decision.ticks:
                assert tick.moment not in seen
                assert START < tick.moment <= now
                assert (tick.outcome == "fired") == (tick.reason is None) == (tick.run_at is not None)
                seen[tick.moment] = tick.outcome
                if tick.reason and "every other moment before" in tick.reason:
                    told_until = now - timedelta(days=1)
            stuck = decision.next_at == pending and not decision.ticks
            pending = decision.next_at
            if stuck or pending > now:
                break
        if pending <= now:
            assert overlap == "buffer_one"
    for moment in cron.between(max(START, told_until), min(now, pending - timedelta(microseconds=1)), 10**6):
        assert moment in seen
