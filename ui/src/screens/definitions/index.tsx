import { useQueryClient } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { EllipsisVertical, Play, Plus } from "lucide-react";
import { useCallback, useMemo, useState } from "react";
import { Link } from "react-router";

import { type Schemas, taken } from "../../api/client";
import { useRead } from "../../api/read";
import { useMay, useScope } from "../../api/session";
import { duration } from "../../lib/time";
import { Badge } from "../../ui/badge";
import { Button, IconButton } from "../../ui/button";
import { Confirm, Menu, useTell } from "../../ui/float";
import { CheckField } from "../../ui/form";
import { Empty, Fault, PageHeader, Panel, Skeleton } from "../../ui/panel";
import { DataTable } from "../../ui/table";
import { Line } from "../../ui/text";
import { DefinitionForm } from "./form";
import { EnqueueForm } from "./enqueue";

export type Definition = Schemas["Definition"];

type Doing = { what: "enqueue" | "edit" | "archive"; definition: Definition } | { what: "new" } | null;

export default function Definitions() {
  const { api, key, to } = useScope();
  const may = useMay();
  const tell = useTell();
  const queries = useQueryClient();
  const [archived, setArchived] = useState(false);
  const [doing, setDoing] = useState<Doing>(null);
  const { data, error, refetch } = useRead({
    queryKey: key("definitions", archived),
    queryFn: () => taken(api.GET("/api/v1/definitions", { params: { query: { archived } } })),
  });
  const changed = useCallback(() => void queries.invalidateQueries({ queryKey: key("definitions") }), [queries, key]);
  const change = useCallback(
    (definition: Definition, body: Schemas["ChangeDefinition"]) =>
      taken(api.PATCH("/api/v1/admin/jobs/definitions/{definition_id}", { params: { path: { definition_id: definition.id } }, body })).then(changed),
    [api, changed],
  );

  const columns = useMemo<ColumnDef<Definition>[]>(
    () => [
      {
        id: "key",
        header: "Key",
        accessorFn: (row) => row.key,
        cell: ({ row }) => (
          <div>
            <Link to={to(`jobs?q=${encodeURIComponent(`key:${/\s/.test(row.original.key) ? `"${row.original.key}"` : row.original.key}`)}`)} title="Its jobs">
              <strong>
                <Line length={80}>{row.original.key}</Line>
              </strong>
            </Link>
            <div className="quiet">
              <Line length={140}>{row.original.description}</Line>
            </div>
          </div>
        ),
      },
      { id: "state", header: "State", cell: ({ row }) => (row.original.is_active ? row.original.paused ? <Badge tone="failed">paused</Badge> : <Badge tone="succeeded">active</Badge> : <Badge>archived</Badge>) },
      { id: "runner", header: "Runner", accessorFn: (row) => row.runner },
      { id: "queue", header: "Queue", accessorFn: (row) => row.queue },
      { id: "timeout", header: "Timeout", meta: { right: true }, accessorFn: (row) => row.timeout_seconds, cell: ({ row }) => duration(row.original.timeout_seconds) },
      { id: "attempts", header: "Attempts", meta: { right: true }, accessorFn: (row) => row.max_attempts },
      { id: "limit", header: "At a time", meta: { right: true }, accessorFn: (row) => row.max_running ?? Number.POSITIVE_INFINITY, cell: ({ row }) => row.original.max_running ?? "any" },
      {
        id: "actions",
        header: () => <span className="visually-hidden">Actions</span>,
        meta: { right: true },
        cell: ({ row }) => (
          <span className="row" style={{ justifyContent: "flex-end", flexWrap: "nowrap" }}>
            {may("operate") && row.original.is_active && (
              <Button small icon={<Play size={13} />} onClick={() => setDoing({ what: "enqueue", definition: row.original })}>
                Enqueue
              </Button>
            )}
            {may("admin") && (
              <Menu
                trigger={<IconButton small label={`Actions for ${row.original.key}`} icon={<EllipsisVertical size={15} />} />}
                items={[
                  { label: "Edit", run: () => setDoing({ what: "edit", definition: row.original }) },
                  { label: row.original.paused ? "Resume" : "Pause", run: () => void change(row.original, { paused: !row.original.paused }).catch(tell.failed) },
                  row.original.is_active
                    ? { label: "Archive", danger: true, run: () => setDoing({ what: "archive", definition: row.original }) }
                    : { label: "Bring back", run: () => void change(row.original, { is_active: true }).catch(tell.failed) },
                ]}
              />
            )}
          </span>
        ),
      },
    ],
    [may, to, change, tell],
  );

  return (
    <div className="stack">
      <PageHeader
        title="Definitions"
        lead="What may be asked for: a key, the schema of its arguments, its limits and its retries."
        actions={
          <>
            <CheckField label="Archived too" checked={archived} onChange={(event) => setArchived(event.target.checked)} />
            {may("admin") && (
              <Button variant="primary" icon={<Plus size={15} />} onClick={() => setDoing({ what: "new" })}>
                New definition
              </Button>
            )}
          </>
        }
      />
      <Panel flush>
        {error ? (
          <Fault error={error} retry={() => void refetch()} />
        ) : !data ? (
          <Skeleton />
        ) : data.items.length === 0 ? (
          <Empty title="Nothing may be asked for yet">
            A worker writes the definitions of its <code>@app.job</code> functions when it starts; others come from <code>penstock definitions apply</code> or from here.
          </Empty>
        ) : (
          <DataTable label="Definitions" rows={data.items} columns={columns} rowId={(row) => row.id} />
        )}
      </Panel>
      {doing?.what === "enqueue" && <EnqueueForm definition={doing.definition} onClose={() => setDoing(null)} />}
      {(doing?.what === "new" || doing?.what === "edit") && <DefinitionForm definition={doing.what === "edit" ? doing.definition : null} onClose={() => setDoing(null)} onDone={changed} />}
      {doing?.what === "archive" && (
        <Confirm
          open
          onClose={() => setDoing(null)}
          title={`Archive ${doing.definition.key}?`}
          lead="It takes no new jobs, and its triggers are disabled. Jobs that wait are still run."
          action="Archive"
          danger
          run={() => change(doing.definition, { is_active: false })}
        />
      )}
    </div>
  );
}
