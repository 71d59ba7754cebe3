import { useQueryClient } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { Plus } from "lucide-react";
import { useMemo, useState } from "react";
import { Link } from "react-router";

import { apiFor, type Schemas, taken } from "../api/client";
import { useRead } from "../api/read";
import { knownZone } from "../lib/time";
import { Badge } from "../ui/badge";
import { Button } from "../ui/button";
import { Confirm, Dialog } from "../ui/float";
import { Actions, CheckField, TextField } from "../ui/form";
import { Fault, PageHeader, Panel, Skeleton } from "../ui/panel";
import { DataTable } from "../ui/table";
import { Line, Time } from "../ui/text";

type Tenant = Schemas["Tenant"];

/** The walls between customers. */
export default function Tenants() {
  const queries = useQueryClient();
  const [editing, setEditing] = useState<Tenant | "new" | null>(null);
  const [deleting, setDeleting] = useState<Tenant | null>(null);
  const { data, error, refetch } = useRead({ queryKey: ["tenants"], queryFn: () => taken(apiFor(null).GET("/api/v1/admin/tenants")) });
  const columns = useMemo<ColumnDef<Tenant>[]>(
    () => [
      {
        id: "name",
        header: "Tenant",
        accessorFn: (row) => row.slug,
        cell: ({ row }) => (
          <>
            <Link to={`/t/${encodeURIComponent(row.original.slug)}/overview`}>
              <strong>{row.original.slug}</strong>
            </Link>{" "}
            <span className="quiet">
              <Line length={80}>{row.original.name}</Line>
            </span>
          </>
        ),
      },
      { id: "state", header: "State", cell: ({ row }) => (row.original.is_active ? <Badge tone="succeeded">active</Badge> : <Badge>shut out</Badge>) },
      { id: "zone", header: "Time zone", accessorFn: (row) => row.timezone },
      { id: "weight", header: "Weight", meta: { right: true }, accessorFn: (row) => row.weight },
      { id: "limit", header: "At a time", meta: { right: true }, cell: ({ row }) => row.original.max_running ?? "any" },
      { id: "made", header: "Made", accessorFn: (row) => row.created_at, cell: ({ row }) => <Time at={row.original.created_at} /> },
      {
        id: "actions",
        header: () => <span className="visually-hidden">Actions</span>,
        meta: { right: true },
        cell: ({ row }) => (
          <span className="row" style={{ justifyContent: "flex-end" }}>
            <Link to={`/t/${encodeURIComponent(row.original.slug)}/tokens`}>Tokens</Link>
            <Button small onClick={() => setEditing(row.original)}>
              Edit
            </Button>
            {row.original.slug !== "default" && (
              <Button small danger onClick={() => setDeleting(row.original)}>
                Delete
              </Button>
            )}
          </span>
        ),
      },
    ],
    [],
  );
  return (
    <div className="stack">
      <PageHeader
        title="Tenants"
        lead="No call made for one reads or changes anything of another."
        actions={
          <Button variant="primary" icon={<Plus size={15} />} onClick={() => setEditing("new")}>
            New tenant
          </Button>
        }
      />
      <Panel flush>{error ? <Fault error={error} retry={() => void refetch()} /> : !data ? <Skeleton /> : <DataTable label="Tenants" rows={data.items} columns={columns} rowId={(row) => row.id} />}</Panel>
      {editing && <TenantForm tenant={editing === "new" ? null : editing} onClose={() => setEditing(null)} onDone={() => void queries.invalidateQueries({ queryKey: ["tenants"] })} />}
      {deleting && <DeleteTenant tenant={deleting} onClose={() => setDeleting(null)} onDone={() => void queries.invalidateQueries({ queryKey: ["tenants"] })} />}
    </div>
  );
}

function DeleteTenant({ tenant, onClose, onDone }: { tenant: Tenant; onClose: () => void; onDone: () => void }) {
  const [typed, setTyped] = useState("");
  const run = async () => {
    await taken(apiFor(null).DELETE("/api/v1/admin/tenants/{slug}", { params: { path: { slug: tenant.slug }, query: { confirm: typed } } }));
    onDone();
  };
  return (
    <Confirm open danger onClose={onClose} title={`Delete ${tenant.slug}`} lead="The tenant is closed at once, and everything of it is erased: jobs, runs, schedules, webhooks, tokens and its audit. This cannot be undone. The operator's audit keeps a certificate." action="Delete for good" disabled={typed !== tenant.slug} run={run}>
      <TextField label={`Type ${tenant.slug} to confirm`} autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} />
    </Confirm>
  );
}

function TenantForm({ tenant, onClose, onDone }: { tenant: Tenant | null; onClose: () => void; onDone: () => void }) {
  const [slug, setSlug] = useState(tenant?.slug ?? "");
  const [name, setName] = useState(tenant?.name ?? "");
  const [zone, setZone] = useState(tenant?.timezone ?? "UTC");
  const [weight, setWeight] = useState(String(tenant?.weight ?? 1));
  const [limit, setLimit] = useState(tenant?.max_running?.toString() ?? "");
  const [active, setActive] = useState(tenant?.is_active ?? true);
  const [error, setError] = useState<unknown>(null);
  const save = async () => {
    const values = { name: name || slug, timezone: zone, weight: Number(weight), max_running: limit === "" ? null : Number(limit) };
    try {
      if (tenant) await taken(apiFor(null).PATCH("/api/v1/admin/tenants/{slug}", { params: { path: { slug } }, body: { ...values, ...(active === tenant.is_active ? {} : { is_active: active }) } }));
      else await taken(apiFor(null).POST("/api/v1/admin/tenants", { body: { slug, ...values } }));
      onDone();
      onClose();
    } catch (caught) {
      setError(caught);
    }
  };
  return (
    <Dialog open onClose={onClose} title={tenant ? `Edit ${tenant.slug}` : "New tenant"}>
      {!tenant && <TextField label="Slug" hint="Small letters, digits, dots, dashes. It is in addresses and cannot change." value={slug} onChange={(event) => setSlug(event.target.value)} />}
      <TextField label="Name" value={name} onChange={(event) => setName(event.target.value)} />
      <TextField label="Time zone" hint="Such as Europe/Berlin; schedules use it." fault={knownZone(zone) ? null : "No such zone."} value={zone} onChange={(event) => setZone(event.target.value)} />
      <TextField label="Weight" inputMode="numeric" hint="Of two waiting tenants, one of weight 2 gets two turns to the other's one." value={weight} onChange={(event) => setWeight(event.target.value)} />
      <TextField label="At most at a time" inputMode="numeric" placeholder="no limit" value={limit} onChange={(event) => setLimit(event.target.value)} />
      {tenant && <CheckField label="Active" hint="Shut out, its tokens end and it takes no new jobs." checked={active} onChange={(event) => setActive(event.target.checked)} />}
      {error !== null && <Fault error={error} />}
      <Actions>
        <Button onClick={onClose}>Back</Button>
        <Button variant="primary" disabled={slug.trim() === ""} onClick={() => void save()}>
          Save
        </Button>
      </Actions>
    </Dialog>
  );
}
