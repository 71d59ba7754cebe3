import { useQuery, useQueryClient } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { Plus } from "lucide-react";
import { useMemo, useState } from "react";

import { type Schemas, taken } from "../api/client";
import { useRead } from "../api/read";
import { useScope } from "../api/session";
import { Badge } from "../ui/badge";
import { Button } from "../ui/button";
import { Confirm, Dialog } from "../ui/float";
import { Actions, SelectField, TextField } from "../ui/form";
import { Empty, Fault, Note, PageHeader, Panel, Skeleton } from "../ui/panel";
import { DataTable } from "../ui/table";
import { actorName, Copyable, Line, Time } from "../ui/text";

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
  const [rotating, setRotating] = useState<Token | null>(null);
  const { data, error, refetch } = useRead({ queryKey: key("tokens"), queryFn: () => taken(api.GET("/api/v1/tokens", { params: { query: { limit: 500 } } })) });
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
      { id: "limits", header: "Limited to", cell: ({ row }) => <Line length={60}>{limitsOf(row.original)}</Line> },
      {
        id: "used",
        header: "Last used",
        accessorFn: (row) => row.last_used_at ?? "",
        cell: ({ row }) => (
          <>
            <Time at={row.original.last_used_at} as="relative" /> {row.original.last_used_address}
          </>
        ),
      },
      { id: "expires", header: "Expires", cell: ({ row }) => (row.original.expires_at ? <Time at={row.original.expires_at} /> : "never") },
      { id: "made", header: "Created", accessorFn: (row) => row.created_at, cell: ({ row }) => <Time at={row.original.created_at} /> },
      { id: "by", header: "By", cell: ({ row }) => <Line length={30}>{actorName(row.original.created_by ?? "")}</Line> },
      {
        id: "actions",
        header: () => <span className="visually-hidden">Actions</span>,
        meta: { right: true },
        cell: ({ row }) =>
          !row.original.revoked_at && (
            <span className="row">
              {!row.original.is_person && (
                <Button small onClick={() => setRotating(row.original)}>
                  Rotate
                </Button>
              )}
              <Button small danger onClick={() => setRevoking(row.original)}>
                Revoke
              </Button>
            </span>
          ),
      },
    ],
    [],
  );
  return (
    <div className="stack">
      <PageHeader
        title="Tokens"
        lead={`Who may come in for ${tenant}. A token is shown once, when it is created; only its hash is kept.`}
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
      {rotating && <Rotate token={rotating} onClose={() => setRotating(null)} onDone={changed} />}
      {revoking && <Revoke token={revoking} onClose={() => setRevoking(null)} onDone={changed} />}
    </div>
  );
}

/** What bounds a token beside its role, in one line. */
function limitsOf(token: Token): string {
  return [token.scopes, token.keys, token.queues, token.addresses].flatMap((each) => each ?? []).join(", ");
}

/** Asks first how many tokens came from it: they all end. */
function Revoke({ token, onClose, onDone }: { token: Token; onClose: () => void; onDone: () => void }) {
  const { api, key } = useScope();
  const path = { token_id: token.id };
  const { data } = useQuery({ queryKey: key("tokens", token.id), queryFn: () => taken(api.GET("/api/v1/tokens/{token_id}", { params: { path } })), staleTime: 0 });
  const others = data?.descendants ?? 0;
  return (
    <Confirm
      open
      onClose={onClose}
      title={`Revoke ${token.label}?`}
      lead="It stops working at once, with every session that it opened. This cannot be undone."
      action={others === 0 ? "Revoke" : `Revoke ${others + 1} tokens`}
      danger
      disabled={!data}
      run={() => taken(api.DELETE("/api/v1/tokens/{token_id}", { params: { path } })).then(onDone)}
    >
      {others > 0 && <Note tone="warning">{others === 1 ? "1 token that came from it ends, too." : `${others} tokens that came from it end, too.`}</Note>}
    </Confirm>
  );
}

