"""How an HTTP worker reports the end of a run: again and again, until it is recorded or the run is no longer its own."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Protocol

from penstock.core.nouns import Claim
from penstock.core.outcomes import Canceled, Evidence, Failed, Outcome, Skipped, Snoozed, Succeeded, TimedOut
from penstock.core.utc_logs import worker_log
from penstock.core.wire import worker as wire
from penstock.worker.completer import without_the_unwritable
from penstock.worker.remote_runs import MAX_TAIL, RemoteControl
from penstock.worker.remote_services import is_refused, within
from penstock.worker.service import full_jitter

GONE = frozenset({"lease_lost", "not_found"})
MAX_ERROR = 60_000
MAX_PAUSE = 10.0


class Reports(Protocol):
    def complete(self, job_id: Any, run_id: Any, **report: Any) -> wire.Recorded: ...

    def fail(self, job_id: Any, run_id: Any, error: str, **report: Any) -> wire.Recorded: ...


def report(desk: Reports, control: RemoteControl, outcome: Outcome, seconds: float, gave_up: threading.Event) -> bool:
    """Report how a run ended, until the service has recorded it or says that the run was lost. No other answer makes the
    worker forget an outcome. Return whether it was recorded.

    An outcome that the service refuses to store is replaced by one that says so.
    """
    failures = refusals = 0
    while not control.lost:
        try:
            within(seconds, partial(hand_in, desk, control.claim, outcome))
            if failures:
                worker_log.info("report_recovered", after_failures=failures, **control.labels)
            return True
        except Exception as error:
            why = str(error) or type(error).__name__
            if getattr(error, "code", "") in GONE:
                worker_log.warning("lease_lost", outcome=type(outcome).__name__, **control.labels)
                control.lose()
            elif is_refused(error) and refusals < 1:
                worker_log.error("unreportable", error=why, **control.labels)
                refusals += 1
                outcome = without_the_unwritable(outcome, error)
            elif is_refused(error):
                worker_log.error("outcome_dropped", error=why, **control.labels)
                return False
            else:
                if failures == 0:
                    worker_log.warning("report_failed", error=why, **control.labels)
                failures += 1
                if gave_up.wait(full_jitter(failures, most=MAX_PAUSE)):
                    return False
    return False


def log_end(control: RemoteControl, outcome: Outcome, seconds: float) -> None:
    facts = {"outcome": type(outcome).__name__, "seconds": round(seconds, 3)}
    if isinstance(outcome, Succeeded | Skipped | Snoozed):
        worker_log.debug("run_ended", **facts, **control.labels)
    else:
        why = getattr(outcome, "error", None) or getattr(outcome, "reason", "")
        worker_log.warning("run_ended", why=why, **facts, **control.labels)


def hand_in(desk: Reports, claim: Claim, outcome: Outcome) -> None:
    """Send how a run ended, once."""
    job, run = claim.job_id, claim.run_id
    evidence = _sent(outcome.evidence)
    match outcome:
        case Succeeded(result=result):
            desk.complete(job, run, result=result, **evidence)
        case Skipped(reason=reason):
            desk.complete(job, run, skipped=True, reason=reason[:1000], **evidence)
        case Failed():
            given: dict[str, Any] = {} if outcome.delay is None else {"delay_seconds": outcome.delay}
            if outcome.blameless:  # an older service does not know the word
                given["blameless"] = True
            desk.fail(job, run, outcome.error[:MAX_ERROR] or "failed", fatal=outcome.fatal, **given, **evidence)
        case TimedOut(error=error):
            desk.fail(job, run, error[:MAX_ERROR] or "timed out", kind="timeout", **evidence)
        case Canceled(reason=reason):
            by_shutdown = outcome.by_shutdown
            desk.fail(job, run, reason[:MAX_ERROR] or "canceled", kind="canceled", by_shutdown=by_shutdown, **evidence)
        case Snoozed(seconds=seconds):
            desk.fail(job, run, outcome.reason or "snoozed", kind="snoozed", delay_seconds=seconds, **evidence)


def _sent(evidence: Evidence) -> dict[str, Any]:
    return {
        "exit_code": evidence.exit_code,
        "stdout_tail": None if evidence.stdout_tail is None else evidence.stdout_tail[-MAX_TAIL:],
        "stderr_tail": None if evidence.stderr_tail is None else evidence.stderr_tail[-MAX_TAIL:],
        "pid": evidence.pid,
        "artifacts": [dict(artifact) for artifact in evidence.artifacts][:100],
    }
