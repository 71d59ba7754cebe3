import { useQuery } from "@tanstack/react-query";
import type { ColumnDef } from "@tanstack/react-table";
import { Pencil, Trash2, Zap } from "lucide-react";
import { useMemo, useState } from "react";
import { Link, useNavigate, useParams } from "react-router";

import { type Schemas, taken } from "../../api/client";
import { Problem } from "../../api/problem";
import { useRead } from "../../api/read";
import { useMay, useScope } from "../../api/session";
import { Badge, Status } from "../../ui/badge";
import { Button, ButtonLink } from "../../ui/button";
import { Confirm, useTell } from "../../ui/float";
import { Switch } from "../../ui/form";
import { Empty, Facts, Fault, Note, PageHeader, Panel, Skeleton } from "../../ui/panel";
import { DataTable } from "../../ui/table";
import { Block, Id, Line, Time } from "../../ui/text";
import { useTriggerChanges } from ".";
import { TriggerForm } from "./form";
import { Runs } from "./runs";
import css from "./triggers.module.css";

type Tick = Schemas["Tick"];

export default function TriggerScreen() {
  const id = useParams().id ?? "";
  const { api, key, to } = useScope();
  const may = useMay();
  const tell = useTell();
  const navigate = useNavigate();
  const { changed, enable } = useTriggerChanges();
  const [asking, setAsking] = useState<"edit" | "fire" | "delete" | null>(null);
  const path = { trigger_id: id };
  const trigger = useQuery({ queryKey: key("triggers", id), queryFn: () => taken(api.GET("/api/v1/jobs/triggers/{trigger_id}", { params: { path } })), refetchInterval: 15_000 });
  const preview = useQuery({
    queryKey: key("triggers", id, "preview", trigger.data?.version),
    queryFn: () => taken(api.GET("/api/v1/jobs/triggers/{trigger_id}/preview", { params: { path, query: { count: 10 } } })),
    enabled: trigger.data !== undefined,
    refetchInterval: 60_000,
  });
  if (trigger.error instanceof Problem && (trigger.error.status === 404 || trigger.error.status === 422)) {
    return <Empty title="There is no such trigger" action={<ButtonLink to={to("triggers")}>All triggers</ButtonLink>} />;
  }
  if (!trigger.data && trigger.failureReason) return <Fault error={trigger.failureReason} retry={() => void trigger.refetch()} />;
  if (!trigger.data) return <Skeleton />;
  const found = trigger.data;
  const fire = () =>
    taken(api.POST("/api/v1/jobs/triggers/{trigger_id}/fire", { params: { path }, body: {} as Schemas["Fire"] })).then((job) => {
      tell.done("Fired", found.label);
      return navigate(to(`jobs/${job.id}`));
    });
  return (
    <div className="stack">
      <PageHeader
        title={<Line length={120}>{found.label}</Line>}
        lead={preview.data?.words}
        actions={
          <>
            {may("operate") && (
              <Button icon={<Zap size={15} />} onClick={() => setAsking("fire")}>
                Fire now
              </Button>
            )}
            {may("manage") && (
              <>
                <Button icon={<Pencil size={15} />} onClick={() => setAsking("edit")}>
                  Edit
                </Button>
                <Button danger icon={<Trash2 size={15} />} onClick={() => setAsking("delete")}>
                  Delete
                </Button>
              </>
            )}
          </>
        }
      />
      {!found.is_enabled && (
        <Note tone="warning">
          It is disabled{found.disabled_reason ? ": " : "."} <Line length={300}>{found.disabled_reason}</Line>
        </Note>
      )}
      <div className={css.two}>
        <Panel title={found.trigger_type === "schedule" ? `Next runs, ${found.timezone}` : "Answers an event"}>
          {found.trigger_type === "event" ? (
            <p>
              Whenever <code>{<Line>{found.event_name}</Line>}</code> is emitted.
            </p>
          ) : preview.data && preview.data.items.length > 0 ? (
            <Runs preview={preview.data} />
          ) : (
            <Empty title="No next run" />
          )}
        </Panel>
        <div className="stack">
          <Panel title="Details">
            <Facts
              of={[
                [
                  "Enabled",
                  may("manage") ? (
                    <Switch label={`${found.label} is enabled`} checked={found.is_enabled} onChange={(on) => void enable(found, on)} />
                  ) : found.is_enabled ? (
                    <Badge tone="succeeded">yes</Badge>
                  ) : (
                    <Badge>no</Badge>
                  ),
                ],
                ["Asks for", <Line key="key">{found.definition_key}</Line>],
                ["Cron", found.cron_expr && <code>{found.cron_expr}</code>],
                ["While one runs", found.trigger_type === "schedule" && found.overlap.replace("_", " ")],
                ["Missed moments", found.trigger_type === "schedule" && found.catch_up],
                ["Dedupe window", found.dedupe_window_seconds > 0 && `${found.dedupe_window_seconds} s`],
                ["Last fired", found.last_triggered_at && <Time at={found.last_triggered_at} as="relative" />],
                ["Its jobs", <Link key="jobs" to={to(`jobs?q=trigger:${found.id}`)}>Show them</Link>],
              ]}
            />
          </Panel>
          <Panel title="Payload">
            <Block of={found.payload_template} label="Payload" />
          </Panel>
        </div>
      </div>
      {found.trigger_type === "schedule" && <Ticks id={found.id} />}
      {asking === "edit" && <TriggerForm kind={found.trigger_type} trigger={found} onClose={() => setAsking(null)} onDone={() => void changed()} />}
      <Confirm open={asking === "fire"} onClose={() => setAsking(null)} title="Fire it now?" lead="It makes its job at once, whatever its schedule says." action="Fire" run={fire} />
      <Confirm
        open={asking === "delete"}
        onClose={() => setAsking(null)}
        title={`Delete ${found.label}?`}
        lead="It fires no more. Its history and the jobs it made stay."
        action="Delete"
        danger
        run={async () => {
          await taken(api.DELETE("/api/v1/jobs/triggers/{trigger_id}", { params: { path } }));
          await navigate(to("triggers"));
          await changed();
        }}
      />
    </div>
  );
}

function Ticks({ id }: { id: string }) {
  const { api, key, to } = useScope();
  const { data, error } = useRead({
    queryKey: key("triggers", id, "ticks"),
    queryFn: () => taken(api.GET("/api/v1/jobs/triggers/{trigger_id}/ticks", { params: { path: { trigger_id: id }, query: { limit: 100 } } })),
    refetchInterval: 15_000,
  });
  const columns = useMemo<ColumnDef<Tick>[]>(
    () => [
      { id: "at", header: "Moment", cell: ({ row }) => <Time at={row.original.tick_at} as="exact" /> },
      { id: "outcome", header: "Outcome", cell: ({ row }) => <Status of={row.original.outcome} /> },
      { id: "reason", header: "Reason", cell: ({ row }) => <Line length={200}>{row.original.reason}</Line> },
      { id: "job", header: "Job", cell: ({ row }) => row.original.job_id && <Link to={to(`jobs/${row.original.job_id}`)}>{<Id of={row.original.job_id} short />}</Link> },
    ],
    [to],
  );
  return (
    <Panel title="History" flush>
      {error ? <Fault error={error} /> : !data ? <Skeleton /> : data.items.length === 0 ? <Empty title="It has not fired yet">Each due moment is recorded here: fired, or skipped with the reason.</Empty> : <DataTable label="History" rows={data.items} columns={columns} rowId={(row) => row.tick_at} />}
    </Panel>
  );
}
