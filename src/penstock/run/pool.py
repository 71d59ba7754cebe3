"""A warm pool of processes for Python jobs that must be stoppable: each runs one job at a time, and can be killed."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
import uuid
from dataclasses import asdict, replace
from typing import Any

from penstock.core.nouns import Claim
from penstock.core.outcomes import Evidence, Failed, Outcome, TimedOut
from penstock.core.redact import Redactor
from penstock.core.settings.worker import WorkerSettings
from penstock.run.context import Context, Control, forwarding, stopped
from penstock.run.guardian import guardian
from penstock.run.output import LogFile, Stream
from penstock.run.process import CHUNK, REFRESH_SECONDS, TICK, signal_name
from penstock.run.shield import handed_over
from penstock.run.spawn import Child, is_exhausted, two_pipes
from penstock.run.target import Target
from penstock.run.wire import Receiver, Sender, unpack

_START = "import sys; sys.path[:] = {path!r}; from penstock.run.child import main; main({requests}, {messages})"
_LEVELS = frozenset(("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "msg"))


class Pool:
    """Child processes that wait for work. There are as many as jobs have run at once."""

    def __init__(self, kill_grace: float, settings: WorkerSettings) -> None:
        self._kill_grace = kill_grace
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[_Process] = []

    def run(self, target: Target, claim: Claim, control: Control, redactor: Redactor) -> Outcome:
        """Run a claim in a process of its own, to its end or its timeout."""
        try:
            process = self._take()
        except OSError as error:
            why = f"No process could be started for the job: {error.strerror or error}."
            return Failed(why, blameless=is_exhausted(error))
        try:
            outcome = _Watch(
                process, claim, control, redactor, self._kill_grace, self._settings.process_start_seconds
            ).follow(target)
        except BaseException:
            process.end()
            raise
        self._give_back(process)
        return outcome

    def close(self) -> None:
        """End every process."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    def _take(self) -> _Process:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.lives():
                    return process
                process.end()
        return _Process()

    def _give_back(self, process: _Process) -> None:
        process.runs += 1
        if process.runs >= self._settings.runs_per_process or not process.lives():
            process.end()
            return
        with self._lock:
            self._idle.append(process)


class _Process:
    """One child process with its pipes."""

    def __init__(self) -> None:
        guardian().ready()
        self.runs = 0
        (requests_out, requests_in), (messages_out, messages_in) = two_pipes()
        path = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109
        code = _START.format(path=path, requests=requests_out, messages=messages_in)
        try:
            with handed_over(os.environ) as (environment, handles):
                self.child = Child(
                    [sys.executable, "-c", code],
                    environment,
                    ("PENSTOCK_CHILD", uuid.uuid4().hex),
                    pass_fds=(requests_out, messages_in, *handles),
                )
        except OSError:
            os.close(requests_in)
            os.close(messages_out)
            raise
        finally:
            os.close(requests_out)
            os.close(messages_in)
        self._requests = requests_in
        self.messages = messages_out
        self.sender = Sender(requests_in)
        for fd in (self.messages, self.child.stdout, self.child.stderr):
            os.set_blocking(fd, False)  # between two jobs all that there is must be read, and no more waited for

    def lives(self) -> bool:
        return self.child.poll() is None

    def end(self) -> None:
        """Kill it with everything it started, and wait for it."""
        self.child.kill()
        self.child.close()
        for fd in (self._requests, self.messages):
            os.close(fd)


