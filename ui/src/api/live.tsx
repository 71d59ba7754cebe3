import { createContext, type ReactNode, useContext, useEffect, useMemo, useRef, useState } from "react";

import { ROOT } from "../lib/root";
import { headersFor } from "./client";
import { failed } from "./connection";
import { useScope } from "./session";
import { messages } from "./sse";

export interface Change {
  type: string;
  data: Record<string, unknown>;
}

type Listener = (change: Change) => void;

interface Live {
  on: boolean;
  listen: (listener: Listener) => () => void;
}

const Context = createContext<Live | null>(null);
const PATIENCE = [500, 1000, 2000, 5000, 10_000];

/** One stream for the whole page; screens listen to what concerns them. */
export function LiveProvider({ children }: { children: ReactNode }) {
  const { header, tenant } = useScope();
  const listeners = useRef(new Set<Listener>());
  const [on, setOn] = useState(false);

  useEffect(() => {
    const stop = new AbortController();
    void follow(header, stop.signal, setOn, (change) => {
      for (const each of listeners.current) each(change);
    });
    return () => {
      stop.abort();
      setOn(false);
    };
  }, [header, tenant]);

  const value = useMemo<Live>(
    () => ({
      on,
      listen: (listener) => {
        listeners.current.add(listener);
        return () => listeners.current.delete(listener);
      },
    }),
    [on],
  );
  return <Context.Provider value={value}>{children}</Context.Provider>;
}

/** Read the stream, and come back with more and more patience when it breaks. */
async function follow(tenant: string | null, stop: AbortSignal, setOn: (on: boolean) => void, tell: Listener): Promise<void> {
  let failures = 0;
  let last: string | null = null;
  while (!stop.aborted) {
    try {
      const headers = { ...headersFor(tenant), Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) };
      const answer = await fetch(`${ROOT}/api/v1/stream`, { headers, credentials: "same-origin", signal: stop });
      if (answer.status === 401) window.dispatchEvent(new Event("penstock:signed-out"));
      if (!answer.ok || !answer.body) throw new Error(`stream answered ${answer.status}`);
      setOn(true);
      failures = 0;
      for await (const message of messages(answer.body)) {
        last = message.id ?? last;
        if (message.data) tell({ type: message.event, data: JSON.parse(message.data) as Record<string, unknown> });
      }
    } catch {
      // Broken or refused: fall through and try again.
      if (!stop.aborted) void failed();
    }
    if (stop.aborted) return;
    setOn(false);
    await new Promise((resolve) => setTimeout(resolve, PATIENCE[Math.min(failures, PATIENCE.length - 1)]));
    failures += 1;
  }
}

export function useLiveState(): boolean {
  return useContext(Context)?.on ?? false;
}

/** Hear every change while the screen is there. */
export function useLive(listener: Listener): void {
  const live = useContext(Context);
  const latest = useRef(listener);
  latest.current = listener;
  const listen = live?.listen;
  useEffect(() => listen?.((change) => latest.current(change)), [listen]);
}
