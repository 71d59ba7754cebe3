import { useState } from "react";

import { type Schemas, taken } from "../../api/client";
import { useScope } from "../../api/session";
import { Button } from "../../ui/button";
import { Dialog, useTell } from "../../ui/float";
import { Actions, SelectField, TextArea, TextField } from "../../ui/form";
import { Fault } from "../../ui/panel";
import type { Definition } from ".";

const RUNNERS = [
  ["command", "command: what the worker's commands file maps the key to"],
  ["python", "python: a function that a worker registers"],
] as const;

/** Make or change a definition. */
export function DefinitionForm({ definition, onClose, onDone }: { definition: Definition | null; onClose: () => void; onDone: () => void }) {
  const { api } = useScope();
  const tell = useTell();
  const [key, setKey] = useState(definition?.key ?? "");
  const [description, setDescription] = useState(definition?.description ?? "");
  const [runner, setRunner] = useState(definition?.runner ?? "command");
  const [schema, setSchema] = useState(JSON.stringify(definition?.arg_schema ?? { type: "object", properties: {}, additionalProperties: false }, null, 2));
  const [timeout, setTimeoutSeconds] = useState(String(definition?.timeout_seconds ?? 3600));
  const [attempts, setAttempts] = useState(String(definition?.max_attempts ?? 3));
  const [mode, setMode] = useState<"requeue" | "chain">(definition?.retry_mode ?? "requeue");
  const [limit, setLimit] = useState(definition?.max_running === null || definition?.max_running === undefined ? "" : String(definition.max_running));
  const [fault, setFault] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);

  const save = async () => {
    let parsed: Record<string, unknown>;
    try {
      parsed = JSON.parse(schema) as Record<string, unknown>;
      setFault(null);
    } catch (caught) {
      setFault(`This is not JSON: ${(caught as Error).message}`);
      return;
    }
    const values: Schemas["ChangeDefinition"] = {
      description,
      runner,
      arg_schema: parsed,
      timeout_seconds: Number(timeout),
      max_attempts: Number(attempts),
      retry_mode: mode,
      max_running: limit === "" ? null : Number(limit),
    };
    try {
      if (definition) await taken(api.PATCH("/api/v1/admin/jobs/definitions/{definition_id}", { params: { path: { definition_id: definition.id } }, body: values }));
      else await taken(api.POST("/api/v1/admin/jobs/definitions", { body: { key, ...values } }));
      tell.done("Saved", key);
      onDone();
      onClose();
    } catch (caught) {
      setError(caught);
    }
  };
  return (
    <Dialog open wide onClose={onClose} title={definition ? `Edit ${definition.key}` : "New definition"}>
      {!definition && <TextField label="Key" placeholder="sync-dropbox" value={key} onChange={(event) => setKey(event.target.value)} />}
      <TextField label="Description" value={description} onChange={(event) => setDescription(event.target.value)} />
      <SelectField label="Runner" choices={RUNNERS.some(([name]) => name === runner) ? RUNNERS : [...RUNNERS, [runner, runner]]} value={runner} onChange={(event) => setRunner(event.target.value)} />
      <TextArea label="Schema of the arguments" rows={9} hint="JSON Schema; payloads that do not fit are refused." fault={fault} value={schema} onChange={(event) => setSchema(event.target.value)} />
      <TextField label="Timeout in seconds" inputMode="numeric" value={timeout} onChange={(event) => setTimeoutSeconds(event.target.value)} />
      <TextField label="Attempts" inputMode="numeric" value={attempts} onChange={(event) => setAttempts(event.target.value)} />
      <SelectField
        label="A failed run"
        choices={[
          ["requeue", "puts the same job back into the queue"],
          ["chain", "makes a new job that retries it"],
        ]}
        value={mode}
        onChange={(event) => setMode(event.target.value as "requeue" | "chain")}
      />
      <TextField label="At most at a time" inputMode="numeric" placeholder="no limit" value={limit} onChange={(event) => setLimit(event.target.value)} />
      {error !== null && <Fault error={error} />}
      <Actions>
        <Button onClick={onClose}>Back</Button>
        <Button variant="primary" disabled={key.trim() === ""} onClick={() => void save()}>
          Save
        </Button>
      </Actions>
    </Dialog>
  );
}
