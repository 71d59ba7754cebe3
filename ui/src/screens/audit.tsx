import { useInfiniteQuery } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { useMemo, useState } from "react";

import { type Schemas, taken } from "../api/client";
import { useMay, useScope } from "../api/session";
import { Button } from "../ui/button";
import { Dialog } from "../ui/float";
import { CheckField } from "../ui/form";
import { Empty, Fault, PageHeader, Panel, Skeleton } from "../ui/panel";
import { DataTable } from "../ui/table";
import { actorName, Block, Line, Time } from "../ui/text";

type Entry = Schemas["AuditEntry"];

/** Who changed what, newest first. */
export default function Audit() {
  const { api, key } = useScope();
  const may = useMay();
  const [everywhere, setEverywhere] = useState(false);
  const [shown, setShown] = useState<Entry | null>(null);
  const list = useInfiniteQuery({
    queryKey: everywhere ? ["audit"] : key("audit"),
    queryFn: ({ pageParam }) => {
      const params = { query: { limit: 100, ...(pageParam ? { cursor: pageParam } : {}) } };
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
      <Panel flush>
        {list.error ? (
          <Fault error={list.error} retry={() => void list.refetch()} />
        ) : list.isPending ? (
          <Skeleton />
        ) : rows.length === 0 ? (
          <Empty title="Nothing was changed yet">Every change by the page, the API or the command line lands here.</Empty>
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
        <Dialog open wide onClose={() => setShown(null)} title={shown.action} lead={`${shown.actor}, request ${shown.request_id ?? "unknown"}`}>
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
