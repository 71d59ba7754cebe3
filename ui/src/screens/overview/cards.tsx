import type { ReactNode } from "react";
import { Link } from "react-router";

import { useRefreshOnChange, useSummary } from "../../api/jobs";
import { useScope } from "../../api/session";
import { capped } from "../../lib/number";
import { duration } from "../../lib/time";
import { Fault } from "../../ui/panel";
import css from "./overview.module.css";

const SHOWN = [
  ["queued", "Queued", "--queued"],
  ["running", "Running", "--running"],
  ["succeeded", "Succeeded", "--succeeded"],
  ["failed", "Failed", "--failed"],
  ["dead_letter", "Dead letter", "--dead"],
] as const;

/** How the queue stands, each number a way to the jobs behind it. */
export function Cards() {
  const { to, key } = useScope();
  const { data, error, refetch } = useSummary();
  useRefreshOnChange([key("summary")]);
  if (error) return <Fault error={error} retry={() => void refetch()} />;
  const age = data?.oldest_queued_age_seconds;
  return (
    <div className={css.cards}>
      {SHOWN.map(([status, name, colour]) => (
        <Link key={status} className={css.card} to={to(`jobs?q=status:${status}`)}>
          <Name colour={colour}>{name}</Name>
          <span className={css.value} data-testid={`count-${status}`}>
            {data ? capped(data.counts[status], data.capped_at) : "–"}
          </span>
        </Link>
      ))}
      <div className={css.card}>
        <Name colour="--border-strong">Oldest waiting</Name>
        <span className={css.value}>{age === null || age === undefined ? "–" : duration(age)}</span>
      </div>
    </div>
  );
}

function Name({ colour, children }: { colour: string; children: ReactNode }) {
  return (
    <span className={css.label}>
      <i style={{ background: `var(${colour})` }} aria-hidden="true" />
      {children}
    </span>
  );
}
