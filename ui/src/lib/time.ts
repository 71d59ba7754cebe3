/** Times as people read them: how long ago, how long it took, and the exact moment in the zone that was chosen. */

const formats = new Map<string, Intl.DateTimeFormat>();

function format(zone: string | undefined, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${zone ?? ""}|${JSON.stringify(options)}`;
  let found = formats.get(key);
  if (!found) {
    found = new Intl.DateTimeFormat("en-GB", { ...options, timeZone: zone });
    formats.set(key, found);
  }
  return found;
}

/** A zone the browser knows, or undefined for the viewer's own. */
export function knownZone(zone: string | null | undefined): string | undefined {
  if (!zone) return undefined;
  try {
    new Intl.DateTimeFormat("en-GB", { timeZone: zone }).resolvedOptions();
    return zone;
  } catch {
    return undefined;
  }
}

export const viewerZone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone;

function parts(at: Date, zone?: string): Record<string, string> {
  const made = format(zone, {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hourCycle: "h23", weekday: "short",
  }).formatToParts(at);
  return Object.fromEntries(made.map((part) => [part.type, part.value]));
}

/** `2026-02-16 10:30:01`, in the zone. */
export function exact(at: string | Date, zone?: string): string {
  const p = parts(new Date(at), zone);
  return `${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute}:${p.second}`;
}

/** The value of a `datetime-local` input, which is in the viewer's own zone: `2026-02-16T10:30:01`. */
export function localInput(at: string | Date): string {
  return exact(at).replace(" ", "T");
}

/** `Mon 2026-02-16 10:30`, with the offset that holds at that moment, so that a change of clocks shows. */
export function calendar(at: string | Date, zone?: string): string {
  const when = new Date(at);
  const p = parts(when, zone);
  return `${p.weekday} ${p.year}-${p.month}-${p.day} ${p.hour}:${p.minute} ${offset(when, zone)}`;
}

/** `UTC+1`, `UTC-3:30` or `UTC`. */
export function offset(at: Date, zone?: string): string {
  const name = format(zone, { timeZoneName: "longOffset" }).formatToParts(at).find((part) => part.type === "timeZoneName")?.value ?? "GMT";
  const match = /^GMT(?:([+-])(\d{2}):(\d{2}))?$/.exec(name);
  if (!match?.[1] || (match[2] === "00" && match[3] === "00")) return "UTC";
  return `UTC${match[1]}${Number(match[2])}${match[3] === "00" ? "" : `:${match[3]}`}`;
}

/** The time of day when it is today, otherwise the day too. */
export function brief(at: string | Date, now: Date, zone?: string): string {
  const p = parts(new Date(at), zone);
  const today = parts(now, zone);
  const clock = `${p.hour}:${p.minute}:${p.second}`;
  if (p.year === today.year && p.month === today.month && p.day === today.day) return clock;
  return p.year === today.year ? `${p.month}-${p.day} ${clock}` : `${p.year}-${p.month}-${p.day}`;
}

/** `850 ms`, `12.4 s`, `3 m 20 s`, `2 h 5 m`, `4 d 3 h`. */
export function duration(seconds: number): string {
  const s = Math.max(0, seconds);
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return pair(s, 60, "m", 1, "s");
  if (s < 86_400) return pair(s, 3600, "h", 60, "m");
  return pair(s, 86_400, "d", 3600, "h");
}

function pair(s: number, big: number, bigName: string, small: number, smallName: string): string {
  const whole = Math.floor(s / big);
  const rest = Math.floor((s - whole * big) / small);
  return rest === 0 ? `${whole} ${bigName}` : `${whole} ${bigName} ${rest} ${smallName}`;
}

/** `in 3 m` or `12 s ago`; `now` within a second. */
export function relative(at: string | Date, now: Date): string {
  const seconds = (new Date(at).getTime() - now.getTime()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  const span = coarse(Math.abs(seconds));
  return seconds > 0 ? `in ${span}` : `${span} ago`;
}

function coarse(s: number): string {
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} m`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

export function between(start: string | null | undefined, end: string | null | undefined, now: Date): string | null {
  if (!start) return null;
  return duration(((end ? new Date(end) : now).getTime() - new Date(start).getTime()) / 1000);
}
