/** What the tests of components share: the real components in a document, with the server's answers given by the test. */
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { createRoot, type Root } from "react-dom/client";
import { MemoryRouter, Route, Routes } from "react-router";
import { afterEach, vi } from "vitest";

import type { Session } from "./api/client";
import { SessionProvider } from "./api/session";
import { ThemeProvider } from "./lib/theme";
import { ZoneProvider } from "./lib/zone";
import { Toasts } from "./ui/float";

const soon = () => new Promise((resolve) => setTimeout(resolve, 0));
let root: Root | null = null;

afterEach(() => {
  root?.unmount();
  root = null;
  document.body.replaceChildren();
  vi.unstubAllGlobals();
  sessionStorage.clear();
});

type Reply = { status?: number; body?: unknown } | "unreachable";
type Server = (method: string, path: string, body: unknown) => Reply | undefined;

/** Answer requests. What the test does not know gets 404; the live stream stays silent. Returns what was asked for. */
export function serve(server: Server): { method: string; path: string; body: unknown }[] {
  const asked: { method: string; path: string; body: unknown }[] = [];
  vi.stubGlobal("fetch", async (input: Request | string, init?: RequestInit) => {
    const request = input instanceof Request ? input : new Request(new URL(input, location.origin), init);
    const url = new URL(request.url);
    const path = url.pathname.replace("/api/v1", "") + url.search;
    const text = request.method === "GET" ? "" : await request.text();
    const body: unknown = text === "" ? undefined : JSON.parse(text);
    asked.push({ method: request.method, path, body });
    const reply = server(request.method, path, body) ?? { status: 404, body: { code: "not_found", title: "Not found", detail: path } };
    if (reply === "unreachable") throw new TypeError("Failed to fetch");
    return new Response(JSON.stringify(reply.body ?? {}), { status: reply.status ?? 200, headers: { "content-type": "application/json" } });
  });
  return asked;
}

export const ADMIN = { role: "tenant_admin", label: "ann", tenant: "shop", may: ["view", "operate", "manage"], timezone: "UTC", csrf_token: "x" } as unknown as Session;
export const OPERATOR = { ...ADMIN, role: "super_admin", tenant: null, may: ["view", "operate", "manage", "admin"] } as unknown as Session;

interface Options {
  session?: Session;
  at?: string;
  path?: string;
}

/** Draw it as one who is signed in sees it, below the address `/t/shop/…`. */
export async function draw(what: ReactNode, { session = ADMIN, at = "", path = "*" }: Options = {}): Promise<void> {
  const host = document.createElement("div");
  document.body.append(host);
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false, networkMode: "always" } } });
  root = createRoot(host);
  root.render(
    <QueryClientProvider client={queries}>
      <ThemeProvider>
        <Toasts>
          <MemoryRouter initialEntries={[`/t/shop/${at}`]}>
            <SessionProvider session={session}>
              <ZoneProvider tenantZone="UTC">
                <Routes>
                  <Route path={`/t/:tenant/${path}`} element={what} />
                  <Route path="*" element={<p>elsewhere</p>} />
                </Routes>
              </ZoneProvider>
            </SessionProvider>
          </MemoryRouter>
        </Toasts>
      </ThemeProvider>
    </QueryClientProvider>,
  );
  await soon();
}

/** Wait until it holds, however long the machine takes. */
export async function until<T>(look: () => T | null | undefined | false): Promise<T> {
  return vi.waitFor(
    () => {
      const found = look();
      if (!found) throw new Error(`not yet: ${look.toString()} in ${shown()}`);
      return found;
    },
    { timeout: 15_000, interval: 10 },
  );
}

export const shown = (): string => document.body.textContent ?? "";

/** The field of this label. */
export function field(label: string): HTMLInputElement {
  const found = [...document.querySelectorAll("label")].find((each) => each.textContent?.startsWith(label));
  const input = found && (found.querySelector("input") ?? document.getElementById(found.htmlFor));
  if (!input) throw new Error(`no field ${label} in ${shown()}`);
  return input as HTMLInputElement;
}

export function button(name: string): HTMLButtonElement {
  const found = [...document.querySelectorAll("button")].find((each) => (each.getAttribute("aria-label") ?? each.textContent) === name);
  if (!found) throw new Error(`no button ${name} in ${shown()}`);
  return found;
}

export async function press(name: string): Promise<void> {
  button(name).click();
  await soon();
}

/** Type or choose. */
export async function fill(label: string, value: string): Promise<void> {
  const input = field(label);
  const proto = Object.getPrototypeOf(input) as object;
  Object.getOwnPropertyDescriptor(proto, "value")?.set?.call(input, value);
  input.dispatchEvent(new Event(input.tagName === "SELECT" ? "change" : "input", { bubbles: true }));
  await soon();
}
