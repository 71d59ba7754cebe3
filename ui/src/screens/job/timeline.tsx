import type { ReactNode } from "react";

import type { Job, Schemas } from "../../api/client";
import { nameOf } from "../../ui/badge";
import { actorName, Line, shortWorker, Span, Time } from "../../ui/text";
import css from "./job.module.css";

type Attempt = Schemas["Attempt"];

interface Step {
  id: string;
  at: string;
  what: ReactNode;
  detail?: ReactNode;
  colour: string;
}

const COLOURS: Record<string, string> = { running: "--running", succeeded: "--succeeded", failed: "--failed", timeout: "--failed", dead_letter: "--dead", queued: "--queued" };

function steps(job: Job, attempts: readonly Attempt[]): Step[] {
  const made: Step[] = [{ id: "made", at: job.created_at, what: `Made (${job.source})`, detail: job.created_by && <Line>{actorName(job.created_by)}</Line>, colour: "--queued" }];
  for (const each of attempts) {
    made.push({ id: each.id, at: each.started_at, what: `Attempt ${each.attempt_no} started`, detail: <Line>{`on ${shortWorker(each.worker_id)}`}</Line>, colour: "--running" });
    if (each.finished_at) {
      made.push({
        id: `${each.id} end`,
        at: each.finished_at,
        what: (
          <>
            Attempt {each.attempt_no} {each.status === "timeout" ? "ran out of time" : each.status}
          </>
        ),
        detail: (
          <>
            after <Span from={each.started_at} to={each.finished_at} />
          </>
        ),
        colour: COLOURS[each.status] ?? "--border-strong",
      });
    }
  }
  if (job.cancel_requested_at) made.push({ id: "cancel", at: job.cancel_requested_at, what: "Asked to stop", colour: "--border-strong" });
  if (job.status === "queued" && attempts.length > 0) made.push({ id: "again", at: job.queued_at, what: "Back in the queue", colour: "--queued" });
  if (job.status === "queued" && new Date(job.scheduled_for) > new Date(job.queued_at)) made.push({ id: "due", at: job.scheduled_for, what: "Due", colour: "--queued" });
  if (job.finished_at && (job.status === "dead_letter" || job.status === "canceled")) {
    made.push({ id: "end", at: job.finished_at, what: job.status === "canceled" ? "Canceled" : `Given up (${nameOf(job.status)})`, colour: COLOURS[job.status] ?? "--border-strong" });
  }
  return made.map((step, order) => ({ step, order })).toSorted((a, b) => Date.parse(a.step.at) - Date.parse(b.step.at) || a.order - b.order).map(({ step }) => step);
}

export function Timeline({ job, attempts }: { job: Job; attempts: readonly Attempt[] }) {
  return (
    <ol className={css.timeline}>
      {steps(job, attempts).map((step) => (
        <li key={step.id}>
          <span className={css.bead} style={{ background: `var(${step.colour})` }} aria-hidden="true" />
          <span>{step.what}</span>
          <Time at={step.at} />
          {step.detail && <span className={css.detail}>{step.detail}</span>}
        </li>
      ))}
    </ol>
  );
}
