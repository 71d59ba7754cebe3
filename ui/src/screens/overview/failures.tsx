import { Link } from "react-router";

import { taken } from "../../api/client";
import { useRead } from "../../api/read";
import { useScope } from "../../api/session";
import { count } from "../../lib/number";
import { Empty, Fault, Panel, Skeleton } from "../../ui/panel";
import { Line, Time } from "../../ui/text";
import css from "./overview.module.css";

/** What breaks, by cause. */
export function Failures({ hours }: { hours: number }) {
  const { api, key, to } = useScope();
  const { data, error, refetch } = useRead({
    queryKey: key("failures", hours),
    queryFn: () => taken(api.GET("/api/v1/stats/failures", { params: { query: { limit: 12, hours } } })),
    refetchInterval: 10_000,
    placeholderData: (before) => before,
  });
  return (
    <Panel title="Failures by cause" flush>
      {error ? (
        <Fault error={error} retry={() => void refetch()} />
      ) : !data ? (
        <Skeleton />
      ) : data.items.length === 0 ? (
        <Empty title="Nothing failed">In this span every job that ended did its work.</Empty>
      ) : (
        data.items.map((each) => (
          <div key={`${each.definition_key} ${each.error}`} className={css.failure}>
            <b>{count(each.count)}</b>
            <div>
              <Link to={to(`jobs?q=${encodeURIComponent(`key:${/\s/.test(each.definition_key) ? `"${each.definition_key}"` : each.definition_key} status:failed,dead_letter`)}`)}>
                <Line length={80}>{each.definition_key}</Line>
              </Link>{" "}
              {each.dead_letter > 0 && <span className="quiet">{count(each.dead_letter)} given up</span>}
              <div>
                <Link to={to(`jobs/${each.example_id}`)} title="Open the latest example">
                  <code>
                    <Line length={240}>{each.error}</Line>
                  </code>
                </Link>
              </div>
            </div>
            <span className="quiet">
              <Time at={each.last_at} as="relative" />
            </span>
          </div>
        ))
      )}
    </Panel>
  );
}
