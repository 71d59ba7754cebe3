import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useSyncExternalStore } from "react";

import { useConnection } from "../api/connection";
import { Problem } from "../api/problem";
import { exact } from "../lib/time";
import { useZone } from "../lib/zone";
import { Note } from "./panel";

const isOutage = (error: unknown): boolean => !(error instanceof Problem) || error.status === 0 || error.status >= 500;

/** What is on the screen and could not be read again: since when, and why. */
function useOutdated(): string {
  const cache = useQueryClient().getQueryCache();
  return useSyncExternalStore(
    (changed) => cache.subscribe(changed),
    () => {
      const old = cache.findAll({ type: "active" }).filter(({ state }) => state.data !== undefined && (state.status === "error" || state.fetchFailureCount > 0) && isOutage(state.error ?? state.fetchFailureReason));
      const first = old[0]?.state;
      if (!first) return "";
      const error = first.error ?? first.fetchFailureReason;
      return `${Math.min(...old.map((query) => query.state.dataUpdatedAt))} ${error instanceof Problem ? error.title : String(error)}`;
    },
  );
}

/** Says that what is shown is old, while it is. */
export function Banner() {
  const { lostAt } = useConnection();
  const { zone } = useZone();
  const queries = useQueryClient();
  const outdated = useOutdated();
  const wasLost = useRef(false);
  useEffect(() => {
    if (wasLost.current && lostAt === null) void queries.invalidateQueries();
    wasLost.current = lostAt !== null;
  }, [lostAt, queries]);
  if (lostAt !== null) {
    return <Note tone="warning">Not connected since {exact(lostAt, zone).slice(11)}. You see what was known then. Trying again…</Note>;
  }
  if (outdated === "") return null;
  const [at, ...why] = outdated.split(" ");
  return (
    <Note tone="warning">
      Part of this screen is as it was at {exact(new Date(Number(at)), zone).slice(11)}: {why.join(" ")}. Trying again…
    </Note>
  );
}
