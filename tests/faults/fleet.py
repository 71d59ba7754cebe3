"""python -m tests.faults.fleet N: so many worker processes, at little cost: forked from one that has all they need."""

from __future__ import annotations

import os
import signal
import sys

from penstock.worker.supervise import die_with_parent
from tests.faults.jobs import app


def main(number: int) -> None:
    app.worker(concurrency=1)  # defines the jobs
    app.close()  # connections do not survive a fork: each process opens its own
    parent = os.getpid()
    children = []
    for _ in range(number):
        child = os.fork()
        if child == 0:
            try:
                die_with_parent(parent)
                app.worker(concurrency=1).run()
            finally:
                os._exit(0)
        children.append(child)
    signal.signal(signal.SIGTERM, lambda *_: [os.kill(child, signal.SIGTERM) for child in children])
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
