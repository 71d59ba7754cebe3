import { useQuery, useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useCallback, useContext, useEffect, useMemo, useRef } from "react";
import { useParams } from "react-router";

import { type Api, apiFor, type Need, remember, type Session, taken } from "./client";
import { Problem } from "./problem";

export const SESSION = ["session"] as const;

/** Null when nobody is signed in. */
async function whoAmI(): Promise<Session | null> {
  try {
    return remember(await taken(apiFor(null).GET("/api/v1/session")));
  } catch (error) {
    if (error instanceof Problem && error.status === 401) return null;
    throw error;
  }
}

export function useWhoAmI() {
  return useQuery({ queryKey: SESSION, queryFn: whoAmI, staleTime: 60_000, retry: false });
}

export async function signIn(token: string): Promise<Session> {
  return remember(await taken(apiFor(null).POST("/api/v1/session", { body: { token } })));
}

export function useSignOut() {
  const queries = useQueryClient();
  return async () => {
    const elsewhere = queries.getQueryData<Session | null>(SESSION)?.sign_out_url;
    await apiFor(null).DELETE("/api/v1/session");
    if (elsewhere) {
      location.assign(elsewhere);
      return;
    }
    queries.setQueryData(SESSION, null);
    queries.removeQueries({ predicate: (query) => query.queryKey[0] !== SESSION[0] });
  };
}

const USE = ["pointerdown", "keydown", "wheel"] as const;

/** Signs out when nobody has used the page for this long. What the page asks for by itself does not count as use. */
export function useIdleEnd(seconds: number | null | undefined, end: () => Promise<void>) {
  const latest = useRef(end);
  latest.current = end;
  useEffect(() => {
    if (!seconds) return;
    let used = Date.now();
    const note = () => {
      used = Date.now();
    };
    for (const each of USE) window.addEventListener(each, note, { passive: true });
    const timer = window.setInterval(
      () => {
        if (Date.now() - used >= seconds * 1000) void latest.current().catch(() => undefined);
      },
      Math.min(30_000, seconds * 250),
    );
    return () => {
      window.clearInterval(timer);
      for (const each of USE) window.removeEventListener(each, note);
    };
  }, [seconds]);
}

const Context = createContext<Session | null>(null);

export function SessionProvider({ session, children }: { session: Session; children: ReactNode }) {
  return <Context.Provider value={session}>{children}</Context.Provider>;
}

export function useSession(): Session {
  const found = useContext(Context);
  if (!found) throw new Error("useSession outside SessionProvider");
  return found;
}

/** Whether the one who is signed in may do this. What they may not do is not shown. */
export function useMay(): (need: Need) => boolean {
  const { may } = useSession();
  return useCallback((need: Need) => may.includes(need), [may]);
}

export interface Scope {
  /** The tenant in the address. */
  tenant: string;
  api: Api;
  /** A key for what is read for this tenant. */
  key: (...parts: unknown[]) => unknown[];
  /** An address inside this tenant. */
  to: (path: string) => string;
  /** What X-Tenant says: the tenant for a super admin, nothing for others. */
  header: string | null;
}

/** The tenant that the page is about, and the API as that tenant. */
export function useScope(): Scope {
  const session = useSession();
  const named = useParams().tenant ?? session.tenant ?? "default";
  const header = session.role === "super_admin" ? named : null;
  return useMemo(
    () => ({
      tenant: named,
      api: apiFor(header),
      key: (...parts) => ["tenant", named, ...parts],
      to: (path) => `/t/${encodeURIComponent(named)}/${path}`,
      header,
    }),
    [named, header],
  );
}
