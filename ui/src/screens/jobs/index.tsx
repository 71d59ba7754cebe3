import { useQuery } from "@tanstack/react-query";
import { Download, Plus } from "lucide-react";
import { useCallback, useMemo, useRef, useState } from "react";
import { useSearchParams } from "react-router";

import { type Job, taken } from "../../api/client";
import { act, asQuery, useJobList, useRefreshOnChange, useSummary, type Verb } from "../../api/jobs";
import { useMay, useScope } from "../../api/session";
import { useKeys } from "../../lib/keys";
import { capped } from "../../lib/number";
import { type JobFilter, STATUSES, toFilter, valueOf, withTerm } from "../../lib/query";
import { nameOf } from "../../ui/badge";
import { Button, ButtonLink } from "../../ui/button";
import { useTell } from "../../ui/float";
import { Empty, Fault, PageHeader, Skeleton } from "../../ui/panel";
import { QueryBox } from "../../ui/search";
import { BulkBar } from "./bulk";
import css from "./jobs.module.css";
import { JobTable } from "./table";

export default function Jobs() {
  const scope = useScope();
  const may = useMay();
  const tell = useTell();
  const [params, setParams] = useSearchParams();
  const text = params.get("q") ?? "";
  // A relative time such as `2h` is taken when the query is written, so that the pages of one list fit together.
  const { filter, faults } = useMemo(() => toFilter(text, new Date()), [text]);
  const [down, setDown] = useState(false);
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set());
  const box = useRef<HTMLInputElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const list = useJobList(filter, faults.length === 0, down);
  const known = useKnown();

  const setText = (next: string) => {
    setSelected(new Set());
    setParams(next === "" ? {} : { q: next });
    scroller.current?.scrollTo({ top: 0 });
  };
  const toggle = useCallback(
    (id: string) =>
      setSelected((old) => {
        const next = new Set(old);
        if (!next.delete(id)) next.add(id);
        return next;
      }),
    [],
  );
  const { refresh } = list;
  const run = useCallback(
    (verb: Verb, job: Job) => {
      act(scope, verb, job.id).then(() => {
        tell.done(verb === "cancel" ? "Canceled" : "Queued again", `${job.definition_key} …${job.id.slice(-8)}`);
        refresh();
      }, tell.failed);
    },
    [scope, tell, refresh],
  );
  useKeys({
    "/": () => box.current?.focus(),
    Escape: () => setSelected(new Set()),
  });

  const all = list.jobs.map((job) => job.id);
  return (
    <div className={css.page}>
      <PageHeader
        title="Jobs"
        actions={
          <>
            <ExportButton filter={filter} />
            {may("operate") && (
              <ButtonLink variant="primary" icon={<Plus size={15} />} to={scope.to("definitions")}>
                New job
              </ButtonLink>
            )}
          </>
        }
      />
      <QueryBox value={text} onChange={setText} known={known} faults={faults} inputRef={box} />
      <StatusTabs text={text} setText={setText} />
      {selected.size > 0 && <BulkBar selected={selected} filter={filter} clear={() => setSelected(new Set())} done={list.refresh} loadedAll={!list.more} />}
      {list.error ? (
        <Fault error={list.error} />
      ) : list.loading ? (
        <Skeleton lines={12} />
      ) : list.jobs.length === 0 ? (
        <Nothing filtered={text !== ""} clear={() => setText("")} />
      ) : (
        <JobTable
          jobs={list.jobs}
          more={list.more}
          loadMore={list.loadMore}
          selected={selected}
          toggle={toggle}
          toggleAll={() => setSelected(all.every((id) => selected.has(id)) ? new Set() : new Set(all))}
          act={run}
          waiting={list.waiting}
          showWaiting={() => {
            list.showWaiting();
            scroller.current?.scrollTo({ top: 0 });
          }}
          onScrolled={setDown}
          scroller={scroller}
        />
      )}
    </div>
  );
}

function Nothing({ filtered, clear }: { filtered: boolean; clear: () => void }) {
  const { to } = useScope();
  const may = useMay();
  if (filtered) {
    return (
      <Empty title="No job matches" action={<Button onClick={clear}>Show all jobs</Button>}>
        Loosen the search: a star stands for anything in a key, and after:7d looks further back.
      </Empty>
    );
  }
  return (
    <Empty title="No jobs yet" action={may("operate") && <ButtonLink to={to("definitions")}>Choose what to run</ButtonLink>}>
      Jobs come from your program (<code>app.enqueue</code>), from triggers, or by hand from a definition.
    </Empty>
  );
}

/** Keys and queues, for the search box's suggestions. */
export function useKnown() {
  const { api, key } = useScope();
  const { data } = useQuery({ queryKey: key("definitions", true), queryFn: () => taken(api.GET("/api/v1/definitions", { params: { query: { archived: true } } })), staleTime: 60_000 });
  return useMemo(
    () => ({ keys: [...new Set(data?.items.map((each) => each.key))].toSorted(), queues: [...new Set(data?.items.map((each) => each.queue))].toSorted() }),
    [data],
  );
}

function StatusTabs({ text, setText }: { text: string; setText: (text: string) => void }) {
  const { key } = useScope();
  const { data } = useSummary();
  useRefreshOnChange([key("summary")]);
  const chosen = valueOf(text, "status");
  const tab = (status: string | null, label: string, amount: string | null) => (
    <button key={label} type="button" className={css.tab} aria-pressed={status === null ? chosen === undefined : chosen === status} onClick={() => setText(withTerm(text, "status", status))}>
      {label}
      {amount !== null && <b>{amount}</b>}
    </button>
  );
  return (
    <div className={css.tabs} role="group" aria-label="Status">
      {tab(null, "All", null)}
      {STATUSES.map((status) => tab(status, nameOf(status), data ? capped(data.counts[status], data.capped_at) : "…"))}
    </div>
  );
}

function ExportButton({ filter }: { filter: JobFilter }) {
  const scope = useScope();
  const tell = useTell();
  const [busy, setBusy] = useState(false);
  const save = async () => {
    setBusy(true);
    try {
      const params = { query: asQuery(filter) as never };
      const body = await taken(scope.api.GET("/api/v1/jobs/export.csv", { params, parseAs: "blob" }));
      const link = document.createElement("a");
      link.href = URL.createObjectURL(body as unknown as Blob);
      link.download = `jobs-${scope.tenant}.csv`;
      link.click();
      URL.revokeObjectURL(link.href);
    } catch (error) {
      tell.failed(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Button icon={<Download size={15} />} disabled={busy} onClick={() => void save()}>
      CSV
    </Button>
  );
}
