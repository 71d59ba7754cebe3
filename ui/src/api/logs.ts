import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { ROOT } from "../lib/root";
import { headersFor, type Job, type Schemas, taken } from "./client";
import { useScope } from "./session";
import { messages } from "./sse";

type Log = Schemas["Logs"];

/** A run's output: followed while it runs, read once when it has ended. */
export function useLog(job: Job, attempt: number | null): Log | undefined {
  const { api, key, header } = useScope();
  const [live, setLive] = useState<Log | null>(null);
  const running = job.status === "running" && attempt === null;
  const read = useQuery({
    queryKey: key("job", job.id, "log", attempt, job.status, job.attempt_count),
    queryFn: () => taken(api.GET("/api/v1/jobs/{job_id}/logs", { params: { path: { job_id: job.id }, query: attempt === null ? {} : { attempt_no: attempt } } })),
    enabled: !running,
    placeholderData: (before) => before,
  });

  useEffect(() => {
    if (!running) return;
    const stop = new AbortController();
    const follow = async () => {
      const answer = await fetch(`${ROOT}/api/v1/jobs/${encodeURIComponent(job.id)}/logs/stream`, { headers: headersFor(header), credentials: "same-origin", signal: stop.signal });
      if (!answer.ok || !answer.body) return;
      for await (const message of messages(answer.body)) if (message.event === "log") setLive(JSON.parse(message.data) as Log);
    };
    follow().catch(() => undefined);
    return () => stop.abort();
  }, [running, job.id, job.attempt_count, header]);
  return running ? (live ?? undefined) : (read.data ?? live ?? undefined);
}
