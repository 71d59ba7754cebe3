"""The process that starts the overflow process of the service, and starts it again when it has ended.

It is forked before anything else is loaded, so that it has no threads and no connections that a fork would break, and takes little
memory while nobody needs it: about 30 MB. It ends with the process that started it, however that ends.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

PAUSE = 1.0
"""Seconds before it is started again after it has failed."""
_ENDED = b"ended"


def is_possible() -> bool:
    """Whether connections can be passed to another process here. They can on Linux."""
    return sys.platform == "linux"


def start(serve: Callable[[socket.socket], None]) -> socket.socket:
    """Fork the supervisor. Returns the channel to the overflow process; when it is closed, both end."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    sys.stderr.flush()
    gc.collect()
    gc.freeze()  # else both copy what they share, as soon as either looks for garbage
    if os.fork():
        theirs.close()
        return ours
    ours.close()
    _leave_after(lambda: _supervise(theirs, serve))


def _supervise(channel: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # these are for the process that started this one, and that one tells
    os.setsid()  # where Linux shares the processor by session, what is used here is then not counted as the service's
    while channel.recv(1, socket.MSG_PEEK):
        started = os.fork()
        if not started:
            _leave_after(lambda: serve(channel))
        _, status = os.waitpid(started, 0)
        channel.setblocking(True)
        with suppress(OSError):
            channel.send(_ENDED)
        if status:
            time.sleep(PAUSE)


def give_way(nice: int) -> None:
    """Let others come first, once the process has started. Where Linux shares the processor by session, that is told of the session."""
    with suppress(OSError):
        os.nice(nice)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(nice))


def _leave_after(work: Callable[[], None]) -> NoReturn:
    """Do it and end, without what the process that was forked would do at its end."""
    code = 1
    try:
        work()
        code = 0
    finally:
        sys.stderr.flush()
        os._exit(code)
