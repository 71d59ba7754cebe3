import { useState } from "react";
import { useNavigate } from "react-router";

import { taken } from "../../api/client";
import { Problem } from "../../api/problem";
import { useScope } from "../../api/session";
import { Button } from "../../ui/button";
import { Dialog, useTell } from "../../ui/float";
import { Actions, TextArea, TextField } from "../../ui/form";
import { Fault } from "../../ui/panel";
import { type Draft, type Schema, SchemaForm, toPayload } from "../../ui/schemaform";
import type { Definition } from ".";

const text = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

/** Ask for a job by hand: one field for each argument, or the payload as JSON. */
export function EnqueueForm({ definition, onClose }: { definition: Definition; onClose: () => void }) {
  const { api, to } = useScope();
  const navigate = useNavigate();
  const tell = useTell();
  const schema = definition.arg_schema as Schema;
  // A default that holds a secret is shown masked. Left out, it applies as it is stored.
  const shown = Object.fromEntries(Object.entries(definition.default_params).filter(([, value]) => !JSON.stringify(value).includes('"***"')));
  const formless = Object.keys(schema.properties ?? {}).length === 0;
  const [draft, setDraft] = useState<Draft>(() => Object.fromEntries(Object.entries(shown).map(([name, value]) => [name, text(value)])));
  const [raw, setRaw] = useState<string | null>(formless ? JSON.stringify(shown, null, 2) : null);
  const [priority, setPriority] = useState("");
  const [when, setWhen] = useState("");
  const [dedupe, setDedupe] = useState("");
  const [faults, setFaults] = useState<Record<string, string>>({});
  const [error, setError] = useState<unknown>(null);

  const send = async () => {
    let payload: Record<string, unknown>;
    setError(null);
    if (raw === null) {
      const made = toPayload(schema, draft);
      setFaults(made.faults);
      if (Object.keys(made.faults).length > 0) return;
      payload = made.payload;
    } else {
      try {
        payload = JSON.parse(raw) as Record<string, unknown>;
        setFaults({});
      } catch (caught) {
        setFaults({ "": `This is not JSON: ${(caught as Error).message}` });
        return;
      }
    }
    try {
      const job = await taken(
        api.POST("/api/v1/jobs", {
          body: {
            definition_key: definition.key,
            payload,
            ...(priority === "" ? {} : { priority: Number(priority) }),
            ...(when === "" ? {} : { scheduled_for: new Date(when).toISOString() }),
            ...(dedupe === "" ? {} : { dedupe_key: dedupe }),
          },
        }),
      );
      tell.done("Queued", definition.key);
      void navigate(to(`jobs/${job.id}`));
    } catch (caught) {
      setError(caught);
      if (caught instanceof Problem) setFaults(Object.fromEntries(caught.faults.map((fault) => [fault.path.replace(/^\$\.(payload\.)?/, ""), fault.message])));
    }
  };

  return (
    <Dialog open onClose={onClose} title={`Enqueue ${definition.key}`} lead={definition.description || undefined}>
      {raw === null ? (
        <SchemaForm schema={schema} draft={draft} onChange={setDraft} faults={faults} />
      ) : (
        <TextArea label="Payload" rows={8} hint="A JSON object" value={raw} fault={faults[""]} onChange={(event) => setRaw(event.target.value)} />
      )}
      <details>
        <summary>Options</summary>
        <div className="stack-small">
          <TextField label="Priority" inputMode="numeric" placeholder={String(definition.priority)} hint="Lower runs first." value={priority} onChange={(event) => setPriority(event.target.value)} />
          <TextField label="Not before" type="datetime-local" hint="In your own zone; empty means now." value={when} onChange={(event) => setWhen(event.target.value)} />
          <TextField label="Dedupe key" hint="While a job of this key is active, asking again answers that job." value={dedupe} onChange={(event) => setDedupe(event.target.value)} />
          {!formless && (
            <Button small onClick={() => setRaw(raw === null ? JSON.stringify(toPayload(schema, draft).payload, null, 2) : null)}>
              {raw === null ? "Write the payload as JSON" : "Back to the form"}
            </Button>
          )}
        </div>
      </details>
      {error !== null && <Fault error={error} />}
      <Actions>
        <Button onClick={onClose}>Back</Button>
        <Button variant="primary" onClick={() => void send()}>
          Enqueue
        </Button>
      </Actions>
    </Dialog>
  );
}
