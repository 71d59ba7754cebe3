import { useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useEffect } from "react";
import { Navigate, Route, Routes, useLocation } from "react-router";

import { SESSION, SessionProvider, useWhoAmI } from "./api/session";
import { Layout } from "./layout";
import { ROOT } from "./lib/root";
import { SignIn } from "./screens/signin";
import { Empty, Fault, Skeleton } from "./ui/panel";

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
if (wanted !== undefined && wanted in SCREENS) void SCREENS[wanted as keyof typeof SCREENS]();

const Overview = lazy(SCREENS.overview);
const Jobs = lazy(SCREENS.jobs);
const JobScreen = lazy(SCREENS.job);
const Groups = lazy(SCREENS.groups);
const GroupScreen = lazy(() => SCREENS.groups().then((found) => ({ default: found.GroupScreen })));
const Triggers = lazy(SCREENS.triggers);
const TriggerScreen = lazy(SCREENS.trigger);
const Definitions = lazy(SCREENS.definitions);
const Webhooks = lazy(SCREENS.webhooks);
const Workers = lazy(SCREENS.workers);
const Pipelines = lazy(SCREENS.pipelines);
const Tokens = lazy(SCREENS.tokens);
const Audit = lazy(SCREENS.audit);
const Tenants = lazy(SCREENS.tenants);

export function App() {
  const session = useWhoAmI();
  const queries = useQueryClient();
  const { pathname, search } = useLocation();

  useEffect(() => {
    const signedOut = () => queries.setQueryData(SESSION, null);
    window.addEventListener("penstock:signed-out", signedOut);
    return () => window.removeEventListener("penstock:signed-out", signedOut);
  }, [queries]);

  if (session.isPending) return null;
  if (session.error) return <Fault error={session.error} retry={() => void session.refetch()} />;
  if (session.data === null) return <SignIn next={pathname === "/" || pathname === "/sign-in" ? null : pathname + search} />;
  const me = session.data;
  const home = `/t/${encodeURIComponent(me.tenant ?? "default")}/overview`;
  return (
    <SessionProvider session={me}>
      <Suspense fallback={<Skeleton />}>
        <Routes>
          <Route path="/t/:tenant" element={<Layout />}>
            <Route index element={<Navigate to="overview" replace />} />
            <Route path="overview" element={<Overview />} />
            <Route path="jobs" element={<Jobs />} />
            <Route path="jobs/:id" element={<JobScreen />} />
            <Route path="groups" element={<Groups />} />
            <Route path="groups/:id" element={<GroupScreen />} />
            <Route path="workers" element={<Workers />} />
            <Route path="triggers" element={<Triggers />} />
            <Route path="triggers/:id" element={<TriggerScreen />} />
            <Route path="webhooks" element={<Webhooks />} />
            <Route path="pipelines" element={<Pipelines />} />
            <Route path="definitions" element={<Definitions />} />
            <Route path="tokens" element={<Tokens />} />
            <Route path="audit" element={<Audit />} />
            <Route path="tenants" element={<Tenants />} />
            <Route path="*" element={<Empty title="There is no such page">Choose one from the menu.</Empty>} />
          </Route>
          <Route path="*" element={<Navigate to={home} replace />} />
        </Routes>
      </Suspense>
    </SessionProvider>
  );
}
