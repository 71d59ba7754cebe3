import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { Plus } from "lucide-react";
import { useMemo, useState } from "react";

import { type Schemas, taken } from "../api/client";
import { useScope } from "../api/session";
import { Badge } from "../ui/badge";
import { Button } from "../ui/button";
import { Confirm, Dialog } from "../ui/float";
import { Actions, SelectField, TextField } from "../ui/form";
import { Empty, Fault, Note, PageHeader, Panel, Skeleton } from "../ui/panel";
import { DataTable } from "../ui/table";
import { Copyable, Line, Time } from "../ui/text";

type Token = Schemas["Token"];
type Role = Schemas["NewTenantToken"]["role"];

const ROLES: readonly (readonly [Role, string])[] = [
  ["viewer", "viewer: sees everything, changes nothing"],
  ["operator", "operator: also enqueues, cancels and retries"],
  ["tenant_admin", "tenant admin: also triggers, webhooks and tokens"],
  ["worker", "worker: claims and reports jobs, nothing else"],
];

const isOver = (token: Token): boolean => token.expires_at !== null && new Date(token.expires_at) <= new Date();

/** Who may come in, for the tenant. */
export default function Tokens() {
  const { api, key, tenant } = useScope();
  const queries = useQueryClient();
  const [making, setMaking] = useState(false);
  const [revoking, setRevoking] = useState<Token | null>(null);
  const { data, error, refetch } = useQuery({ queryKey: key("tokens"), queryFn: () => taken(api.GET("/api/v1/tokens", { params: { query: { limit: 500 } } })) });
  const changed = () => void queries.invalidateQueries({ queryKey: key("tokens") });
  const columns = useMemo<ColumnDef<Token>[]>(
    () => [
      { id: "label", header: "Label", accessorFn: (row) => row.label, cell: ({ row }) => <Line length={80}>{row.original.label}</Line> },
      { id: "role", header: "Role", accessorFn: (row) => row.role, cell: ({ row }) => row.original.role.replace("_", " ") },
      { id: "prefix", header: "Starts with", cell: ({ row }) => <code>{row.original.prefix}</code> },
      {
        id: "state",
        header: "State",
        cell: ({ row }) => (row.original.revoked_at ? <Badge>revoked</Badge> : isOver(row.original) ? <Badge>expired</Badge> : <Badge tone="succeeded">valid</Badge>),
      },
      { id: "used", header: "Last used", accessorFn: (row) => row.last_used_at ?? "", cell: ({ row }) => <Time at={row.original.last_used_at} as="relative" /> },
      { id: "expires", header: "Expires", cell: ({ row }) => (row.original.expires_at ? <Time at={row.original.expires_at} /> : "never") },
      { id: "made", header: "Made", accessorFn: (row) => row.created_at, cell: ({ row }) => <Time at={row.original.created_at} /> },
      {
        id: "actions",
        header: () => <span className="visually-hidden">Actions</span>,
        meta: { right: true },
        cell: ({ row }) =>
          !row.original.revoked_at && (
            <Button small danger onClick={() => setRevoking(row.original)}>
              Revoke
            </Button>
          ),
      },
    ],
    [],
  );
  return (
    <div className="stack">
      <PageHeader
        title="Tokens"
        lead={`Who may come in for ${tenant}. A token is shown once, when it is made; only its hash is kept.`}
        actions={
          <Button variant="primary" icon={<Plus size={15} />} onClick={() => setMaking(true)}>
            New token
          </Button>
        }
      />
      <Panel flush>
        {error ? (
          <Fault error={error} retry={() => void refetch()} />
        ) : !data ? (
          <Skeleton />
        ) : data.items.length === 0 ? (
          <Empty title="No tokens yet">Make one for each person or program, so that each can be revoked alone and the audit says who did what.</Empty>
        ) : (
          <DataTable label="Tokens" rows={data.items} columns={columns} rowId={(row) => row.id} />
        )}
      </Panel>
      {making && <NewToken onClose={() => setMaking(false)} onDone={changed} />}
      {revoking && (
        <Confirm
          open
          onClose={() => setRevoking(null)}
          title={`Revoke ${revoking.label}?`}
          lead="It stops working at once, with every session that it opened. This cannot be undone."
          action="Revoke"
          danger
          run={() => taken(api.DELETE("/api/v1/tokens/{token_id}", { params: { path: { token_id: revoking.id } } })).then(changed)}
        />
      )}
    </div>
  );
}

function NewToken({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const { api } = useScope();
  const [label, setLabel] = useState("");
  const [role, setRole] = useState<Role>("viewer");
  const [until, setUntil] = useState("");
  const [made, setMade] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const save = async () => {
    try {
      const found = await taken(api.POST("/api/v1/tokens", { body: { label, role, ...(until === "" ? {} : { expires_at: new Date(`${until}T23:59:59`).toISOString() }) } }));
      onDone();
      setMade(found.token ?? "");
    } catch (caught) {
      setError(caught);
    }
  };
  if (made !== null) {
    return (
      <Dialog open onClose={onClose} title="The new token">
        <Note tone="warning">Copy it now: it is not shown again.</Note>
        <Copyable value={made} />
        <Actions>
          <Button variant="primary" onClick={onClose}>
            Done
          </Button>
        </Actions>
      </Dialog>
    );
  }
  return (
    <Dialog open onClose={onClose} title="New token">
      <TextField label="Label" hint="Whose it is; the audit says it." value={label} onChange={(event) => setLabel(event.target.value)} />
      <SelectField label="Role" choices={ROLES} value={role} onChange={(event) => setRole(event.target.value as Role)} />
      <TextField label="Valid until" type="date" hint="Empty means until it is revoked." value={until} onChange={(event) => setUntil(event.target.value)} />
      {error !== null && <Fault error={error} />}
      <Actions>
        <Button onClick={onClose}>Back</Button>
        <Button variant="primary" disabled={label.trim() === ""} onClick={() => void save()}>
          Make the token
        </Button>
      </Actions>
    </Dialog>
  );
}
