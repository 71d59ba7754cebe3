/**
 * The language of the search box: `status:failed key:sync-* after:2h "any text"`.
 * A query is words; a word is `field:value` or text. The same string lives in the address, so a link shows the same list.
 */

export const STATUSES = ["queued", "running", "succeeded", "failed", "canceled", "dead_letter"] as const;
export const SOURCES = ["manual", "event", "schedule", "system"] as const;
export const FIELDS = ["status", "source", "key", "queue", "after", "before", "correlation", "group", "trigger", "root"] as const;

export type Field = (typeof FIELDS)[number];

export interface Term {
  field: Field | "text";
  value: string;
  start: number;
  end: number;
}

export interface Parsed {
  terms: Term[];
  faults: string[];
}

export interface JobFilter {
  status?: string[];
  source?: string;
  key?: string;
  queue?: string;
  created_after?: string;
  created_before?: string;
  correlation_id?: string;
  group_id?: string;
  trigger_id?: string;
  root_id?: string;
  search?: string;
}

interface Word {
  raw: string;
  start: number;
  end: number;
}

/** Words split at spaces, except inside double quotes. */
function words(text: string): Word[] {
  const found: Word[] = [];
  const pattern = /(?:"[^"]*"?|[^\s"])+/g;
  for (let match = pattern.exec(text); match !== null; match = pattern.exec(text)) {
    found.push({ raw: match[0], start: match.index, end: match.index + match[0].length });
  }
  return found;
}

const unquote = (text: string): string => text.replaceAll('"', "");

function isField(name: string): name is Field {
  return (FIELDS as readonly string[]).includes(name);
}

export function parse(text: string): Parsed {
  const terms: Term[] = [];
  const faults: string[] = [];
  for (const { raw, start, end } of words(text)) {
    const colon = raw.indexOf(":");
    const name = colon > 0 ? raw.slice(0, colon).toLowerCase() : "";
    if (!raw.startsWith('"') && isField(name)) {
      const value = unquote(raw.slice(colon + 1));
      if (value !== "") terms.push({ field: name, value, start, end });
      continue;
    }
    if (!raw.startsWith('"') && /^[a-z_]+$/.test(name) && !raw.startsWith(`${name}://`)) {
      faults.push(`“${name}:” is not a field. Fields are ${FIELDS.join(", ")}; put quotes around plain text with a colon.`);
      continue;
    }
    const value = unquote(raw);
    if (value !== "") terms.push({ field: "text", value, start, end });
  }
  return { terms, faults };
}

const UNITS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86_400, w: 604_800 };

/** A moment: `2h` (ago), `today`, `yesterday`, a date or an ISO time. Null when it is none of these. */
export function moment(value: string, now: Date): Date | null {
  const ago = /^(\d{1,6})([smhdw])$/.exec(value);
  if (ago) return new Date(now.getTime() - Number(ago[1]) * (UNITS[ago[2] as string] as number) * 1000);
  if (value === "now") return now;
  if (value === "today" || value === "yesterday") {
    const day = new Date(now);
    day.setHours(0, 0, 0, 0);
    if (value === "yesterday") day.setDate(day.getDate() - 1);
    return day;
  }
  if (!/^\d{4}-\d{2}-\d{2}/.test(value)) return null;
  const found = new Date(value.length === 10 ? `${value}T00:00:00` : value);
  return Number.isNaN(found.getTime()) ? null : found;
}

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** What the API is asked for, and what in the query could not be understood. */
export function toFilter(text: string, now: Date): { filter: JobFilter; faults: string[] } {
  const { terms, faults } = parse(text);
  const filter: JobFilter = {};
  const search: string[] = [];
  for (const { field, value } of terms) {
    switch (field) {
      case "text":
        search.push(value);
        break;
      case "status": {
        const given = value.split(",").map((each) => (each === "dead" ? "dead_letter" : each)).filter(Boolean);
        const unknown = given.filter((each) => !(STATUSES as readonly string[]).includes(each));
        if (unknown.length > 0) faults.push(`“${unknown.join(", ")}” is not a status. Statuses are ${STATUSES.join(", ")}.`);
        else filter.status = [...new Set([...(filter.status ?? []), ...given])];
        break;
      }
      case "source":
        if ((SOURCES as readonly string[]).includes(value)) filter.source = value;
        else faults.push(`“${value}” is not a source. Sources are ${SOURCES.join(", ")}.`);
        break;
      case "after":
      case "before": {
        const at = moment(value, now);
        if (at === null) faults.push(`“${value}” is not a time. Write 2h, 7d, today, 2026-02-16 or 2026-02-16T10:30.`);
        else filter[field === "after" ? "created_after" : "created_before"] = at.toISOString();
        break;
      }
      case "group":
      case "trigger":
      case "root":
        if (ID.test(value)) filter[`${field}_id`] = value;
        else faults.push(`“${value}” is not an id. ${field}: takes the whole id of a ${field === "root" ? "first job" : field}.`);
        break;
      case "correlation":
        filter.correlation_id = value;
        break;
      default:
        filter[field] = value;
    }
  }
  if (search.length > 0) filter.search = search.join(" ");
  return { filter, faults };
}

