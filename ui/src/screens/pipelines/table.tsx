import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { EyeOff, RefreshCw, Trash2 } from "lucide-react";
import { useCallback, useMemo, useState } from "react";

import { type Schemas, taken } from "../../api/client";
import { useScope } from "../../api/session";
import { count, plural } from "../../lib/number";
import { Button } from "../../ui/button";
import { Confirm, Dialog, useTell } from "../../ui/float";
import { Pick } from "../../ui/form";
import { Empty, Fault, Panel, Skeleton } from "../../ui/panel";
import { DataTable } from "../../ui/table";
import { Block, Line } from "../../ui/text";
import { STATES, withDone } from "./diagram";
import css from "./pipelines.module.css";

type TableJob = Schemas["TableJob"];
type State = TableJob["status"];

const keyText = (key: Record<string, unknown>): string => Object.entries(key).map(([name, value]) => `${name}=${String(value)}`).join(" ");

/** One table: how far it is, what went wrong by cause, and what to do about it. */
export function TablePanel({ schema, table }: { schema: string; table: string }) {
  const { api } = useScope();
  const queries = useQueryClient();
  const tell = useTell();
  const [state, setState] = useState<State>("error");
  const [clearing, setClearing] = useState(false);
  const [shown, setShown] = useState<TableJob | null>(null);
  const path = useMemo(() => ({ schema, table }), [schema, table]);
  const status = useQuery({ queryKey: ["pipelines", schema, table], queryFn: () => taken(api.GET("/api/v1/pipelines/{schema}/{table}", { params: { path } })), refetchInterval: 5000 });
  const jobs = useQuery({
    queryKey: ["pipelines", schema, table, state],
    queryFn: () => taken(api.GET("/api/v1/pipelines/{schema}/{table}/jobs", { params: { path, query: { status: state, limit: 200 } } })),
    refetchInterval: 5000,
    placeholderData: (before) => before,
  });
  const changed = useCallback(() => queries.invalidateQueries({ queryKey: ["pipelines"] }), [queries]);
  const refresh = () =>
    taken(api.POST("/api/v1/pipelines/{schema}/{table}/refresh", { params: { path }, body: { delay_seconds: 0 } })).then(({ counts }) => {
      tell.done("Refreshed", Object.entries(counts).map(([name, value]) => `${name} ${count(value)}`).join(", "));
      return changed();
    }, tell.failed);
  const columns = useMemo<ColumnDef<TableJob>[]>(() => {
    const one = (verb: "clear" | "ignore", job: TableJob) => {
      const made =
        verb === "ignore"
          ? taken(api.POST("/api/v1/pipelines/{schema}/{table}/ignore", { params: { path }, body: { keys: [job.key] } }))
          : taken(api.POST("/api/v1/pipelines/{schema}/{table}/clear", { params: { path }, body: { status: job.status as "error", keys: [job.key] } }));
      made.then(() => {
        tell.done(verb === "ignore" ? "Set aside" : "Cleared", keyText(job.key));
        return changed();
      }, tell.failed);
    };
    return [
      { id: "key", header: "Key", cell: ({ row }) => <code>{<Line length={120}>{keyText(row.original.key)}</Line>}</code> },
      { id: "error", header: "Error", cell: ({ row }) => <Line length={200}>{row.original.error_message}</Line> },
      { id: "took", header: "Took", meta: { right: true }, cell: ({ row }) => (row.original.duration === null ? "–" : `${row.original.duration.toFixed(2)} s`) },
      {
        id: "actions",
        header: () => <span className="visually-hidden">Actions</span>,
        meta: { right: true },
        cell: ({ row }) => (
          <span className="row" style={{ justifyContent: "flex-end", flexWrap: "nowrap" }}>
            {row.original.error_stack && (
              <Button small onClick={() => setShown(row.original)}>
                Traceback
              </Button>
            )}
            {(row.original.status === "error" || row.original.status === "pending") && (
              <Button small icon={<EyeOff size={13} />} onClick={() => one("ignore", row.original)}>
                Ignore
              </Button>
            )}
            {row.original.status !== "reserved" && (
              <Button small icon={<Trash2 size={13} />} onClick={() => one("clear", row.original)}>
                Clear
              </Button>
            )}
          </span>
        ),
      },
    ];
  }, [api, path, tell, changed]);

  if (status.error) return <Fault error={status.error} retry={() => void status.refetch()} />;
  if (!status.data) return <Skeleton />;
  const found = status.data;
  const errors = found.jobs.error ?? 0;
  return (
    <Panel
      title={`${table}: ${count(found.made)} of ${count(found.total)} made`}
      actions={
        <>
          <Button small icon={<RefreshCw size={13} />} onClick={() => void refresh()}>
            Refresh
          </Button>
          {errors > 0 && (
            <Button small danger icon={<Trash2 size={13} />} onClick={() => setClearing(true)}>
              Clear errors
            </Button>
          )}
        </>
      }
    >
      <div className="stack">
        <div className={css.legend}>
          {STATES.map(([name, label, colour]) => (
            <span key={name}>
              <i style={{ background: `var(${colour})` }} aria-hidden="true" />
              {label} <b>{count(withDone(found.jobs, found.made)[name] ?? 0)}</b>
            </span>
          ))}
        </div>
        {found.errors.length > 0 && (
          <div>
            <h3>Errors by cause</h3>
            {found.errors.map((group) => (
              <div key={group.error} className={css.group}>
                <div>
                  <code>{<Line length={300}>{group.error}</Line>}</code>
                </div>
                <b>{count(group.count)}</b>
              </div>
            ))}
          </div>
        )}
        <div className="spread">
          <h3>Keys</h3>
          <Pick label="Show keys that are" choices={STATES.map(([name, label]) => [name, label] as const)} value={state} onChange={(event) => setState(event.target.value as State)} />
        </div>
        {jobs.error ? (
          <Fault error={jobs.error} />
        ) : jobs.data && jobs.data.items.length > 0 ? (
          <DataTable label="Keys" rows={jobs.data.items} columns={columns} rowId={(row) => keyText(row.key)} />
        ) : (
          <Empty title="No such keys">Refresh queues what is missing; populate() makes it.</Empty>
        )}
      </div>
      <Confirm
        open={clearing}
        onClose={() => setClearing(false)}
        title={`Clear ${plural(errors, "error")}?`}
        lead="Their keys are forgotten, so that a refresh queues them anew."
        action="Clear"
        danger
        run={() => taken(api.POST("/api/v1/pipelines/{schema}/{table}/clear", { params: { path }, body: { status: "error" } })).then(changed)}
      />
      {shown && (
        <Dialog open wide onClose={() => setShown(null)} title={keyText(shown.key)} lead={shown.error_message}>
          <Block of={shown.error_stack} label="Traceback" />
        </Dialog>
      )}
    </Panel>
  );
}
