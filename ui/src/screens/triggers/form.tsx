import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { type Schemas, taken } from "../../api/client";
import { useScope } from "../../api/session";
import { viewerZone } from "../../lib/time";
import { useZone } from "../../lib/zone";
import { Button } from "../../ui/button";
import { Dialog, useTell } from "../../ui/float";
import { Actions, CheckField, SelectField, TextArea, TextField } from "../../ui/form";
import { Fault, Note } from "../../ui/panel";
import type { Trigger } from ".";
import { Runs } from "./runs";
import css from "./triggers.module.css";

type Overlap = NonNullable<Schemas["NewTrigger"]["overlap"]>;
type CatchUp = NonNullable<Schemas["NewTrigger"]["catch_up"]>;

const OVERLAPS: readonly (readonly [Overlap, string])[] = [
  ["allow", "run beside it"],
  ["skip", "skip this time"],
  ["buffer_one", "wait, at most one"],
  ["cancel_running", "stop it and run"],
];
const CATCH_UPS: readonly (readonly [CatchUp, string])[] = [
  ["latest", "run once for the latest"],
  ["all", "run for each"],
  ["skip", "let them pass"],
];

function useDelayed<T>(value: T, milliseconds: number): T {
  const [shown, setShown] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setShown(value), milliseconds);
    return () => clearTimeout(timer);
  }, [value, milliseconds]);
  return shown;
}

/** What the server reads in a cron expression: its words and its next ten moments. */
function CronPreview({ cron, timezone }: { cron: string; timezone: string }) {
  const { api, key } = useScope();
  const asked = useDelayed(`${cron}\n${timezone}`, 250).split("\n");
  const preview = useQuery({
    queryKey: key("preview", asked),
    queryFn: () => taken(api.POST("/api/v1/jobs/triggers/preview", { body: { cron_expr: asked[0] ?? "", timezone: asked[1] ?? "UTC", count: 10, dst_gap: "shift", dst_overlap: "first" } })),
    enabled: (asked[0] ?? "").trim() !== "" && (asked[1] ?? "") !== "",
    placeholderData: keepPreviousData,
    retry: false,
  });
  if (preview.error) return <Fault error={preview.error} />;
  if (!preview.data) return null;
  return (
    <div className={css.preview} data-testid="cron-preview">
      <p className={css.words}>{preview.data.words}</p>
      <p className="quiet">{preview.data.timezone}</p>
      <Runs preview={preview.data} />
    </div>
  );
}

