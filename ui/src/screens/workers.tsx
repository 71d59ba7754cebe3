import { useQueryClient } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { useMemo } from "react";

import { type Schemas, taken } from "../api/client";
import { useRead } from "../api/read";
import { useMay, useScope } from "../api/session";
import { useWorkers } from "../api/workers";
import { plural } from "../lib/number";
import { Badge } from "../ui/badge";
import { useTell } from "../ui/float";
import { Switch } from "../ui/form";
import { Empty, Fault, Note, PageHeader, Panel, Skeleton } from "../ui/panel";
import { DataTable } from "../ui/table";
import { Line, Time } from "../ui/text";

type Worker = Schemas["Worker"];
type Queue = Schemas["Queue"];

const COLUMNS: ColumnDef<Worker>[] = [
  {
    id: "id",
    header: "Worker",
    accessorFn: (row) => row.id,
    cell: ({ row }) => (
      <div>
        <strong>
          <Line length={90}>{row.original.id}</Line>
        </strong>
        <div className="quiet">
          <Line length={90}>{row.original.keys ? row.original.keys.slice(0, 8).join(", ") : (row.original.hostname ?? "")}</Line>
          {(row.original.keys?.length ?? 0) > 8 && ` and ${(row.original.keys?.length ?? 0) - 8} more`}
        </div>
      </div>
    ),
  },
  { id: "state", header: "State", accessorFn: (row) => (row.stale ? 0 : 1), cell: ({ row }) => (row.original.stale ? <Badge tone="failed">stale</Badge> : <Badge tone="succeeded">alive</Badge>) },
  { id: "seen", header: "Last seen", accessorFn: (row) => row.last_seen_at, cell: ({ row }) => <Time at={row.original.last_seen_at} as="relative" /> },
  { id: "running", header: "Running", meta: { right: true }, accessorFn: (row) => row.running_count ?? -1, cell: ({ row }) => (row.original.running_count === null ? `of ${row.original.concurrency}` : `${row.original.running_count} of ${row.original.concurrency}`) },
  { id: "queues", header: "Queues", cell: ({ row }) => <Line length={60}>{row.original.queues.length === 0 ? "all" : row.original.queues.join(", ")}</Line> },
  { id: "version", header: "Version", accessorFn: (row) => row.version },
  { id: "started", header: "Up since", accessorFn: (row) => row.started_at, cell: ({ row }) => <Time at={row.original.started_at} /> },
];

/** The processes that do the work, and the queues they take it from. */
export default function Workers() {
  const may = useMay();
  const { data, error, refetch } = useWorkers();
  const stale = data?.items.filter((each) => each.stale) ?? [];
  return (
    <div className="stack">
      <PageHeader title="Workers" lead="Each claims jobs, runs them and reports. One that is not seen for two leases is stale." />
      {stale.length > 0 && (
        <Note tone="warning">
          <strong>{plural(stale.length, "stale worker")}.</strong> It crashed, was cut off, or its machine sleeps. What it ran is retried by others when its lease ends; look at its machine.
        </Note>
      )}
      <Panel flush>
        {error ? (
          <Fault error={error} retry={() => void refetch()} />
        ) : !data ? (
          <Skeleton />
        ) : data.items.length === 0 ? (
          <Empty title="No worker is alive">
            Jobs wait until one is started: <code>penstock worker</code>, on any machine that reaches the database, or <code>penstock worker --api URL</code> on one that does not.
          </Empty>
        ) : (
          <DataTable label="Workers" rows={data.items} columns={COLUMNS} rowId={(row) => row.id} />
        )}
      </Panel>
      {may("admin") && <Queues />}
    </div>
  );
}

function Queues() {
  const { api } = useScope();
  const tell = useTell();
  const queries = useQueryClient();
  const { data, error } = useRead({ queryKey: ["queues"], queryFn: () => taken(api.GET("/api/v1/queues")) });
  const columns = useMemo<ColumnDef<Queue>[]>(() => {
    const set = (queue: Queue, on: boolean) => {
      const params = { path: { name: queue.name } };
      taken(on ? api.POST("/api/v1/queues/{name}/resume", { params }) : api.POST("/api/v1/queues/{name}/pause", { params })).then(() => queries.invalidateQueries({ queryKey: ["queues"] }), tell.failed);
    };
    return [
      { id: "name", header: "Queue", accessorFn: (row) => row.name, cell: ({ row }) => <Line>{row.original.name}</Line> },
      { id: "state", header: "State", cell: ({ row }) => (row.original.paused ? <Badge tone="failed">paused</Badge> : <Badge tone="succeeded">open</Badge>) },
      { id: "switch", header: "Open", meta: { right: true }, cell: ({ row }) => <Switch label={`Queue ${row.original.name} is open`} checked={!row.original.paused} onChange={(on) => set(row.original, on)} /> },
    ];
  }, [api, queries, tell]);
  return (
    <Panel title="Queues" flush>
      {error ? <Fault error={error} /> : !data ? <Skeleton lines={2} /> : <DataTable label="Queues" rows={data.items} columns={columns} rowId={(row) => row.name} />}
    </Panel>
  );
}
