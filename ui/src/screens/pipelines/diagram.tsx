import type { Schemas } from "../../api/client";
import { count } from "../../lib/number";
import { Line } from "../../ui/text";
import css from "./pipelines.module.css";

type Pipeline = Schemas["Pipeline"];
type Table = Schemas["PipelineTable"];

export const STATES = [
  ["success", "done", "--succeeded"],
  ["reserved", "running", "--running"],
  ["pending", "waiting", "--queued"],
  ["error", "errors", "--dead"],
  ["ignore", "set aside", "--border-strong"],
] as const;

/** Finished jobs are forgotten unless the table keeps them, so what is made counts as done. */
export const withDone = (jobs: Record<string, number>, made: number): Record<string, number> => ({ ...jobs, success: Math.max(jobs.success ?? 0, made) });

const WIDTH = 200;
const HEIGHT = 84;
const ACROSS = 70;
const DOWN = 26;

function places(tables: readonly Table[]): Map<string, { x: number; y: number }> {
  const rows = new Map<number, number>();
  return new Map(
    tables.map((table) => {
      const row = rows.get(table.layer) ?? 0;
      rows.set(table.layer, row + 1);
      return [table.id, { x: table.layer * (WIDTH + ACROSS), y: row * (HEIGHT + DOWN) }];
    }),
  );
}

/** Tables from left to right as they depend on each other, each with how its jobs stand. */
export function Diagram({ pipeline, chosen, choose }: { pipeline: Pipeline; chosen: string | null; choose: (table: string) => void }) {
  const at = places(pipeline.tables);
  const width = Math.max(...[...at.values()].map((place) => place.x + WIDTH));
  const height = Math.max(...[...at.values()].map((place) => place.y + HEIGHT));
  return (
    <div className={css.scroll} tabIndex={0} role="region" aria-label="Diagram">
      <div className={css.diagram} style={{ width, height }}>
        <svg width={width} height={height} aria-hidden="true">
          {pipeline.edges.map((edge) => {
            const from = at.get(edge.parent);
            const to = at.get(edge.child);
            if (!from || !to) return null;
            const start = { x: from.x + WIDTH, y: from.y + HEIGHT / 2 };
            const end = { x: to.x, y: to.y + HEIGHT / 2 };
            const bend = (end.x - start.x) / 2;
            return <path key={`${edge.parent} ${edge.child}`} data-key={edge.in_key} d={`M${start.x},${start.y} C${start.x + bend},${start.y} ${end.x - bend},${end.y} ${end.x},${end.y}`} />;
          })}
        </svg>
        {pipeline.tables.map((table) => (
          <Box key={table.id} table={table} at={at.get(table.id)} pressed={chosen === table.name} choose={() => choose(table.name)} />
        ))}
      </div>
    </div>
  );
}

function Box({ table, at, pressed, choose }: { table: Table; at: { x: number; y: number } | undefined; pressed: boolean; choose: () => void }) {
  const jobs = withDone(table.jobs, table.rows);
  const total = STATES.reduce((sum, [state]) => sum + (jobs[state] ?? 0), 0);
  const errors = table.jobs.error ?? 0;
  return (
    <button type="button" className={css.box} style={{ left: at?.x, top: at?.y }} disabled={!table.computes} aria-pressed={table.computes ? pressed : undefined} onClick={choose}>
      <span className={css.name}>
        <Line length={40}>{table.name}</Line>
      </span>
      <span className={css.small}>
        {table.tier}, {count(table.rows)} {table.rows === 1 ? "row" : "rows"}
        {errors > 0 && `, ${count(errors)} ${errors === 1 ? "error" : "errors"}`}
      </span>
      {table.computes && (
        <span className={css.bar} aria-hidden="true">
          {STATES.map(([state, , colour]) => (
            <span key={state} style={{ width: total === 0 ? 0 : `${(100 * (jobs[state] ?? 0)) / total}%`, background: `var(${colour})` }} />
          ))}
        </span>
      )}
    </button>
  );
}
