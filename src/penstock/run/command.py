"""The command runner: a claim becomes an exact argument list, the child's end becomes an outcome."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from penstock.core.masking import secrets_of_claim
from penstock.core.nouns import Claim
from penstock.core.outcomes import Evidence, Failed, Outcome, Skipped, Snoozed, Succeeded, TimedOut
from penstock.core.payload import dumps
from penstock.core.redact import Redactor
from penstock.run.commands import Command, Limits, Misfit
from penstock.run.context import Control, stopped
from penstock.run.guardian import guardian
from penstock.run.limits import PROCESSES
from penstock.run.log_room import LogRoom
from penstock.run.process import Ended, Ending, Order, run_process, signal_name
from penstock.run.spawn import is_exhausted

MB = 1024 * 1024


class CommandRunner:
    """Runs the commands of a commands file.

    ```python
    runner = CommandRunner(load_commands("commands.toml"), Redactor([database_password]))
    outcome = runner.run(claim, control)
    ```
    """

    def __init__(
        self,
        commands: Mapping[str, Command],
        redactor: Redactor | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        secrets: Callable[[Claim], Iterable[str]] = secrets_of_claim,
    ) -> None:
        """`redactor` knows the worker's own credentials, `secrets` finds those of a claim; `log_dir` serves commands that name
        none of their own."""
        self._commands = dict(commands)
        base = redactor or Redactor()
        self._redactors = {key: base.extended(patterns=c.settings.secrets) for key, c in self._commands.items()}
        self._log_dir = Path(log_dir).absolute() if log_dir is not None else None
        self._secrets = secrets
        self._environ = os.environ if environ is None else environ
        self._logs = LogRoom(self._totals())

    def _totals(self) -> dict[Path, int]:
        """How many bytes of logs each directory may hold. Commands that share one have the most that any of them asks for."""
        totals: dict[Path, int] = {}
        for command in self._commands.values():
            if folder := command.log_dir or self._log_dir:
                totals[folder] = max(totals.get(folder, 0), command.settings.log_total_mb * MB)
        return totals

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self._commands)

    def run(self, claim: Claim, control: Control) -> Outcome:
        """Run a claim's command to its end."""
        command = self._commands[claim.key]
        redactor = self._redactors[claim.key].extended(self._secrets(claim))
        try:
            with _params_file(command, claim) as path:
                order = self._order(command, claim, control, redactor, path)
                ended = run_process(order, control)
        except Misfit as error:
            return Failed(
                redactor.redact_text(f"The payload does not fit the command {claim.key!r}: {error}."), fatal=True
            )
        except OSError as error:
            return _not_started(command, error)
        return _outcome(command, ended, control, order.timeout)

    def close(self) -> None:
        """Nothing to let go of: every child is gone when its run ends."""

    def _order(self, command: Command, claim: Claim, control: Control, redactor: Redactor, params_file: str) -> Order:
        settings = command.settings
        log_dir = command.log_dir or self._log_dir
        limits = [limit for limit in (settings.timeout, control.timeout) if limit is not None]
        return Order(
            run_id=str(claim.run_id),
            argv=command.argv(claim, params_file),
            env=command.env(claim, self._environ, params_file),
            stdin=command.input(claim),
            redactor=redactor,
            cwd=command.cwd,
            timeout=min(limits, default=None),
            kill_grace=settings.kill_grace,
            log_path=self._logs.room_for(log_dir, claim.run_id) if log_dir else None,
            log_limit=settings.log_limit_mb * MB,
            limits=_limits(settings.rlimits),
            processes=settings.rlimits.processes or PROCESSES,
            contained=settings.contained,
            account=command.account,
        )


@contextmanager
def _params_file(command: Command, claim: Claim) -> Iterator[str]:
    """The path of a file with the params as JSON, for as long as the command runs, in a directory of its own that only the
    command's user may enter. Empty if the command names none."""
    if not command.wants_params_file:
        yield ""
        return
    keeper = guardian()
    keeper.ready()  # it removes the directory, should this process be killed
    room = keeper.workspaces.take()
    try:
        path = f"{room.path}/params.json"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(dumps(dict(claim.params)).encode())
        if command.account is not None:
            keeper.workspaces.let_others_pass()
            command.account.own(room.path, path)
        yield path
    finally:
        room.remove()


def _limits(limits: Limits) -> dict[int, int]:
    asked = {
        resource.RLIMIT_AS: limits.memory_mb and limits.memory_mb * MB,
        resource.RLIMIT_CPU: limits.cpu_seconds,
        resource.RLIMIT_FSIZE: limits.file_mb and limits.file_mb * MB,
        resource.RLIMIT_NOFILE: limits.open_files,
        # Counted by user: of root's the kernel counts none, and of others' those that run already
        resource.RLIMIT_NPROC: limits.processes,
    }
    return {which: value for which, value in asked.items() if value is not None}


def _not_started(command: Command, error: OSError) -> Failed:
    if error.errno == errno.E2BIG:
        return Failed(f"The arguments of {command.key!r} are too long for this system.", fatal=True)
    why = f"{command.program} could not be started: {error.strerror or error}."
    return Failed(why, blameless=is_exhausted(error))


def _outcome(command: Command, ended: Ended, control: Control, timeout: float | None) -> Outcome:
    evidence = _evidence(ended)
    if ended.ending is Ending.CANCELED:
        return stopped(control, evidence)
    if ended.ending is Ending.TIMED_OUT:
        return TimedOut(f"timed out after {timeout:g} s", evidence)
    if ended.ending is Ending.TOO_MANY:
        most = command.settings.rlimits.processes or PROCESSES
        return Failed(f"killed: it had more than {most} processes, its limit (rlimits.processes)", evidence=evidence)
    code = ended.exit_code
    if code == 0:
        return Succeeded(evidence=evidence)
    if code in command.settings.skip_exit_codes:
        return Skipped(_reason(ended, f"exit code {code}"), evidence)
    if code in command.settings.retry_exit_codes:
        return Snoozed(command.settings.retry_delay, _reason(ended, f"exit code {code}"), evidence)
    return Failed(_reason(ended, _ending(code)), evidence=evidence)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    if -code == signal.SIGKILL:
        return "killed by SIGKILL, which the worker did not send; most often the system was out of memory"
    if -code == signal.SIGXCPU:
        return "killed by SIGXCPU: over its limit of CPU time"
    if -code == signal.SIGXFSZ:
        return "killed by SIGXFSZ: over its limit of file size"
    return f"killed by {signal_name(-code)}"


def _reason(ended: Ended, what: str) -> str:
    """The end and the last line of stderr: what an operator looks for first."""
    last = ended.stderr.rstrip().rpartition("\n")[2].strip()[-500:]
    return f"{what}: {last}" if last else what


def _evidence(ended: Ended) -> Evidence:
    note = f"[penstock] {ended.trouble}\n" if ended.trouble else ""
    stderr = ended.stderr if not note or ended.stderr.endswith("\n") or not ended.stderr else ended.stderr + "\n"
    return Evidence(
        exit_code=ended.exit_code,
        stdout_tail=ended.stdout,
        stderr_tail=stderr + note,
        log_path=ended.log_path,
        pid=ended.pid,
    )
