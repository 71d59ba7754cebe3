import type { Job } from "../../api/client";
import { count } from "../../lib/number";
import { duration } from "../../lib/time";
import { useNow } from "../../lib/zone";
import { Panel } from "../../ui/panel";
import { Line } from "../../ui/text";
import css from "./job.module.css";

interface Progress {
  done?: unknown;
  total?: unknown;
  message?: unknown;
}

/** How far it is, and at this pace how much longer. */
export function ProgressPanel({ job }: { job: Job }) {
  const now = useNow();
  const { done, total, message } = (job.progress ?? {}) as Progress;
  if (typeof done !== "number" || job.status === "queued" || job.status === "succeeded") return null;
  const known = typeof total === "number" && total > 0;
  const part = known ? Math.min(1, done / total) : null;
  const spent = job.started_at ? (now.getTime() - new Date(job.started_at).getTime()) / 1000 : 0;
  const left = part !== null && part > 0.01 && part < 1 && job.status === "running" ? (spent / part) * (1 - part) : null;
  return (
    <Panel>
      <div className={css.progress}>
        <div className="spread">
          <span>
            <strong>{part === null ? count(done) : `${Math.floor(part * 100)} %`}</strong>{" "}
            <span className="quiet">{known && `${count(done)} of ${count(total)}`}</span>
          </span>
          <span className="quiet">{left !== null && `about ${duration(left)} left`}</span>
        </div>
        {part !== null && (
          <div className={css.track} role="progressbar" aria-label="Progress" aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.floor(part * 100)}>
            <i style={{ width: `${part * 100}%` }} />
          </div>
        )}
        {typeof message === "string" && message !== "" && (
          <span className="quiet">
            <Line length={300}>{message}</Line>
          </span>
        )}
      </div>
    </Panel>
  );
}
