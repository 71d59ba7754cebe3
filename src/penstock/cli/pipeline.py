"""penstock pipeline: see and steer the tables of a module that compute themselves."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table as RichTable

import penstock.pipeline as dj
from penstock.core.errors import PenstockError
from penstock.core.own_process import claim_process
from penstock.core.terminal import printable
from penstock.pipeline.diagram import Diagram

app = typer.Typer(
    name="pipeline",
    help="Tables that compute themselves: status, errors, refresh, populate, diagram.",
    no_args_is_help=True,
)

Module = Annotated[
    str, typer.Argument(help="The module that declares the pipeline, for example lab.pipeline", show_default=False)
]
Only = Annotated[list[str] | None, typer.Option("--table", "-t", help="Only this table class; may be given again")]
DatabaseUrl = Annotated[
    str | None, typer.Option("--database-url", help="Where the pipeline lives", envvar="PENSTOCK_DATABASE_URL")
]


@app.command()
def status(module: Module, table: Only = None, database_url: DatabaseUrl = None) -> None:
    """Show how many keys of each table are made, pending, reserved, failed and ignored."""
    shown = RichTable("table", "made", "to go", "pending", "reserved", "success", "error", "ignore")
    for found in _tables(module, table, database_url):
        remaining, total = _answer(found.progress)
        jobs = _answer(lambda found=found: found.jobs.progress())
        shown.add_row(
            found.full_table_name, str(total - remaining), str(remaining),
            *(str(jobs[name]) for name in ("pending", "reserved", "success", "error", "ignore")),
        )  # fmt: skip
    _console().print(shown)


@app.command()
def errors(
    module: Module, table: Only = None, database_url: DatabaseUrl = None,
    stack: Annotated[bool, typer.Option("--stack", help="Show whole stack traces")] = False,
    history: Annotated[bool, typer.Option("--history", help="Also those that were cleared")] = False,
) -> None:  # fmt: skip
    """List the jobs that failed, and why."""
    count = 0
    for found in _tables(module, table, database_url):
        names = [attribute.name for attribute in type(found).declared_shape().job_key]
        for row in _answer(
            lambda found=found: found.jobs.history() if history else found.jobs.errors.to_dicts(order_by="KEY")
        ):
            count += 1
            key = row["key"] if history else {name: row[name] for name in names}
            typer.echo(printable(f"{found.full_table_name} {key}: {row['error_message']}"))
            if stack and row["error_stack"]:
                typer.echo(printable(row["error_stack"]))
    if not count:
        typer.echo("No errors.")


@app.command()
def refresh(
    module: Module, table: Only = None, database_url: DatabaseUrl = None,
    priority: Annotated[int | None, typer.Option(help="Lower is more urgent; also given to keys already pending")] = None,
    delay: Annotated[float, typer.Option(help="Seconds before new jobs may start")] = 0,
) -> None:  # fmt: skip
    """Bring the job tables in step with their sources."""
    for found in _tables(module, table, database_url):
        counts = _answer(lambda found=found: found.jobs.refresh(priority=priority, delay=delay))
        typer.echo(f"{found.full_table_name}: " + ", ".join(f"{number} {name}" for name, number in counts.items()))


@app.command()
def populate(
    module: Module, table: Only = None, database_url: DatabaseUrl = None,
    processes: Annotated[int, typer.Option("--processes", "-p", help="How many processes share the work")] = 1,
    max_calls: Annotated[int | None, typer.Option(help="Stop after this many keys of each table")] = None,
    priority: Annotated[int | None, typer.Option(help="Only jobs at least this urgent")] = None,
    direct: Annotated[bool, typer.Option("--direct", help="Without the job table")] = False,
) -> None:  # fmt: skip
    """Make every key that is missing, parents before children. Ends with 1 if a key failed."""
    failed = 0
    claim_process()
    for found in _tables(module, table, database_url):
        made = _answer(
            lambda found=found: found.populate(
                reserve_jobs=not direct, suppress_errors=True, processes=processes, max_calls=max_calls, priority=priority,
                display_progress=sys.stderr.isatty() and processes == 1,
            )
        )  # fmt: skip
        failed += len(made["error_list"])
        typer.echo(f"{found.full_table_name}: {made['success_count']} made, {len(made['error_list'])} failed")
        for key, message in made["error_list"][:5]:
            typer.echo(printable(f"  {key}: {message}"))
    raise typer.Exit(1 if failed else 0)


@app.command()
def diagram(
    module: Module, database_url: DatabaseUrl = None,
    format: Annotated[str, typer.Option("--format", "-f", help="text, mermaid or svg")] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file; its ending gives the format")] = None,
) -> None:  # fmt: skip
    """Draw the pipeline with counts on it."""
    drawings = [Diagram(schema) for schema in _schemas(module, database_url)]
    whole = drawings[0]
    for more in drawings[1:]:
        whole += more
    if output is not None:
        typer.echo(str(_answer(lambda: whole.save(output))))
        return
    makers = {"text": whole.text, "mermaid": whole.mermaid, "svg": whole.svg}
    if format not in makers:
        _fail(f"--format takes text, mermaid or svg, not {format!r}.")
    typer.echo(_answer(makers[format]))


def _schemas(module: str, database_url: str | None) -> list[dj.Schema]:
    if database_url:
        dj.config["database.url"] = database_url
    sys.path.insert(0, str(Path.cwd()))
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0] and error.name != module:
            raise
        _fail(f"There is no module {module!r} here. Give its dotted name, from the directory it is in.")
    except PenstockError as error:
        _fail(str(error))
    found = list(dict.fromkeys(value for value in vars(loaded).values() if isinstance(value, dj.Schema)))
    if not found:
        _fail(f"{module} has no dj.Schema.")
    return found


def _tables(module: str, only: list[str] | None, database_url: str | None) -> list[dj.AutoPopulate]:
    """The auto-populated tables of the module's schemas, parents before children."""
    found: dict[str, dj.AutoPopulate] = {}
    for schema in _schemas(module, database_url):
        for name in _answer(schema.list_tables):
            cls: Any = schema.table(name)
            if issubclass(cls, dj.AutoPopulate):
                found[cls.__name__] = cls()
    if only and (unknown := [name for name in only if name not in found]):
        _fail(f"{module} has no auto-populated table {unknown[0]!r}; it has {', '.join(found) or 'none'}.")
    return [table for name, table in found.items() if not only or name in only]


def _answer(work: Any) -> Any:
    try:
        return work()
    except PenstockError as error:
        _fail(str(error))


def _fail(message: str) -> Any:
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(2)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 200)
