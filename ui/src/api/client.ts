import createClient, { type Client } from "openapi-fetch";

import { ROOT } from "../lib/root";
import { failed, isGatewayFault } from "./connection";
import { Problem, Unreachable } from "./problem";
import type { components, paths } from "./schema";

export type Schemas = components["schemas"];
export type Job = Schemas["Job"];
export type Session = Schemas["Session"];
export type Need = Session["may"][number];
export type Api = Client<paths>;

/** The session's CSRF token, sent with every change; it never leaves this module's memory. */
let csrf: string | null = null;

export function remember(session: Session): Session {
  csrf = session.csrf_token;
  return session;
}

/** Headers that every request carries: the CSRF token, and for a super admin the tenant that is acted for. */
export function headersFor(tenant: string | null): Record<string, string> {
  return { ...(csrf ? { "X-CSRF-Token": csrf } : {}), ...(tenant ? { "X-Tenant": tenant } : {}) };
}

const clients = new Map<string | null, Api>();

/** The API as one tenant sees it; `null` is the caller's own tenant. */
export function apiFor(tenant: string | null): Api {
  let found = clients.get(tenant);
  if (!found) {
    found = createClient<paths>({ baseUrl: location.origin + ROOT, credentials: "same-origin", fetch: (request) => fetch(request) });
    found.use({
      onRequest({ request }) {
        for (const [name, value] of Object.entries(headersFor(tenant))) request.headers.set(name, value);
      },
      onResponse({ response }) {
        if (isGatewayFault(response.status)) void failed();
      },
      onError({ error }) {
        if (error instanceof DOMException && error.name === "AbortError") return;
        void failed();
        return new Unreachable();
      },
    });
    clients.set(tenant, found);
  }
  return found;
}

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** The body of a good answer; anything else is thrown as a Problem. */
export async function taken<T>(answer: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await answer;
  if (response.ok) return data as T;
  const problem = Problem.from(response.status, error);
  if (response.status === 401) window.dispatchEvent(new Event("penstock:signed-out"));
  throw problem;
}
