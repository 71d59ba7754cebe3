import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { Ban } from "lucide-react";
import { useMemo, useState } from "react";
import { Link, useParams } from "react-router";

import { type Schemas, taken } from "../api/client";
import { useLiveState } from "../api/live";
import { useRefreshOnChange } from "../api/jobs";
import { useMay, useScope } from "../api/session";
import { count } from "../lib/number";
import { Status } from "../ui/badge";
import { Button, ButtonLink } from "../ui/button";
import { Confirm } from "../ui/float";
import { Flow } from "../ui/flow";
import { Empty, Facts, Fault, PageHeader, Panel, Skeleton } from "../ui/panel";
import { Problem } from "../api/problem";
import { useRead } from "../api/read";
import { DataTable } from "../ui/table";
import { Copyable, Line, Time } from "../ui/text";

type Group = Schemas["Group"];

const named = (group: Group): string => group.label ?? `…${group.id.slice(-8)}`;
const ended = (group: Group): number => group.jobs.filter((job) => job.finished_at !== null).length;

export default function Groups() {
  const { api, key, to } = useScope();
  const { data, error, refetch } = useRead({ queryKey: key("groups"), queryFn: () => taken(api.GET("/api/v1/groups", { params: { query: { limit: 50 } } })), refetchInterval: 10_000 });
  useRefreshOnChange([key("groups")]);
  const columns = useMemo<ColumnDef<Group>[]>(
    () => [
      { id: "label", header: "Group", accessorFn: named, cell: ({ row }) => <Link to={to(`groups/${row.original.id}`)}>{<Line length={80}>{named(row.original)}</Line>}</Link> },
      { id: "status", header: "Status", accessorFn: (row) => row.status, cell: ({ row }) => <Status of={row.original.status} /> },
      { id: "mode", header: "Order", accessorFn: (row) => row.mode },
      { id: "failure", header: "If one fails", accessorFn: (row) => row.on_failure },
      { id: "jobs", header: "Ended", meta: { right: true }, accessorFn: ended, cell: ({ row }) => `${count(ended(row.original))} of ${count(row.original.jobs.length)}` },
      { id: "made", header: "Made", accessorFn: (row) => row.created_at, cell: ({ row }) => <Time at={row.original.created_at} /> },
    ],
    [to],
  );
  return (
    <div className="stack">
      <PageHeader title="Groups" lead="Jobs that belong together, one after another or side by side." />
      <Panel flush>
        {error ? (
          <Fault error={error} retry={() => void refetch()} />
        ) : !data ? (
          <Skeleton />
        ) : data.items.length === 0 ? (
          <Empty title="No groups yet">
            Make one from your program: <code>app.groups.create([("fetch", {"{…}"}), ("load", {"{…}"})], mode="sequential")</code>
          </Empty>
        ) : (
          <DataTable label="Groups" rows={data.items} columns={columns} rowId={(row) => row.id} />
        )}
      </Panel>
    </div>
  );
}

export function GroupScreen() {
  const id = useParams().id ?? "";
  const { api, key, to } = useScope();
  const may = useMay();
  const queries = useQueryClient();
  const live = useLiveState();
  const [asking, setAsking] = useState(false);
  const group = useQuery({
    queryKey: key("group", id),
    queryFn: () => taken(api.GET("/api/v1/groups/{group_id}", { params: { path: { group_id: id } } })),
    refetchInterval: (query) => (query.state.data && ended(query.state.data) === query.state.data.jobs.length ? false : live ? 5000 : 2000),
  });
  useRefreshOnChange([key("group", id)]);
  if (group.error instanceof Problem && (group.error.status === 404 || group.error.status === 422)) {
    return <Empty title="There is no such group" action={<ButtonLink to={to("groups")}>All groups</ButtonLink>} />;
  }
  if (!group.data && group.failureReason) return <Fault error={group.failureReason} retry={() => void group.refetch()} />;
  if (!group.data) return <Skeleton />;
  const found = group.data;
  const open = ended(found) < found.jobs.length;
  return (
    <div className="stack">
      <PageHeader
        title={
          <span className="row">
            <Line length={120}>{named(found)}</Line> <Status of={found.status} />
          </span>
        }
        lead={<Copyable value={found.id} />}
        actions={
          may("operate") &&
          open && (
            <Button danger icon={<Ban size={15} />} onClick={() => setAsking(true)}>
              Cancel group
            </Button>
          )
        }
      />
      <Panel title={found.mode === "sequential" ? "One after another" : "Side by side"} actions={<Link to={to(`jobs?q=group:${found.id}`)}>As a list</Link>}>
        <Flow jobs={found.jobs} parallel={found.mode === "parallel"} />
      </Panel>
      <Panel title="Details">
        <Facts
          of={[
            ["Ended", `${count(ended(found))} of ${count(found.jobs.length)}`],
            ["If one fails", { stop: "the rest is canceled", continue: "the rest goes on", skip: "the rest goes on, and the failure does not count" }[found.on_failure]],
            ["Made", <Time key="made" at={found.created_at} as="exact" />],
          ]}
        />
      </Panel>
      <Confirm
        open={asking}
        onClose={() => setAsking(false)}
        title="Cancel this group?"
        lead="What waits is canceled, what runs is asked to stop."
        action="Cancel group"
        danger
        run={() => taken(api.POST("/api/v1/groups/{group_id}/cancel", { params: { path: { group_id: id } } })).then((after) => queries.setQueryData(key("group", id), after))}
      />
    </div>
  );
}
