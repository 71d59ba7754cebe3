"""populate() in several processes of this machine. Forked, so that classes of a notebook or a script come along."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import ForkProcess
from typing import TYPE_CHECKING, Any

from penstock.core.own_process import claim_process
from penstock.pipeline import direct, distributed
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import Budget, Options, Outcome
from penstock.pipeline.signals import heeding_signals, stop_was_asked

if TYPE_CHECKING:
    from penstock.pipeline.auto import AutoPopulate


DRAWN = 0.1
"""How often the parent looks how far its children are, in seconds."""


class SharedBudget(Budget):
    """A budget that processes take from together."""

    def __init__(self, context: Any, max_calls: int | None, limit: int | None) -> None:
        self._lock = context.Lock()
        self._calls = context.Value("q", -1 if max_calls is None else max_calls, lock=False)
        self._keys = context.Value("q", -1 if limit is None else limit, lock=False)

    @property
    def calls(self) -> int | None:
        return None if self._calls.value < 0 else self._calls.value

    @calls.setter
    def calls(self, value: int | None) -> None:
        self._calls.value = -1 if value is None else value

    @property
    def keys(self) -> int | None:
        return None if self._keys.value < 0 else self._keys.value

    @keys.setter
    def keys(self, value: int | None) -> None:
        self._keys.value = -1 if value is None else value

    def take(self, wanted: int) -> int:
        with self._lock:
            return super().take(wanted)

    def give_back(self, number: int, *, keys: bool) -> None:
        with self._lock:
            super().give_back(number, keys=keys)


class _Steps:
    """How many keys the children have dealt with, for the bar that the parent draws."""

    def __init__(self, context: Any, draw: Callable[[], None]) -> None:
        self._taken, self._draw, self._drawn = context.Value("q", 0), draw, 0

    def step(self) -> None:
        with self._taken.get_lock():
            self._taken.value += 1

    def draw(self) -> None:
        while self._drawn < self._taken.value:
            self._draw()
            self._drawn += 1


def run(table: AutoPopulate, options: Options, step: Callable[[], None]) -> Outcome:
    """Fork, work, gather. The first error that a child raised is raised here, once all have ended."""
    if "fork" not in multiprocessing.get_all_start_methods():
        raise PipelineError("processes > 1 needs fork, which this system lacks. Start several programs instead.")
    context = multiprocessing.get_context("fork")
    budget, steps = SharedBudget(context, options.max_calls, options.limit), _Steps(context, step)
    if options.reserve_jobs:
        _ = table.jobs  # created once, before the fork
        bodies: list[Callable[[], Outcome]] = [
            lambda: distributed.run(table, options, budget, steps.step) for _ in range(options.processes)
        ]
        return _gather(context, bodies, steps)
    return _direct(context, table, options, budget, steps)


def _direct(context: Any, table: AutoPopulate, options: Options, budget: Budget, steps: _Steps) -> Outcome:
    """The list of keys is forked with the children, who take the next one by its number."""
    outcome = Outcome()
    tried: set[tuple[Any, ...]] = set()
    while keys := direct.list_keys(table, options, tried, budget.room()):
        tried |= {tuple(key.values()) for key in keys}
        budget.take(len(keys))
        following = context.Value("q", 0)

        def body(keys: list[Any] = keys, following: Any = following) -> Outcome:
            maker = direct.Maker(table, options)
            try:
                while (at := _next(following)) < len(keys):
                    maker.make(keys[at])
                    steps.step()
            finally:
                maker.close()
            return maker.result()

        outcome.add(_gather(context, [body] * min(options.processes, len(keys)), steps))
    return outcome


def _next(following: Any) -> int:
    with following.get_lock():
        at: int = following.value
        following.value += 1
        return at


def _gather(context: Any, bodies: list[Callable[[], Outcome]], steps: _Steps) -> Outcome:
    children: list[tuple[ForkProcess, Pipe]] = []
    alive, ours = context.Pipe(duplex=False)
    for body in bodies:
        here, there = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(body, there, alive, ours))
        with warnings.catch_warnings():
            # Our one thread is the heartbeat, which the child starts anew.
            warnings.filterwarnings("ignore", "This process .* multi-threaded", DeprecationWarning)
            child.start()
        there.close()
        children.append((child, here))
    alive.close()
    outcome, raised = Outcome(), None
    try:
        for child, pipe in children:
            while not pipe.poll(DRAWN):
                steps.draw()
            try:
                result = pickle.loads(pipe.recv_bytes())  # from our own child
            except EOFError:
                child.join()
                result = PipelineError(f"The process {child.pid} ended early, with exit code {child.exitcode}.")
            if isinstance(result, Outcome):
                outcome.add(result)
            else:
                raised = raised or result
    except BaseException:
        for child, _ in children:
            if child.is_alive() and child.pid is not None:
                os.kill(child.pid, signal.SIGTERM)
        raise
    finally:
        for child, pipe in children:
            child.join()
            pipe.close()
        ours.close()
        steps.draw()
    if raised is not None:
        raise raised
    return outcome


def _child(body: Callable[[], Outcome], pipe: Pipe, alive: Pipe, parents: Pipe) -> None:
    claim_process()
    parents.close()  # or no child would hear that the parent is gone
    threading.Thread(target=_end_with_parent, args=(alive,), name="penstock-parent", daemon=True).start()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells us
    result: Any
    with heeding_signals(end_on_sigterm=True):
        try:
            result = body()
        except BaseException as error:
            if stop_was_asked():
                raise
            result = error
    pipe.send_bytes(_portable(result))
    pipe.close()


def _end_with_parent(alive: Pipe) -> None:
    """Wait for the end of the parent, however it comes, and end as if the parent had asked for it."""
    with suppress(EOFError, OSError):
        alive.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)


def _portable(result: Any) -> bytes:
    try:
        data = pickle.dumps(result)
        pickle.loads(data)
    except Exception:
        if isinstance(result, Outcome):
            plain = [
                (key, error if isinstance(error, str) else direct.describe(error)) for key, error in result.error_list
            ]
            return pickle.dumps(Outcome(result.success_count, plain))
        return pickle.dumps(PipelineError(direct.describe(result)))
    return data
