import { CircleAlert, Info, TriangleAlert } from "lucide-react";
import { Fragment, type ReactNode } from "react";

import { Problem } from "../api/problem";
import { Button } from "./button";
import css from "./panel.module.css";

export function Panel({ title, actions, children, flush }: { title?: ReactNode; actions?: ReactNode; children: ReactNode; flush?: boolean }) {
  return (
    <section className={css.panel}>
      {title !== undefined && (
        <div className={css.head}>
          <h2>{title}</h2>
          <div className="row">{actions}</div>
        </div>
      )}
      <div className={flush ? css.flush : css.body}>{children}</div>
    </section>
  );
}

export function PageHeader({ title, lead, actions }: { title: ReactNode; lead?: ReactNode; actions?: ReactNode }) {
  return (
    <header className={css.header}>
      <div>
        <h1>{title}</h1>
        {lead && <p>{lead}</p>}
      </div>
      <div className="row">{actions}</div>
    </header>
  );
}

/** Nothing here, and what to do next. */
export function Empty({ title, children, action }: { title: string; children?: ReactNode; action?: ReactNode }) {
  return (
    <div className={css.empty}>
      <strong>{title}</strong>
      {children && <p>{children}</p>}
      {action}
    </div>
  );
}

export function Note({ tone = "info", children }: { tone?: "info" | "warning" | "error"; children: ReactNode }) {
  const Icon = tone === "info" ? Info : tone === "warning" ? TriangleAlert : CircleAlert;
  return (
    <div className={`${css.note} ${tone === "info" ? "" : css[tone]}`} role={tone === "error" ? "alert" : "status"}>
      <Icon size={16} aria-hidden="true" />
      <div>{children}</div>
    </div>
  );
}

/** What happened, where, and a way to try again. */
export function Fault({ error, retry }: { error: unknown; retry?: () => void }) {
  const problem = error instanceof Problem ? error : null;
  return (
    <Note tone="error">
      <strong>{problem?.title ?? "Something went wrong"}</strong>
      <div>{problem?.detail ?? String(error instanceof Error ? error.message : error)}</div>
      {problem && problem.faults.length > 1 && (
        <ul>
          {problem.faults.map((fault) => (
            <li key={`${fault.path} ${fault.message}`}>
              <code>{fault.path}</code> {fault.message}
            </li>
          ))}
        </ul>
      )}
      {retry && (
        <div>
          <Button small onClick={retry}>
            Try again
          </Button>
        </div>
      )}
    </Note>
  );
}

export function Skeleton({ lines = 4 }: { lines?: number }) {
  return (
    <div className="stack-small" aria-busy="true">
      <span className="visually-hidden">Loading</span>
      {Array.from({ length: lines }, (_, at) => (
        <span key={at} className={css.skeleton} style={{ width: `${92 - ((at * 17) % 45)}%` }} />
      ))}
    </div>
  );
}

/** Names and values in two columns; those without a value are left out. */
export function Facts({ of }: { of: readonly (readonly [string, ReactNode])[] }) {
  return (
    <dl className={css.facts}>
      {of
        .filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false)
        .map(([name, value]) => (
          <Fragment key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </Fragment>
        ))}
    </dl>
  );
}
