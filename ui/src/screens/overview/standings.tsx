import type { ColumnDef } from "@tanstack/react-table";
import { Link } from "react-router";

import { apiFor, type Schemas, taken } from "../../api/client";
import { useRead } from "../../api/read";
import { capped } from "../../lib/number";
import { duration } from "../../lib/time";
import { Fault, Panel, Skeleton } from "../../ui/panel";
import { DataTable } from "../../ui/table";

type Standing = Schemas["TenantStanding"];

const amount = (name: "queued" | "running" | "failed" | "dead_letter", header: string): ColumnDef<Standing> => ({
  id: name,
  header,
  meta: { right: true },
  accessorFn: (row) => row.summary.counts[name],
  cell: ({ row }) => capped(row.original.summary.counts[name], row.original.summary.capped_at),
});

const COLUMNS: ColumnDef<Standing>[] = [
  { id: "tenant", header: "Tenant", accessorFn: (row) => row.slug, cell: ({ row }) => <Link to={`/t/${encodeURIComponent(row.original.slug)}/overview`}>{row.original.slug}</Link> },
  amount("queued", "Queued"),
  amount("running", "Running"),
  amount("failed", "Failed"),
  amount("dead_letter", "Dead letter"),
  {
    id: "oldest",
    header: "Oldest waiting",
    meta: { right: true },
    accessorFn: (row) => row.summary.oldest_queued_age_seconds ?? -1,
    cell: ({ row }) => (row.original.summary.oldest_queued_age_seconds === null ? "–" : duration(row.original.summary.oldest_queued_age_seconds)),
  },
];

/** Every tenant's queue side by side, for the operator of all. */
export function Standings() {
  const { data, error } = useRead({ queryKey: ["standings"], queryFn: () => taken(apiFor(null).GET("/api/v1/admin/stats")), refetchInterval: 10_000 });
  return (
    <Panel title="All tenants" flush>
      {error ? <Fault error={error} /> : !data ? <Skeleton /> : <DataTable label="Tenants" rows={data.items} columns={COLUMNS} rowId={(row) => row.slug} />}
    </Panel>
  );
}
