"""The commands file: the worker's own word on what each key runs. Errors name their line, at start.

```toml
[defaults]                     # any of the settings below, for every command
log_dir = "logs"

[commands.sync-dropbox]
argv = ["zoltag", "sync-dropbox", "--tenant-id={tenant.id}", "--path-prefix={path_prefix?}"]
stdin = "{notes}"              # text for its stdin; or stdin = "params": all params as JSON. Else it is empty
env = ["PATH"]                 # names passed on from the worker; everything else is withheld
env_set = { LANG = "C.UTF-8" } # values of our own; placeholders are filled in
cwd = "/srv/zoltag"            # else an empty directory, removed afterwards
user = "zoltag"                # the user it runs as, with that user's groups; needs a worker that runs as root
timeout = 600                  # seconds, at most what the definition allows
kill_grace = 30                # seconds between SIGTERM and SIGKILL
skip_exit_codes = [78]         # there was nothing to do
retry_exit_codes = [75]        # not now: again after retry_delay seconds, at no cost of an attempt
retry_delay = 60
log_limit_mb = 64
log_total_mb = 10240           # of all logs in log_dir; the oldest are removed
rlimits = { memory_mb = 512, cpu_seconds = 60, file_mb = 100, processes = 64, open_files = 1024 }
contained = true               # starts inside its control group, for a program you do not trust; costs 2 ms
secrets = ["ghp_[A-Za-z0-9]+"] # patterns to mask in output
```
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penstock.core.errors import Fault, InvalidInput
from penstock.core.nouns import Claim
from penstock.core.payload import dumps
from penstock.core.redact import Redactor
from penstock.core.status import RetryMode
from penstock.run.account import Account, account
from penstock.run.template import Misfit, Template, render_arguments

Seconds = Annotated[float, Field(gt=0, le=366 * 86400)]
ExitCode = Annotated[int, Field(ge=1, le=255)]

ALL_PARAMS = "params"
"""The value of `stdin` that stands for all params, as JSON."""

_NOBODY = UUID(int=0)
_SAMPLE = Claim(
    job_id=_NOBODY, run_id=_NOBODY, tenant_id=_NOBODY, tenant_slug="sample", definition_id=None, key="", queue="", params={},
    attempt_no=1, max_attempts=1, retry_mode=RetryMode.REQUEUE, root_id=_NOBODY, group_id=None, worker_id="",
    started_at=datetime.min.replace(tzinfo=UTC), lease_expires_at=datetime.min.replace(tzinfo=UTC),
)  # fmt: skip
"""Stands for a claim where only the params matter."""


class Limits(BaseModel):
    """Resource limits of the child and everything it starts. What is not given has the default of `run.limits`, if any."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    memory_mb: Annotated[int, Field(gt=0)] | None = None
    cpu_seconds: Annotated[int, Field(gt=0)] | None = None
    file_mb: Annotated[int, Field(gt=0)] | None = None
    processes: Annotated[int, Field(gt=0)] | None = None
    open_files: Annotated[int, Field(ge=16)] | None = None


