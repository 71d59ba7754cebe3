/**
 * Text that came from a job. It is only ever put into text nodes; here it is also made unable to disturb what is around
 * it: control codes and direction marks become visible signs, and a line of a megabyte is shown by its beginning.
 */

// eslint-disable-next-line no-control-regex
const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[@-Z\\-_])|\u009b[0-?]*[ -/]*[@-~]/g;
// eslint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
const DIRECTION = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const INVISIBLE = /[\u200b\u2060\ufeff]/g;

export const LONG_LINE = 2000;

/** Terminal escape sequences removed, other control codes and direction marks shown as signs. */
export function plain(text: string): string {
  return text
    .replace(ANSI, "")
    .replace(/\r\n?/g, "\n")
    .replace(CONTROL, (sign) => sign === "\n" || sign === "\t" ? sign : controlPicture(sign))
    .replace(DIRECTION, "\u2422")
    .replace(INVISIBLE, "");
}

function controlPicture(sign: string): string {
  const code = sign.charCodeAt(0);
  return code < 0x20 ? String.fromCharCode(0x2400 + code) : code === 0x7f ? "\u2421" : "\ufffd";
}

/** One line, at most `length` characters, for names and cells. */
export function line(text: string, length = 300): string {
  const flat = plain(text.slice(0, length * 4)).replace(/\s+/g, " ").trim();
  return flat.length > length || text.length > length * 4 ? `${flat.slice(0, length)}…` : flat;
}

/** Lines for a log view; a line beyond the limit is cut, and says by how much. */
export function lines(text: string, limit = LONG_LINE): { text: string; cut: number }[] {
  if (text === "") return [];
  const body = text.endsWith("\n") ? text.slice(0, -1) : text;
  return body.split("\n").map((each) => {
    const cut = Math.max(0, each.length - limit);
    return { text: plain(cut > 0 ? each.slice(0, limit) : each).replaceAll("\n", "\u240d"), cut };
  });
}

/** JSON, indented, as text. Long documents are cut for display. */
export function json(value: unknown, limit = 200_000): { text: string; cut: number } {
  const made = JSON.stringify(value, null, 2) ?? "null";
  const cut = Math.max(0, made.length - limit);
  return { text: plain(cut > 0 ? made.slice(0, limit) : made), cut };
}

/** Only a web address becomes a link. */
export function webAddress(text: string): string | null {
  try {
    const url = new URL(text);
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : null;
  } catch {
    return null;
  }
}