const OVERLAPS: readonly (readonly [string, string])[] = [
  ["86400", "for a day more"],
  ["3600", "for an hour more"],
  ["604800", "for a week more"],
  ["0", "no longer: it ends now, with the sessions"],
];

function Rotate({ token, onClose, onDone }: { token: Token; onClose: () => void; onDone: () => void }) {
  const { api } = useScope();
  const [overlap, setOverlap] = useState("86400");
  const [made, setMade] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const rotate = async () => {
    try {
      const params = { path: { token_id: token.id } };
      const found = await taken(api.POST("/api/v1/tokens/{token_id}/rotate", { params, body: { overlap_seconds: Number(overlap) } }));
      onDone();
      setMade(found.token ?? "");
    } catch (caught) {
      setError(caught);
    }
  };
  if (made !== null) return <Secret value={made} title={`The new secret of ${token.label}`} onClose={onClose} />;
  return (
    <Dialog open onClose={onClose} title={`Rotate ${token.label}`} lead="It gets a new secret. The tokens that came from it stay.">
      <SelectField label="The old secret works" choices={OVERLAPS} value={overlap} onChange={(event) => setOverlap(event.target.value)} />
      {error !== null && <Fault error={error} />}
      <Actions>
        <Button onClick={onClose}>Back</Button>
        <Button variant="primary" onClick={() => void rotate()}>
          Rotate
        </Button>
      </Actions>
    </Dialog>
  );
}

function Secret({ value, title, onClose }: { value: string; title: string; onClose: () => void }) {
  return (
    <Dialog open onClose={onClose} title={title}>
      <Note tone="warning">Copy it now: it is not shown again.</Note>
      <Copyable value={value} />
      <Actions>
        <Button variant="primary" onClick={onClose}>
          Done
        </Button>
      </Actions>
    </Dialog>
  );
}

/** The words of a field that takes several, apart by commas or spaces; undefined for none. */
const words = (text: string): string[] | undefined => {
  const found = text.split(/[\s,]+/).filter((each) => each !== "");
  return found.length === 0 ? undefined : found;
};

function NewToken({ onClose, onDone }: { onClose: () => void; onDone: () => void }) {
  const { api } = useScope();
  const [label, setLabel] = useState("");
  const [role, setRole] = useState<Role>("viewer");
  const [until, setUntil] = useState("");
  const [scopes, setScopes] = useState("");
  const [keys, setKeys] = useState("");
  const [made, setMade] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const save = async () => {
    try {
      const found = await taken(api.POST("/api/v1/tokens", {
          body: {
            label,
            role,
            scopes: words(scopes) as Schemas["Scope"][] | undefined,
            keys: words(keys),
            ...(until === "" ? {} : { expires_at: new Date(`${until}T23:59:59`).toISOString() }),
          },
        }));
      onDone();
      setMade(found.token ?? "");
    } catch (caught) {
      setError(caught);
    }
  };
  if (made !== null) return <Secret value={made} title="The new token" onClose={onClose} />;
  return (
    <Dialog open onClose={onClose} title="New token">
      <TextField label="Label" hint="Whose it is; the audit says it." value={label} onChange={(event) => setLabel(event.target.value)} />
      <SelectField label="Role" choices={ROLES} value={role} onChange={(event) => setRole(event.target.value as Role)} />
      <TextField label="Valid until" type="date" hint="Empty means as long as your own." value={until} onChange={(event) => setUntil(event.target.value)} />
      <TextField label="Scopes" hint="Such as jobs:read, jobs:write. Empty means all that the role may." value={scopes} onChange={(event) => setScopes(event.target.value)} />
      <TextField label="Definitions" hint="Keys, or beginnings such as report.*. Empty means all." value={keys} onChange={(event) => setKeys(event.target.value)} />
      {error !== null && <Fault error={error} />}
      <Actions>
        <Button onClick={onClose}>Back</Button>
        <Button variant="primary" disabled={label.trim() === ""} onClick={() => void save()}>
          Create the token
        </Button>
      </Actions>
    </Dialog>
  );
}
