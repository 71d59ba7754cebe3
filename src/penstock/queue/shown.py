"""What marks the params of jobs as secret: looked up when they are shown, so that a mark counts from the moment it is set."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from penstock.core.marks import NO_MARKS, Marks, marks_of
from penstock.core.masking import hidden_job, hidden_params, hidden_run, knowing, secrets_of_claim
from penstock.core.nouns import Claim, Job, Run
from penstock.core.reach import Event, Trigger
from penstock.core.redact import Redactor, secrets_in
from penstock.queue.ground import Ground
from penstock.store import definitions, jobs
from penstock.store.database import Tx
from penstock.store.faults import is_outage

FRESH_SECONDS = 1.0
"""How long a worker relies on what it read of a definition's marks."""


class MarksOf(dict[UUID | None, Marks]):
    """The marks by the id of a definition; none for a definition that has none."""

    def __missing__(self, _key: UUID | None) -> Marks:
        return NO_MARKS


def marks_for(tx: Tx, definition_ids: Iterable[UUID | None]) -> MarksOf:
    """The marks of these definitions."""
    wanted = {each for each in definition_ids if each is not None}
    found = definitions.secret_marks(tx, wanted) if wanted else {}
    return MarksOf({id: marks_of(documents) for id, documents in found.items()})


def shown_jobs(ground: Ground, found: Collection[Job]) -> list[Job]:
    """These jobs as people may see them."""
    with ground.db.read() as tx:
        marks = marks_for(tx, (job.definition_id for job in found))
    return [hidden_job(job, marks[job.definition_id]) for job in found]


def shown_runs(ground: Ground, found: Collection[Run]) -> list[Run]:
    """These runs as people may see them."""
    with ground.db.read() as tx:
        marks = marks_for(tx, (run.definition_id for run in found))
    return [hidden_run(run, marks[run.definition_id]) for run in found]


def shown_triggers(ground: Ground, found: Collection[Trigger]) -> list[Trigger]:
    """These triggers as people may see them."""
    with ground.db.read() as tx:
        marks = marks_for(tx, (trigger.definition_id for trigger in found))
    return [replace(t, payload_template=hidden_params(t.payload_template, marks[t.definition_id])) for t in found]


def shown_events(ground: Ground, found: Collection[Event]) -> list[Event]:
    """These events as people may see them: what became a secret param of a job they started is masked, too."""
    with ground.db.read() as tx:
        masks = [Redactor(secrets_of_jobs(tx, event.job_ids)) for event in found]
    return [replace(event, context=mask.redact_json(event.context)) for event, mask in zip(found, masks, strict=True)]


def mask_of_job(tx: Tx, job_id: UUID) -> Redactor:
    """A redactor that knows the secrets of this job: for what a worker reports of it."""
    found = jobs.get_many(tx, [job_id])
    if not found:
        return Redactor()
    return knowing(found[0].params, marks_for(tx, [found[0].definition_id])[found[0].definition_id])


def secrets_of_jobs(tx: Tx, ids: Collection[UUID]) -> list[str]:
    """The secrets in the params of these jobs, by name and by mark: for what was made from the same values, as an event was."""
    found = jobs.get_many(tx, list(ids)) if ids else []
    marks = marks_for(tx, (job.definition_id for job in found))
    return [text for job in found for text in (*secrets_in(job.params), *marks[job.definition_id].texts(job.params))]


class ClaimSecrets:
    """The secrets of a claim's params, as a worker knows them. Reads a definition's marks at most once a second.

    A run must not fail because the database is away: then the marks that were read last count, and where none were, every value
    among the params is taken for a secret.
    """

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._known: dict[UUID, tuple[float, Marks]] = {}

    def __call__(self, claim: Claim) -> list[str]:
        if claim.definition_id is None:
            return secrets_of_claim(claim)
        marks = self._marks(claim.definition_id)
        return [*secrets_of_claim(claim), *(_values(claim.params) if marks is None else marks.texts(claim.params))]

    def _marks(self, definition_id: UUID) -> Marks | None:
        now = time.monotonic()
        known = self._known.get(definition_id)
        if known is None or now - known[0] > FRESH_SECONDS:
            try:
                with self._ground.db.read() as tx:
                    found = marks_for(tx, [definition_id])[definition_id]
            except Exception as error:
                if not is_outage(error):
                    raise
                return None if known is None else known[1]
            known = self._known[definition_id] = now, found
        return known[1]


def _values(value: Any) -> Iterator[str]:
    """Every text and number in a JSON value."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _values(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _values(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
