"""What runs say while they run: progress, tails and artifacts, written at most twice a second and all together."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.queue.ground import Ground
from penstock.store import claims
from penstock.store.database import Tx
from penstock.worker.control import RunControl
from penstock.worker.service import Service

EVERY_SECONDS = 0.5


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
        return EVERY_SECONDS

    def step(self) -> None:
        taken, self._touched = self._touched, {}
        try:
            self.write([control for control in taken if not control.ended])
        except BaseException:
            self._touched = taken | self._touched
            raise

    def write(self, controls: Sequence[RunControl]) -> None:
        """Write what these runs said last. A run that is no longer open changes nothing."""
        said = [(c, c.progress, c.tails, c.take_artifacts()) for c in controls]
        if not said:
            return

        def work(tx: Tx) -> None:
            for control, progress, tails, artifacts in said:
                job_id, run_id = control.claim.job_id, control.claim.run_id
                if progress is not None:
                    claims.report_progress(tx, job_id, run_id, progress)
                if tails is not None:
                    claims.report_tails(tx, job_id, run_id, *tails)
                if artifacts:
                    claims.append_artifacts(tx, job_id, run_id, artifacts)

        self._ground.db.transact(work)
        for control, progress, tails, _ in said:
            if control.progress is progress:
                control.progress = None
            if control.tails is tails:
                control.tails = None
