import { useQueryClient } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { EllipsisVertical, Plus, Send } from "lucide-react";
import { useCallback, useMemo, useState } from "react";

import { type Schemas, taken } from "../api/client";
import { useRead } from "../api/read";
import { useScope } from "../api/session";
import { Status } from "../ui/badge";
import { Button, IconButton } from "../ui/button";
import { Confirm, Dialog, Menu, useTell } from "../ui/float";
import { Actions, Switch, TextField } from "../ui/form";
import { Empty, Fault, Note, PageHeader, Panel, Skeleton } from "../ui/panel";
import { DataTable } from "../ui/table";
import { Copyable, Line, Time } from "../ui/text";

type Webhook = Schemas["Webhook"];
type Delivery = Schemas["Delivery"];
type Doing = { what: "new" } | { what: "delete" | "rotate" | "deliveries"; webhook: Webhook } | { what: "secret"; secret: string } | null;

const at = (webhook: Webhook) => ({ params: { path: { webhook_id: webhook.id } } });

/** Who is told of what happens here. */
export default function Webhooks() {
  const { api, key } = useScope();
  const queries = useQueryClient();
  const tell = useTell();
  const [doing, setDoing] = useState<Doing>(null);
  const { data, error, refetch } = useRead({ queryKey: key("webhooks"), queryFn: () => taken(api.GET("/api/v1/webhooks")) });
  const changed = useCallback(() => queries.invalidateQueries({ queryKey: key("webhooks") }), [queries, key]);
  const columns = useMemo<ColumnDef<Webhook>[]>(
    () => [
      {
        id: "url",
        header: "Address",
        accessorFn: (row) => row.url,
        cell: ({ row }) => (
          <div>
            <Line length={120}>{row.original.url}</Line>
            <div className="quiet">
              <Line length={120}>{row.original.description}</Line>
            </div>
          </div>
        ),
      },
      { id: "types", header: "Told of", cell: ({ row }) => <Line length={160}>{row.original.event_types.join(", ")}</Line> },
      {
        id: "on",
        header: "Enabled",
        cell: ({ row }) => (
          <Switch label={`${row.original.url} is enabled`} checked={row.original.is_enabled} onChange={(on) => void taken(api.PATCH("/api/v1/webhooks/{webhook_id}", { ...at(row.original), body: { is_enabled: on } })).then(changed, tell.failed)} />
        ),
      },
      {
        id: "actions",
        header: () => <span className="visually-hidden">Actions</span>,
        meta: { right: true },
        cell: ({ row }) => (
          <span className="row" style={{ justifyContent: "flex-end", flexWrap: "nowrap" }}>
            <Button small onClick={() => setDoing({ what: "deliveries", webhook: row.original })}>
              Deliveries
            </Button>
            <Button
              small
              icon={<Send size={13} />}
              onClick={() =>
                void taken(api.POST("/api/v1/webhooks/{webhook_id}/test", at(row.original))).then(() => {
                  tell.done("A test message is on its way");
                  setDoing({ what: "deliveries", webhook: row.original });
                }, tell.failed)
              }
            >
              Test
            </Button>
            <Menu
              trigger={<IconButton small label={`Actions for ${row.original.url}`} icon={<EllipsisVertical size={15} />} />}
              items={[
                { label: "New secret", run: () => setDoing({ what: "rotate", webhook: row.original }) },
                { label: "Delete", danger: true, run: () => setDoing({ what: "delete", webhook: row.original }) },
              ]}
            />
          </span>
        ),
      },
    ],
    [api, changed, tell],
  );
  return (
    <div className="stack">
      <PageHeader
        title="Webhooks"
        lead="Signed messages to other services when jobs and groups end, delivered as jobs of their own."
        actions={
          <Button variant="primary" icon={<Plus size={15} />} onClick={() => setDoing({ what: "new" })}>
            New webhook
          </Button>
        }
      />
      <Panel flush>
        {error ? (
          <Fault error={error} retry={() => void refetch()} />
        ) : !data ? (
          <Skeleton />
        ) : data.items.length === 0 ? (
          <Empty title="No webhooks yet">Give an https address, and it is told when a job succeeds, fails or is given up.</Empty>
        ) : (
          <DataTable label="Webhooks" rows={data.items} columns={columns} rowId={(row) => row.id} />
        )}
      </Panel>
      {doing?.what === "new" && <NewWebhook onClose={() => setDoing(null)} onMade={(secret) => void changed().then(() => setDoing({ what: "secret", secret }))} />}
      {doing?.what === "secret" && (
        <Dialog open onClose={() => setDoing(null)} title="The secret that signs">
          <Note tone="warning">Copy it now: it is not shown again. The receiver checks each message with it.</Note>
          <Copyable value={doing.secret} />
          <Actions>
            <Button variant="primary" onClick={() => setDoing(null)}>
              Done
            </Button>
          </Actions>
        </Dialog>
      )}
      {doing?.what === "deliveries" && <Deliveries webhook={doing.webhook} onClose={() => setDoing(null)} />}
      {doing?.what === "delete" && (
        <Confirm
          open
          onClose={() => setDoing(null)}
          title="Delete this webhook?"
          lead={doing.webhook.url}
          action="Delete"
          danger
          run={() => taken(api.DELETE("/api/v1/webhooks/{webhook_id}", at(doing.webhook))).then(changed)}
        />
      )}
      {doing?.what === "rotate" && (
        <Confirm
          open
          onClose={() => setDoing((now) => (now?.what === "rotate" ? null : now))}
          title="Make a new secret?"
          lead="The old one signs beside it for a day, so that the receiver can change over."
          action="Make it"
          run={() => taken(api.POST("/api/v1/webhooks/{webhook_id}/rotate-secret", at(doing.webhook))).then((made) => setDoing({ what: "secret", secret: made.secret ?? "" }))}
        />
      )}
    </div>
  );
}

