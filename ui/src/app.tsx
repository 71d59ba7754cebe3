import { useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { Navigate, Route, Routes, useLocation } from "react-router";

import { SESSION, SessionProvider, useWhoAmI } from "./api/session";
import { Layout } from "./layout";
import { ROOT } from "./lib/root";
import { prefetch, Screen } from "./lib/screens";
import { SignIn } from "./screens/signin";
import { Empty, Fault } from "./ui/panel";

const SCREENS = {
  overview: () => import("./screens/overview"),
  jobs: () => import("./screens/jobs"),
  job: () => import("./screens/job"),
  groups: () => import("./screens/groups"),
  triggers: () => import("./screens/triggers"),
  trigger: () => import("./screens/triggers/trigger"),
  definitions: () => import("./screens/definitions"),
  webhooks: () => import("./screens/webhooks"),
  workers: () => import("./screens/workers"),
  pipelines: () => import("./screens/pipelines"),
  tokens: () => import("./screens/tokens"),
  audit: () => import("./screens/audit"),
  tenants: () => import("./screens/tenants"),
};

// The screen in the address is fetched beside the session, not after it.
const [, , , first, id] = location.pathname.slice(ROOT.length).split("/");
const wanted = id === undefined ? first : first?.replace(/s$/, "");
if (wanted !== undefined && wanted in SCREENS) SCREENS[wanted as keyof typeof SCREENS]().catch(() => undefined);

const loadGroup = () => SCREENS.groups().then((found) => ({ default: found.GroupScreen }));

export function App() {
  const session = useWhoAmI();
  const queries = useQueryClient();
  const { pathname, search } = useLocation();

  useEffect(() => {
    const signedOut = () => queries.setQueryData(SESSION, null);
    window.addEventListener("penstock:signed-out", signedOut);
    return () => window.removeEventListener("penstock:signed-out", signedOut);
  }, [queries]);

  const signedIn = session.data !== null && session.data !== undefined;
  useEffect(() => (signedIn ? prefetch(Object.values(SCREENS)) : undefined), [signedIn]);

  if (session.isPending) return null;
  if (session.error && !session.data) return <Fault error={session.error} retry={() => void session.refetch()} />;
  if (session.data === null) return <SignIn next={pathname === "/" || pathname === "/sign-in" ? null : pathname + search} />;
  const me = session.data;
  const home = `/t/${encodeURIComponent(me.tenant ?? "default")}/overview`;
  return (
    <SessionProvider session={me}>
      <Routes>
        <Route path="/t/:tenant" element={<Layout />}>
          <Route index element={<Navigate to="overview" replace />} />
          <Route path="overview" element={<Screen load={SCREENS.overview} />} />
          <Route path="jobs" element={<Screen load={SCREENS.jobs} />} />
          <Route path="jobs/:id" element={<Screen load={SCREENS.job} />} />
          <Route path="groups" element={<Screen load={SCREENS.groups} />} />
          <Route path="groups/:id" element={<Screen load={loadGroup} />} />
          <Route path="workers" element={<Screen load={SCREENS.workers} />} />
          <Route path="triggers" element={<Screen load={SCREENS.triggers} />} />
          <Route path="triggers/:id" element={<Screen load={SCREENS.trigger} />} />
          <Route path="webhooks" element={<Screen load={SCREENS.webhooks} />} />
          <Route path="pipelines" element={<Screen load={SCREENS.pipelines} />} />
          <Route path="definitions" element={<Screen load={SCREENS.definitions} />} />
          <Route path="tokens" element={<Screen load={SCREENS.tokens} />} />
          <Route path="audit" element={<Screen load={SCREENS.audit} />} />
          <Route path="tenants" element={<Screen load={SCREENS.tenants} />} />
          <Route path="*" element={<Empty title="There is no such page">Choose one from the menu.</Empty>} />
        </Route>
        <Route path="*" element={<Navigate to={home} replace />} />
      </Routes>
    </SessionProvider>
  );
}
