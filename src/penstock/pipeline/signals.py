"""Signals during populate(): tell a stop that was asked for from outside from an exit that make() took by itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

HEEDED = (signal.SIGTERM, signal.SIGINT)


class _Asked:
    """Whether a signal reached this process since populate() began."""

    by_signal = False


def stop_was_asked() -> bool:
    """Whether an exception that is no error (SystemExit, KeyboardInterrupt) comes from a signal. Python runs the handlers
    of signals in the main thread only, so elsewhere it never does."""
    return _Asked.by_signal and threading.current_thread() is threading.main_thread()


@contextmanager
def heeding_signals(*, end_on_sigterm: bool) -> Iterator[None]:
    """Note the signals that arrive during the block. A handler that the program has set is called as before; without one,
    SIGTERM ends the block as an exception, so that what is held is given back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Asked.by_signal = False
    before = {number: signal.getsignal(number) for number in HEEDED}
    ours = {number: _noting(handler, end_on_sigterm) for number, handler in before.items()}
    for number, handler in ours.items():
        if handler is not None:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler in ours.items():
            if handler is not None and signal.getsignal(number) is handler:
                signal.signal(number, before[number])


def _noting(handler: Any, end_on_sigterm: bool) -> Callable[[int, Any], Any] | None:
    if handler is signal.SIG_DFL and end_on_sigterm:
        handler = _terminate
    if not callable(handler) or isinstance(handler, signal.Handlers):
        return None

    def noted(number: int, frame: Any) -> Any:
        _Asked.by_signal = True
        return handler(number, frame)

    return noted


def _terminate(number: int, frame: object) -> None:
    raise SystemExit(128 + number)
