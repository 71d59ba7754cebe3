"""`penstock jobs …`: see and steer jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from penstock.cli import logs
from penstock.cli._common import AsJson, DatabaseUrl, TenantName, open_app, out
from penstock.cli._show import age, as_plain, print_facts, print_json, print_table
from penstock.cli.enqueue import read_moment, read_object
from penstock.core.check import UNSET, Unset
from penstock.core.nouns import Job
from penstock.core.redact import unmasked

app = typer.Typer(help="See and steer jobs.", no_args_is_help=True)
app.command("logs")(logs.logs)

JobId = Annotated[str, typer.Argument(metavar="ID", help="The id of a job.")]


@app.command("list")
def list_(
    status: Annotated[list[str] | None, typer.Option("--status", "-s", help="May be repeated.")] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="A definition's key; * stands for anything.")] = None,
    queue: Annotated[str | None, typer.Option()] = None,
    source: Annotated[str | None, typer.Option(help="manual, event, schedule or system.")] = None,
    search: Annotated[str | None, typer.Option(help="In key, error, correlation id and dedupe key.")] = None,
    created_after: Annotated[str | None, typer.Option()] = None,
    created_before: Annotated[str | None, typer.Option()] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000)] = 50,
    offset: Annotated[int, typer.Option(min=0)] = 0,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Jobs, newest first."""
    with open_app(database_url, tenant) as made:
        found = made.jobs.list(
            status or None,
            source,
            limit,
            offset,
            read_moment("--created-after", created_after),
            read_moment("--created-before", created_before),
            key=key,
            queue=queue,
            search=search,
        )
        found = list(made.jobs.shown(found))
    if as_json:
        print_json(found)
        return
    columns = ("id", "key", "status", "attempt", "queue", "priority", "age", "error")
    print_table(columns, [_line(job) for job in found], "No jobs.")


def _line(job: Job) -> tuple[object, ...]:
    error = (job.last_error or "").splitlines()[0][:60] if job.last_error else ""
    attempt = f"{job.attempt_no}/{job.max_attempts}"
    return job.id, job.definition_key, job.status.value, attempt, job.queue, job.priority, age(job.created_at), error


@app.command()
def show(id: JobId, tenant: TenantName = "default", as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """One job with its runs."""
    with open_app(database_url, tenant) as made:
        [job] = made.jobs.shown([made.jobs.get(id)])
        runs = made.jobs.shown_runs(made.jobs.runs(id))
    if as_json:
        print_json({**as_plain(job), "runs": as_plain(list(runs))})
        return
    facts = ("id", "definition_key", "status", "queue", "priority", "source", "scheduled_for", "created_at", "started_at",
             "finished_at", "claimed_by", "progress", "result", "last_error", "dedupe_key", "correlation_id", "retry_of",
             "group_id")  # fmt: skip
    print_facts([(name, getattr(job, name)) for name in facts] + [("params", dict(job.params))])
    columns = ("run", "attempt", "status", "worker", "started", "finished", "exit", "error")
    lines = [
        (r.id, r.attempt_no, r.status.value, r.worker_id, r.started_at, r.finished_at, r.exit_code, r.error)
        for r in runs
    ]
    print_table(columns, lines, "It has not run yet.")


@app.command()
def cancel(
    id: JobId, tenant: TenantName = "default", as_json: AsJson = False, database_url: DatabaseUrl = None
) -> None:
    """Cancel a job. A queued one ends at once; a running one is asked to stop."""
    with open_app(database_url, tenant) as made:
        [job] = made.jobs.shown([made.jobs.cancel(id)])
    _answer(job, as_json, "is asked to stop" if job.status == "running" else "is canceled")


@app.command()
def retry(id: JobId, tenant: TenantName = "default", as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Try again what ended badly."""
    with open_app(database_url, tenant) as made:
        [job] = made.jobs.shown([made.jobs.retry(id)])
    _answer(job, as_json, "is queued again")


@app.command("run-now")
def run_now(
    id: JobId, tenant: TenantName = "default", as_json: AsJson = False, database_url: DatabaseUrl = None
) -> None:
    """Let a job that waits for its time or its backoff run now, at the end of the queue."""
    with open_app(database_url, tenant) as made:
        [job] = made.jobs.shown([made.jobs.run_now(id)])
        answer = made.jobs.why(id)
    _answer(job, as_json, f"is due now. {answer.sentence.rstrip('.')}")


@app.command()
def update(
    id: JobId,
    params: Annotated[
        str | None, typer.Option("--params", "-p", help="A JSON object, @file, or - for stdin.", show_default=False)
    ] = None,
    priority: Annotated[int | None, typer.Option(help="Lower runs first.")] = None,
    scheduled_for: Annotated[
        str | None, typer.Option("--scheduled-for", help="When it is due, like 2026-02-16T10:30:00Z, or now.")
    ] = None,
    tenant: TenantName = "default",
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Change a queued job: its params, its priority, or when it is due. What is not given stays."""
    given = None if params is None else read_object("--params", params)
    moment: datetime | Unset | None = UNSET
    if scheduled_for is not None:
        moment = None if scheduled_for == "now" else read_moment("--scheduled-for", scheduled_for)
    with open_app(database_url, tenant) as made:
        if given is not None:
            given = unmasked(given, made.jobs.get(id).params)
        [job] = made.jobs.shown([made.jobs.update(id, given, priority, moment)])
    _answer(job, as_json, "is changed")


@app.command()
def why(id: JobId, tenant: TenantName = "default", as_json: AsJson = False, database_url: DatabaseUrl = None) -> None:
    """Why a job is not running, or why it ended as it did."""
    with open_app(database_url, tenant) as made:
        answer = made.jobs.why(id)
    if as_json:
        print_json(answer)
    else:
        out().print(answer.sentence, markup=False)


def _answer(job: Job, as_json: bool, what: str) -> None:
    if as_json:
        print_json(job)
    else:
        out().print(f"{job.id} {what}.")
