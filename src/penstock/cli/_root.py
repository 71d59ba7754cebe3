"""The tree of verbs."""

from __future__ import annotations

import typer

from penstock.cli import (
    audit,
    bench,
    db,
    definitions,
    doctor,
    enqueue,
    events,
    explain,
    jobs,
    keys,
    pipeline,
    prune,
    queues,
    recover,
    scheduler,
    serve,
    sessions,
    tenants,
    tokens,
    top,
    triggers,
    webhooks,
    worker,
    workers,
)
from penstock.cli._common import EXIT_CODES, out
from penstock.core.version import VERSION

app = typer.Typer(
    name="penstock",
    help="A durable job engine that lives in your own database.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        out().print(f"penstock {VERSION}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """A durable job engine that lives in your own database."""


app.command("up")(serve.up)
app.command("api")(serve.api)
app.command("worker")(worker.worker)
app.command("scheduler")(scheduler.scheduler)
app.command("enqueue")(enqueue.enqueue)
app.command("workers")(workers.workers)
app.command("doctor")(doctor.doctor)
app.command("explain")(explain.explain)
app.command("recover")(recover.recover)
app.command("prune")(prune.prune)
app.command("top")(top.top)
app.command("bench")(bench.bench)
app.command("sign-in")(tokens.sign_in)
app.add_typer(jobs.app, name="jobs")
app.add_typer(triggers.app, name="triggers")
app.add_typer(events.app, name="events")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(db.app, name="db")
app.add_typer(queues.app, name="queues")
app.add_typer(definitions.app, name="definitions")
app.add_typer(tenants.app, name="tenants")
app.add_typer(tokens.app, name="tokens")
app.add_typer(audit.app, name="audit")
app.add_typer(keys.app, name="keys")
app.add_typer(sessions.app, name="sessions")
