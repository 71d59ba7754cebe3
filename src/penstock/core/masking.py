"""Jobs and runs as people may see them: secrets are masked by name, by shape, by the schema's marks, and by their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from penstock.core.errors import InvalidInput
from penstock.core.marks import NO_MARKS, Marks, at_pointers
from penstock.core.nouns import Claim, Job, Run
from penstock.core.outcomes import Outcome
from penstock.core.redact import MASK, Redactor, secrets_in

OutcomeT = TypeVar("OutcomeT", bound=Outcome)
_redactor = Redactor()


def knowing(params: Mapping[str, Any], marks: Marks = NO_MARKS) -> Redactor:
    """Return a redactor that masks this job's own secrets as well: a worker need not have done so before it reported."""
    return _redactor.extended([*secrets_in(params), *marks.texts(params)])


def secrets_of_claim(claim: Claim) -> list[str]:
    """The secrets in a claim's params: by their names, and where the service said that the schema marks them."""
    return [*secrets_in(claim.params), *at_pointers(claim.params, claim.secrets)]


def hidden_params(params: Mapping[str, Any], marks: Marks) -> dict[str, Any]:
    """A job's params, or a template for them, as they are shown."""
    shown: dict[str, Any] = _redactor.redact_json(marks.masked(params))
    return shown


def hidden_job(job: Job, marks: Marks) -> Job:
    """The job as it is shown."""
    mask = knowing(job.params, marks) if _says_something(job) else _redactor
    return replace(
        job,
        params=hidden_params(job.params, marks),
        result=None if job.result is None else mask.redact_json(job.result),
        last_error=None if job.last_error is None else mask.redact_text(job.last_error),
        progress=None if job.progress is None else mask.redact_json(job.progress),
    )


def _says_something(job: Job) -> bool:
    return job.result is not None or job.last_error is not None or job.progress is not None


def hidden_run(run: Run, marks: Marks) -> Run:
    """The run as it is shown."""
    mask = knowing(run.params, marks)
    return replace(
        run,
        params=hidden_params(run.params, marks),
        error=None if run.error is None else mask.redact_text(run.error),
        stdout_tail=None if run.stdout_tail is None else mask.redact_text(run.stdout_tail),
        stderr_tail=None if run.stderr_tail is None else mask.redact_text(run.stderr_tail),
        artifacts=tuple(mask.redact_json(dict(artifact)) for artifact in run.artifacts),
    )


def says_something(outcome: Outcome) -> bool:
    """Whether an outcome holds text that people will read."""
    evidence = outcome.evidence
    return bool(
        getattr(outcome, "error", None)
        or getattr(outcome, "reason", None)
        or evidence.stdout_tail
        or evidence.stderr_tail
    )


def hidden_outcome(outcome: OutcomeT, mask: Redactor) -> OutcomeT:
    """An outcome as it is written: its error, reason and tails without secrets. The result stays as it is, for the program that
    asked for it; it is masked where people see it."""
    texts: dict[str, Any] = {
        n: mask.redact_text(text) for n in ("error", "reason") if (text := getattr(outcome, n, None))
    }
    tails: dict[str, Any] = {
        n: mask.redact_text(text) for n in ("stdout_tail", "stderr_tail") if (text := getattr(outcome.evidence, n))
    }
    return replace(outcome, **texts, evidence=replace(outcome.evidence, **tails) if tails else outcome.evidence)


def refuse_masks(params: Mapping[str, Any], marks: Marks) -> None:
    """Raise InvalidInput if a secret is the mask itself: somebody copied what was shown, and the work would be done with `***`."""
    shown = hidden_params(_without_masks(params), marks)
    path = _first_mask(params, shown, "$")
    if path is not None:
        raise InvalidInput(
            f"{path} is {MASK!r}, which is shown in place of a secret. Give the secret itself; to keep the one that is stored, leave "
            "the field out or change the job in place.",
        )


def _without_masks(value: Any) -> Any:
    """The same with something harmless for each mask: what is masked then is masked because of where it stands."""
    if isinstance(value, Mapping):
        return {key: _without_masks(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_masks(item) for item in value]
    return "shown" if value == MASK else value


def _first_mask(given: Any, shown: Any, path: str) -> str | None:
    if shown == MASK:
        return path if given == MASK else None
    if isinstance(given, Mapping) and isinstance(shown, Mapping):
        found = (_first_mask(value, shown.get(key), f"{path}.{key}") for key, value in given.items())
    elif isinstance(given, list | tuple) and isinstance(shown, list):
        found = (_first_mask(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(zip(given, shown, strict=False)))
    else:
        return None
    return next((each for each in found if each is not None), None)
