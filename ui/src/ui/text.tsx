import { Check, Copy } from "lucide-react";
import { useEffect, useState } from "react";

import * as text from "../lib/text";
import { between, brief, exact, offset, relative } from "../lib/time";
import { useNow, useZone } from "../lib/zone";
import { IconButton } from "./button";
import css from "./text.module.css";

/** A name or message from a job, on one line, unable to disturb what is around it. */
export function Line({ children, length }: { children: string | null | undefined; length?: number }) {
  if (!children) return null;
  return <bdi>{text.line(children, length)}</bdi>;
}

/** Text or JSON from a job, as it is, with an end to what is shown at once. Scrolls by keyboard. */
export function Block({ of, label }: { of: unknown; label: string }) {
  const [whole, setWhole] = useState(false);
  const limit = whole ? 5_000_000 : 20_000;
  const made = typeof of === "string" ? { text: text.plain(of.slice(0, limit)), cut: Math.max(0, of.length - limit) } : text.json(of, limit);
  return (
    <div className="stack-small">
      {/* biome-ignore lint: a scrolling region must be reachable by keyboard */}
      <pre className={css.block} tabIndex={0} aria-label={label} role="region" dir="ltr">
        {made.text}
      </pre>
      {made.cut > 0 && (
        <span className="quiet">
          {made.cut.toLocaleString("en")} more characters.{" "}
          {!whole && (
            <button type="button" onClick={() => setWhole(true)}>
              Show all
            </button>
          )}
        </span>
      )}
    </div>
  );
}

/** A moment: short on the page, exact on hover, in the chosen zone. */
export function Time({ at, as = "brief" }: { at: string | null | undefined; as?: "brief" | "relative" | "exact" }) {
  const now = useNow();
  const { zone } = useZone();
  if (!at) return <span className="quiet">–</span>;
  const full = `${exact(at, zone)} ${offset(new Date(at), zone)}`;
  const shown = as === "relative" ? relative(at, now) : as === "exact" ? full : brief(at, now, zone);
  return (
    <time className={css.time} dateTime={at} title={as === "relative" ? full : `${full}, ${relative(at, now)}`}>
      {shown}
    </time>
  );
}

/** How long something took, or has been taking. */
export function Span({ from, to }: { from: string | null | undefined; to: string | null | undefined }) {
  const now = useNow();
  return <span className={css.time}>{between(from, to, now) ?? "–"}</span>;
}

/** A worker as people know it, `host:pid`; the rest of its id tells one boot from another. */
export const shortWorker = (id: string): string => /^([^:]+:\d+):[0-9a-f-]{8,}$/.exec(id)?.[1] ?? id;

/** Who did it, without the id that tells two of one name apart. */
export const actorName = (actor: string): string => actor.replace(/ \([0-9a-f-]{36}\)$/, "");

export function Id({ of, short }: { of: string; short?: boolean }) {
  return (
    <span className={css.id} title={of}>
      {short ? `…${of.slice(-8)}` : of}
    </span>
  );
}

export function CopyButton({ value, label = "Copy" }: { value: string; label?: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  return (
    <IconButton
      small
      label={done ? "Copied" : label}
      icon={done ? <Check size={14} /> : <Copy size={14} />}
      onClick={() => void navigator.clipboard.writeText(value).then(() => setDone(true))}
    />
  );
}

export function Copyable({ value, children }: { value: string; children?: React.ReactNode }) {
  return (
    <span className={css.copy}>
      {children ?? <code>{value}</code>}
      <CopyButton value={value} />
    </span>
  );
}
