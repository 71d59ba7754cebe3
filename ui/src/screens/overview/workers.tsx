import { plural } from "../../lib/number";
import { useWorkers } from "../../api/workers";
import { Badge } from "../../ui/badge";
import { Empty, Fault, Note, Panel, Skeleton } from "../../ui/panel";
import { Line, shortWorker, Time } from "../../ui/text";
import css from "./overview.module.css";

const SHOWN = 8;

export function WorkerPanel() {
  const { data, error } = useWorkers();
  const stale = data?.items.filter((each) => each.stale) ?? [];
  const shown = [...stale, ...(data?.items.filter((each) => !each.stale) ?? [])].slice(0, SHOWN);
  return (
    <Panel title={data ? `Workers (${data.items.length})` : "Workers"} flush>
      {stale.length > 0 && (
        <Note tone="warning">
          {plural(stale.length, "worker has", "workers have")} not been seen for a while. What {stale.length === 1 ? "it" : "they"} ran is retried when its lease ends.
        </Note>
      )}
      {error ? (
        <Fault error={error} />
      ) : !data ? (
        <Skeleton lines={2} />
      ) : data.items.length === 0 ? (
        <Empty title="No worker is alive">
          Jobs wait until one is started: <code>penstock worker</code>
        </Empty>
      ) : (
        shown.map((each) => (
          <div key={each.id} className={css.item}>
            <span className="clip" title={each.id}>
              <Line length={80}>{shortWorker(each.id)}</Line>
            </span>
            {each.stale ? (
              <Badge tone="failed">
                stale, seen <Time at={each.last_seen_at} as="relative" />
              </Badge>
            ) : (
              <Badge tone="succeeded">{each.running_count === null ? `${each.concurrency} slots` : `${each.running_count} of ${each.concurrency}`}</Badge>
            )}
          </div>
        ))
      )}
      {data && data.items.length > SHOWN && <div className={css.item}>and {data.items.length - SHOWN} more</div>}
    </Panel>
  );
}
