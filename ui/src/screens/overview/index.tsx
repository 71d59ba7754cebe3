import { useState } from "react";

import { useMay } from "../../api/session";
import { Pick } from "../../ui/form";
import { PageHeader } from "../../ui/panel";
import { Cards } from "./cards";
import { Charts } from "./charts";
import { Failures } from "./failures";
import css from "./overview.module.css";
import { Standings } from "./standings";
import { Upcoming } from "./upcoming";
import { WorkerPanel } from "./workers";

const SPANS = [
  ["60", "Last hour"],
  ["360", "Last 6 hours"],
  ["1440", "Last day"],
  ["10080", "Last week"],
] as const;

export default function Overview() {
  const may = useMay();
  const [minutes, setMinutes] = useState("60");
  return (
    <div className="stack">
      <PageHeader title="Overview" actions={<Pick label="Time span" choices={SPANS} value={minutes} onChange={(event) => setMinutes(event.target.value)} />} />
      <Cards />
      <Charts minutes={Number(minutes)} />
      <div className={css.wide}>
        <Failures hours={Number(minutes) / 60} />
        <div className="stack">
          <Upcoming />
          <WorkerPanel />
        </div>
      </div>
      {may("admin") && <Standings />}
    </div>
  );
}