class Settings(BaseModel):
    """The settings of one command, as written in the file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    argv: Annotated[list[str], Field(min_length=1)]
    stdin: str | None = None
    env: list[str] = []
    env_set: dict[str, str] = {}
    cwd: str | None = None
    user: str | None = None
    timeout: Seconds | None = None
    kill_grace: Annotated[float, Field(ge=0, le=3600)] = 30.0
    skip_exit_codes: list[ExitCode] = []
    retry_exit_codes: list[ExitCode] = []
    retry_delay: Seconds = 60.0
    log_dir: str | None = None
    log_limit_mb: Annotated[int, Field(gt=0)] = 64
    log_total_mb: Annotated[int, Field(gt=0)] = 10 * 1024
    rlimits: Limits = Limits()
    contained: bool = False
    secrets: list[str] = []


@dataclass(frozen=True, slots=True)
class Command:
    """One key of the commands file, checked and resolved: the program's absolute path, its templates, its settings."""

    key: str
    program: str
    templates: tuple[Template, ...]
    environment: tuple[tuple[str, Template], ...]
    settings: Settings
    cwd: Path | None
    log_dir: Path | None
    stdin: Template | None = None
    account: Account | None = None
    """The user it runs as; None for the worker's own."""

    def argv(self, claim: Claim, params_file: str = "") -> list[str]:
        """The exact argument list for a claim; raises Misfit when the payload does not fit."""
        return [self.program, *render_arguments(self.templates, claim, params_file)]

    def input(self, claim: Claim) -> bytes | None:
        """What the command reads from stdin, if it is given anything; raises Misfit when the payload does not fit."""
        if self.settings.stdin == ALL_PARAMS:
            return dumps(dict(claim.params)).encode()
        return None if self.stdin is None else self.stdin.render_input(claim).encode("utf-8", "surrogatepass")

    @property
    def wants_params_file(self) -> bool:
        """Whether an argument or a variable names the file of the params."""
        return any(template.names_params_file for template in self._every_template())

    def faults(self, params: Mapping[str, Any]) -> list[Fault]:
        """What of these params this command could not be given: the rules of a run, applied when a job is enqueued."""
        claim = _SAMPLE._replace(params=params)
        try:
            self.argv(claim, "params.json")
            self.env(claim, {}, "params.json")
            self.input(claim)
        except Misfit as error:
            path = f"$.{error.field}" if error.field else "$"
            return [Fault(path, f"does not fit the command {self.key!r}: {error}")]
        return []

    def env(self, claim: Claim, inherited: Mapping[str, str], params_file: str = "") -> dict[str, str]:
        """The child's whole environment: what the file allows, what it sets, and who it works for."""
        env = {name: inherited[name] for name in self.settings.env if name in inherited}
        for name, template in self.environment:
            value = template.render(claim, params_file)
            if value is not None:
                env[name] = value
        env["PENSTOCK_RUN_ID"] = str(claim.run_id)
        env["PENSTOCK_JOB_ID"] = str(claim.job_id)
        env["PENSTOCK_TENANT_ID"] = str(claim.tenant_id)
        env["PENSTOCK_ATTEMPT"] = str(claim.attempt_no)
        return env

    def unknown_fields(self, arg_schema: Mapping[str, Any]) -> list[str]:
        """The payload fields its placeholders name that a closed schema does not have."""
        properties = arg_schema.get("properties", {})
        if arg_schema.get("additionalProperties", True) is not False:
            return []
        named = {field for template in self._every_template() for field in template.fields}
        return sorted(field for field in named if field.split(".")[0] not in properties)

    def _every_template(self) -> list[Template]:
        others = [self.stdin] if self.stdin is not None else []
        return [*self.templates, *(template for _name, template in self.environment), *others]


def load_commands(
    path: str | os.PathLike[str], environ: Mapping[str, str] | None = None, *, to_run: bool = True
) -> dict[str, Command]:
    """Read a commands file; raises InvalidInput with the file, the line and the reason. Without `to_run` the programs and
    directories need not be on this machine: enough to check params."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"The commands file {path} cannot be read: {error}.") from error
    return parse_commands(text, path, os.environ if environ is None else environ, to_run=to_run)


def parse_commands(text: str, path: Path, environ: Mapping[str, str], *, to_run: bool = True) -> dict[str, Command]:
    """The commands in `text`, which was read from `path`; relative paths in it start at the file's directory."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r" \(at (?:line (\d+)|end of document).*\)$", str(error))
        line = int(found[1]) if found and found[1] else len(text.splitlines())
        reason = str(error)[: found.start()] if found else str(error)
        raise InvalidInput(f"{path}, line {line}: not TOML: {reason}.") from error
    for table in document:
        if table not in ("commands", "defaults"):
            raise _at(text, path, [table], f"unknown table {table!r}; expected [commands.KEY] and [defaults]")
    commands, defaults = document.get("commands", {}), document.get("defaults", {})
    if not isinstance(commands, dict) or not isinstance(defaults, dict):
        raise InvalidInput(f"{path}: expected tables [commands.KEY] and [defaults].")
    where = path if to_run else None
    return {key: _read(key, entry, defaults, text, path, environ, where) for key, entry in commands.items()}


