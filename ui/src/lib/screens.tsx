import { type ComponentType, lazy, type LazyExoticComponent } from "react";

import { ROOT } from "./root";

type Loaded = { default: ComponentType };
type Load = () => Promise<Loaded>;

const RELOADED = "penstock.reloaded";
const ONCE_IN = 60_000;

/** The page was built anew: the names of its parts have changed, and this document knows only the old ones. */
async function isOutdated(): Promise<boolean> {
  try {
    const answer = await fetch(`${ROOT}/health/live`, { cache: "no-store" });
    return answer.ok && Date.now() - Number(sessionStorage.getItem(RELOADED) ?? 0) > ONCE_IN;
  } catch {
    return false;
  }
}

/**
 * Load a part of the page. It is tried twice. If the server is there and the part is not, the server was upgraded under an open
 * tab: the document is loaded again, once.
 */
export async function loaded(load: Load, reload: () => void = () => location.reload()): Promise<Loaded> {
  try {
    return await load();
  } catch {
    // The second try tells a moment without a network from a part that is gone.
  }
  try {
    return await load();
  } catch (error) {
    if (!(await isOutdated())) throw error;
    sessionStorage.setItem(RELOADED, String(Date.now()));
    reload();
    return new Promise<Loaded>(() => undefined);
  }
}

const known = new Map<Load, LazyExoticComponent<ComponentType>>();
const broken = new Set<Load>();

function screenOf(load: Load): LazyExoticComponent<ComponentType> {
  let found = known.get(load);
  if (!found) {
    found = lazy(() =>
      loaded(load).catch((error: unknown) => {
        broken.add(load);
        throw error;
      }),
    );
    known.set(load, found);
  }
  return found;
}

/** Forget the screens that could not be loaded, so that they are loaded anew. */
export function forgetBroken(): void {
  for (const load of broken) known.delete(load);
  broken.clear();
}

export function Screen({ load }: { load: Load }) {
  const Found = screenOf(load);
  // oxlint-disable-next-line react-hooks/static-components -- kept in `known`, one for each screen
  return <Found />;
}

/** Load the other screens while nothing else is to be done, so that they open at once, also without a network. */
export function prefetch(loads: readonly Load[]): () => void {
  const idle = window.requestIdleCallback ?? ((run: () => void) => window.setTimeout(run, 200));
  let stopped = false;
  const timer = setTimeout(async () => {
    for (const load of loads) {
      await new Promise<void>((resolve) => idle(() => resolve()));
      if (stopped) return;
      await load().catch(() => undefined);
    }
  }, 3000);
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}
