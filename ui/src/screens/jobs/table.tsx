import { type ColumnDef, getCoreRowModel, type Row, useReactTable } from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowUp, Ban, EllipsisVertical, RotateCcw } from "lucide-react";
import { memo, type RefObject, useEffect, useMemo, useRef, useState } from "react";
import { Link, useNavigate } from "react-router";

import type { Job } from "../../api/client";
import { canCancel, canRetry, type Verb } from "../../api/jobs";
import { useMay, useScope } from "../../api/session";
import { useKeys } from "../../lib/keys";
import { count } from "../../lib/number";
import { Status } from "../../ui/badge";
import { Button, IconButton } from "../../ui/button";
import { Menu } from "../../ui/float";
import { drawn } from "../../ui/table";
import { Line, shortWorker, Span, Time } from "../../ui/text";
import css from "./table.module.css";

const HEIGHT = 38;

interface Props {
  jobs: readonly Job[];
  more: boolean;
  loadMore: () => void;
  selected: ReadonlySet<string>;
  toggle: (id: string) => void;
  toggleAll: () => void;
  act: (verb: Verb, job: Job) => void;
  waiting: number;
  showWaiting: () => void;
  onScrolled: (down: boolean) => void;
  scroller: RefObject<HTMLDivElement | null>;
}

/** The columns of the queue. Only what is in view is in the page, so that a hundred thousand rows scroll like forty. */
function useColumns(toggle: (id: string) => void, act: Props["act"]): ColumnDef<Job>[] {
  const may = useMay();
  const { to } = useScope();
  return useMemo<ColumnDef<Job>[]>(
    () => [
      {
        id: "select",
        header: "",
        cell: ({ row }) =>
          may("operate") && <input type="checkbox" tabIndex={-1} aria-label={`Select job ${row.original.id}`} checked={row.getIsSelected()} onChange={() => toggle(row.id)} />,
      },
      { id: "status", header: "Status", cell: ({ row }) => <StatusCell job={row.original} /> },
      {
        id: "key",
        header: "Job",
        meta: { className: css.key },
        cell: ({ row }) => (
          <>
            <Link to={to(`jobs/${row.id}`)} data-job={row.id}>
              <Line length={80}>{row.original.definition_key}</Line>
            </Link>
            <span className={css.id} title={row.id}>
              {row.id.slice(-8)}
            </span>
            {row.original.last_error && row.original.status !== "succeeded" && (
              <span className={css.error} title={row.original.last_error.slice(0, 400)}>
                <Line length={160}>{row.original.last_error}</Line>
              </span>
            )}
          </>
        ),
      },
      { id: "source", header: "Source", meta: { className: css.wide }, cell: ({ row }) => row.original.source },
      {
        id: "attempts",
        header: "Attempts",
        meta: { className: `${css.wide} ${css.right}` },
        cell: ({ row }) => `${row.original.attempt_count}/${row.original.max_attempts}`,
      },
      { id: "queued", header: "Queued", cell: ({ row }) => <Time at={row.original.queued_at} /> },
      { id: "started", header: "Started", meta: { className: css.wide }, cell: ({ row }) => <Time at={row.original.started_at} /> },
      { id: "finished", header: "Finished", meta: { className: css.wide }, cell: ({ row }) => <Time at={row.original.finished_at} /> },
      {
        id: "took",
        header: "Took",
        meta: { className: `${css.wide} ${css.right}` },
        cell: ({ row }) => (row.original.status === "queued" ? "–" : <Span from={row.original.started_at} to={row.original.finished_at} />),
      },
      {
        id: "worker",
        header: "Worker",
        meta: { className: css.wide },
        cell: ({ row }) => <span title={row.original.claimed_by_worker ?? undefined}>{row.original.claimed_by_worker ? <Line length={60}>{shortWorker(row.original.claimed_by_worker)}</Line> : <span className="quiet">–</span>}</span>,
      },
      {
        id: "actions",
        header: "",
        meta: { className: css.actions },
        cell: ({ row }) => may("operate") && (canCancel(row.original) || canRetry(row.original)) && <RowMenu job={row.original} act={act} />,
      },
    ],
    [toggle, act, may, to],
  );
}

declare module "@tanstack/react-table" {
  interface ColumnMeta<TData, TValue> {
    className?: string;
  }
}

const StatusCell = memo(function StatusCell({ job }: { job: Job }) {
  const progress = fraction(job);
  return (
    <>
      <Status of={job.status} />
      {progress !== null && (
        <div className={css.bar} aria-hidden="true">
          <i style={{ width: `${progress * 100}%` }} />
        </div>
      )}
    </>
  );
});

export function fraction(job: Job): number | null {
  const { done, total } = (job.progress ?? {}) as { done?: unknown; total?: unknown };
  if (job.status !== "running" || typeof done !== "number" || typeof total !== "number" || total <= 0) return null;
  return Math.min(1, Math.max(0, done / total));
}

interface RowProps {
  row: Row<Job>;
  columns: ColumnDef<Job>[];
  index: number;
  start: number;
  selected: boolean;
}

