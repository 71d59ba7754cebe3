"""A user's program: it imports Penstock, enqueues, runs workers and fills tables. It prints what is set for the whole process after
each step, as JSON."""

import asyncio
import ctypes
import decimal
import faulthandler
import gc
import json
import locale
import logging
import multiprocessing
import os
import random
import resource
import signal
import socket
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import structlog

PR_GET_PDEATHSIG, PR_GET_DUMPABLE = 2, 3


def pdeathsig() -> int:
    found = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_PDEATHSIG, ctypes.byref(found), 0, 0, 0)
    return found.value


def umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def state(*, signals: bool = True) -> dict[str, Any]:
    """Everything about this process that a library could change behind its user's back."""
    found: dict[str, Any] = {
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.get_debug()),
        "switch interval": sys.getswitchinterval(),
        "scheduling": (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0), len(os.sched_getaffinity(0))),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
        "umask": umask(),
        "dumpable": ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0),
        "pdeathsig": pdeathsig(),
        "locale": locale.setlocale(locale.LC_ALL),
        "random": hash(random.getstate()),
        "faulthandler": faulthandler.is_enabled(),
        "start method": multiprocessing.get_start_method(allow_none=True),
        "logging": (repr(logging.root.handlers), logging.root.level, logging.getLogRecordFactory().__name__),
        "structlog": (structlog.is_configured(), repr(structlog.get_config()["processors"])),
        "warnings": repr(warnings.filters),
        "hooks": (repr(sys.excepthook), repr(threading.excepthook), repr(sys.unraisablehook)),
        "tracing": (repr(sys.gettrace()), repr(sys.getprofile())),
        "recursion": sys.getrecursionlimit(),
        "digits": sys.get_int_max_str_digits(),
        "decimal": repr(decimal.getcontext()),
        "stack size": threading.stack_size(),
        "socket timeout": socket.getdefaulttimeout(),
        "loop policy": type(asyncio.get_event_loop_policy()).__name__,
        "path": list(sys.path),
        "environment": dict(os.environ),
        "directory": str(Path.cwd()),
    }  # fmt: skip
    if signals:
        found["signals"] = {number.name: repr(signal.getsignal(number)) for number in signal.valid_signals()
                            if isinstance(number, signal.Signals)}  # fmt: skip
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


states: list[tuple[str, dict[str, Any]]] = []
inside: list[tuple[str, dict[str, Any]]] = []


def look_apart() -> None:
    """What runs in a process of its own."""


def main(url: str) -> None:
    import sqlalchemy.dialects.postgresql.psycopg
    import sqlalchemy.dialects.sqlite.pysqlite  # noqa: F401 - what these set when they are imported is not ours

    warnings.simplefilter("default", ResourceWarning)
    states.append(("before", state()))
    from penstock import Context, Penstock

    states.append(("import", state()))
    app = Penstock(url)

    @app.job(key="look")
    def look(ctx: Context, stop: bool = False) -> None:
        ctx.log.info("looking")
        inside.append(("in a job", state(signals=False)))
        if stop:
            os.kill(os.getpid(), signal.SIGTERM)

    apart = app.job(key="look-apart", isolation="process")(look_apart).enqueue()
    look.enqueue()
    app.enqueue_many("look", [{}] * 5)
    states.append(("enqueue", state()))
    app.worker(2).run(until_idle=True)
    assert app.jobs.get(apart.id).status == "succeeded", app.jobs.get(apart.id)
    states.append(("run until idle", state()))
    look.enqueue(stop=True)
    app.worker(2).run()
    states.append(("run until SIGTERM", state()))
    worker = app.worker(2).start()
    job = look.enqueue()
    while app.jobs.get(job.id).status != "succeeded":
        threading.Event().wait(0.02)
    states.append(("while a worker runs", state()))
    worker.stop()
    states.append(("start and stop", state()))
    scheduler = app.scheduler()
    scheduler.start()
    scheduler.stop()
    app.prune()
    app.doctor()
    app.recover()
    states.append(("scheduler and care", state()))
    populate(url)
    states.append(("populate", state()))
    serve(app)
    states.append(("service", state()))
    app.close()
    states.append(("close", state()))
    print(json.dumps([states, inside]))


def populate(url: str) -> None:
    import penstock.pipeline as dj

    dj.config["database.url"] = url
    schema = dj.Schema("lab")

    @schema
    class Number(dj.Manual):
        definition = "n : int32"

    @schema
    class Square(dj.Computed):
        definition = """
        -> Number
        ---
        square : int32
        """

        def make(self, key: dict[str, Any]) -> None:
            inside.append(("in make()", state(signals=False)))
            self.insert1({**key, "square": key["n"] ** 2})

    Number().insert([{"n": n} for n in range(4)])
    Square().populate("n < 2")
    Square().populate(reserve_jobs=True)
    assert len(Square()) == 4


def serve(app: Any) -> None:
    from penstock.server import Settings, create_app, uvicorn_config

    uvicorn_config(create_app(app, Settings(max_connections=100_000))).load()


if __name__ == "__main__":
    main(sys.argv[1])
