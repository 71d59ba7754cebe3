"""`penstock triggers …`: when jobs are asked for, by time or by event."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli._common import AppPath, AsJson, DatabaseUrl, TenantName, open_app, out
from penstock.cli._show import print_json, print_table
from penstock.cli.enqueue import read_moment, read_object
from penstock.core.errors import InvalidInput
from penstock.core.reach import Trigger
from penstock.core.redact import unmasked
from penstock.queue.shown import shown_triggers

app = typer.Typer(help="When jobs are asked for: by cron, or when an event is emitted.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Its label, or its id.")]
Params = Annotated[str, typer.Option("--params", "-p", help="A JSON object; @FILE reads it from a file, - from stdin.")]
CronOption = Annotated[str | None, typer.Option("--cron", help="Five fields, or @daily: '0 2 * * MON-FRI'.")]
EventOption = Annotated[str | None, typer.Option("--event", help="An event's name, or 'orders.*'.")]
Priority = Annotated[int | None, typer.Option(help="Lower runs first; the definition's if not given.")]
CatchUp = Annotated[str | None, typer.Option(help="After downtime: skip, latest or all.")]
Window = Annotated[int | None, typer.Option("--catch-up-window", help="Seconds that catching up looks back.")]
Overlap = Annotated[str | None, typer.Option(help="While a job is active: allow, skip, buffer_one, cancel_running.")]
Jitter = Annotated[int | None, typer.Option(help="Spread the starts over so many seconds.")]
Gap = Annotated[str | None, typer.Option(help="A time that the clocks skip: shift or skip.")]
Twice = Annotated[str | None, typer.Option(help="A time that the clocks show twice: first or both.")]
Dedupe = Annotated[int | None, typer.Option("--dedupe-window", help="Seconds in which the same params fire once.")]


@app.command("list")
def list_(
    trigger_type: Annotated[str | None, typer.Option("--type", help="schedule or event.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 100,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Every trigger, by label."""
    with open_app(database_url, tenant) as made:
        found = shown_triggers(made.ground, made.triggers.list(trigger_type, limit))
    if as_json:
        print_json(found)
        return
    columns = ("label", "when", "zone", "asks for", "next", "last", "", "id")
    print_table(columns, [_line(trigger) for trigger in found], "No triggers.")


