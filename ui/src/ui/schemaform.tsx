import { useId } from "react";

import { CheckField, SelectField, TextArea, TextField } from "./form";

/** What a JSON Schema says of one field, as far as a form can use it. */
interface Field {
  type?: string | string[];
  title?: string;
  description?: string;
  default?: unknown;
  enum?: unknown[];
  format?: string;
  minimum?: number;
  maximum?: number;
  writeOnly?: boolean;
  "x-secret"?: boolean;
}

export interface Schema {
  properties?: Record<string, Field>;
  required?: string[];
}

/** What is typed, as text by field; `toPayload` makes JSON of it. */
export type Draft = Record<string, string>;

function typeOf(field: Field): string {
  const types = Array.isArray(field.type) ? field.type.filter((each) => each !== "null") : [field.type ?? ""];
  return types.length === 1 ? (types[0] ?? "") : "";
}

/** The payload of a draft; what was left empty is left out. */
export function toPayload(schema: Schema, draft: Draft): { payload: Record<string, unknown>; faults: Record<string, string> } {
  const payload: Record<string, unknown> = {};
  const faults: Record<string, string> = {};
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    const text = draft[name] ?? "";
    if (text === "") {
      if (schema.required?.includes(name) && field.default === undefined) faults[name] = "This is needed.";
      continue;
    }
    const type = typeOf(field);
    if (field.enum) payload[name] = field.enum.find((each) => String(each) === text);
    else if (type === "string") payload[name] = text;
    else if (type === "boolean") payload[name] = text === "true";
    else if (type === "integer" || type === "number") {
      const number = Number(text);
      if (Number.isNaN(number)) faults[name] = "This is not a number.";
      else if (type === "integer" && !Number.isInteger(number)) faults[name] = "A whole number is needed.";
      else payload[name] = number;
    } else {
      try {
        payload[name] = JSON.parse(text);
      } catch {
        faults[name] = 'This is not JSON. Text goes in quotes: "like this".';
      }
    }
  }
  return { payload, faults };
}

/** A field for each property of the schema; nested values are written as JSON. */
export function SchemaForm({ schema, draft, onChange, faults }: { schema: Schema; draft: Draft; onChange: (draft: Draft) => void; faults: Record<string, string> }) {
  const id = useId();
  const fields = Object.entries(schema.properties ?? {});
  return (
    <>
      {fields.map(([name, field]) => {
        const label = `${field.title ?? name}${schema.required?.includes(name) ? " *" : ""}`;
        const value = draft[name] ?? "";
        const set = (next: string) => onChange({ ...draft, [name]: next });
        const placeholder = field.default === undefined ? undefined : JSON.stringify(field.default);
        const shared = { label, hint: field.description, fault: faults[name], name };
        const type = typeOf(field);
        if (field.enum) {
          const choices = [["", placeholder ? `default (${placeholder})` : "choose"] as const, ...field.enum.map((each) => [String(each), String(each)] as const)];
          return <SelectField key={id + name} {...shared} choices={choices} value={value} onChange={(event) => set(event.target.value)} />;
        }
        if (type === "boolean") return <CheckField key={id + name} label={label} hint={field.description} name={name} checked={value === "true" || (value === "" && field.default === true)} onChange={(event) => set(String(event.target.checked))} />;
        if (type === "integer" || type === "number") return <TextField key={id + name} {...shared} inputMode="decimal" placeholder={placeholder} value={value} onChange={(event) => set(event.target.value)} />;
        if (type === "string") {
          return <TextField key={id + name} {...shared} type={field.writeOnly || field["x-secret"] ? "password" : "text"} autoComplete="off" placeholder={placeholder ?? field.format} value={value} onChange={(event) => set(event.target.value)} />;
        }
        return <TextArea key={id + name} {...shared} rows={3} placeholder={placeholder ?? "JSON"} value={value} onChange={(event) => set(event.target.value)} />;
      })}
    </>
  );
}
