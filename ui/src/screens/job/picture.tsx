import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";

import { type Job, taken } from "../../api/client";
import { useScope } from "../../api/session";
import { Flow } from "../../ui/flow";
import { Panel } from "../../ui/panel";
import css from "./job.module.css";

/** The job among its own: those that retry it, and those of its group. */
export function Picture({ job }: { job: Job }) {
  const { api, key, to } = useScope();
  const chained = job.retry_mode === "chain" || job.root_id !== job.id;
  const chain = useQuery({
    queryKey: key("job", job.id, "chain", job.status),
    queryFn: () => taken(api.GET("/api/v1/jobs/{job_id}/chain", { params: { path: { job_id: job.id } } })),
    enabled: chained,
  });
  const group = useQuery({
    queryKey: key("group", job.group_id, job.status),
    queryFn: () => taken(api.GET("/api/v1/groups/{group_id}", { params: { path: { group_id: job.group_id as string } } })),
    enabled: job.group_id !== null,
  });
  return (
    <>
      {chain.data && chain.data.items.length > 1 && (
        <Panel title="Retry chain">
          <div className={css.picture}>
            <Flow jobs={chain.data.items} current={job.id} />
          </div>
        </Panel>
      )}
      {group.data && (
        <Panel title={`Group, ${group.data.mode}`} actions={<Link to={to(`groups/${group.data.id}`)}>Open the group</Link>}>
          <div className={css.picture}>
            <Flow jobs={group.data.jobs} parallel={group.data.mode === "parallel"} current={job.id} />
          </div>
        </Panel>
      )}
    </>
  );
}