/** Make or change a trigger. */
export function TriggerForm({ kind, trigger, onClose, onDone }: { kind: "schedule" | "event"; trigger: Trigger | null; onClose: () => void; onDone: (trigger: Trigger) => void }) {
  const { api, key } = useScope();
  const { tenantZone } = useZone();
  const tell = useTell();
  const definitions = useQuery({ queryKey: key("definitions", false), queryFn: () => taken(api.GET("/api/v1/definitions")) });
  const keys = [...new Set([...(trigger ? [trigger.definition_key] : []), ...(definitions.data?.items.map((each) => each.key) ?? [])])];
  const [label, setLabel] = useState(trigger?.label ?? "");
  const [definition, setDefinition] = useState(trigger?.definition_key ?? "");
  const [cron, setCron] = useState(trigger?.cron_expr ?? "0 2 * * *");
  const [zone, setZone] = useState(trigger?.timezone ?? tenantZone ?? viewerZone());
  const [event, setEvent] = useState(trigger?.event_name ?? "");
  const [payload, setPayload] = useState(JSON.stringify(trigger?.payload_template ?? {}, null, 2));
  const [overlap, setOverlap] = useState<Overlap>(trigger?.overlap ?? "allow");
  const [catchUp, setCatchUp] = useState<CatchUp>(trigger?.catch_up ?? "latest");
  const [dedupe, setDedupe] = useState(trigger ? String(trigger.dedupe_window_seconds) : "");
  const [enabled, setEnabled] = useState(trigger?.is_enabled ?? true);
  const [fault, setFault] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const chosen = definition || keys[0] || "";

  const save = async () => {
    let template: Record<string, unknown>;
    setError(null);
    try {
      template = JSON.parse(payload) as Record<string, unknown>;
      setFault(null);
    } catch (caught) {
      setFault(`This is not JSON: ${(caught as Error).message}`);
      return;
    }
    const shared = { label, definition_key: chosen, payload_template: template, is_enabled: enabled, ...(dedupe === "" ? {} : { dedupe_window_seconds: Number(dedupe) }) };
    const own = kind === "schedule" ? { cron_expr: cron.trim(), timezone: zone, overlap, catch_up: catchUp } : { event_name: event };
    try {
      const made = trigger
        ? await taken(api.PATCH("/api/v1/jobs/triggers/{trigger_id}", { params: { path: { trigger_id: trigger.id } }, body: { ...shared, ...own, version: trigger.version } }))
        : await taken(api.POST("/api/v1/jobs/triggers", { body: { ...shared, ...own, trigger_type: kind } }));
      tell.done("Saved", label);
      onDone(made);
      onClose();
    } catch (caught) {
      setError(caught);
    }
  };

  return (
    <Dialog open wide onClose={onClose} title={trigger ? `Edit ${trigger.label}` : kind === "schedule" ? "New schedule" : "New event trigger"}>
      <div className={css.two}>
        <div className="stack-small">
          <TextField label="Label" placeholder={kind === "schedule" ? "Nightly sync" : "Resync on folder change"} value={label} onChange={(e) => setLabel(e.target.value)} />
          <SelectField label="Asks for" choices={keys.map((each) => [each, each] as const)} value={chosen} onChange={(e) => setDefinition(e.target.value)} />
          {kind === "schedule" ? (
            <>
              <TextField label="Cron expression" hint="Minute, hour, day, month, weekday" value={cron} onChange={(e) => setCron(e.target.value)} />
              <TextField label="Time zone" value={zone} list="zones" onChange={(e) => setZone(e.target.value)} />
              <datalist id="zones">
                {Intl.supportedValuesOf("timeZone").map((each) => (
                  <option key={each} value={each} aria-label={each} />
                ))}
              </datalist>
            </>
          ) : (
            <>
              <TextField label="Event" placeholder="provider.folder.updated" value={event} onChange={(e) => setEvent(e.target.value)} />
              <TextField label="Dedupe window in seconds" inputMode="numeric" placeholder="300" hint="The same payload again within it makes no second job." value={dedupe} onChange={(e) => setDedupe(e.target.value)} />
            </>
          )}
        </div>
        <div className="stack-small">
          {kind === "schedule" ? (
            <CronPreview cron={cron} timezone={zone} />
          ) : (
            <Note>
              Values of the event go into the payload by <code>{"{{event.name}}"}</code>.
            </Note>
          )}
        </div>
      </div>
      <TextArea label="Payload" rows={4} fault={fault} value={payload} onChange={(e) => setPayload(e.target.value)} />
      {kind === "schedule" && (
        <div className={css.two}>
          <SelectField label="While the last one still runs" choices={OVERLAPS} value={overlap} onChange={(e) => setOverlap(e.target.value as Overlap)} />
          <SelectField label="Moments missed while down" choices={CATCH_UPS} value={catchUp} onChange={(e) => setCatchUp(e.target.value as CatchUp)} />
        </div>
      )}
      <CheckField label="Enabled" checked={enabled} onChange={(e) => setEnabled(e.target.checked)} />
      {error !== null && <Fault error={error} />}
      <Actions>
        <Button onClick={onClose}>Back</Button>
        <Button variant="primary" disabled={label.trim() === "" || chosen === ""} onClick={() => void save()}>
          Save
        </Button>
      </Actions>
    </Dialog>
  );
}