/** Drawn again only when its own job, place or selection changed, whatever the rest of the list does. */
const BodyRow = memo(
  function BodyRow({ row, index, start, selected }: RowProps) {
    return (
      <div role="row" aria-rowindex={index + 2} className={`${css.row} ${css.line}`} data-status={row.original.status} data-selected={selected} style={{ transform: `translateY(${start}px)` }}>
        {row.getVisibleCells().map((cell) => (
          <div key={cell.id} role="cell" className={cell.column.columnDef.meta?.className}>
            {drawn(cell.column.columnDef.cell, cell.getContext())}
          </div>
        ))}
      </div>
    );
  },
  (before, after) =>
    before.row.original === after.row.original && before.columns === after.columns && before.index === after.index && before.start === after.start && before.selected === after.selected,
);

/** A plain button until it is used: a menu for each of the rows that fly past would make scrolling heavy. */
function RowMenu({ job, act }: { job: Job; act: Props["act"] }) {
  const [used, setUsed] = useState(false);
  const button = <IconButton small tabIndex={-1} label={`Actions for job ${job.id}`} aria-haspopup="menu" icon={<EllipsisVertical size={15} />} onClick={used ? undefined : () => setUsed(true)} />;
  if (!used) return button;
  return (
    <Menu
      opened
      trigger={button}
      items={[
        ...(canRetry(job) ? [{ label: "Retry", icon: <RotateCcw size={15} />, run: () => act("retry", job) }] : []),
        ...(canCancel(job) ? [{ label: "Cancel", icon: <Ban size={15} />, danger: true, run: () => act("cancel", job) }] : []),
      ]}
    />
  );
}

export function JobTable({ jobs, more, loadMore, selected, toggle, toggleAll, act, waiting, showWaiting, onScrolled, scroller }: Props) {
  const may = useMay();
  const navigate = useNavigate();
  const { to } = useScope();
  const active = useRef<string | null>(null);
  const columns = useColumns(toggle, act);
  const rowSelection = useMemo(() => Object.fromEntries([...selected].map((id) => [id, true])), [selected]);
  const table = useReactTable({ data: jobs as Job[], columns, state: { rowSelection }, getCoreRowModel: getCoreRowModel(), getRowId: (job) => job.id });
  const rows = table.getRowModel().rows;
  const virtual = useVirtualizer({ count: rows.length, getScrollElement: () => scroller.current, estimateSize: () => HEIGHT, overscan: 12, getItemKey: (index) => rows[index]?.id ?? index });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;

  useEffect(() => {
    if (more && last >= rows.length - 30) loadMore();
  }, [more, last, rows.length, loadMore]);

  const focus = (index: number) => {
    const next = Math.min(Math.max(index, 0), rows.length - 1);
    const row = rows[next];
    if (!row) return;
    active.current = row.id;
    virtual.scrollToIndex(next, { align: "auto" });
    requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(`[data-job="${row.id}"]`)?.focus());
  };
  const current = () => rows.findIndex((row) => row.id === active.current);
  useKeys({
    j: () => focus(current() + 1),
    k: () => focus(current() - 1),
    x: () => {
      const row = rows[current()];
      if (row && may("operate")) toggle(row.id);
    },
    Enter: () => {
      const row = rows[current()];
      if (row) void navigate(to(`jobs/${row.id}`));
    },
  });

  const every = rows.length > 0 && rows.every((row) => selected.has(row.id));
  return (
    <div className={css.frame}>
      {waiting > 0 && (
        <Button small variant="primary" className={css.fresh} icon={<ArrowUp size={14} />} onClick={showWaiting}>
          {count(waiting)} new
        </Button>
      )}
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- it only notes where the focus is */}
      <div
        className={css.scroll}
        ref={scroller}
        onFocus={(event) => {
          active.current = event.target.closest<HTMLElement>("[data-job]")?.dataset.job ?? active.current;
        }}
        tabIndex={0} role="region" aria-label="Jobs" onScroll={(event) => onScrolled(event.currentTarget.scrollTop > HEIGHT)}>
        <div role="table" aria-label="Jobs" aria-rowcount={more ? -1 : rows.length + 1}>
          <div role="rowgroup">
            <div role="row" className={`${css.row} ${css.head}`} aria-rowindex={1}>
              {table.getFlatHeaders().map((header) => (
                <div key={header.id} role="columnheader" className={header.column.columnDef.meta?.className}>
                  {header.id === "select" && may("operate") ? (
                    <input type="checkbox" aria-label="Select all that are loaded" checked={every} onChange={toggleAll} />
                  ) : header.id === "actions" ? (
                    <span className="visually-hidden">Actions</span>
                  ) : (
                    drawn(header.column.columnDef.header, header.getContext())
                  )}
                </div>
              ))}
            </div>
          </div>
          <div role="rowgroup" className={css.body} style={{ height: virtual.getTotalSize() }}>
            {items.map((item) => {
              const row = rows[item.index];
              return row && <BodyRow key={row.id} row={row} columns={columns} index={item.index} start={item.start} selected={selected.has(row.id)} />;
            })}
          </div>
        </div>
      </div>
      <div className={css.foot}>
        {count(rows.length)} {more ? "loaded, more below" : rows.length === 1 ? "job" : "jobs"}
      </div>
    </div>
  );
}
