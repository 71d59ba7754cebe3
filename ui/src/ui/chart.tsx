import "uplot/dist/uPlot.min.css";

import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";

import { exact } from "../lib/time";
import { useTheme } from "../lib/theme";
import { useZone } from "../lib/zone";
import css from "./chart.module.css";

export interface Series {
  label: string;
  /** A colour token, such as `--chart-1`. */
  colour: string;
  values: readonly (number | null)[];
  bars?: boolean;
}

interface Props {
  label: string;
  times: readonly number[];
  series: readonly Series[];
  format: (value: number) => string;
}

const token = (name: string): string => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The one value there is: a line has two ends, so it would not be seen. */
function alone(values: ArrayLike<number | null | undefined> | undefined): number[] | null {
  const there = Array.from(values ?? []).flatMap((value, index) => (value == null ? [] : [index]));
  return there.length === 1 ? there : null;
}

/** Values over time. The picture is a canvas; the legend carries the numbers, and follows the pointer. */
export function Chart({ label, times, series, format }: Props) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [at, setAt] = useState<number | null>(null);
  const { resolved } = useTheme();
  const { zone } = useZone();
  const shape = series.map((each) => each.label).join("|");

  useEffect(() => {
    const element = host.current;
    if (!element) return;
    const axis = { stroke: token("--muted"), grid: { stroke: token("--chart-grid"), width: 1 }, ticks: { show: false }, font: `11px ${token("--font")}` };
    const made = new uPlot(
      {
        width: element.clientWidth,
        height: 190,
        legend: { show: false },
        cursor: { points: { size: 6 }, drag: { x: false, y: false } },
        tzDate: (seconds) => (zone ? uPlot.tzDate(new Date(seconds * 1000), zone) : new Date(seconds * 1000)),
        padding: [10, 8, 0, 0],
        scales: { y: { range: (_self, _min, max) => [0, Number.isFinite(max) && max > 0 ? max * 1.12 : 1] } },
        axes: [
          { ...axis, size: 26, values: (_self, ticks) => ticks.map((tick) => exact(new Date(tick * 1000), zone).slice(11, 16)) },
          { ...axis, size: 54, values: (_self, ticks) => ticks.map(format) },
        ],
        series: [
          {},
          ...series.map((each) => ({
            label: each.label,
            stroke: token(each.colour),
            fill: each.bars ? token(each.colour) : undefined,
            width: each.bars ? 0 : 1.75,
            points: { show: false, size: 5, fill: token(each.colour), filter: (self: uPlot, index: number) => (each.bars ? null : alone(self.data[index])) },
            spanGaps: true,
            ...(each.bars && uPlot.paths.bars ? { paths: uPlot.paths.bars({ size: [0.72, 40], align: 1 }) } : {}),
          })),
        ],
        hooks: { setCursor: [(self) => setAt(self.cursor.idx ?? null)] },
      },
      [[...times], ...series.map((each) => [...each.values])] as uPlot.AlignedData,
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: 190 }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
    // Made anew when the look changes; new values go in below, without flicker.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [resolved, zone, shape]);

  useEffect(() => {
    plot.current?.setData([[...times], ...series.map((each) => [...each.values])] as uPlot.AlignedData);
  }, [times, series]);

  const shown = at ?? times.length - 1;
  const moment = times[shown];
  return (
    <figure aria-label={label} className="stack-small">
      <figcaption className={css.legend}>
        {series.map((each) => {
          const value = each.values[shown];
          return (
            <span key={each.label}>
              <i className={css.swatch} style={{ background: `var(${each.colour})` }} aria-hidden="true" />
              {each.label} <b className={css.value}>{value === null || value === undefined ? "–" : format(value)}</b>
            </span>
          );
        })}
        {moment !== undefined && <span>{exact(new Date(moment * 1000), zone).slice(5, 16)}</span>}
      </figcaption>
      <div ref={host} className={css.chart} />
    </figure>
  );
}