/** The query with one field set, or removed when the value is empty. */
export function withTerm(text: string, field: Field, value: string | null): string {
  const kept = parse(text).terms.filter((term) => term.field !== field).map((term) => text.slice(term.start, term.end));
  if (value !== null && value !== "") kept.unshift(`${field}:${/\s/.test(value) ? `"${value}"` : value}`);
  return kept.join(" ");
}

export function valueOf(text: string, field: Field): string | undefined {
  return parse(text).terms.findLast((term) => term.field === field)?.value;
}

export interface Suggestion {
  label: string;
  hint: string;
  /** The whole query once this is taken, and where the caret goes. */
  text: string;
  caret: number;
}

const HINTS: Record<Field, string> = {
  status: "queued, running, succeeded, failed, canceled, dead_letter",
  source: "manual, event, schedule, system",
  key: "the definition, * for any",
  queue: "the queue",
  after: "made after: 2h, 7d, today, a date",
  before: "made before: 2h, 7d, today, a date",
  correlation: "the correlation id",
  group: "members of a group",
  trigger: "jobs of a trigger",
  root: "a retry chain",
};

export interface Known {
  keys: readonly string[];
  queues: readonly string[];
}

/** What could come at the caret: field names while a word has no colon, values after it. */
export function suggest(text: string, caret: number, known: Known): Suggestion[] {
  const current = words(text).find((word) => word.start < caret && caret <= word.end);
  const typed = current ? text.slice(current.start, caret) : "";
  const head = text.slice(0, current ? current.start : caret);
  const tail = text.slice(current ? current.end : caret);
  const complete = (label: string, hint: string, open = false): Suggestion => {
    const made = head + label + (open ? "" : " ");
    const rest = tail.trimStart();
    return { label, hint, text: open && rest !== "" ? `${made} ${rest}` : made + rest, caret: made.length };
  };
  const colon = typed.indexOf(":");
  if (colon === -1) {
    return FIELDS.filter((field) => field.startsWith(typed.toLowerCase())).map((field) => complete(`${field}:`, HINTS[field], true));
  }
  const field = typed.slice(0, colon).toLowerCase();
  const part = typed.slice(colon + 1).toLowerCase();
  const values: Record<string, readonly string[]> = {
    status: STATUSES,
    source: SOURCES,
    key: known.keys,
    queue: known.queues,
    after: ["15m", "1h", "24h", "7d", "today", "yesterday"],
    before: ["1h", "24h", "7d", "today", "yesterday"],
  };
  return (values[field] ?? [])
    .filter((value) => value.toLowerCase().startsWith(part) && value.toLowerCase() !== part)
    .slice(0, 8)
    .map((value) => complete(`${field}:${/\s/.test(value) ? `"${value}"` : value}`, ""));
}
