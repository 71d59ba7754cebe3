import cronstrue from "cronstrue";

/** A cron expression in words, or null when it cannot be read. Five fields, as the server takes them. */
export function inWords(expression: string): string | null {
  const fields = expression.trim().split(/\s+/);
  if (fields.length !== 5 && !expression.trim().startsWith("@")) return null;
  try {
    return cronstrue.toString(expression.trim(), { use24HourTimeFormat: true, verbose: false, throwExceptionOnParseError: true });
  } catch {
    return null;
  }
}
