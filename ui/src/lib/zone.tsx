import { createContext, type ReactNode, useContext, useMemo, useState, useSyncExternalStore } from "react";

import { knownZone, viewerZone } from "./time";

interface Zone {
  /** Undefined means the viewer's own. */
  zone: string | undefined;
  name: string;
  /** The tenant's own, whatever is chosen. */
  tenantZone: string | undefined;
  choice: "viewer" | "tenant";
  choose: (choice: "viewer" | "tenant") => void;
}

const Context = createContext<Zone | null>(null);
const STORED = "penstock.zone";

export function ZoneProvider({ tenantZone, children }: { tenantZone: string | null | undefined; children: ReactNode }) {
  const [choice, setChoice] = useState<"viewer" | "tenant">(() => (localStorage.getItem(STORED) === "tenant" ? "tenant" : "viewer"));
  const value = useMemo<Zone>(() => {
    const zone = choice === "tenant" ? knownZone(tenantZone) : undefined;
    return {
      zone,
      tenantZone: knownZone(tenantZone),
      name: zone ?? viewerZone(),
      choice,
      choose: (next) => {
        localStorage.setItem(STORED, next);
        setChoice(next);
      },
    };
  }, [choice, tenantZone]);
  return <Context.Provider value={value}>{children}</Context.Provider>;
}

export function useZone(): Zone {
  const found = useContext(Context);
  if (!found) throw new Error("useZone outside ZoneProvider");
  return found;
}

/** One clock for all: every time on the page moves on the same second. */
let now = new Date();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = new Date();
    for (const each of listeners) each();
  }, 1000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

export function useNow(): Date {
  return useSyncExternalStore(subscribe, () => now);
}
