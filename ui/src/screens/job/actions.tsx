import { useQueryClient } from "@tanstack/react-query";
import { ArrowDownToLine, ArrowUpToLine, Ban, EllipsisVertical, Pencil, Play, RotateCcw } from "lucide-react";
import { useState } from "react";
import { useNavigate } from "react-router";

import { type Job, taken } from "../../api/client";
import { act, canCancel, canRetry, canRunNow } from "../../api/jobs";
import { useMay, useScope } from "../../api/session";
import { localInput } from "../../lib/time";
import { Button, IconButton } from "../../ui/button";
import { Confirm, Dialog, Menu, useTell } from "../../ui/float";
import { Actions, TextArea, TextField } from "../../ui/form";
import { Fault } from "../../ui/panel";

export function JobActions({ job }: { job: Job }) {
  const scope = useScope();
  const may = useMay();
  const tell = useTell();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [asking, setAsking] = useState<"cancel" | "edit" | null>(null);
  if (!may("operate")) return null;

  const changed = (after: Job, said: string) => {
    queries.setQueryData(scope.key("job", after.id), after);
    tell.done(said);
    if (after.id !== job.id) void navigate(scope.to(`jobs/${after.id}`));
  };
  const retry = () => act(scope, "retry", job.id).then((after) => changed(after, after.id === job.id ? "Queued again" : "A new job retries it"), tell.failed);
  const runNow = () =>
    taken(scope.api.POST("/api/v1/jobs/{job_id}/run-now", { params: { path: { job_id: job.id } } })).then(
      (after) => changed(after, after.waits_for === null ? "It runs next, in the order of the queue" : "It is due now"),
      tell.failed,
    );
  const move = (to: "top" | "bottom") =>
    taken(scope.api.POST("/api/v1/jobs/{job_id}/move", { params: { path: { job_id: job.id } }, body: { to } })).then((after) => changed(after, `Moved to the ${to} of its priority`), tell.failed);

  return (
    <>
      {canRetry(job) && (
        <Button variant="primary" icon={<RotateCcw size={15} />} onClick={() => void retry()}>
          Retry
        </Button>
      )}
      {canRunNow(job) && (
        <Button variant="primary" icon={<Play size={15} />} onClick={() => void runNow()}>
          Run now
        </Button>
      )}
      {job.status === "queued" && (
        <Button icon={<Pencil size={15} />} onClick={() => setAsking("edit")}>
          Edit
        </Button>
      )}
      {canCancel(job) && (
        <Button danger icon={<Ban size={15} />} onClick={() => setAsking("cancel")}>
          Cancel job
        </Button>
      )}
      {job.status === "queued" && (
        <Menu
          trigger={<IconButton label="Move in the queue" icon={<EllipsisVertical size={16} />} />}
          items={[
            { label: "Move to the top", icon: <ArrowUpToLine size={15} />, run: () => void move("top") },
            { label: "Move to the bottom", icon: <ArrowDownToLine size={15} />, run: () => void move("bottom") },
          ]}
        />
      )}
      <Confirm
        open={asking === "cancel"}
        onClose={() => setAsking(null)}
        title="Cancel this job?"
        lead={job.status === "running" ? "It is running: it is asked to stop, and ends as canceled when it does." : "It leaves the queue and does not run. It can be retried later."}
        action="Cancel job"
        danger
        run={() => act(scope, "cancel", job.id).then((after) => changed(after, after.status === "canceled" ? "Canceled" : "Asked to stop"))}
      />
      {asking === "edit" && <Edit job={job} onClose={() => setAsking(null)} onDone={(after) => changed(after, "Changed")} />}
    </>
  );
}

function Edit({ job, onClose, onDone }: { job: Job; onClose: () => void; onDone: (job: Job) => void }) {
  const { api } = useScope();
  const [payload, setPayload] = useState(JSON.stringify(job.payload, null, 2));
  const [priority, setPriority] = useState(String(job.priority));
  const [dueBefore] = useState(job.waits_for === "time" || job.waits_for === "group" ? localInput(job.scheduled_for) : "");
  const [due, setDue] = useState(dueBefore);
  const [fault, setFault] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const save = async () => {
    let body: Record<string, unknown>;
    try {
      body = JSON.parse(payload) as Record<string, unknown>;
    } catch (caught) {
      setFault(`This is not JSON: ${(caught as Error).message}`);
      return;
    }
    setFault(null);
    try {
      const time = due === dueBefore ? {} : { scheduled_for: due === "" ? null : new Date(due).toISOString() };
      onDone(await taken(api.PATCH("/api/v1/jobs/{job_id}", { params: { path: { job_id: job.id } }, body: { payload: body, priority: Number(priority), ...time } })));
      onClose();
    } catch (caught) {
      setError(caught);
    }
  };
  return (
    <Dialog open onClose={onClose} title="Edit the job" lead="Possible while it waits. A masked value (***) stays what it is.">
      <TextArea label="Payload" rows={12} value={payload} fault={fault} onChange={(event) => setPayload(event.target.value)} />
      <TextField label="Priority" type="number" hint="Lower runs first." value={priority} onChange={(event) => setPriority(event.target.value)} />
      <TextField label="Not before" type="datetime-local" step={1} hint="In your own time zone. Empty means now." value={due} onChange={(event) => setDue(event.target.value)} />
      {error !== null && <Fault error={error} />}
      <Actions>
        <Button onClick={onClose}>Back</Button>
        <Button variant="primary" onClick={() => void save()}>
          Save
        </Button>
      </Actions>
    </Dialog>
  );
}
