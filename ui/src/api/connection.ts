import { useSyncExternalStore } from "react";

import { ROOT } from "../lib/root";

/**
 * Whether the server can be reached. A request that fails asks the server how it is; only when that fails, too, is the page
 * disconnected, and it goes on asking until it is connected again.
 */
export interface Connection {
  /** When the first request failed; null while connected. */
  lostAt: Date | null;
}

const AGAIN = 1000;
const PATIENCE = 10_000;

let state: Connection = { lostAt: null };
let asking = false;
const listeners = new Set<() => void>();

function set(lostAt: Date | null): void {
  state = { lostAt };
  for (const each of listeners) each();
}

async function answers(): Promise<boolean> {
  try {
    return (await fetch(`${ROOT}/health/ready`, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) })).ok;
  } catch {
    return false;
  }
}

/** Say that a request could not be served. Finds out whether the server is gone, and waits for it if it is. */
export async function failed(): Promise<void> {
  if (asking) return;
  asking = true;
  const since = new Date();
  while (!(await answers())) {
    if (state.lostAt === null) set(since);
    await new Promise((resolve) => setTimeout(resolve, AGAIN));
  }
  asking = false;
  if (state.lostAt !== null) set(null);
}

export const isGatewayFault = (status: number): boolean => status >= 502 && status <= 504;

export function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export const connection = (): Connection => state;

export function useConnection(): Connection {
  return useSyncExternalStore(subscribe, connection);
}

if (typeof window !== "undefined") window.addEventListener("offline", () => void failed());
