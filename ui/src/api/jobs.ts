import { type InfiniteData, type QueryClient, useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";

import type { JobFilter } from "../lib/query";
import { type Api, type Job, type Schemas, taken } from "./client";
import { useLive, useLiveState } from "./live";
import { useRead } from "./read";
import { type Scope, useScope } from "./session";

export const PAGE = 100;
const POLL = 3000;

type Page = Schemas["JobPage"];
type Pages = InfiniteData<Page, string | null>;
type ListQuery = NonNullable<NonNullable<Parameters<Api["GET"]>[1]>["params"]>["query"];

/** The filter under the API's names. */
export function asQuery(filter: JobFilter): Record<string, unknown> {
  const { key, ...rest } = filter;
  return { ...rest, ...(key === undefined ? {} : { definition_key: key }) };
}

export function readPage(api: Api, filter: JobFilter, cursor: string | null, limit = PAGE): Promise<Page> {
  const query = { ...asQuery(filter), limit, ...(cursor ? { cursor } : {}) } as ListQuery;
  return taken(api.GET("/api/v1/jobs", { params: { query: query as never } }));
}

export function useSummary() {
  const { api, key } = useScope();
  const live = useLiveState();
  return useRead({
    queryKey: key("summary"),
    queryFn: () => taken(api.GET("/api/v1/jobs/summary")),
    refetchInterval: live ? 10_000 : POLL,
  });
}

/** Summary and list follow the stream; at most one look a second, whatever the stream brings. */
export function useRefreshOnChange(keys: readonly (readonly unknown[])[]): void {
  const queries = useQueryClient();
  const wanted = useThrottled(() => {
    for (const queryKey of keys) void queries.invalidateQueries({ queryKey: [...queryKey] });
  }, 1000);
  useLive((change) => {
    if (change.type !== "hello") wanted();
  });
}

export function useThrottled(run: () => void, milliseconds: number): () => void {
  const latest = useRef(run);
  latest.current = run;
  const timer = useRef<ReturnType<typeof setTimeout> | null>(null);
  const before = useRef(0);
  useEffect(() => () => clearTimeout(timer.current ?? undefined), []);
  return useCallback(() => {
    if (timer.current !== null) return;
    const wait = Math.max(0, before.current + milliseconds - Date.now());
    timer.current = setTimeout(() => {
      timer.current = null;
      before.current = Date.now();
      latest.current();
    }, wait);
  }, [milliseconds]);
}

/** The head of the list as it is now, merged into what is shown: rows change in place, new ones come on top. */
export function mergeHead(old: Pages, fresh: Page): Pages {
  const [first, ...rest] = old.pages;
  if (!first || first.items.length === 0) return { pages: [fresh], pageParams: [null] };
  const last = fresh.items.at(-1);
  const held = new Map(old.pages.flatMap((page) => page.items).map((job) => [job.id, job]));
  if (fresh.next_cursor === null) return { pages: [{ ...fresh, items: fresh.items.map((job) => kept(held, job)) }], pageParams: [null] };
  if (last && !old.pages.some((page) => page.items.some((job) => job.id >= last.id && job.id <= (fresh.items[0]?.id ?? "")))) {
    return { pages: [fresh], pageParams: [null] };
  }
  const below = first.items.filter((job) => last !== undefined && job.id < last.id);
  const merged = { ...first, items: [...fresh.items.map((job) => kept(held, job)), ...below] };
  const trimmed = rest.map((page) => (last && page.items.some((job) => job.id >= last.id) ? { ...page, items: page.items.filter((job) => job.id < last.id) } : page));
  return { ...old, pages: [merged, ...trimmed] };
}

/** What the stream says of rows that are shown, written into them at once. */
export function patched(old: Pages, items: unknown): Pages {
  if (!Array.isArray(items)) return old;
  const news = new Map((items as Partial<Job>[]).map((each) => [each.id, each]));
  if (!old.pages.some((page) => page.items.some((job) => news.has(job.id)))) return old;
  return { ...old, pages: old.pages.map((page) => ({ ...page, items: page.items.map((job) => (news.has(job.id) ? { ...job, ...news.get(job.id) } : job)) })) };
}

/** The same object when nothing changed, so that its row is not drawn again. */
function kept(held: ReadonlyMap<string, Job>, job: Job): Job {
  const before = held.get(job.id);
  return before && JSON.stringify(before) === JSON.stringify(job) ? before : job;
}

export interface JobList {
  jobs: Job[];
  /** How many arrived while the list was scrolled down. */
  waiting: number;
  showWaiting: () => void;
  loading: boolean;
  error: unknown;
  more: boolean;
  loadMore: () => void;
  refresh: () => void;
}

/** The jobs of a filter, page by page, kept current at the head. `hold` keeps new rows back while the reader is further down. */
export function useJobList(filter: JobFilter, enabled: boolean, hold: boolean): JobList {
  const scope = useScope();
  const queries = useQueryClient();
  const queryKey = scope.key("jobs", filter);
  const live = useLiveState();
  const [held, setHeld] = useState<Page | null>(null);
  const list = useInfiniteQuery({
    queryKey,
    queryFn: ({ pageParam }) => readPage(scope.api, filter, pageParam),
    initialPageParam: null as string | null,
    getNextPageParam: (page) => page.next_cursor,
    enabled,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 60_000,
    refetchOnWindowFocus: false,
  });

  const take = (fresh: Page) => {
    setHeld(null);
    queries.setQueryData<Pages>(queryKey, (old) => (old ? mergeHead(old, fresh) : old));
  };
  const look = useThrottled(() => {
    if (!enabled || !list.data) return;
    void readPage(scope.api, filter, null).then(
      (fresh) => (hold ? holdBack(queries, queryKey, fresh, setHeld) : take(fresh)),
      () => undefined,
    );
  }, 1000);
  useLive((change) => {
    if (change.type === "jobs") queries.setQueryData<Pages>(queryKey, (old) => (old ? patched(old, change.data.items) : old));
    if (change.type === "jobs" || change.type === "reset") look();
  });
  useEffect(() => {
    const timer = setInterval(look, live ? 15_000 : POLL);
    return () => clearInterval(timer);
  }, [live, look]);
  const asked = JSON.stringify(filter);
  useEffect(() => setHeld(null), [scope.tenant, asked]);

  const jobs = useMemo(() => list.data?.pages.flatMap((page) => page.items) ?? [], [list.data]);
  const waiting = useMemo(() => {
    if (held === null) return 0;
    const known = new Set(jobs.map((job) => job.id));
    return held.items.filter((job) => !known.has(job.id)).length;
  }, [jobs, held]);
  return {
    jobs,
    waiting,
    showWaiting: () => held && take(held),
    loading: list.isPending && enabled,
    error: list.data === undefined ? (list.error ?? list.failureReason) : null,
    more: list.hasNextPage,
    loadMore: () => {
      if (list.hasNextPage && !list.isFetchingNextPage) void list.fetchNextPage();
    },
    refresh: look,
  };
}

/** While the reader is further down, rows there change in place, and new ones wait to be asked for. */
function holdBack(queries: QueryClient, queryKey: unknown[], fresh: Page, setHeld: (page: Page) => void): void {
  const now = new Map(fresh.items.map((job) => [job.id, job]));
  queries.setQueryData<Pages>(queryKey, (old) =>
    old ? { ...old, pages: old.pages.map((page) => ({ ...page, items: page.items.map((job) => now.get(job.id) ?? job) })) } : old,
  );
  setHeld(fresh);
}

export type Verb = "cancel" | "retry";

export const canCancel = (job: Job): boolean => (job.status === "queued" || job.status === "running") && !job.cancel_requested_at;
export const canRetry = (job: Job): boolean => job.status === "failed" || job.status === "dead_letter" || job.status === "canceled";

/** Whether it waits for its time, or for the time that its backoff chose. */
export const canRunNow = (job: Job): boolean => job.status === "queued" && job.waits_for === "time";

export function act(scope: Scope, verb: Verb, id: string): Promise<Job> {
  const params = { path: { job_id: id } };
  return taken(verb === "cancel" ? scope.api.POST("/api/v1/jobs/{job_id}/cancel", { params }) : scope.api.POST("/api/v1/jobs/{job_id}/retry", { params }));
}
