import { useQuery } from "@tanstack/react-query";
import { Ban, RotateCcw } from "lucide-react";
import { useState } from "react";

import { type Schemas, taken } from "../../api/client";
import { asQuery, type Verb } from "../../api/jobs";
import { type Scope, useScope } from "../../api/session";
import { count, plural } from "../../lib/number";
import type { JobFilter } from "../../lib/query";
import { Button } from "../../ui/button";
import { Confirm, useTell } from "../../ui/float";
import { Fault, Note, Skeleton } from "../../ui/panel";
import css from "./jobs.module.css";

type Filter = Schemas["JobFilter"];

interface Props {
  selected: ReadonlySet<string>;
  filter: JobFilter;
  clear: () => void;
  done: () => void;
  loadedAll: boolean;
}

function bulk(scope: Scope, verb: Verb, filter: Filter, dry: boolean): Promise<Schemas["BulkDone"]> {
  const body = { filter, dry_run: dry };
  return taken(verb === "cancel" ? scope.api.POST("/api/v1/jobs/cancel", { body }) : scope.api.POST("/api/v1/jobs/retry", { body }));
}

/** What to do with the jobs that were picked, or with all that match, whether loaded or not. */
export function BulkBar({ selected, filter, clear, done }: Props) {
  const [all, setAll] = useState(false);
  const [verb, setVerb] = useState<Verb | null>(null);
  // root_id narrows a list but no bulk action.
  const { root_id, ...rest } = filter;
  const wanted: Filter = all ? (asQuery(rest) as Filter) : { ids: [...selected].slice(0, 1000) };
  return (
    <div className={css.bulk} role="region" aria-label="Selected jobs">
      <strong>{all ? "All that match" : `${plural(selected.size, "job")} selected`}</strong>
      {root_id === undefined && (
        <button type="button" className={css.link} onClick={() => setAll(!all)}>
          {all ? "Only the selected" : "Select all that match"}
        </button>
      )}
      <Button small icon={<RotateCcw size={14} />} onClick={() => setVerb("retry")}>
        Retry…
      </Button>
      <Button small danger icon={<Ban size={14} />} onClick={() => setVerb("cancel")}>
        Cancel…
      </Button>
      <button type="button" className={css.link} onClick={clear}>
        Clear
      </button>
      {verb && (
        <Ask
          verb={verb}
          filter={wanted}
          onClose={() => setVerb(null)}
          onDone={() => {
            clear();
            done();
          }}
        />
      )}
    </div>
  );
}

/** First how many it would be, then the deed. */
function Ask({ verb, filter, onClose, onDone }: { verb: Verb; filter: Filter; onClose: () => void; onDone: () => void }) {
  const scope = useScope();
  const tell = useTell();
  const trial = useQuery({ queryKey: scope.key("bulk", verb, filter), queryFn: () => bulk(scope, verb, filter, true), gcTime: 0, staleTime: 0 });
  const matched = trial.data?.matched ?? 0;
  const run = async () => {
    const made = await bulk(scope, verb, filter, false);
    tell.done(`${verb === "cancel" ? "Canceled" : "Queued again"}: ${plural(made.changed, "job")}`, made.refused > 0 ? `${count(made.refused)} had moved on by themselves.` : undefined);
    onDone();
  };
  return (
    <Confirm
      open
      onClose={onClose}
      title={verb === "cancel" ? "Cancel these jobs?" : "Retry these jobs?"}
      lead={verb === "cancel" ? "What waits leaves the queue; what runs is asked to stop." : "What failed, was given up or canceled goes back into the queue."}
      action={trial.data ? `${verb === "cancel" ? "Cancel" : "Retry"} ${plural(Math.min(matched, 10_000), "job")}` : "Counting…"}
      danger={verb === "cancel"}
      disabled={matched === 0}
      run={run}
    >
      {trial.error ? (
        <Fault error={trial.error} />
      ) : !trial.data ? (
        <Skeleton lines={1} />
      ) : matched === 0 ? (
        <Note>None of them can be {verb === "cancel" ? "canceled: only queued and running jobs can" : "retried: only failed, dead and canceled jobs can"}.</Note>
      ) : (
        <p>
          <strong>{plural(matched, "job")}</strong> can be {verb === "cancel" ? "canceled" : "retried"}
          {trial.data.remaining && "; the newest 10,000 are taken now"}.
        </p>
      )}
    </Confirm>
  );
}
