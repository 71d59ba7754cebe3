import { Link } from "react-router";

import { taken } from "../../api/client";
import { useRead } from "../../api/read";
import { useMay, useScope } from "../../api/session";
import { ButtonLink } from "../../ui/button";
import { Empty, Fault, Panel, Skeleton } from "../../ui/panel";
import { Line, Time } from "../../ui/text";
import css from "./overview.module.css";

export function Upcoming() {
  const { api, key, to } = useScope();
  const may = useMay();
  const { data, error } = useRead({
    queryKey: key("upcoming"),
    queryFn: () => taken(api.GET("/api/v1/stats/upcoming", { params: { query: { limit: 6 } } })),
    refetchInterval: 30_000,
  });
  return (
    <Panel title="Next scheduled" flush>
      {error ? (
        <Fault error={error} />
      ) : !data ? (
        <Skeleton lines={2} />
      ) : data.items.length === 0 ? (
        <Empty title="Nothing is scheduled" action={may("manage") && <ButtonLink small to={to("triggers?new=schedule")}>Make a schedule</ButtonLink>}>
          A schedule asks for a job at set times.
        </Empty>
      ) : (
        data.items.map((each) => (
          <div key={`${each.trigger_id} ${each.at}`} className={css.item}>
            <Link className="clip" to={to(`triggers/${each.trigger_id}`)}>
              <Line length={60}>{each.label}</Line>
            </Link>
            <span className="quiet">
              <Time at={each.at} as="relative" />
            </span>
          </div>
        ))
      )}
    </Panel>
  );
}
