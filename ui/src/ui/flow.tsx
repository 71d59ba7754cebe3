import { Link } from "react-router";

import type { Job } from "../api/client";
import { useScope } from "../api/session";
import { plural } from "../lib/number";
import { Status } from "./badge";
import css from "./flow.module.css";
import { Line } from "./text";

const SHOWN = 60;

/** Jobs that follow one another, or stand side by side. */
export function Flow({ jobs, parallel, current }: { jobs: readonly Job[]; parallel?: boolean; current?: string }) {
  const { to } = useScope();
  return (
    <div className={`${css.flow} ${parallel ? css.parallel : ""}`}>
      {jobs.slice(0, SHOWN).map((job, at) => (
        <div key={job.id} className={css.step}>
          {at > 0 && !parallel && <span className={css.arrow} aria-hidden="true" />}
          <Link to={to(`jobs/${job.id}`)} className={css.node} aria-current={job.id === current || undefined}>
            <span className={css.name}>
              <Line length={50}>{job.definition_key}</Line>
            </span>
            <span className="spread">
              <Status of={job.status} />
              <span className="quiet mono">{job.id.slice(-6)}</span>
            </span>
          </Link>
        </div>
      ))}
      {jobs.length > SHOWN && <span className="quiet">and {plural(jobs.length - SHOWN, "more job", "more jobs")}</span>}
    </div>
  );
}
