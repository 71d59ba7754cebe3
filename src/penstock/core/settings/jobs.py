"""Settings of jobs: what they get if nobody says otherwise, and what they may cost."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.decide import Limits
from penstock.core.errors import InvalidInput
from penstock.core.settings.base import Group, setting

MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class JobSettings(Group):
    """Defaults for definitions, and when a job becomes a dead letter."""

    default_priority: int = setting(100, at_least=-MAX_INT32 - 1, at_most=MAX_INT32)
    """The priority of a job whose definition and caller give none. Lower numbers run first, so 100 leaves room on both sides."""
    default_max_attempts: int = setting(3, at_least=1, at_most=MAX_INT32)
    """Attempts of a job whose definition and caller give no number: one failure by accident and one more are forgiven."""
    default_timeout_seconds: int = setting(3600, at_least=1, at_most=MAX_INT32)
    """Seconds that a run may take if its definition sets no timeout. An hour ends what hangs and spares what is only slow."""
    default_queue: str = "default"
    """The queue of jobs whose definition and caller name none."""
    max_crashes: int = setting(3, at_least=1)
    """After how many deaths of its worker in a row, while it was under way, a job becomes a dead letter. One death may be anybody's
    fault; three in a row are the job's."""
    max_interruptions: int = setting(10, at_least=0)
    """How many attempts of one job are given back that a shutdown, a preemption or a fault outside the job ended. The bound keeps a
    job that causes the faults from running for ever."""
    suspect_seconds: float = setting(30.0, more_than=0)
    """Seconds for which a worker keeps a suspect (a job that was under way when its worker died) apart from all other jobs. On its
    last chance before `max_crashes` a suspect runs apart until it ends."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.default_queue or not self.default_queue.isprintable():
            raise InvalidInput(f"default_queue is {self.default_queue!r}; expected the name of a queue.")

    @property
    def limits(self) -> Limits:
        """What one job may cost before it becomes a dead letter."""
        return Limits(self.max_crashes, self.max_interruptions)
