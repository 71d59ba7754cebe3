import { useQueryClient } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { Plus, Zap } from "lucide-react";
import { useCallback, useMemo } from "react";
import { Link, useSearchParams } from "react-router";

import { type Schemas, taken } from "../../api/client";
import { useRead } from "../../api/read";
import { useMay, useScope } from "../../api/session";
import { Badge } from "../../ui/badge";
import { Button } from "../../ui/button";
import { useTell } from "../../ui/float";
import { Switch } from "../../ui/form";
import { Empty, Fault, PageHeader, Panel, Skeleton } from "../../ui/panel";
import { DataTable } from "../../ui/table";
import { Line, Time } from "../../ui/text";
import { TriggerForm } from "./form";

export type Trigger = Schemas["Trigger"];

export function useTriggerChanges() {
  const { api, key } = useScope();
  const queries = useQueryClient();
  const tell = useTell();
  const changed = useCallback(() => queries.invalidateQueries({ queryKey: key("triggers") }), [queries, key]);
  const enable = useCallback(
    (trigger: Trigger, on: boolean) =>
      taken(api.PATCH("/api/v1/jobs/triggers/{trigger_id}", { params: { path: { trigger_id: trigger.id } }, body: { is_enabled: on } })).then(() => {
        tell.done(on ? "Enabled" : "Disabled", trigger.label);
        return changed();
      }, tell.failed),
    [api, changed, tell],
  );
  return { changed, enable };
}

/** When jobs are asked for: at set times, or when something happens. */
export default function Triggers() {
  const { api, key, to } = useScope();
  const may = useMay();
  const [params, setParams] = useSearchParams();
  const { changed, enable } = useTriggerChanges();
  const making = params.get("new");
  const { data, error, refetch } = useRead({ queryKey: key("triggers", "list"), queryFn: () => taken(api.GET("/api/v1/jobs/triggers", { params: { query: { limit: 1000 } } })), refetchInterval: 15_000 });
  const columns = useMemo<ColumnDef<Trigger>[]>(
    () => [
      {
        id: "label",
        header: "Trigger",
        accessorFn: (row) => row.label,
        cell: ({ row }) => (
          <Link to={to(`triggers/${row.original.id}`)}>
            <strong>
              <Line length={80}>{row.original.label}</Line>
            </strong>
          </Link>
        ),
      },
      {
        id: "when",
        header: "When",
        cell: ({ row }) =>
          row.original.trigger_type === "schedule" ? (
            <span>
              <code>{row.original.cron_expr}</code> <span className="quiet">{row.original.timezone}</span>
            </span>
          ) : (
            <span>
              on <code>{<Line length={60}>{row.original.event_name}</Line>}</code>
            </span>
          ),
      },
      { id: "key", header: "Asks for", accessorFn: (row) => row.definition_key, cell: ({ row }) => <Line length={60}>{row.original.definition_key}</Line> },
      { id: "next", header: "Next", accessorFn: (row) => row.next_trigger_at ?? "9", cell: ({ row }) => (row.original.is_enabled ? <Time at={row.original.next_trigger_at} as="relative" /> : <span className="quiet">–</span>) },
      { id: "last", header: "Last", accessorFn: (row) => row.last_triggered_at ?? "", cell: ({ row }) => <Time at={row.original.last_triggered_at} as="relative" /> },
      {
        id: "on",
        header: "Enabled",
        cell: ({ row }) =>
          may("manage") ? (
            <Switch label={`${row.original.label} is enabled`} checked={row.original.is_enabled} onChange={(on) => void enable(row.original, on)} />
          ) : row.original.is_enabled ? (
            <Badge tone="succeeded">enabled</Badge>
          ) : (
            <Badge>disabled</Badge>
          ),
      },
    ],
    [may, to, enable],
  );
  const newButtons = may("manage") && (
    <>
      <Button icon={<Zap size={15} />} onClick={() => setParams({ new: "event" })}>
        On an event
      </Button>
      <Button variant="primary" icon={<Plus size={15} />} onClick={() => setParams({ new: "schedule" })}>
        New schedule
      </Button>
    </>
  );
  return (
    <div className="stack">
      <PageHeader title="Triggers" lead="When jobs are asked for: at set times, or when something happens." actions={newButtons} />
      <Panel flush>
        {error ? (
          <Fault error={error} retry={() => void refetch()} />
        ) : !data ? (
          <Skeleton />
        ) : data.items.length === 0 ? (
          <Empty title="No triggers yet" action={<div className="row">{newButtons}</div>}>
            A schedule asks for a job at set times; an event trigger answers what your program emits.
          </Empty>
        ) : (
          <DataTable label="Triggers" rows={data.items} columns={columns} rowId={(row) => row.id} />
        )}
      </Panel>
      {(making === "schedule" || making === "event") && may("manage") && <TriggerForm kind={making} trigger={null} onClose={() => setParams({})} onDone={() => void changed()} />}
    </div>
  );
}
