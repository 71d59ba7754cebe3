import type { Schemas } from "../../api/client";
import { calendar, knownZone, relative } from "../../lib/time";
import { useNow } from "../../lib/zone";
import css from "./triggers.module.css";

/** The next moments as the clock on the wall of the schedule's zone shows them; a change of clocks stands out. */
export function Runs({ preview }: { preview: Schemas["Preview"] }) {
  const now = useNow();
  const zone = knownZone(preview.timezone);
  const rows = preview.items.map((item) => ({ at: item.at, text: calendar(item.at, zone) }));
  return (
    <ol className={css.runs} aria-label="Next runs">
      {rows.map(({ at, text }, index) => {
        const before = rows[index - 1]?.text.split(" ").at(-1);
        const shift = before !== undefined && before !== text.split(" ").at(-1);
        return (
          <li key={at}>
            <time dateTime={at}>{text}</time>
            {shift && <span className={css.shift}>clocks change</span>}
            <span className="quiet">{relative(at, now)}</span>
          </li>
        );
      })}
    </ol>
  );
}
