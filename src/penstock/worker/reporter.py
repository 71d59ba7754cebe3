"""What runs say while they run: progress, tails and artifacts, written every `progress_seconds` and all together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.queue.ground import Ground
from penstock.store import claims
from penstock.store.database import Tx
from penstock.store.faults import is_refused
from penstock.worker.control import RunControl
from penstock.worker.service import Service


class _Said(NamedTuple):
    """What a run said last and is not written yet. It stays with the run until it is."""

    control: RunControl
    progress: dict[str, Any] | None
    tails: tuple[str, str] | None
    artifacts: list[dict[str, Any]]
    pid: int | None

    @classmethod
    def by(cls, control: RunControl) -> _Said:
        return cls(control, control.progress, control.tails, control.new_artifacts, control.pid)

    def write(self, tx: Tx) -> None:
        job_id, run_id = self.control.claim.job_id, self.control.claim.run_id
        if self.progress is not None:
            claims.report_progress(tx, job_id, run_id, self.progress)
        if self.tails is not None:
            claims.report_tails(tx, job_id, run_id, *self.tails)
        if self.artifacts:
            claims.append_artifacts(tx, job_id, run_id, self.artifacts)
        if self.pid is not None:
            claims.report_pid(tx, job_id, run_id, self.pid)

    def forget(self) -> None:
        """It is written; what the run said since is not."""
        control = self.control
        if control.progress is self.progress:
            control.progress = None
        if control.tails is self.tails:
            control.tails = None
        control.artifacts_written(len(self.artifacts))
        if control.pid == self.pid:
            control.pid = None


class Reporter(Service):
    """Writes the newest of what the runs reported."""

    name = "reporter"

    def __init__(self, ground: Ground) -> None:
        super().__init__()
        self._ground = ground
        self._touched: dict[RunControl, None] = {}

    def touched(self, control: RunControl) -> None:
        """This run has something to say."""
        self._touched[control] = None

    def pause(self) -> float:
        return self._ground.config.progress_seconds

    def step(self) -> None:
        taken, self._touched = self._touched, {}
        try:
            self.write([control for control in list(taken) if not control.ended])
        except BaseException:
            self._touched = taken | self._touched
            raise

    def write(self, controls: Sequence[RunControl]) -> None:
        """Write what these runs said last. A run that is no longer open changes nothing. What the database refuses is
        logged and dropped: it must keep neither the others' words nor its own run's end from being written."""
        said = [_Said.by(control) for control in controls]
        if not said:
            return
        try:
            self._write(said)
        except Exception as error:
            if not is_refused(error):
                raise
            for each in said:
                self._write_alone(each)

    def _write(self, said: Sequence[_Said]) -> None:
        self._ground.db.transact(lambda tx: [each.write(tx) for each in said])
        for each in said:
            each.forget()

    def _write_alone(self, said: _Said) -> None:
        try:
            self._write([said])
        except Exception as error:
            if not is_refused(error):
                raise
            self.log.error("progress_refused", error=str(error), **said.control.labels)
            said.forget()