@app.command()
def add(
    label: Annotated[str, typer.Argument(help="A name of your choice.")],
    key: Annotated[str, typer.Argument(help="What to run: the key of a definition.")],
    cron: CronOption = None,
    event: EventOption = None,
    timezone: Annotated[str | None, typer.Option(help="An IANA zone; the tenant's if not given.")] = None,
    params: Params = "{}",
    priority: Priority = None,
    catch_up: CatchUp = None,
    catch_up_window: Window = None,
    overlap: Overlap = None,
    jitter: Jitter = None,
    dst_gap: Gap = None,
    dst_overlap: Twice = None,
    dedupe_window: Dedupe = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Do not fire yet.")] = False,
    app: AppPath = None,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Add a trigger: either --cron or --event. Prints its id."""
    if (cron is None) == (event is None):
        raise InvalidInput("Give either --cron or --event.")
    given = read_object("--params", params)
    policies = _policies(catch_up, catch_up_window, overlap, jitter, dst_gap, dst_overlap, dedupe_window)
    common: dict[str, Any] = {"priority": priority, "enabled": not disabled, "replace": False, **policies}
    with open_app(database_url, tenant, app) as made:
        if cron is not None:
            [trigger] = shown_triggers(
                made.ground, [made.triggers.schedule(label, cron, key, given, timezone=timezone, **common)]
            )
        else:
            _only_for_schedules(policies)
            [trigger] = shown_triggers(made.ground, [made.triggers.on_event(label, str(event), key, given, **common)])
    _answer(trigger, as_json)


@app.command()
def edit(
    name: Name,
    label: Annotated[str | None, typer.Option(help="A new label.")] = None,
    key: Annotated[str | None, typer.Option(help="Ask for another definition.")] = None,
    cron: CronOption = None,
    event: EventOption = None,
    timezone: Annotated[str | None, typer.Option(help="An IANA zone, such as Europe/London.")] = None,
    params: Annotated[str | None, typer.Option("--params", "-p", help="A JSON object; @FILE, or - for stdin.")] = None,
    priority: Priority = None,
    catch_up: CatchUp = None,
    catch_up_window: Window = None,
    overlap: Overlap = None,
    jitter: Jitter = None,
    dst_gap: Gap = None,
    dst_overlap: Twice = None,
    dedupe_window: Dedupe = None,
    app: AppPath = None,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Change what is given; the rest stays. Jobs already made are not touched."""
    changes = _policies(catch_up, catch_up_window, overlap, jitter, dst_gap, dst_overlap, dedupe_window)
    named = {"label": label, "key": key, "cron": cron, "event_name": event, "timezone": timezone, "priority": priority}
    changes |= {option: value for option, value in named.items() if value is not None}
    if params is not None:
        changes["params"] = read_object("--params", params)
    with open_app(database_url, tenant, app) as made:
        stored = made.triggers.find(name)
        if "params" in changes:
            changes["params"] = unmasked(changes["params"], stored.payload_template)
        [trigger] = shown_triggers(made.ground, [made.triggers.update(stored.id, **changes)])
    _answer(trigger, as_json)


@app.command()
def enable(
    name: Name, tenant: TenantName = "default", as_json: AsJson = False, database_url: DatabaseUrl = None
) -> None:
    """Let it fire again, from now on."""
    with open_app(database_url, tenant) as made:
        [trigger] = shown_triggers(made.ground, [made.triggers.enable(made.triggers.find(name).id)])
    _answer(trigger, as_json)


@app.command()
def disable(
    name: Name,
    reason: Annotated[str, typer.Option(help="What its skipped moments will say.")] = "disabled by hand",
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Stop it. Its moments go on being recorded, as skipped."""
    with open_app(database_url, tenant) as made:
        [trigger] = shown_triggers(made.ground, [made.triggers.disable(made.triggers.find(name).id, reason)])
    _answer(trigger, as_json)


@app.command()
def delete(name: Name, tenant: TenantName = "default", database_url: DatabaseUrl = None) -> None:
    """Remove it. Its ticks and jobs stay."""
    with open_app(database_url, tenant) as made:
        made.triggers.delete(made.triggers.find(name).id)


@app.command()
def fire(
    name: Name,
    params: Params = "{}",
    event: Annotated[
        str, typer.Option("--event", help="A JSON object: what an event trigger's template looks into.")
    ] = "{}",
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Make its job now, by hand. Prints the job's id."""
    given, context = read_object("--params", params), read_object("--event", event)
    with open_app(database_url, tenant) as made:
        [job] = made.jobs.shown([made.triggers.fire(made.triggers.find(name).id, given, event=context)])
    if as_json:
        print_json(job)
    else:
        out().print(str(job.id))


@app.command()
def preview(
    name: Annotated[str | None, typer.Argument(help="A trigger's label or id; or give --cron.")] = None,
    cron: CronOption = None,
    timezone: Annotated[str, typer.Option(help="For --cron.")] = "UTC",
    n: Annotated[int, typer.Option("-n", min=1, max=1000, help="How many moments.")] = 5,
    after: Annotated[str | None, typer.Option(help="From this time on: 2026-02-16T10:30:00Z.")] = None,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """The next moments of a schedule, in UTC."""
    if (name is None) == (cron is None):
        raise InvalidInput("Give either a trigger or --cron.")
    start = read_moment("--after", after)
    with open_app(database_url, tenant) as made:
        if cron is not None:
            moments = made.triggers.preview_cron(cron, timezone, n, start)
        else:
            moments = made.triggers.preview(made.triggers.find(str(name)).id, n, start)
    if as_json:
        print_json(list(moments))
    else:
        print_table(("moment",), [(moment,) for moment in moments], "None.")


@app.command()
def ticks(
    name: Name,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 50,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """What became of its moments, newest first."""
    with open_app(database_url, tenant) as made:
        found = made.triggers.ticks(made.triggers.find(name).id, limit)
    if as_json:
        print_json(list(found))
        return
    lines = [(tick.tick_at, tick.outcome, tick.job_id, tick.reason) for tick in found]
    print_table(("moment", "outcome", "job", "reason"), lines, "No moments yet.")


def _policies(
    catch_up: str | None,
    catch_up_window: int | None,
    overlap: str | None,
    jitter: int | None,
    dst_gap: str | None,
    dst_overlap: str | None,
    dedupe_window: int | None,
) -> dict[str, Any]:
    given = {
        "catch_up": catch_up,
        "catch_up_window_seconds": catch_up_window,
        "overlap": overlap,
        "jitter_seconds": jitter,
        "dst_gap": dst_gap,
        "dst_overlap": dst_overlap,
        "dedupe_window_seconds": dedupe_window,
    }
    return {name: value for name, value in given.items() if value is not None}


def _only_for_schedules(policies: dict[str, Any]) -> None:
    wrong = sorted(policies.keys() - {"dedupe_window_seconds"})
    if wrong:
        raise InvalidInput(f"{', '.join(wrong)} is for schedules; an event trigger has only --dedupe-window.")


def _line(trigger: Trigger) -> tuple[Any, ...]:
    state = "" if trigger.is_enabled else f"disabled: {trigger.disabled_reason or ''}"
    return (
        trigger.label,
        trigger.cron_expr or trigger.event_name,
        trigger.timezone,
        trigger.definition_key,
        trigger.next_trigger_at if trigger.is_enabled else None,
        trigger.last_triggered_at,
        state,
        trigger.id,
    )


def _answer(trigger: Trigger, as_json: bool) -> None:
    if as_json:
        print_json(trigger)
    else:
        out().print(str(trigger.id))