def _read(
    key: str,
    entry: Any,
    defaults: Mapping[str, Any],
    text: str,
    path: Path,
    environ: Mapping[str, str],
    runs_from: Path | None,
) -> Command:
    where = ["commands", key]
    if not isinstance(entry, dict):
        raise _at(text, path, where, f"expected a table [commands.{key}] with argv")
    try:
        settings = Settings.model_validate({**defaults, **entry})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        field = str(fault["loc"][0]) if fault["loc"] else ""
        shown = ".".join(str(part) for part in fault["loc"])
        raise _at(text, path, [*where, field], f"{shown}: {fault['msg']}") from None
    try:
        field = "argv"
        program = settings.argv[0] if runs_from is None else _resolve(settings.argv[0], runs_from.parent, environ)
        templates = tuple(Template.parse(argument) for argument in settings.argv[1:])
        field = "env"
        for name in settings.env:
            _require_name(name)
        field = "env_set"
        environment = tuple((_require_name(name), Template.parse(value)) for name, value in settings.env_set.items())
        field = "secrets"
        Redactor(patterns=settings.secrets)
        field = "cwd"
        cwd = None if runs_from is None else _directory(settings.cwd, runs_from.parent)
        field = "stdin"
        stdin = _input_template(settings.stdin)
        field = "user"
        runs_as = None if runs_from is None else account(settings.user, contained=settings.contained)
    except InvalidInput as error:
        raise _at(text, path, [*where, field], str(error).rstrip(".")) from None
    both = set(settings.skip_exit_codes) & set(settings.retry_exit_codes)
    if both:
        raise _at(
            text, path, [*where, "retry_exit_codes"], f"the exit code {min(both)} cannot mean both skip and retry"
        )
    log_dir = (path.parent / settings.log_dir).absolute() if settings.log_dir else None
    return Command(key, program, templates, environment, settings, cwd, log_dir, stdin, runs_as)


def _input_template(text: str | None) -> Template | None:
    if text is None or text == ALL_PARAMS:
        return None
    template = Template.parse(text, argument=False)
    if not template.fields or template.names_params_file:
        raise InvalidInput(f'stdin is {text!r}; expected "params", or a text with a payload field such as "{{notes}}"')
    return template


def _resolve(program: str, base: Path, environ: Mapping[str, str]) -> str:
    """The absolute path of a program, found once: a later change of PATH cannot put another in its place."""
    if "{" in program or not program:
        raise InvalidInput(f"the program {program!r} must be a fixed name or path, without placeholders")
    if os.sep in program:
        absolute = (base / program).absolute()
        if not os.access(absolute, os.X_OK) or not absolute.is_file():
            raise InvalidInput(f"{str(absolute)!r} is not an executable file")
        return str(absolute)
    found = shutil.which(program, path=environ.get("PATH", os.defpath))
    if found is None:
        raise InvalidInput(f"the program {program!r} is not on the worker's PATH; install it or give its path")
    return str(Path(found).absolute())


def _require_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise InvalidInput(f"{name!r} is not a name of an environment variable")
    if name.upper().startswith("PENSTOCK_"):
        raise InvalidInput(f"{name!r} is ours: a command never receives the worker's own settings or tokens")
    return name


def _directory(cwd: str | None, base: Path) -> Path | None:
    if cwd is None:
        return None
    absolute = (base / cwd).absolute()
    if not absolute.is_dir():
        raise InvalidInput(f"the directory {str(absolute)!r} does not exist")
    return absolute


def _at(text: str, path: Path, where: list[str], reason: str) -> InvalidInput:
    shown = f" [{'.'.join(where[:2])}]" if len(where) > 1 else ""
    return InvalidInput(f"{path}, line {_line(text, where)}:{shown} {reason}.")


def _line(text: str, where: list[str]) -> int:
    """The line of a setting, or of its table when the setting itself comes from elsewhere."""
    lines = text.splitlines()
    header = re.compile(
        r"\s*\[\s*" + r"\s*\.\s*".join(rf"[\"']?{re.escape(part)}[\"']?" for part in where[:2]) + r"\s*\]"
    )
    start = next((number for number, line in enumerate(lines) if header.match(line)), None)
    if start is None:
        dotted = re.compile(
            rf"\s*(?:\[\s*)?[\"']?(?:commands\s*\.\s*)?[\"']?{re.escape(where[min(1, len(where) - 1)])}\b"
        )
        return next((number for number, line in enumerate(lines) if dotted.match(line)), 0) + 1
    if len(where) > 2:
        setting = re.compile(rf"\s*[\"']?{re.escape(where[2])}[\"']?\s*[=.]")
        for number in range(start + 1, len(lines)):
            if lines[number].lstrip().startswith("["):
                break
            if setting.match(lines[number]):
                return number + 1
    return start + 1


__all__ = ["Command", "Limits", "Misfit", "Settings", "load_commands", "parse_commands"]
