import { useMemo } from "react";

import { taken } from "../../api/client";
import { useRead } from "../../api/read";
import { useScope } from "../../api/session";
import { compact } from "../../lib/number";
import { duration } from "../../lib/time";
import { Chart, type Series } from "../../ui/chart";
import { Fault, Panel } from "../../ui/panel";
import css from "./overview.module.css";

const POINTS = 60;

export function Charts({ minutes }: { minutes: number }) {
  const { api, key } = useScope();
  const step = Math.max(1, Math.round(minutes / POINTS));
  const { data, error, refetch } = useRead({
    queryKey: key("timeline", minutes),
    queryFn: () => taken(api.GET("/api/v1/stats/timeline", { params: { query: { minutes, step } } })),
    refetchInterval: 10_000,
    placeholderData: (before) => before,
  });
  const { times, ended, waits, runs } = useMemo(() => {
    const points = data?.items ?? [];
    const line = (label: string, colour: string, of: (point: (typeof points)[number]) => number | null, bars = false): Series => ({ label, colour, bars, values: points.map(of) });
    return {
      times: points.map((point) => new Date(point.at).getTime() / 1000),
      ended: [
        line("Ended", "--chart-1", (point) => point.succeeded + point.skipped + point.failed + point.timeout + point.canceled, true),
        line("of these failed", "--chart-2", (point) => point.failed + point.timeout, true),
      ],
      waits: [line("Median wait", "--chart-1", (point) => point.wait_p50), line("p95 wait", "--chart-2", (point) => point.wait_p95)],
      runs: [line("Median run", "--chart-3", (point) => point.run_p50)],
    };
  }, [data]);
  const latency = useMemo(() => [...waits, ...runs], [waits, runs]);
  if (error) return <Fault error={error} retry={() => void refetch()} />;
  return (
    <div className={css.two}>
      <Panel title={`Runs that ended, per ${step === 1 ? "minute" : `${step} minutes`}`}>
        <Chart label="Runs that ended over time" times={times} series={ended} format={compact} />
      </Panel>
      <Panel title="Latency">
        <Chart label="Waiting and running time over time" times={times} series={latency} format={duration} />
      </Panel>
    </div>
  );
}
