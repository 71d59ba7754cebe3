import { useInfiniteQuery } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { useMemo, useState } from "react";

import { type Schemas, taken } from "../api/client";
import { useMay, useScope } from "../api/session";
import { Button } from "../ui/button";
import { Dialog } from "../ui/float";
import { CheckField, TextField } from "../ui/form";
import { Empty, Fault, PageHeader, Panel, Skeleton } from "../ui/panel";
import { DataTable } from "../ui/table";
import { actorName, Block, Line, Time } from "../ui/text";

type Entry = Schemas["AuditEntry"];

interface Filters {
  actor: string;
  action: string;
  text: string;
  since: string;
  until: string;
}

const NO_FILTERS: Filters = { actor: "", action: "", text: "", since: "", until: "" };
const FIELDS: readonly (readonly [keyof Filters, string, string])[] = [
  ["actor", "Who", ""],
  ["action", "What", "token.*"],
  ["text", "Text", ""],
  ["since", "Since", "2026-02-16T10:30:00Z"],
  ["until", "Until", ""],
];

/** The filters that are set. */
export function asked(filters: Filters): Partial<Filters> {
  return Object.fromEntries(Object.entries(filters).flatMap(([name, value]) => (value.trim() === "" ? [] : [[name, value.trim()]])));
}

/** Where the export is. A link sends no header, so an administrator names the tenant in the address. */
export function exportAddress(filters: Partial<Filters>, admin: boolean, tenant: string | null, format: "csv" | "jsonl"): string {
  const query = new URLSearchParams({ ...filters, ...(admin && tenant !== null ? { tenant } : {}), format });
  return `/api/v1/${admin ? "admin/" : ""}audit/export?${query.toString()}`;
}

/** Who changed what, newest first. */
export default function Audit() {
  const { api, key, header, tenant } = useScope();
  const may = useMay();
  const [everywhere, setEverywhere] = useState(false);
  const [shown, setShown] = useState<Entry | null>(null);
  const [typed, setTyped] = useState<Filters>(NO_FILTERS);
  const [filters, setFilters] = useState<Filters>(NO_FILTERS);
  const query = asked(filters);
  const list = useInfiniteQuery({
    queryKey: everywhere ? ["audit", query] : key("audit", query),
    queryFn: ({ pageParam }) => {
      const params = { query: { limit: 100, ...query, ...(pageParam ? { cursor: pageParam } : {}) } };
      return taken(everywhere ? api.GET("/api/v1/admin/audit", { params }) : api.GET("/api/v1/audit", { params }));
    },
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
  });
  const rows = list.data?.pages.flatMap((page) => page.items) ?? [];
  const columns = useMemo<ColumnDef<Entry>[]>(
    () => [
      { id: "at", header: "When", cell: ({ row }) => <Time at={row.original.at} /> },
      { id: "actor", header: "Who", cell: ({ row }) => <Line length={60}>{actorName(row.original.actor)}</Line> },
      { id: "action", header: "What", cell: ({ row }) => <code>{row.original.action}</code> },
      { id: "subject", header: "Subject", cell: ({ row }) => <Line length={60}>{`${row.original.subject_type} ${row.original.subject_id ?? ""}`}</Line> },
      {
        id: "more",
        header: () => <span className="visually-hidden">Details</span>,
        meta: { right: true },
        cell: ({ row }) => (
          <Button small onClick={() => setShown(row.original)}>
            Details
          </Button>
        ),
      },
    ],
    [],
  );
  return (
    <div className="stack">
      <PageHeader title="Audit" lead="Every change, with who made it, before and after. It cannot be edited." actions={may("admin") && <CheckField label="All tenants" checked={everywhere} onChange={(event) => setEverywhere(event.target.checked)} />} />
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault();
          setFilters(typed);
        }}
      >
        {FIELDS.map(([name, label, placeholder]) => (
          <TextField key={name} label={label} placeholder={placeholder} value={typed[name]} onChange={(event) => setTyped({ ...typed, [name]: event.target.value })} />
        ))}
        <Button type="submit">Filter</Button>
        <a href={exportAddress(query, header !== null, everywhere ? null : tenant, "csv")} download>
          Export as CSV
        </a>
        <a href={exportAddress(query, header !== null, everywhere ? null : tenant, "jsonl")} download>
          JSON Lines
        </a>
      </form>
      <Panel flush>
        {list.error ? (
          <Fault error={list.error} retry={() => void list.refetch()} />
        ) : list.isPending ? (
          <Skeleton />
        ) : rows.length === 0 ? (
          <Empty title="No entries">Every change over the page or the API is recorded here. The filters may be too narrow.</Empty>
        ) : (
          <DataTable label="Audit" rows={rows} columns={columns} rowId={(row) => row.id} />
        )}
      </Panel>
      {list.hasNextPage && (
        <Button disabled={list.isFetchingNextPage} onClick={() => void list.fetchNextPage()}>
          Older
        </Button>
      )}
      {shown && (
        <Dialog open wide onClose={() => setShown(null)} title={shown.action} lead={`${shown.actor}${shown.address ? ` from ${shown.address}` : ""}, request ${shown.request_id ?? "unknown"}${shown.seq ? `, entry ${shown.seq} of the chain` : ""}`}>
          {shown.before !== null && shown.before !== undefined && (
            <div className="stack-small">
              <h3>Before</h3>
              <Block of={shown.before} label="Before" />
            </div>
          )}
          {shown.after !== null && shown.after !== undefined && (
            <div className="stack-small">
              <h3>After</h3>
              <Block of={shown.after} label="After" />
            </div>
          )}
        </Dialog>
      )}
    </div>
  );
}
