import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useParams } from "react-router";

import { type Job, taken } from "../../api/client";
import { useLive } from "../../api/live";
import { useScope } from "../../api/session";
import { Status } from "../../ui/badge";
import { ButtonLink } from "../../ui/button";
import { Empty, Facts, Fault, Note, PageHeader, Panel, Skeleton } from "../../ui/panel";
import { Block, Copyable, Id, Line, Time } from "../../ui/text";
import { Problem } from "../../api/problem";
import { JobActions } from "./actions";
import { Attempts } from "./attempts";
import css from "./job.module.css";
import { Logs } from "./logs";
import { Picture } from "./picture";
import { ProgressPanel } from "./progress";
import { Timeline } from "./timeline";
import { Link } from "react-router";

const isActive = (job: Job | undefined): boolean => job?.status === "queued" || job?.status === "running";

export default function JobScreen() {
  const id = useParams().id ?? "";
  const { api, key, to } = useScope();
  const queries = useQueryClient();
  const path = { job_id: id };
  const job = useQuery({
    queryKey: key("job", id),
    queryFn: () => taken(api.GET("/api/v1/jobs/{job_id}", { params: { path } })),
    refetchInterval: (query) => (isActive(query.state.data) ? 2000 : false),
  });
  const version = job.data && `${job.data.status} ${job.data.attempt_count} ${job.data.queued_at} ${job.data.cancel_requested_at} ${job.data.waits_for} ${job.data.scheduled_for}`;
  const attempts = useQuery({
    queryKey: key("job", id, "attempts", version),
    queryFn: () => taken(api.GET("/api/v1/jobs/{job_id}/attempts", { params: { path } })),
    enabled: job.data !== undefined,
    placeholderData: (before) => before,
  });
  const why = useQuery({
    queryKey: key("job", id, "why", version),
    queryFn: () => taken(api.GET("/api/v1/jobs/{job_id}/why", { params: { path } })),
    enabled: job.data !== undefined,
    placeholderData: (before) => before,
    refetchInterval: job.data?.status === "queued" ? 5000 : false,
  });
  useLive((change) => {
    const items = change.data.items;
    if (change.type === "reset" || (change.type === "jobs" && Array.isArray(items) && items.some((each) => (each as { id?: unknown }).id === id))) {
      void queries.invalidateQueries({ queryKey: key("job", id), exact: true });
    }
  });

  if (job.error instanceof Problem && (job.error.status === 404 || job.error.status === 422)) {
    return (
      <Empty title="There is no such job" action={<ButtonLink to={to("jobs")}>All jobs</ButtonLink>}>
        It may belong to another tenant, or it ended long ago and was pruned.
      </Empty>
    );
  }
  if (!job.data && job.failureReason) return <Fault error={job.failureReason} retry={() => void job.refetch()} />;
  if (!job.data) return <Skeleton lines={10} />;
  const found = job.data;
  return (
    <div className="stack">
      <PageHeader
        title={
          <span className={css.title}>
            <Line length={120}>{found.definition_key}</Line> <Status of={found.status} />
          </span>
        }
        lead={<Copyable value={found.id} />}
        actions={<JobActions job={found} />}
      />
      {why.data && <Note tone={found.status === "dead_letter" ? "error" : found.status === "failed" ? "warning" : "info"}>{<Line length={1200}>{why.data.sentence}</Line>}</Note>}
      {found.cancel_requested_at && found.status === "running" && <Note tone="warning">It was asked to stop and has not ended yet.</Note>}
      <ProgressPanel job={found} />
      <div className={css.columns}>
        <div className="stack">
          <Logs job={found} attempts={attempts.data?.items ?? []} />
          <Attempts attempts={attempts.data?.items ?? []} />
          <Picture job={found} />
        </div>
        <div className="stack">
          <Panel title="Timeline">
            <Timeline job={found} attempts={attempts.data?.items ?? []} />
          </Panel>
          <Panel title="Payload">
            <Block of={found.payload} label="Payload" />
          </Panel>
          {found.result !== null && found.result !== undefined && (
            <Panel title="Result">
              <Block of={found.result} label="Result" />
            </Panel>
          )}
          <Panel title="Details">
            <Facts
              of={[
                ["Queue", <Line key="queue">{found.queue}</Line>],
                ["Priority", `${found.priority} (lower runs first)`],
                ["Position", String(found.position)],
                ["Source", found.source],
                ["Trigger", found.trigger_id && <Link to={to(`triggers/${found.trigger_id}`)}>{<Id of={found.trigger_id} short />}</Link>],
                ["Group", found.group_id && <Link to={to(`groups/${found.group_id}`)}>{<Id of={found.group_id} short />}</Link>],
                ["Attempts", `${found.attempt_count} of ${found.max_attempts}, then ${found.retry_mode === "chain" ? "a new job retries" : "back in the queue"}`],
                ["Scheduled for", <Time key="at" at={found.scheduled_for} as="exact" />],
                ["Worker", found.claimed_by_worker && <Line>{found.claimed_by_worker}</Line>],
                ["Lease ends", found.lease_expires_at && <Time at={found.lease_expires_at} as="relative" />],
                ["Dedupe key", found.dedupe_key && <Line>{found.dedupe_key}</Line>],
                ["Correlation", found.correlation_id && <Link to={to(`jobs?q=${encodeURIComponent(`correlation:"${found.correlation_id}"`)}`)}>{<Line>{found.correlation_id}</Line>}</Link>],
                ["Made by", found.created_by && <Line>{found.created_by}</Line>],
              ]}
            />
          </Panel>
        </div>
      </div>
    </div>
  );
}
