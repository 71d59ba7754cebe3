"""populate(): check what was asked, and run it in the mode asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.pipeline import direct, distributed, processes
from penstock.pipeline.config import config
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.jobs import check_priority
from penstock.pipeline.keysource import missing_keys
from penstock.pipeline.options import ORDERS, Budget, Options, Outcome, progress_bar
from penstock.pipeline.signals import heeding_signals

if TYPE_CHECKING:
    from penstock.pipeline.auto import AutoPopulate


def populate(table: AutoPopulate, options: Options) -> dict[str, Any]:
    """Run populate() with these options."""
    _check(options)
    return _run(table, options).as_dict()


def _run(table: AutoPopulate, options: Options) -> Outcome:
    mode = distributed.run if options.reserve_jobs else direct.run
    budget = Budget(options.max_calls, options.limit)
    with (
        heeding_signals(end_on_sigterm=config["jobs.end_on_sigterm"]),
        progress_bar(options.display_progress, type(table).__name__, lambda: _remaining(table, options)) as step,
    ):
        if options.processes > 1:
            return processes.run(table, options, step)
        return mode(table, options, budget, step)


def _remaining(table: AutoPopulate, options: Options) -> int:
    statement = missing_keys(table, *options.restrictions).count()
    return int(table.connection.read(lambda conn: conn.execute(statement).scalar_one()))


def _check(options: Options) -> None:
    if options.order not in ORDERS:
        raise PipelineError(f"order takes {', '.join(map(repr, ORDERS))}, not {options.order!r}.")
    for name in ("limit", "max_calls"):
        value = getattr(options, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise PipelineError(f"{name} takes a whole number from 0, or None for all, not {value!r}.")
    if isinstance(options.processes, bool) or not isinstance(options.processes, int) or options.processes < 1:
        raise PipelineError(f"processes takes a whole number from 1, not {options.processes!r}.")
    if options.priority is not None:
        check_priority(options.priority)
        if not options.reserve_jobs:
            raise PipelineError("priority belongs to the job table: pass reserve_jobs=True with it.")
