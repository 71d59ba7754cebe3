import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";

import type { Job, Schemas } from "../../api/client";
import { useLog } from "../../api/logs";
import { count, plural } from "../../lib/number";
import { lines } from "../../lib/text";
import { CheckField, Pick } from "../../ui/form";
import { Empty, Panel } from "../../ui/panel";
import css from "./job.module.css";

const HEIGHT = 20;

/** What a run prints, as it prints it. */
export function Logs({ job, attempts }: { job: Job; attempts: readonly Schemas["Attempt"][] }) {
  const [chosen, setChosen] = useState("");
  const [stream, setStream] = useState<"stdout" | "stderr">("stdout");
  const [search, setSearch] = useState("");
  const [follow, setFollow] = useState(true);
  const log = useLog(job, chosen === "" ? null : Number(chosen));
  const out = log?.stdout ?? "";
  const err = log?.stderr ?? "";
  const shown = stream === "stderr" || (out === "" && err !== "") ? "stderr" : "stdout";
  const all = useMemo(() => lines(shown === "stdout" ? out : err), [shown, out, err]);
  const wanted = search.toLowerCase();
  const found = useMemo(() => all.map((line, at) => ({ ...line, number: at + 1 })).filter((line) => wanted === "" || line.text.toLowerCase().includes(wanted)), [all, wanted]);

  return (
    <Panel title="Log" flush>
      <div className={css.toolbar}>
        <input type="search" aria-label="Search the log" placeholder="Search the log" value={search} onChange={(event) => setSearch(event.target.value)} />
        {search !== "" && <span className="quiet">{plural(found.length, "line")}</span>}
        <Pick
          label="Stream"
          choices={[
            ["stdout", "Output"],
            ["stderr", "Errors"],
          ]}
          value={shown}
          onChange={(event) => setStream(event.target.value as "stdout" | "stderr")}
        />
        {attempts.length > 1 && <Pick label="Attempt" choices={[["", "Latest attempt"], ...attempts.map((each) => [String(each.attempt_no), `Attempt ${each.attempt_no}`] as const)]} value={chosen} onChange={(event) => setChosen(event.target.value)} />}
        <CheckField label="Follow" checked={follow} onChange={(event) => setFollow(event.target.checked)} />
      </div>
      {all.length === 0 ? (
        <Empty title={job.status === "running" ? "Nothing printed yet" : "No output"}>
          {job.status === "queued" ? "It shows here as soon as the job runs." : "What a command or an isolated function prints is kept by its end."}
        </Empty>
      ) : (
        <LogView lines={found} search={wanted} follow={follow && search === ""} />
      )}
    </Panel>
  );
}

interface Shown {
  text: string;
  cut: number;
  number: number;
}

function LogView({ lines: shown, search, follow }: { lines: readonly Shown[]; search: string; follow: boolean }) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({ count: shown.length, getScrollElement: () => scroller.current, estimateSize: () => HEIGHT, overscan: 20 });
  useEffect(() => {
    if (follow) scroller.current?.scrollTo({ top: scroller.current.scrollHeight });
  }, [follow, shown.length]);
  const widest = useMemo(() => Math.min(2100, shown.reduce((most, line) => Math.max(most, line.text.length), 0)), [shown]);
  return (
    <div className={css.log} ref={scroller} tabIndex={0} role="region" aria-label="Log" dir="ltr">
      <div className={css.logBody} style={{ height: virtual.getTotalSize(), width: `${widest + 12}ch` }}>
        {virtual.getVirtualItems().map((item) => {
          const line = shown[item.index];
          if (!line) return null;
          return (
            <div key={line.number} className={css.logLine} style={{ transform: `translateY(${item.start}px)` }}>
              <b aria-hidden="true">{line.number}</b>
              <span>
                <Marked text={line.text} search={search} />
                {line.cut > 0 && <span className={css.cut}> … {count(line.cut)} more characters</span>}
              </span>
            </div>
          );
        })}
      </div>
    </div>
  );
}

function Marked({ text, search }: { text: string; search: string }) {
  if (search === "") return text;
  const parts: { text: string; hit: boolean; at: number }[] = [];
  const lower = text.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(search); at !== -1 && parts.length < 200; at = lower.indexOf(search, from)) {
    parts.push({ text: text.slice(from, at), hit: false, at: from }, { text: text.slice(at, at + search.length), hit: true, at });
    from = at + search.length;
  }
  parts.push({ text: text.slice(from), hit: false, at: from });
  return parts.map((part) => (part.hit ? <mark key={`h${part.at}`}>{part.text}</mark> : <span key={part.at}>{part.text}</span>));
}