class _Watch:
    """Follows one job in a process: hears it, reads what it prints, stops it when it must."""

    def __init__(
        self,
        process: _Process,
        claim: Claim,
        control: Control,
        redactor: Redactor,
        kill_grace: float,
        boot: float,
    ) -> None:
        self._process = process
        self._claim = claim
        self._control = control
        self._redactor = redactor
        self._kill_grace = kill_grace
        self._started = time.monotonic()
        self._boot = boot
        self._kill_at: float | None = None
        self._refresh_at = self._started + REFRESH_SECONDS
        self._reported = 0
        self._done: Outcome | None = None
        self._closed = False
        self._receiver = Receiver()
        nowhere = LogFile(None, 0)
        self._out, self._err = Stream(self._redactor, nowhere), Stream(self._redactor, nowhere)
        self._streams = {process.child.stdout: self._out, process.child.stderr: self._err}
        self._artifacts: list[Any] = []
        self._poll = select.poll()
        self._log = Context.of(claim, control).log

    def follow(self, target: Target) -> Outcome:
        for fd in (self._process.messages, *self._streams):
            self._poll.register(fd, select.POLLIN)
        # A process that has just died cannot be told; its end is seen below
        with contextlib.suppress(BrokenPipeError):
            self._process.sender.send(**self._request(target))
        self._control.report_pid(self._process.child.pid)
        while self._done is None and not self._closed:
            self._hear(TICK)
            stopped_by = self._stop_when_due()
            if stopped_by is not None:
                return stopped_by
            self._refresh_when_due()
        self._read_rest()
        return self._with_tails(self._done) if self._done is not None else self._died()

    def _request(self, target: Target) -> dict[str, Any]:
        claim = self._claim
        return {
            "job": {
                "job_id": str(claim.job_id),
                "run_id": str(claim.run_id),
                "tenant": claim.tenant_slug,
                "tenant_id": str(claim.tenant_id),
                "key": claim.key,
                "attempt": claim.attempt_no,
                "params": dict(claim.params),
            },
            "timeout": self._control.timeout,
            "log_level": forwarding.level,
            "target": asdict(target),
            "secrets": sorted(self._redactor.secrets),
            "patterns": self._redactor.patterns,
        }

    def _hear(self, wait: float) -> bool:
        events = self._poll.poll(wait * 1000)
        for fd, _event in events:
            try:
                data = os.read(fd, CHUNK)
            except BlockingIOError:
                continue
            if fd in self._streams:
                self._streams[fd].feed(data)
                if not data:
                    self._poll.unregister(fd)
            elif data:
                for message in self._receiver.feed(data):
                    self._take(message)
            else:
                self._closed = True
                self._poll.unregister(fd)
        return bool(events)

    def _take(self, message: dict[str, Any]) -> None:
        if "started" in message:
            # Starting a process and importing the program is not the job's time
            self._started, self._boot = time.monotonic(), 0.0
        elif "done" in message:
            self._done = unpack(message["done"])
        elif "progress" in message:
            self._control.report_progress(*message["progress"])
        elif "artifact" in message:
            self._artifacts.append(message["artifact"])
            self._control.add_artifact(message["artifact"])
        elif "heartbeat" in message:
            self._control.heartbeat()
        elif "log" in message:
            level, event = message["log"][0], self._redactor.redact_json(message["log"][1])
            text = event.pop("event", "")
            getattr(self._log, level if level in _LEVELS else "info")(text, **event)

    def _stop_when_due(self) -> Outcome | None:
        if self._done is not None:
            return None
        now = time.monotonic()
        timeout = self._control.timeout
        if timeout is not None and now - self._started >= timeout + self._boot:
            self._end()
            return TimedOut(f"timed out after {timeout:g} s", self._evidence())
        if self._kill_at is not None and now >= self._kill_at:
            self._end()
            return stopped(self._control, self._evidence())
        if self._kill_at is None and self._control.canceled.is_set():
            self._kill_at = now + self._kill_grace
            with contextlib.suppress(BrokenPipeError):
                self._process.sender.send(cancel=self._control.reason, by_shutdown=self._control.by_shutdown)
        return None

    def _end(self) -> None:
        self._process.child.kill()
        self._process.child.wait()
        self._read_rest()

    def _read_rest(self) -> None:
        """What was printed before the end is in the pipes already."""
        for fd, stream in self._streams.items():
            with contextlib.suppress(BlockingIOError):
                while data := os.read(fd, CHUNK):
                    stream.feed(data)
            stream.finish()

    def _refresh_when_due(self) -> None:
        now = time.monotonic()
        total = self._out.tail.total + self._err.tail.total
        if now >= self._refresh_at and total != self._reported:
            self._refresh_at, self._reported = now + REFRESH_SECONDS, total
            with contextlib.suppress(Exception):
                self._control.report_tails(self._out.tail.text(), self._err.tail.text())

    def _died(self) -> Failed:
        code = self._process.child.wait()
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        return Failed(f"The process of the job {how} before the job had ended.", evidence=self._evidence(code))

    def _evidence(self, exit_code: int | None = None) -> Evidence:
        return Evidence(
            exit_code,
            self._out.tail.text(),
            self._err.tail.text(),
            tuple(self._artifacts),
            pid=self._process.child.pid,
        )

    def _with_tails(self, outcome: Outcome) -> Outcome:
        self._err.tail.write((outcome.evidence.stderr_tail or "").encode())
        return replace(outcome, evidence=self._evidence())