function NewWebhook({ onClose, onMade }: { onClose: () => void; onMade: (secret: string) => void }) {
  const { api } = useScope();
  const [url, setUrl] = useState("");
  const [description, setDescription] = useState("");
  const [types, setTypes] = useState("");
  const [error, setError] = useState<unknown>(null);
  const save = async () => {
    const chosen = types.split(/[\s,]+/).filter(Boolean);
    try {
      const made = await taken(api.POST("/api/v1/webhooks", { body: { url, description, ...(chosen.length > 0 ? { event_types: chosen } : {}) } }));
      onMade(made.secret ?? "");
    } catch (caught) {
      setError(caught);
    }
  };
  return (
    <Dialog open onClose={onClose} title="New webhook">
      <TextField label="Address" type="url" placeholder="https://example.com/hooks/penstock" value={url} onChange={(event) => setUrl(event.target.value)} />
      <TextField label="Description" value={description} onChange={(event) => setDescription(event.target.value)} />
      <TextField label="Told of" placeholder="everything" hint="Such as job.succeeded job.dead_letter; empty means everything." value={types} onChange={(event) => setTypes(event.target.value)} />
      {error !== null && <Fault error={error} />}
      <Actions>
        <Button onClick={onClose}>Back</Button>
        <Button variant="primary" disabled={url.trim() === ""} onClick={() => void save()}>
          Save
        </Button>
      </Actions>
    </Dialog>
  );
}

const DELIVERIES: ColumnDef<Delivery>[] = [
  { id: "at", header: "When", cell: ({ row }) => <Time at={row.original.created_at} /> },
  { id: "type", header: "Of", cell: ({ row }) => <code>{row.original.event_type}</code> },
  { id: "status", header: "Status", cell: ({ row }) => <Status of={row.original.status} /> },
  { id: "answer", header: "Answer", cell: ({ row }) => <Line length={160}>{row.original.error ?? `HTTP ${row.original.response_status ?? ""}`}</Line> },
  { id: "took", header: "Took", meta: { right: true }, cell: ({ row }) => (row.original.duration_ms === null ? "–" : `${row.original.duration_ms} ms`) },
];

function Deliveries({ webhook, onClose }: { webhook: Webhook; onClose: () => void }) {
  const { api, key } = useScope();
  const { data, error } = useRead({
    queryKey: key("webhooks", webhook.id, "deliveries"),
    queryFn: () => taken(api.GET("/api/v1/webhooks/{webhook_id}/deliveries", { params: { path: { webhook_id: webhook.id }, query: { limit: 100 } } })),
    refetchInterval: 2000,
  });
  return (
    <Dialog open wide onClose={onClose} title="Deliveries" lead={webhook.url}>
      {error ? <Fault error={error} /> : !data ? <Skeleton /> : data.items.length === 0 ? <Empty title="Nothing was delivered yet">Send a test message to see how the receiver answers.</Empty> : <DataTable label="Deliveries" rows={data.items} columns={DELIVERIES} rowId={(row) => row.id} />}
    </Dialog>
  );
}
